"""The one place through which every write goes: it lets nothing through past the lease's deadline."""

from __future__ import annotations

import time
from collections.abc import Callable

from specfleet.cluster.errors import NotLeadingError


class WriteGate:
    """Reads the lease's deadline, on the monotonic clock, immediately before a write is sent.

    A write that is let through has `grace_seconds` beyond the deadline to finish; together they stay below the time
    after which another replica may take the lease.
    """

    def __init__(self, grace_seconds: float = 3.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._grace_seconds = grace_seconds
        self._deadline: float | None = None

    @property
    def open(self) -> bool:
        """Whether a write would be let through now."""
        return self._deadline is not None and self._clock() < self._deadline

    @property
    def deadline(self) -> float | None:
        """Monotonic time of the end of leadership; None while not leading."""
        return self._deadline

    def extend(self, deadline: float) -> None:
        """The lease was renewed: writes are let through until `deadline` (monotonic)."""
        self._deadline = deadline

    def close(self) -> None:
        """Leadership is over."""
        self._deadline = None

    def admit(self) -> float:
        """Seconds that the write may take.

        Raises:
            NotLeadingError: the lease is not held, or its deadline has passed.
        """
        now = self._clock()
        if self._deadline is None:
            raise NotLeadingError("this replica does not hold the lease: it writes nothing")
        if now >= self._deadline:
            raise NotLeadingError(f"the lease's deadline passed {now - self._deadline:.1f} s ago: the process must end")
        return self._deadline - now + self._grace_seconds

"""Counts of the last half hour, in a bounded number of pieces."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from specfleet.decision.measures import Answers

WINDOW_SECONDS = 1800.0
PIECES = 30


@dataclass(slots=True)
class Window:
    """A route's answers by pool over `WINDOW_SECONDS`, three blocks at the least."""

    _pieces: deque[tuple[float, Answers, Answers]] = field(default_factory=deque)

    def add(self, now: float, block_seconds: float, speculative: Answers, baseline: Answers) -> None:
        """One block that ends at `now`, epoch seconds."""
        seconds = max(WINDOW_SECONDS, 3.0 * block_seconds)
        if self._pieces and abs(now - self._pieces[-1][0]) < seconds / PIECES:
            at, one, other = self._pieces.pop()
            self._pieces.append((at, one + speculative, other + baseline))
        else:
            self._pieces.append((now, Answers() + speculative, Answers() + baseline))
        while self._pieces and not 0.0 <= now - self._pieces[0][0] <= seconds:
            self._pieces.popleft()

    def speculative(self) -> Answers:
        """Of the speculative pool."""
        return sum((one for _, one, _ in self._pieces), Answers())

    def baseline(self) -> Answers:
        """Of baseline."""
        return sum((other for _, _, other in self._pieces), Answers())

    def renewed(self, since: float) -> None:
        """All pods of the speculative pool are newer than `since`: what others of it have answered counts no more."""
        self._pieces = deque((at, Answers() if at <= since else one, other) for at, one, other in self._pieces)

"""Keys that are due, worked off one at a time each, with debounce, ticks and back-off; of any hashable type."""

from __future__ import annotations

import asyncio
import heapq
import logging
import random
from collections.abc import Awaitable, Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
logger = logging.getLogger(__name__)

DEBOUNCE_SECONDS = 0.02
FIRST_BACKOFF_SECONDS = 0.5
MAX_BACKOFF_SECONDS = 60.0


class DueQueue(Generic[K]):
    """Any trigger marks a key due; each key is worked on by one worker at a time.

    `work` returns the seconds until the key is due again by itself, or None. When it raises, the key is due again after
    a back-off that doubles with each failure in a row; `fatal` exceptions end `run`.

    A key that is marked while it is worked on is worked on again afterwards. The debounce lets a burst of triggers,
    such as the events of one rollout, cost one pass.
    """

    def __init__(
        self,
        work: Callable[[K], Awaitable[float | None]],
        *,
        workers: int = 20,
        fatal: tuple[type[BaseException], ...] = (),
        on_depth: Callable[[int], None] = lambda depth: None,
        on_error: Callable[[K, Exception], None] = lambda key, error: None,
    ) -> None:
        self._work = work
        self._workers = workers
        self._fatal = fatal
        self._on_depth = on_depth
        self._on_error = on_error
        self._due: dict[K, float] = {}  # the time at which a key is due; the heap may hold older entries of it
        self._heap: list[tuple[float, int, K]] = []
        self._count = 0
        self._busy: set[K] = set()
        self._again: dict[K, float] = {}
        self._failures: dict[K, int] = {}
        self._wake = asyncio.Event()
        self._running: set[asyncio.Task[None]] = set()

    def mark(self, key: K, after_seconds: float = DEBOUNCE_SECONDS) -> None:
        """The key is due in `after_seconds`, or earlier if it was already."""
        at = asyncio.get_running_loop().time() + after_seconds
        if key in self._busy:
            self._again[key] = min(at, self._again.get(key, at))
        else:
            self._put(key, at)

    def forget(self, key: K) -> None:
        """The key is gone: nothing more is done for it unless it is marked again."""
        self._due.pop(key, None)
        self._again.pop(key, None)
        self._failures.pop(key, None)

    @property
    def depth(self) -> int:
        """Keys whose time has come and that wait for a worker, or are being worked on."""
        now = asyncio.get_running_loop().time()
        return len(self._busy) + sum(at <= now for at in self._due.values())

    async def run(self) -> None:
        """Work until cancelled, or until a fatal exception."""
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    delay = self._start_due(group)
                    self._on_depth(len(self._busy))
                    self._wake.clear()
                    try:
                        async with asyncio.timeout(delay):
                            await self._wake.wait()
                    except TimeoutError:
                        continue
        except BaseExceptionGroup as group_error:
            raise group_error.exceptions[0] from None

    def _put(self, key: K, at: float) -> None:
        known = self._due.get(key)
        if known is not None and known <= at:
            return
        self._due[key] = at
        self._count += 1
        heapq.heappush(self._heap, (at, self._count, key))
        self._wake.set()

    def _start_due(self, group: asyncio.TaskGroup) -> float | None:
        """Start what is due and has a free worker. Seconds until the next key is due."""
        now = asyncio.get_running_loop().time()
        while self._heap:
            at, _, key = self._heap[0]
            if self._due.get(key) != at:
                heapq.heappop(self._heap)
                continue
            if at > now:
                return at - now
            if len(self._busy) >= self._workers:
                return None
            heapq.heappop(self._heap)
            del self._due[key]
            self._busy.add(key)
            group.create_task(self._one(key))
        return None

    async def _one(self, key: K) -> None:
        loop = asyncio.get_running_loop()
        try:
            delay = await self._work(key)
            self._failures.pop(key, None)
        except self._fatal:
            raise
        except Exception as error:
            self._on_error(key, error)
            failures = self._failures[key] = self._failures.get(key, 0) + 1
            delay = min(MAX_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2.0 ** (failures - 1))
            delay *= random.uniform(0.7, 1.3)  # noqa: S311
        finally:
            self._busy.discard(key)
            self._wake.set()
        again = self._again.pop(key, None)
        if again is not None:
            self._put(key, max(again, loop.time()))
        if delay is not None:
            self._put(key, loop.time() + delay)

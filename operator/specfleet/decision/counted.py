"""Differences of cumulative counters by source: what was counted since the last look, nothing where it is unsure."""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
MOST = 2**62  # counters of 64 bits that have wrapped, or hold rubbish, are beyond it
MOST_KEYS = 4096


@dataclass(slots=True)
class _Source(Generic[K]):
    at: float
    counts: dict[K, int]


class Counted(Generic[K]):
    """Adds up the increments of counters that several processes keep. `gap_seconds`: samples further apart than that
    are not subtracted. The clock is passed in.

    A counter that falls, or is no count, is a new base: what it counted meanwhile is left out, never guessed. A key
    that a known source has not shown before counts from zero. At most `MOST_KEYS` keys of a source are kept.
    """

    def __init__(self, gap_seconds: float) -> None:
        self._gap_seconds = gap_seconds
        self._sources: dict[str, _Source[K]] = {}
        self._pending: dict[K, int] = {}
        self.left_out = 0
        """Keys beyond the most that a source may have, and values that are no counts, so far."""

    def observe(self, source: str, at: float, counts: Mapping[K, object]) -> None:
        """One sample of one process, read at `at` (epoch seconds). One that is no newer than the last is left out."""
        known = self._sources.get(source)
        if not math.isfinite(at) or (known is not None and 0.0 <= known.at - at <= self._gap_seconds):
            return
        whole = known is not None and 0.0 < at - known.at <= self._gap_seconds
        # A key that one sample lacks keeps its base: an answer in part must not count it twice.
        bases = dict(known.counts) if known is not None and whole else {}
        for key, value in counts.items():
            if not _is_count(value) or (key not in bases and len(bases) >= MOST_KEYS):
                self.left_out += 1
                continue
            assert isinstance(value, int)
            before = bases.get(key, 0)
            if whole and value > before:
                self._pending[key] = self._pending.get(key, 0) + value - before
            bases[key] = value
        self._sources[source] = _Source(at, bases)

    def kept(self, sources: Collection[str]) -> None:
        """Forget all processes but these; what they counted stays."""
        self._sources = {source: known for source, known in self._sources.items() if source in sources}

    def take(self) -> dict[K, int]:
        """What was counted since the last call; a key that is not there has not moved."""
        pending, self._pending = self._pending, {}
        return pending


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST

"""Tokens per step and the break-even line of the last hours, as the one short text that status keeps of a route.

`2026-11-29T06:00Z 0:2.41/1.80s 10:2.38/1.80s 20:-/1.80b`: a start, then points, each with the minutes since the start,
L, the line that was in force, and the pool that served (s: with speculation, b: without). `-` is a figure not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from specfleet.decision.state import MAX_TIME
from specfleet.decision.types import Pool

APART_MINUTES = 8
"""Between two points at least; status is written each 8 to 10 minutes while there is traffic."""
KEPT_MINUTES = 6 * 60
MAX_POINTS = KEPT_MINUTES // APART_MINUTES + 1
MAX_LENGTH = 1024
"""Of the text: a start of 17 bytes and 46 points of at most 19."""
_MOST = 999.0
_START = "%Y-%m-%dT%H:%MZ"
_CODES: dict[Pool, str] = {"speculative": "s", "baseline": "b"}
_POOLS: dict[str, Pool] = {code: pool for pool, code in _CODES.items()}


@dataclass(frozen=True, slots=True)
class Point:
    """One look: `minute` since the epoch; tokens per decode step and break-even line, None where not known."""

    minute: int
    tokens_per_step: float | None
    line: float | None
    pool: Pool

    @property
    def at(self) -> float:
        """When, in seconds since the epoch."""
        return 60.0 * self.minute


def appended(text: str | None, now: float, tokens_per_step: float | None, line: float | None, pool: Pool) -> str | None:
    """`text` with a point of `now` (seconds since the epoch) where the last one is 8 minutes old; None without any.

    Points of more than six hours ago are dropped, and those of a time to come, which a clock that is set back leaves.
    """
    minute = int(min(max(now, 0.0), MAX_TIME) // 60)
    kept = [one for one in points(text) if minute - KEPT_MINUTES <= one.minute <= minute]
    due = not kept or minute - kept[-1].minute >= APART_MINUTES
    if due and (tokens_per_step is not None or kept):
        kept.append(Point(minute, tokens_per_step, line, pool))
    return _encoded(kept[-MAX_POINTS:])


def points(text: str | None) -> list[Point]:
    """The points of a text that `appended` wrote, oldest first; none where somebody has written something else."""
    if not text:
        return []
    start, *parts = text.split(" ")
    try:
        first = int(datetime.strptime(start, _START).replace(tzinfo=UTC).timestamp() // 60)
        return [_decoded(part, first) for part in parts]
    except (ValueError, KeyError, OverflowError):
        return []


def _decoded(part: str, first: int) -> Point:
    minutes, _, figures = part.partition(":")
    steps, _, line = figures[:-1].partition("/")
    return Point(first + int(minutes), _figure(steps), _figure(line), _POOLS[figures[-1:]])


def _figure(text: str) -> float | None:
    return None if text == "-" else float(text)


def _encoded(found: Sequence[Point]) -> str | None:
    if not found:
        return None
    first = found[0].minute
    start = datetime.fromtimestamp(60 * first, UTC).strftime(_START)
    parts = [f"{p.minute - first}:{_text(p.tokens_per_step)}/{_text(p.line)}{_CODES[p.pool]}" for p in found]
    return " ".join([start, *parts])


def _text(value: float | None) -> str:
    return "-" if value is None else f"{min(value, _MOST):.2f}"

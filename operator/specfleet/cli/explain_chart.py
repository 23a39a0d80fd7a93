"""A chart in plain text: a route's tokens per step against the break-even line over the last hours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from specfleet.decision.trend import KEPT_MINUTES, Point

HEIGHT = 7
EVERY_MINUTES = 10
COLUMNS = KEPT_MINUTES // EVERY_MINUTES
MARKS = {"speculative": "*", "baseline": "o"}
LINE = "-"
_HOUR_COLUMNS = 60 // EVERY_MINUTES


def chart(points: Sequence[Point], now: float) -> Iterator[str]:
    """The lines of the chart, nothing where fewer than two points have a figure. `now`: seconds since the epoch.

    A column is ten minutes, the last one now. Columns without a look are empty: nothing was counted, or nobody looked.
    """
    minute = int(now // 60)
    columns: dict[int, Point] = {}
    for point in points:
        column = COLUMNS - 1 - (minute - point.minute) // EVERY_MINUTES
        if 0 <= column < COLUMNS:
            columns[column] = point
    shown = [p.tokens_per_step for p in columns.values() if p.tokens_per_step is not None]
    if len(shown) < 2:
        return
    lines = [p.line for p in columns.values() if p.line is not None]
    low, high = min((*shown, *lines)), max((*shown, *lines))
    if high - low < 0.1:
        low, high = low - 0.05, high + 0.05
    rows = [[" "] * COLUMNS for _ in range(HEIGHT)]

    def row(value: float) -> int:
        return round((high - value) / (high - low) * (HEIGHT - 1))

    for column, point in columns.items():
        if point.line is not None:
            rows[row(point.line)][column] = LINE
        if point.tokens_per_step is not None:
            rows[row(point.tokens_per_step)][column] = MARKS[point.pool]
    legend = f"{MARKS['speculative']} with speculation, {MARKS['baseline']} without"
    line = f", {LINE} break-even line" if lines else ""
    yield f"Tokens per step, last {KEPT_MINUTES // 60} h ({legend}{line}):"
    for number, cells in enumerate(rows):
        label = f"{high - (high - low) * number / (HEIGHT - 1):6.2f}"
        yield f"{label} |{''.join(cells)}".rstrip()
    yield f"       +{'-' * COLUMNS}"
    hours = range(KEPT_MINUTES // 60)
    times = (datetime.fromtimestamp(now - 3600.0 * (KEPT_MINUTES // 60 - hour), UTC) for hour in hours)
    yield "        " + "".join(f"{time:%H:%M}".ljust(_HOUR_COLUMNS) for time in times) + f"{_clock(now)} UTC"


def _clock(now: float) -> str:
    return f"{datetime.fromtimestamp(now, UTC):%H:%M}"

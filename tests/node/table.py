"""What the demo shows while it runs: a table that redraws on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

PLAIN_EVERY_SECONDS = 10.0


@dataclass(frozen=True)
class Row:
    """One route now. None: not known yet.

    Args:
        pool: where it is served.
        speculative_percent: share of its requests that the routers send to speculation.
        ms_per_token: by the clients' clock, since the route came to its pool.
        message: the operator's own sentence.
    """

    route: str
    pool: str
    speculative_percent: int | None
    acceptance_percent: int | None
    tokens_per_step: float | None
    ms_per_token: float | None
    requests: int
    message: str


HEADINGS = ("route", "pool", "to speculation", "acceptance", "tokens/step", "ms/token", "requests")


def cells(row: Row) -> tuple[str, ...]:
    """The row's figures as a reader sees them."""
    return (
        row.route,
        row.pool,
        _shown(row.speculative_percent, "{} %"),
        _shown(row.acceptance_percent, "{} %"),
        _shown(row.tokens_per_step, "{:.2f}"),
        _shown(row.ms_per_token, "{:.1f}"),
        str(row.requests),
    )


def plain(rows: Sequence[Row]) -> str:
    """All routes on one line, for logs."""
    parts = []
    for row in rows:
        _, pool, share, acceptance, per_step, ms, requests = cells(row)
        parts.append(
            f"{row.route}: {pool} ({share}), acceptance {acceptance}, {per_step} tokens/step, {ms} ms/token, "
            f"{requests} requests"
        )
    return " | ".join(parts)


def drawn(rows: Sequence[Row], title: str, footer: str) -> Group:
    """The table with each route's sentence below its figures."""
    table = Table(title=title, title_justify="left", expand=False)
    for number, heading in enumerate(HEADINGS):
        table.add_column(heading, justify="left" if number < 2 else "right", no_wrap=True)
    for row in rows:
        style = "yellow" if row.pool == "baseline" else "green"
        first, pool, *figures = cells(row)
        table.add_row(first, Text(pool, style=style), *figures)
    sentences = [Text(f"{row.route}: {row.message}", style="dim") for row in rows if row.message]
    return Group(table, *sentences, Text(footer))


class Screen:
    """Shows the rows given to `show`: live on a terminal, else a line every few seconds."""

    def __init__(self, console: Console, title: str) -> None:
        self._console = console
        self._title = title
        self._live: Live | None = None
        self._said_at = float("-inf")

    def __enter__(self) -> Screen:
        """Take the terminal, if it is one."""
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the last table standing."""
        if self._live is not None:
            self._live.stop()

    def show(self, rows: Sequence[Row], footer: str, *, now: bool = False) -> None:
        """Redraw; as plain lines only every `PLAIN_EVERY_SECONDS`, or `now`."""
        if self._live is not None:
            self._live.update(drawn(rows, self._title, footer), refresh=True)
        elif now or time.monotonic() - self._said_at >= PLAIN_EVERY_SECONDS:
            self._said_at = time.monotonic()
            self._console.print(f"{footer} | {plain(rows)}", soft_wrap=True, highlight=False, markup=False)


def _shown(value: float | None, form: str) -> str:
    return "-" if value is None else form.format(value)

"""Asks a Prometheus server for what it recorded: what there is, and the raw samples, in pieces that it can answer."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

from specfleet.cli.history.recorded import (
    ENGINE_COUNTERS,
    ENGINE_START,
    ROUTER_COUNTERS,
    ROUTER_UPTIMES,
    Kind,
    Sample,
    samples,
)
from specfleet.metrics.promapi import PromApi, PrometheusError, Series

ROUTER_NAMES = f"(envoy_)?specfleet_({'|'.join(ROUTER_COUNTERS)})|{'|'.join(ROUTER_UPTIMES)}"
ENGINE_NAMES = "|".join((*ENGINE_COUNTERS, ENGINE_START))
POINTS_LIMIT = 10_000
"""Prometheus refuses a range query of more than 11,000 points a series."""
FIRST_PIECE_SECONDS = 2 * 3600.0
MOST_PIECE_SECONDS = 24 * 3600.0
LEAST_PIECE_SECONDS = 60.0
FEW_VALUES = 150_000
_TOO_MUCH = re.compile(r"answers (413|422|502)|is longer than|answers 400.*(too many|limit|exceed)", re.IGNORECASE)


@dataclass(frozen=True)
class Selection:
    """Whose series: routers or engines, and label matchers in PromQL without braces."""

    kind: Kind
    matchers: str

    @property
    def selector(self) -> str:
        """The PromQL selector of all series that a replay reads."""
        names = ROUTER_NAMES if self.kind == "router" else ENGINE_NAMES
        return f'{{__name__=~"{names}"{"," if self.matchers else ""}{self.matchers}}}'


def router_selection(namespace: str, name: str) -> Selection:
    """The routers of one SpecDeployment, by the names of their pods."""
    name = name.replace(".", "[.]")
    return Selection("router", f'namespace="{namespace}",pod=~"{name}-router-[a-z0-9]+(-[a-z0-9]+)?"')


def engine_selection(namespace: str, name: str) -> Selection:
    """All pods whose names begin so: of a Deployment, or of both pools of a SpecDeployment."""
    name = name.replace(".", "[.]")
    return Selection("engine", f'namespace="{namespace}",pod=~"{name}(-.+)?"')


def groups(api: PromApi, selector: str, by: str, start: float, end: float) -> list[dict[str, str]]:
    """The label sets that exist between two times. Raises PrometheusError."""
    # A point sees the five minutes before it. They are counted from the end, so that the newest series are seen too.
    step = max(60, math.ceil((end - start) / POINTS_LIMIT))
    first = end - (end - start) // step * step
    found = api.query_range(f"group by ({by}) ({selector})", first, end, step)
    return [one["metric"] for one in found]


def pieces(api: PromApi, selection: Selection, start: float, end: float) -> Iterator[tuple[list[Sample], float]]:
    """Samples after `start` up to a time that comes with them, piece by piece up to `end`.

    A piece that the server finds too large is asked for again by halves; where answers are small they grow.

    Raises:
        PrometheusError: the server does not answer, or refuses even a small piece.
    """
    length = FIRST_PIECE_SECONDS
    while start < end:
        until = min(end, start + length)
        try:
            # Raw samples with their own times: a range query would repeat a value for five minutes where none was read.
            answer = api.query(f"{selection.selector}[{math.ceil(until - start)}s] @ {until:.3f}")
        except PrometheusError as error:
            if not _TOO_MUCH.search(str(error)) or length <= LEAST_PIECE_SECONDS:
                raise
            length = max(LEAST_PIECE_SECONDS, min(length, until - start) / 2.0)
            continue
        yield samples(answer, selection.kind, after=start), until
        start = until
        if _values(answer) < FEW_VALUES:
            length = min(MOST_PIECE_SECONDS, 2.0 * length)


def _values(answer: list[Series]) -> int:
    return sum(len(one["values"]) for one in answer)

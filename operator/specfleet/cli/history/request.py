"""What is to be replayed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from specfleet.decision.types import Pool, RouteConfig
from specfleet.metrics.promapi import Endpoint


class HistoryProblem(Exception):
    """There is nothing to replay; the text says why and what to do."""


@dataclass(frozen=True)
class Request:
    """What to replay. Times are seconds since the epoch; `config_of` gives each route's policy.

    `selector` replaces the label matchers that follow from `namespace` and `name`. `engine_series` reads the engines'
    own counters though there may be a router's. `replicas` of each pool share what runs.
    """

    endpoint: Endpoint
    namespace: str
    name: str
    start: float
    end: float
    block_seconds: float
    config_of: Callable[[str], RouteConfig]
    engine_series: bool = False
    selector: str | None = None
    replicas: Mapping[Pool, int] = field(default_factory=lambda: {"baseline": 1, "speculative": 1})

"""The routers' counters as Prometheus keeps them: how to select them, and back to samples of each router. Pure.

A selector with a range gives raw samples with the times at which they were scraped. What belongs together is told by
equal times: one scrape gives all of a router's counters one time.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from specfleet.routing.accesslog import PROMPT_LABEL, TIME_LABEL
from specfleet.routing.counters import NO_COUNT, RouterSample, RowCell, RowKey, row_key

FIGURES = ("decode_tokens", "accepted", "drafted", "measured")
"""A router counts these four together: a row that has some and not all has lost some on the way."""
LOADS = (
    "plain_measured",
    "plain_decode_tokens",
    "prompt_tokens",
    "stream_decode_us",
    "stream_decode_tokens",
    "whole_us",
    "whole_tokens",
    "whole_answers",
)
"""What times, and the guards, need of both pools."""
BUCKETS = ("stream_tpot", "stream_ttft")
"""More than half of all series, so only where somebody has an SLO."""
REQUESTS = "requests"
ACTIVE = "active"
RAW_PREFIX = "envoy_specfleet_"
"""What Envoy puts before the name of a counter."""
PREFIX = "specfleet_"
"""What is left of it after the relabelling of the PodMonitor and of docs/operations/prometheus.md."""
RAW_UPTIME = "envoy_server_uptime"
UPTIME = "specfleet_router_uptime"

_COUNTED = (*FIGURES, *LOADS, REQUESTS, "attempts", ACTIVE)
_OWN = frozenset({"route", "pool", "intended", "code", "flags", "phase", TIME_LABEL, PROMPT_LABEL})
_SERIES = _OWN | {"__name__", "namespace", "pod"}
_EXACT = 2.0**53  # Prometheus counts in floating-point numbers

Router = tuple[str, str]  # namespace and pod


@dataclass(frozen=True)
class Scraped:
    """What Prometheus has of one router: samples, oldest first, and why there are none or why rows are missing."""

    samples: tuple[RouterSample, ...]
    problem: str | None = None


def selector(
    namespaces: Iterable[str], deployments: Iterable[str], window_seconds: float, *, buckets: bool = False
) -> str:
    """PromQL for all that decisions need of the routers of these SpecDeployments, by namespace and pod name.

    With `buckets` the times of streams by bucket come along.

    It takes the cross product of both: a SpecDeployment of one of the names in another of the namespaces comes along.
    """
    # Short: it goes in the request line.
    wanted = f"(envoy_)?{PREFIX}({'|'.join((*_COUNTED, *BUCKETS) if buckets else _COUNTED)})|{UPTIME}|{RAW_UPTIME}"
    matchers = (
        f'__name__=~"{wanted}"',
        f'namespace=~"{"|".join(sorted(set(namespaces)))}"',
        f'pod=~"({"|".join(sorted(set(deployments)))})-router-.+"',
    )
    return f"{{{','.join(matchers)}}}[{math.ceil(window_seconds)}s]"


def scraped(series: Iterable[Mapping[str, Any]]) -> dict[Router, Scraped]:
    """The samples of each router in an answer to `selector`.

    A router that is scraped by two jobs, or whose samples two replicas of Prometheus have, comes several times with
    different further labels; that with the newest sample is taken, and nothing is added up.
    """
    origins: dict[Router, dict[frozenset[tuple[str, str]], _Origin]] = defaultdict(lambda: defaultdict(_Origin))
    for one in series:
        labels = one["metric"]
        further = frozenset((name, value) for name, value in labels.items() if name not in _SERIES)
        origins[labels.get("namespace", ""), labels.get("pod", "")][further].add(labels, one["values"])
    return {router: max(found.values(), key=_Origin.newest).read() for router, found in origins.items()}


class _Origin:
    """The series of one router that share their further labels: those of one scrape job, in one Prometheus."""

    def __init__(self) -> None:
        self._uptimes: dict[float, float] = {}
        self._series: list[tuple[str, Mapping[str, str], dict[float, int]]] = []

    def add(self, labels: Mapping[str, str], values: Sequence[tuple[float, str]]) -> None:
        """One series."""
        name = labels["__name__"]
        if name in (UPTIME, RAW_UPTIME):
            self._uptimes.update((float(at), float(value)) for at, value in values)
            return
        counter = name.removeprefix(RAW_PREFIX).removeprefix(PREFIX)
        self._series.append((counter, labels, {float(at): _count(value) for at, value in values}))

    def newest(self) -> float:
        """The time of the newest sample; those without a process start count as older than all with one."""
        return max(self._uptimes, default=-math.inf)

    def read(self) -> Scraped:
        """The samples."""
        if not self._uptimes:
            return Scraped((), f"{RAW_UPTIME} is dropped on the way, so a restart could not be told: keep it")
        sound = (at for at, seconds in self._uptimes.items() if math.isfinite(at + seconds) and seconds >= 0.0)
        times = sorted(sound)
        read = [self._sample(at) for at in times]
        lost = sorted({route for _, routes in read for route in routes})
        problem = (
            f"of route {lost[0]} some of the counters {', '.join(FIGURES)} are missing: keep all" if lost else None
        )
        return Scraped(tuple(sample for sample, _ in read), problem)

    def _sample(self, at: float) -> tuple[RouterSample, list[str]]:
        """All rows as scraped at `at`, and the routes of those that are not whole."""
        cells: dict[RowKey, RowCell] = defaultdict(RowCell)
        active: dict[str, int] = defaultdict(int)
        route_active: dict[str, int] = defaultdict(int)
        for counter, labels, values in self._series:
            if at not in values:
                continue
            if counter == ACTIVE:
                active[labels.get("pool", "")] += max(0, values[at])
                route_active[labels.get("route", "")] += max(0, values[at])
            else:
                cells[row_key(labels)].add(counter, labels, values[at])
        whole, lost = [], []
        for key, cell in sorted(cells.items(), key=itemgetter(0)):
            figures = sum(name in cell.counts for name in FIGURES)
            if 0 < figures < len(FIGURES):
                lost.append(key[0])
            else:
                whole.append(cell.row(key))
        sample = RouterSample(
            at=at,
            started_at=at - self._uptimes[at],
            rows=tuple(whole),
            active=dict(active),
            route_active=dict(route_active),
            routes_rejected=0,
            lua_errors=0,
        )
        return sample, lost


def _count(value: str) -> int:
    number = float(value)
    return int(number) if 0.0 <= number <= _EXACT and number.is_integer() else NO_COUNT


def diagnosis_query() -> str:
    """PromQL that tells how routers' series are labelled: one series for each namespace and pod, over a minute."""
    wanted = "|".join((UPTIME, f"{PREFIX}{REQUESTS}", f"{RAW_PREFIX}{REQUESTS}"))
    return f'(count by (namespace, pod) ({{__name__=~"{wanted}"}}))[1m:1m]'


def diagnosis(series: Iterable[Mapping[str, Any]], where: str) -> str:
    """Why there is nothing of some routers, as a sentence without its end, from the answer to `diagnosis_query`."""
    labelled = [bool(one["metric"].get("namespace")) and bool(one["metric"].get("pod")) for one in series]
    if not labelled:
        return f"{where} has no series of any router: nothing scrapes them"
    if not all(labelled):
        return f"{where} has routers' series without the labels namespace and pod: add them by relabelling"
    return f"{where} has series of other routers and none of these: nothing scrapes them"

"""From the series of a Prometheus server to samples of processes, and from samples to blocks of routes. Pure.

Samples keep the times at which they were scraped and go through the same `Ledger` as the operator's own readings.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from specfleet.api.names import BASELINE_POOL
from specfleet.decision.reasons import Hold
from specfleet.decision.samples import Ledger, RouteTotals, gap_seconds
from specfleet.decision.types import Pool
from specfleet.decision.whatif import Recorded, Timed, Traffic
from specfleet.handlers.decide import blocks
from specfleet.routing import series
from specfleet.routing.accesslog import PROMPT_LABEL

if TYPE_CHECKING:
    from specfleet.metrics.promapi import Series

ALL_ROUTES = "all"
"""The one route of engine series, which know of none."""
_NOT_ROUTES = frozenset({"ineligible", "other", ""})
_UNKNOWN_START = 0.0
_US = 1_000_000.0
_UPTIME = "uptime"

ROUTER_PREFIXES = (series.PREFIX, series.RAW_PREFIX)
ROUTER_UPTIMES = (series.UPTIME, series.RAW_UPTIME)
ROUTER_COUNTERS = (
    "requests",
    "measured",
    "decode_tokens",
    "accepted",
    "drafted",
    "stream_decode_us",
    "stream_decode_tokens",
    "whole_us",
    "whole_tokens",
)
ENGINE_START = "process_start_time_seconds"
ENGINE_DRAFTED = "vllm:spec_decode_num_draft_tokens_total"
ENGINE_ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
ENGINE_COUNTERS = (
    ENGINE_DRAFTED,
    ENGINE_ACCEPTED,
    "vllm:generation_tokens_total",
    "vllm:time_to_first_token_seconds_count",
    "vllm:request_success_total",
    "vllm:request_decode_time_seconds_sum",
    "vllm:request_generation_tokens_sum",
    "vllm:request_generation_tokens_count",
)
_COUNTED_BY = frozenset(
    {"__name__", "route", "pool", "intended", "code", "flags", "phase", "engine", "model_name", "finished_reason"}
    | {PROMPT_LABEL}
)
_POD_LABELS = ("pod", "kubernetes_pod_name", "pod_name")


Kind = Literal["router", "engine"]


@dataclass(frozen=True, slots=True)
class PoolCounts:
    """What one process has counted of one route in one pool since it started."""

    totals: RouteTotals
    traffic: Traffic


@dataclass(frozen=True, slots=True)
class Sample:
    """One scrape of one process. `started_at` is None where no series tells."""

    source: str
    at: float
    started_at: float | None
    counts: Mapping[tuple[str, Pool], PoolCounts]


Origin = tuple[tuple[str, str], ...]
Values = dict[tuple[str, tuple[str, ...]], float]


def samples(answer: Iterable[Series], kind: Kind, after: float) -> list[Sample]:
    """The scrapes later than `after` in an answer, oldest first. Values that are no numbers are left out.

    A process that two jobs scrape, or whose samples two replicas of Prometheus have, comes with different further
    labels; those with the most scrapes are taken, and nothing is added up.
    """
    sources: dict[str, dict[Origin, dict[float, Values]]] = defaultdict(lambda: defaultdict(dict))
    for one in answer:
        cell = _cell(one["metric"], kind)
        if cell is None:
            continue
        origin = tuple(sorted((name, text) for name, text in one["metric"].items() if name not in _COUNTED_BY))
        scrapes = sources[_source(one["metric"])][origin]
        for at, text in one["values"]:
            value = float(text)
            if at > after and math.isfinite(value):
                values = scrapes.setdefault(at, defaultdict(float))
                values[cell] += value
    read = _router if kind == "router" else _engine
    found = []
    for source, origins in sources.items():
        scrapes = max(sorted(origins.items()), key=lambda item: len(item[1]))[1]
        found += [read(source, at, values) for at, values in scrapes.items()]
    return sorted(found, key=lambda one: (one.at, one.source))


def _source(labels: Mapping[str, str]) -> str:
    pod = next((labels[name] for name in _POD_LABELS if labels.get(name)), None)
    return pod or labels.get("instance", "unknown")


def _cell(labels: Mapping[str, str], kind: Kind) -> tuple[str, tuple[str, ...]] | None:
    name = labels.get("__name__", "")
    if kind == "engine":
        return name, ()
    if name in ROUTER_UPTIMES:
        return _UPTIME, ()
    for prefix in ROUTER_PREFIXES:
        if name.startswith(prefix):
            place = labels.get("route", ""), labels.get("pool", ""), labels.get("intended", "")
            return None if place[0] in _NOT_ROUTES else (name.removeprefix(prefix), place)
    return None


def _router(source: str, at: float, values: Values) -> Sample:
    """A router's scrape. As in the operator, only rows whose pool and intended pool agree are evidence."""
    routes: dict[tuple[str, Pool], dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for (name, place), value in values.items():
        if not place:
            continue
        route, pool, intended = place
        if not intended:
            continue
        key: tuple[str, Pool] = (route, "baseline" if intended == BASELINE_POOL else "speculative")
        if name == "requests" or pool == intended:
            routes[key][name] += round(value)
    counts = {
        key: PoolCounts(
            RouteTotals(cell["decode_tokens"], cell["accepted"], cell["drafted"], cell["measured"]),
            Traffic(
                cell["requests"],
                Timed(cell["stream_decode_us"], cell["stream_decode_tokens"]),
                Timed(cell["whole_us"], cell["whole_tokens"]),
            ),
        )
        for key, cell in routes.items()
    }
    uptime = values.get((_UPTIME, ()))
    return Sample(source, at, None if uptime is None else at - uptime, counts)


def _engine(source: str, at: float, values: Values) -> Sample:
    """An engine's scrape: one route, in the speculative pool where the engine counts drafts.

    Decode tokens are all that were generated less the first of each request; times are those of finished requests.
    """
    cell = {name: value for (name, _), value in values.items()}

    def count(name: str) -> int:
        return round(cell.get(f"vllm:{name}", 0.0))

    pool: Pool = "speculative" if ENGINE_DRAFTED in cell else "baseline"
    finished = count("request_success_total")
    decoded = max(0, count("generation_tokens_total") - count("time_to_first_token_seconds_count"))
    timed = max(0, count("request_generation_tokens_sum") - count("request_generation_tokens_count"))
    us = round(cell.get("vllm:request_decode_time_seconds_sum", 0.0) * _US)
    drafts = round(cell.get(ENGINE_ACCEPTED, 0.0)), round(cell.get(ENGINE_DRAFTED, 0.0))
    counts = PoolCounts(RouteTotals(decoded, *drafts, finished), Traffic(finished, Timed(us, timed), Timed()))
    known = "vllm:generation_tokens_total" in cell
    return Sample(source, at, cell.get(ENGINE_START), {(ALL_ROUTES, pool): counts} if known else {})


@dataclass(slots=True)
class _Process:
    at: float
    started_at: float
    counts: Mapping[tuple[str, Pool], PoolCounts]


@dataclass(slots=True)
class Grid:
    """Closes blocks at the ends of equal intervals, from the samples up to each end.

    `begin` is the start of the first block (epoch seconds); samples before it are what the first block counts from.
    `dropped` counts what the data rules left out, by kind.
    """

    begin: float
    block_seconds: float
    dropped: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    sources: dict[str, set[Pool]] = field(default_factory=lambda: defaultdict(set))
    spacing: float = math.inf  # seconds, the least between two samples of a source
    _ledger: Ledger = field(init=False)
    _end: float = field(init=False)
    _processes: dict[str, _Process] = field(default_factory=dict)
    _traffic: dict[tuple[str, Pool], Traffic] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._ledger = Ledger(self.block_seconds, self.begin - self.lead_seconds)
        self._end = self.begin

    @property
    def lead_seconds(self) -> float:
        """How long before `begin` samples are wanted."""
        return gap_seconds(self.block_seconds)

    @property
    def gap_seconds(self) -> float:
        """Two samples further apart than this are not subtracted."""
        return self._ledger.gap_seconds

    def fed(self, some: Sequence[Sample], until: float) -> Iterator[tuple[dict[str, Recorded], Hold | None]]:
        """Take in samples, all not later than `until`; yield each block that has ended by then, all routes at once."""
        for one in some:
            while one.at > self._end:
                yield from self._closed()
            self._taken(one)
        while self._end <= until:
            yield from self._closed()

    def _closed(self) -> Iterator[tuple[dict[str, Recorded], Hold | None]]:
        end, self._end = self._end, self._end + self.block_seconds
        taken = self._ledger.take(end)
        traffic, self._traffic = self._traffic, {}
        for problem in taken.problems:
            if end > self.begin:
                self.dropped[problem.kind.value] += 1
        if end <= self.begin:
            return
        fresh = [name for name, known in self._processes.items() if end - known.at <= self._ledger.stale_seconds]
        hold = self._ledger.hold(end, fresh)
        news = blocks(taken.increments, {}, end, self.block_seconds)
        routes = news.keys() | {route for route, _ in traffic}
        yield (
            {
                route: Recorded(
                    at=end,
                    seconds=self.block_seconds,
                    block=news.get(route),
                    speculative=traffic.get((route, "speculative"), Traffic()),
                    baseline=traffic.get((route, "baseline"), Traffic()),
                )
                for route in sorted(routes)
            },
            hold,
        )

    def _taken(self, one: Sample) -> None:
        before = self._processes.get(one.source)
        started_at = _started_at(one, before)
        totals = {route: counts.totals for (route, pool), counts in one.counts.items() if pool == "speculative"}
        self._ledger.observe(one.source, started_at, one.at, totals)
        for _, pool in one.counts:
            self.sources[one.source].add(pool)
        if before is not None and one.at <= before.at:
            return
        if before is not None:
            self.spacing = min(self.spacing, one.at - before.at)
        if before is not None and one.at - before.at <= self._ledger.gap_seconds:
            for key, counts in one.counts.items():
                news = _grown(before.counts.get(key), counts.traffic)
                if news is not None:
                    self._traffic[key] = self._traffic.get(key, Traffic()) + news
        self._processes[one.source] = _Process(one.at, started_at, one.counts)


def _started_at(one: Sample, before: _Process | None) -> float:
    """When the process started: as told, else as before, else, where a counter fell, just now."""
    if one.started_at is not None:
        return one.started_at
    if before is None:
        return _UNKNOWN_START  # long ago: what it counted before is nobody's news
    pairs = [(known, one.counts[key]) for key, known in before.counts.items() if key in one.counts]
    fell = any(
        new.traffic.requests < old.traffic.requests or new.totals.tokens < old.totals.tokens for old, new in pairs
    )
    return one.at if fell else before.started_at


def _grown(before: PoolCounts | None, now: Traffic) -> Traffic | None:
    """What was counted between two samples; None after a restart, whose first counts cannot be told apart."""
    old = before.traffic if before is not None else Traffic()
    news = Traffic(
        now.requests - old.requests,
        Timed(now.streams.us - old.streams.us, now.streams.tokens - old.streams.tokens),
        Timed(now.whole.us - old.whole.us, now.whole.tokens - old.whole.tokens),
    )
    parts = (news.requests, news.streams.us, news.streams.tokens, news.whole.us, news.whole.tokens)
    return news if min(parts) >= 0 else None

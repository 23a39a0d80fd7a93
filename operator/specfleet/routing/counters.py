"""The router's counters, read from Envoy: what each route got from each pool since the router started."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any
from urllib.parse import quote

from specfleet.percentiles import NONE_TIMED, TimeBuckets, bucket_of
from specfleet.routing import names
from specfleet.routing.accesslog import PREFIX, PROMPT_LABEL, TIME_LABEL

_FILTER = (
    r"^(specfleet\..+"
    r"|server\.uptime"
    r"|cluster\.hosts-[^.]+\.(upstream_rq_active|membership_healthy)"
    r"|http\.router\.rds\.specfleet\.update_(rejected|failure)"
    r"|cluster_manager\.cds\.update_(rejected|failure))$"
)
SCRAPE_PATH = "/stats/prometheus"
SCRAPE_FILTER = _FILTER
"""Parameter `filter` with which Prometheus is to scrape `SCRAPE_PATH`: all that Envoy counts is 230 KB."""
STATS_PATH = f"/stats?format=json&filter={quote(_FILTER, safe='')}"
"""Path and query on the read-only port that yields what `parse_stats` reads, and little else."""

PROMPT_CLASSES = (128, 512, 2048, 8192, 32768, None)
"""Upper bounds in prompt tokens, inclusive, of the classes in which whole answers are counted; the last has none."""

_CANCELLED = frozenset({"DC", "DR"})
_OVERFLOW = "UO"
_OK = "-"


@dataclass(frozen=True)
class WholeAnswers:
    """Answers in one piece to prompts of one class of lengths."""

    us: int = 0
    """First byte of the request to last of the answer."""
    tokens: int = 0
    """Completion tokens."""
    answers: int = 0


@dataclass(frozen=True)
class RouteRow:
    """Cumulative counts of one (route, pool that answered, intended pool); tokens, requests and microseconds.

    `pool` is "" where no engine was reached. Route `ineligible` holds what speculation refuses, `other` what is no
    inference (the model list).
    """

    route: str
    pool: str
    intended: str
    requests: int = 0
    """All that ended, however they ended."""
    finished: int = 0
    """Answered 2xx to the last byte."""
    client_errors: int = 0
    """4xx, but neither 429 of the breaker nor a client that hung up: an engine's in the rows of its pool, the router's
    own (a body over the limit) in rows whose pool is ""."""
    server_errors: int = 0
    """5xx, the engine's or the router's own."""
    overflow: int = 0
    """429: the pool's planned sequences were taken."""
    cancelled: int = 0
    """The client hung up."""
    aborted: int = 0
    """The engine died within the answer."""
    lost_before_first_token: int = 0
    """The engine died after its headers and before its first token: too late for a retry."""
    failovers: int = 0
    """Requests that another pool than the intended one answered."""
    retries: int = 0
    """Further attempts; a request that had one is no evidence."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    """Of all finished single-answer requests whose usage was readable."""
    measured: int = 0
    """Finished single-answer requests at the first attempt whose figures were readable: acceptance figures in a
    speculative pool, usage in baseline."""
    decode_tokens: int = 0
    """N of the decision: completion tokens less one each, over the measured requests."""
    accepted: int = 0
    """A of the decision: draft tokens that the target accepted and the answer holds. What the end of an answer cuts off
    its last step is left out as far as the rounds tell it: N - A is never under `rounds`."""
    drafted: int = 0
    rounds: int = 0
    """Decode steps in which something was drafted."""
    stream_decode_us: int = 0
    """First token to end, of streams."""
    stream_decode_tokens: int = 0
    whole_us: int = 0
    """First byte of the request to last of the answer, of answers in one piece."""
    whole_tokens: int = 0
    whole_answers: int = 0
    whole_by_prompt: tuple[WholeAnswers, ...] = (WholeAnswers(),) * len(PROMPT_CLASSES)
    """The same by class of prompt length, in the order of `PROMPT_CLASSES`."""
    stream_tpot_us: TimeBuckets = NONE_TIMED
    """Time per output token of the streams of `stream_decode_us`, one entry a stream, in microseconds."""
    stream_ttft_us: TimeBuckets = NONE_TIMED
    """Time to first token of every stream that had one, in microseconds: from the whole request's arrival to the first
    byte of the answer's body. Streams that were retried, or broke off later, are among them."""


COUNTS = frozenset(one.name for one in fields(RouteRow) if one.default == 0)
"""The fields of a row that are plain numbers."""
_WHOLE = {"whole_us": "us", "whole_tokens": "tokens", "whole_answers": "answers"}
_CLASS_LABELS = tuple("inf" if bound is None else str(bound) for bound in PROMPT_CLASSES)
_TIMED = {"stream_tpot": "stream_tpot_us", "stream_ttft": "stream_ttft_us"}


@dataclass(frozen=True)
class RouterSample:
    """What one router said at one time."""

    at: float
    """Seconds since the epoch, as given by the reader."""
    started_at: float
    """Seconds since the epoch; Envoy tells its age in whole seconds, so this may differ by one between two samples."""
    rows: tuple[RouteRow, ...]
    active: Mapping[str, int]
    """Requests in flight by pool, as the breaker counts them."""
    route_active: Mapping[str, int]
    """Requests that an engine is working on by route."""
    routes_rejected: int
    """Cluster or route files that this router refused since it started; it serves the last good ones."""
    lua_errors: int
    """Requests or answers that the filter passed through unread after an error of its own."""
    healthy: Mapping[str, int] = field(default_factory=dict)
    """Hosts by pool that this router would send a request to now. A pod that Kubernetes calls ready is among them when
    DNS has told of it (CoreDNS may keep an empty answer for 30 s) and its first health check has passed."""
    unrouted: int = 0
    """Requests refused before any route: unknown paths and methods, bodies over the limit."""


def parse_stats(document: bytes, at: float) -> RouterSample:
    """Read the answer to GET `STATS_PATH` that arrived at `at` (seconds since the epoch).

    Raises:
        ValueError: it is not Envoy's JSON, holds no uptime, or a value that is no count.
    """
    values = _values(document)
    if "server.uptime" not in values:
        raise ValueError("the router's stats hold no server.uptime: expected Envoy's answer to " + STATS_PATH)
    cells: dict[RowKey, RowCell] = defaultdict(RowCell)
    active: dict[str, int] = {}
    healthy: dict[str, int] = {}
    route_active: dict[str, int] = defaultdict(int)
    rejected = lua_errors = unrouted = 0
    for name, value in values.items():
        # A file that is no YAML is a "failure", one that says what cannot be is "rejected"; the old one serves on.
        if name.endswith((".update_rejected", ".update_failure")):
            rejected += value
        elif name.startswith("cluster.hosts-"):
            pool, gauge = name.removeprefix("cluster.hosts-").split(".", 1)
            (healthy if gauge == "membership_healthy" else active)[pool] = value
        elif name.startswith(f"{PREFIX}."):
            counter, labels = _labels(name)
            if counter == "lua_errors":
                lua_errors += value
            elif not labels.get("route"):
                unrouted += value if counter == "requests" else 0
            elif counter == "active":
                route_active[labels["route"]] += value
            else:
                cells[row_key(labels)].add(counter, labels, value)
    return RouterSample(
        at=at,
        started_at=at - values["server.uptime"],
        rows=tuple(cells[key].row(key) for key in sorted(cells)),
        active=active,
        route_active=dict(route_active),
        routes_rejected=rejected,
        lua_errors=lua_errors,
        healthy=healthy,
        unrouted=unrouted,
    )


def _values(document: bytes) -> dict[str, int]:
    try:
        stats = json.loads(document)["stats"]
        found = {entry["name"]: entry["value"] for entry in stats if "name" in entry}
    except (ValueError, KeyError, TypeError) as problem:
        raise ValueError(
            f"the router's stats are not Envoy's JSON ({type(problem).__name__}): it begins {document[:60]!r}"
        ) from problem
    for name, value in found.items():
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise ValueError(f"the router's stats say {name} = {value!r}, expected a whole number of at least 0")
    return found


def _labels(name: str) -> tuple[str, dict[str, str]]:
    """Counter and labels of `specfleet.COUNTER.LABEL.VALUE...`; label values hold no dot."""
    _, counter, *rest = name.split(".")
    return counter, dict(zip(rest[::2], rest[1::2], strict=False))


RowKey = tuple[str, str, str]
"""Route, pool that answered, intended pool."""
NO_COUNT = -1
"""Stands for a value that is no count, which the data rules then report and leave out; so does a sum with it."""


def row_key(labels: Mapping[str, str]) -> RowKey:
    """The row in which a counter with these labels belongs."""
    return labels.get("route", ""), labels.get("pool", ""), labels.get("intended", "")


class RowCell:
    """The counters of one row on their way to a `RouteRow`."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self._whole: dict[str, dict[str, int]] = {}
        self._timed: dict[str, list[int]] = {}

    def add(self, counter: str, labels: Mapping[str, str], value: int) -> None:
        """One counter, by its name without a prefix; a bucket or class that we do not have is passed over."""
        if counter in _TIMED:
            bucket = bucket_of(labels.get(TIME_LABEL, ""))
            if bucket is not None:
                counts = self._timed.setdefault(_TIMED[counter], list(NONE_TIMED.counts))
                counts[bucket] = _sum(counts[bucket], value)
            return
        _grow(self.counts, counter, value)
        if counter == "requests":
            outcome = _outcome(labels.get("code", ""), labels.get("flags", ""), labels.get("phase", ""))
            if outcome is not None:
                _grow(self.counts, outcome, value)
        elif counter in _WHOLE:
            _grow(self._whole.setdefault(labels.get(PROMPT_LABEL, ""), {}), _WHOLE[counter], value)

    def row(self, key: RowKey) -> RouteRow:
        """All of them."""
        route, pool, intended = key
        counts = self.counts
        values: dict[str, Any] = {name: count for name, count in counts.items() if name in COUNTS}
        if pool == names.BASELINE:
            # Without speculation an engine gives usage and no acceptance figures; that is all there is to measure.
            values["measured"] = _sum(counts.get("measured", 0), counts.get("plain_measured", 0))
            values["decode_tokens"] = _sum(counts.get("decode_tokens", 0), counts.get("plain_decode_tokens", 0))
        requests = counts.get("requests", 0)
        # Requests that reached no engine have no attempts.
        values["retries"] = max(0, counts.get("attempts", 0) - requests) if pool else 0
        values["failovers"] = requests if pool and pool != intended else 0
        values |= {name: TimeBuckets(tuple(found)) for name, found in self._timed.items()}
        if self._whole:
            found = [self._whole.get(label, {}) for label in _CLASS_LABELS]
            values["whole_by_prompt"] = tuple(WholeAnswers(**one) for one in found)
        return RouteRow(route=route, pool=pool, intended=intended, **values)


def _grow(counts: dict[str, int], name: str, value: int) -> None:
    counts[name] = _sum(counts.get(name, 0), value)


def _sum(one: int, other: int) -> int:
    return NO_COUNT if NO_COUNT in (one, other) else one + other


def _outcome(code: str, flags: str, phase: str) -> str | None:
    """The field of RouteRow under which a request that ended so is counted."""
    given = frozenset(flags.split(","))
    if _OVERFLOW in given:
        return "overflow"
    if given & _CANCELLED:
        return "cancelled"
    if code.startswith("4"):
        return "client_errors"
    if code.startswith("5"):
        return "server_errors"
    if not code.startswith("2"):
        return None
    if flags == _OK:
        return "finished"
    return "aborted" if phase == "body" else "lost_before_first_token"

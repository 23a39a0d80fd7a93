"""From the routers' cumulative counters to what was counted since the last look: the data rules for direct reading.

Missing data is unknown, never zero: where it cannot be told what a counter did, the interval is dropped, and nothing is
ever counted twice. docs/reference/decision.md has the table.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import NamedTuple

from specfleet.decision.reasons import Hold

START_SLACK_SECONDS = 2.0  # a process start is read as now - uptime, in whole seconds
MIN_GAP_SECONDS = 120.0
MIN_STALE_SECONDS = 90.0
FORGET_SECONDS = 3600.0
MOST_ROUTES = 256  # of one source: a spec has 32, and a few more names are from before an edit
MOST_PER_SECOND = 100_000_000  # tokens, or requests, of one route at one router: more than any accelerators decode


def gap_seconds(block_seconds: float) -> float:
    """Two samples of one counter further apart than this are not subtracted."""
    return max(MIN_GAP_SECONDS, 2.0 * block_seconds)


@dataclass(frozen=True, slots=True)
class RouteTotals:
    """Counters of one route's rows in the speculative pool since the router process started."""

    tokens: int
    accepted: int
    drafted: int
    requests: int


@dataclass(frozen=True, slots=True)
class Increment:
    """What was counted of one route since the last `take`. `seconds` is the longest time that a source covers."""

    tokens: int = 0
    accepted: int = 0
    drafted: int = 0
    requests: int = 0
    seconds: float = 0.0


class Kind(StrEnum):
    """What was wrong with a sample."""

    OUT_OF_ORDER = "OutOfOrder"
    CLOCK_JUMP = "ClockJump"
    GAP = "Gap"
    RESTART = "Restart"
    COUNTER_FELL = "CounterFell"
    NOT_A_COUNT = "NotACount"
    ACCEPTED_OVER_DRAFTED = "AcceptedOverDrafted"
    LEAP = "Leap"
    FLOOD = "Flood"
    STALE = "Stale"


@dataclass(frozen=True, slots=True)
class SampleProblem:
    """One sample, or one route of it, that was not counted as it stood. `route` None: all of the sample."""

    source: str
    kind: Kind
    message: str
    route: str | None = None


class Taken(NamedTuple):
    """What `take` gives: increments by route, zeros for routes without traffic, and what was wrong since last time."""

    increments: Mapping[str, Increment]
    problems: list[SampleProblem]


@dataclass(frozen=True, slots=True)
class _Base:
    at: float
    totals: RouteTotals


@dataclass(slots=True)
class _Source:
    started_at: float
    at: float
    routes: dict[str, _Base]


_ZERO = RouteTotals(0, 0, 0, 0)


class Ledger:
    """Keeps the last sample of each router process and adds up what was counted between samples.

    `block_seconds` is the sampling interval, `now` the time from which this ledger counts (epoch seconds). The clock is
    passed in; nothing here reads one.
    """

    def __init__(self, block_seconds: float, now: float) -> None:
        self._block_seconds = block_seconds
        self._born = now
        self._sources: dict[str, _Source] = {}
        self._gone: dict[str, tuple[float, float]] = {}  # forgotten source: its process start, its last sample
        self._pending: dict[tuple[str, str], Increment] = {}  # by route and source
        self._problems: list[SampleProblem] = []

    @property
    def gap_seconds(self) -> float:
        """Two samples further apart than this are not subtracted."""
        return gap_seconds(self._block_seconds)

    @property
    def stale_seconds(self) -> float:
        """A source whose newest sample is older than this does not report."""
        return max(MIN_STALE_SECONDS, 1.5 * self._block_seconds)

    def observe(self, source: str, started_at: float, at: float, totals: Mapping[str, RouteTotals]) -> None:
        """Take in one sample of one router process, read at `at`; the process started at `started_at`."""
        if not (math.isfinite(at) and math.isfinite(started_at)):
            self._report(source, Kind.NOT_A_COUNT, "the sample has no time")
            return
        totals = self._bounded(source, totals)
        good = {route: counts for route, counts in totals.items() if self._sound(source, route, counts)}
        known = self._sources.get(source)
        if known is None:
            self._first(source, started_at, at, good)
        elif at <= known.at and known.at - at <= self.gap_seconds:
            self._report(source, Kind.OUT_OF_ORDER, "the sample is no newer than the last one")
        elif at < known.at:
            self._rebase(source, started_at, at, good, Kind.CLOCK_JUMP, "the clock went back: counting starts again")
        elif at - known.at > self.gap_seconds:
            text = f"{at - known.at:.0f} s without a sample: what was counted meanwhile is left out"
            self._rebase(source, started_at, at, good, Kind.GAP, text)
        else:
            self._next(source, known, started_at, at, good, totals.keys())

    def forget(self, source: str) -> None:
        """The router is gone: what it counted stays, its counters are forgotten."""
        known = self._sources.pop(source, None)
        if known is not None:
            self._gone[source] = (known.started_at, known.at)

    def take(self, now: float) -> Taken:
        """What was counted since the last call. Nothing while no source has a sample that is recent enough."""
        for source, known in list(self._sources.items()):
            if now - known.at > FORGET_SECONDS:
                self.forget(source)
        for source, (_, at) in list(self._gone.items()):
            if now - at > FORGET_SECONDS:
                del self._gone[source]
        problems, self._problems = self._problems, []
        if self._sources and not self._fresh(now, self._sources):
            problems.append(SampleProblem("", Kind.STALE, f"no router was read for {self.stale_seconds:.0f} s"))
            return Taken({}, problems)
        routes = {route for known in self._sources.values() for route in known.routes}
        pending, self._pending = self._pending, {}
        taken = {route: Increment() for route in sorted(routes | {route for route, _ in pending})}
        for (route, _), one in pending.items():
            taken[route] = _sum(taken[route], one, max(taken[route].seconds, one.seconds))
        return Taken(taken, problems)

    def coverage(self, now: float, expected: Collection[str]) -> float:
        """The share of `expected` sources with a recent sample; 0 where none is expected."""
        return len(self._fresh(now, expected)) / len(expected) if expected else 0.0

    def hold(self, now: float, expected: Collection[str]) -> Hold | None:
        """Why evidence must be frozen: no router reports, or fewer than half of the expected ones."""
        share = self.coverage(now, expected)
        if share == 0.0:
            return Hold.METRICS_UNAVAILABLE
        return Hold.INSUFFICIENT_COVERAGE if share < 0.5 else None

    def _bounded(self, source: str, totals: Mapping[str, RouteTotals]) -> Mapping[str, RouteTotals]:
        """Of a flood of routes those that were counted before, then the first: memory must not grow with labels."""
        if len(totals) <= MOST_ROUTES:
            return totals
        known = self._sources.get(source)
        before = known.routes if known is not None else {}
        names = sorted(totals, key=lambda name: name not in before)[:MOST_ROUTES]
        self._report(source, Kind.FLOOD, f"{len(totals)} routes, expected {MOST_ROUTES} at most")
        return {name: totals[name] for name in names}

    def _fresh(self, now: float, sources: Collection[str]) -> list[str]:
        return [s for s in sources if s in self._sources and now - self._sources[s].at <= self.stale_seconds]

    def _first(self, source: str, started_at: float, at: float, totals: Mapping[str, RouteTotals]) -> None:
        """A new source is a base to count from, unless it is so young that all of it is news."""
        gone = self._gone.pop(source, None)
        seen_before = gone is not None and started_at <= gone[0] + START_SLACK_SECONDS
        young = 0.0 <= at - started_at <= self._block_seconds
        if young and started_at >= self._born and not seen_before:
            for route, counts in totals.items():
                if not self._leapt(source, route, _ZERO, counts, at - started_at):
                    self._add(source, route, _ZERO, counts, at - started_at)
        self._sources[source] = _Source(started_at, at, {route: _Base(at, counts) for route, counts in totals.items()})

    def _rebase(
        self, source: str, started_at: float, at: float, totals: Mapping[str, RouteTotals], kind: Kind, text: str
    ) -> None:
        self._report(source, kind, text)
        self._sources[source] = _Source(started_at, at, {route: _Base(at, counts) for route, counts in totals.items()})

    def _next(
        self,
        source: str,
        known: _Source,
        started_at: float,
        at: float,
        totals: Mapping[str, RouteTotals],
        named: Collection[str],
    ) -> None:
        # A later start alone may be a clock that was set. A new process started after the last sample of the old one,
        # and some counter of its is lower.
        later = started_at > max(known.started_at + START_SLACK_SECONDS, known.at - START_SLACK_SECONDS)
        if later and _restarted(known, totals, named):
            self._report(source, Kind.RESTART, "the router restarted: what it counted after the last sample is lost")
            known.routes = {}
            known.started_at = started_at
        before, known.at = known.at, at
        for route, counts in totals.items():
            base = known.routes.get(route) or _Base(before, _ZERO)
            if at - base.at > self.gap_seconds:
                self._report(source, Kind.GAP, f"{at - base.at:.0f} s without a usable count", route)
                known.routes[route] = _Base(at, counts)
            elif self._grew(source, route, base.totals, counts, at - base.at):
                self._add(source, route, base.totals, counts, at - base.at)
                known.routes[route] = _Base(at, counts)
            elif later:
                # Most likely a young process that has overtaken its predecessor: this interval cannot be told apart.
                known.routes[route] = _Base(at, counts)

    def _grew(self, source: str, route: str, old: RouteTotals, new: RouteTotals, seconds: float) -> bool:
        """Whether the difference is one that can be counted; if not, the next sample covers this interval too."""
        if _fell(old, new):
            self._report(source, Kind.COUNTER_FELL, "a counter fell though the router did not restart", route)
            return False
        if self._leapt(source, route, old, new, seconds):
            return False
        accepted, drafted = new.accepted - old.accepted, new.drafted - old.drafted
        if accepted > drafted or accepted > new.tokens - old.tokens:
            text = f"{accepted} tokens accepted of {drafted} drafted and {new.tokens - old.tokens} decoded"
            self._report(source, Kind.ACCEPTED_OVER_DRAFTED, text, route)
            return False
        return True

    def _leapt(self, source: str, route: str, old: RouteTotals, new: RouteTotals, seconds: float) -> bool:
        """Whether a counter grew by more than can be served in that time, as one does that wraps or holds rubbish."""
        most = MOST_PER_SECOND * max(seconds, 1.0)
        grown = {one.name: getattr(new, one.name) - getattr(old, one.name) for one in fields(RouteTotals)}
        beyond = {name: by for name, by in grown.items() if by > most}
        for name, by in beyond.items():
            self._report(source, Kind.LEAP, f"{name} grew by {by} in {seconds:.0f} s", route)
        return bool(beyond)

    def _add(self, source: str, route: str, old: RouteTotals, new: RouteTotals, seconds: float) -> None:
        before = self._pending.get((route, source), Increment())
        news = Increment(
            tokens=new.tokens - old.tokens,
            accepted=new.accepted - old.accepted,
            drafted=new.drafted - old.drafted,
            requests=new.requests - old.requests,
        )
        self._pending[route, source] = _sum(before, news, before.seconds + seconds)

    def _sound(self, source: str, route: str, counts: RouteTotals) -> bool:
        for name in (field.name for field in fields(RouteTotals)):
            value = getattr(counts, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                self._report(source, Kind.NOT_A_COUNT, f"{name} is no count: {value!r:.40}", route)
                return False
        if counts.accepted > min(counts.drafted, counts.tokens):
            text = f"{counts.accepted} tokens accepted of {counts.drafted} drafted and {counts.tokens} decoded"
            self._report(source, Kind.ACCEPTED_OVER_DRAFTED, text, route)
            return False
        return True

    def _report(self, source: str, kind: Kind, message: str, route: str | None = None) -> None:
        self._problems.append(SampleProblem(source, kind, message, route))


def _fell(old: RouteTotals, new: RouteTotals) -> bool:
    return (
        new.tokens < old.tokens
        or new.accepted < old.accepted
        or new.drafted < old.drafted
        or new.requests < old.requests
    )


def _restarted(known: _Source, totals: Mapping[str, RouteTotals], named: Collection[str]) -> bool:
    """Whether counters say so: one fell, or one that had counted is not there (Envoy shows none that never counted)."""
    return any(
        _fell(base.totals, totals[route]) if route in totals else route not in named and base.totals != _ZERO
        for route, base in known.routes.items()
    )


def _sum(one: Increment, other: Increment, seconds: float) -> Increment:
    return Increment(
        tokens=one.tokens + other.tokens,
        accepted=one.accepted + other.accepted,
        drafted=one.drafted + other.drafted,
        requests=one.requests + other.requests,
        seconds=seconds,
    )

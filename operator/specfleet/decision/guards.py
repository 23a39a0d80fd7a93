"""The guards: what takes a route out of speculation, or freezes it, without waiting for evidence. One table.

`GUARDS` is the order of precedence, as data; docs/reference/guards.md shows it. `resolved` follows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from specfleet.decision.reasons import Hold, Reason
from specfleet.decision.types import Guard


class Kind(StrEnum):
    """What a guard does."""

    HOLD = "hold"
    """Evidence, share and pool stay as they are."""
    OFF = "off"
    """The route leaves speculation at once, or stays out of it."""
    NOTE = "note"
    """A sentence; nothing changes."""


class Source(StrEnum):
    """Where its figures come from."""

    CLUSTER = "cluster"
    ROUTERS = "routers"
    ENGINES = "engine pages"
    BOTH = "routers and engine pages"


@dataclass(frozen=True, slots=True)
class Row:
    """One guard: its name (a Reason where it holds or acts), what trips it, and what it does beyond its kind."""

    name: str
    kind: Kind
    scope: str
    source: Source
    trips: str
    does: str
    explores: bool = True


def _hold(hold: Hold, scope: str, source: Source, trips: str, does: str) -> Row:
    return Row(hold.value, Kind.HOLD, scope, source, trips, does)


def _off(reason: Reason, scope: str, source: Source, trips: str, does: str, *, explores: bool = True) -> Row:
    return Row(reason.value, Kind.OFF, scope, source, trips, does, explores)


CANCELS_DIFFER = "CancelRatesDiffer"
ALL_ACCEPTED = "EveryDraftAccepted"
POD_FELL = "PodAcceptanceFell"

GUARDS: tuple[Row, ...] = (
    _hold(
        Hold.ROLLOUT_IN_PROGRESS,
        "all routes",
        Source.CLUSTER,
        "an upgrade of a pool is under way",
        "pods that are rolled without one come after `PoolsUnfit`",
    ),
    _hold(
        Hold.NO_READY_PODS,
        "all routes",
        Source.CLUSTER,
        "the speculative pool has no ready pod",
        "traffic goes to the other pool",
    ),
    _hold(
        Hold.POOLS_UNFIT,
        "all routes",
        Source.CLUSTER,
        "External pools are not one with speculation and one without",
        "",
    ),
    _hold(Hold.ROUTES_REJECTED, "all routes", Source.ROUTERS, "a router refused the last routing files", ""),
    _hold(
        Hold.METRICS_UNAVAILABLE,
        "all routes",
        Source.ROUTERS,
        "the counters that decisions rest on cannot be read; of fewer than half of the routers or engines "
        "(`InsufficientCoverage`) alike",
        "",
    ),
    _hold(
        Hold.OVERLOADED,
        "all routes; one route where only its SLO says so",
        Source.BOTH,
        "both pools queue or preempt in 2 blocks in a row, until 3 in a row have not both; or the SLO "
        "or the queue says off and baseline is not shown to be faster with the load",
        "because of one route's SLO for an hour at most, then the rule goes on",
    ),
    _off(
        Reason.REQUESTS_REFUSED,
        "route",
        Source.ROUTERS,
        "engines answer more requests with 4xx than baseline does: 5 at least, twice baseline's share, and chance 1 in "
        "10,000 or less (Fisher's exact test, the last 30 minutes). With fewer than 20 requests in baseline: 10 at "
        "least, and half of all",
        "explores no more until all pods of the pool are new, for 24 hours at most, or until baseline is seen to "
        "refuse as many",
        explores=False,
    ),
    _off(
        Reason.DRAFT_COLLAPSED,
        "all routes",
        Source.ENGINES,
        "under 3 % of the first drafted tokens are accepted in 3 blocks in a row of 200 drafts each: a draft that does "
        "not belong to its target. Heads and draft models only",
        "explores on, and comes back by evidence",
    ),
    _off(
        Reason.SLO_BREACHED,
        "route",
        Source.BOTH,
        "the percentile is over the SLO in 3 blocks in a row of 20 requests each, and baseline is faster with the load "
        "on it",
        "",
    ),
    _off(
        Reason.POOL_SATURATED,
        "one route at a time",
        Source.ENGINES,
        "the speculative pool queues or preempts in 5 blocks in a row while baseline does not, and baseline has room "
        "for the batch",
        "the route with the fewest tokens a step first; none comes back while the pool is so",
    ),
    _hold(
        Hold.ENGINE_SUPPRESSED,
        "all routes",
        Source.BOTH,
        "1,000 tokens in a row were decoded and none drafted, though the draft is a head or a model: the engine has "
        "stopped drafting itself. Engines that count themselves: all of their pods",
        "what it counts is no evidence against the draft; lookup may find nothing, and that is evidence",
    ),
    _hold(
        Hold.INSUFFICIENT_COVERAGE,
        "route",
        Source.ROUTERS,
        "fewer than half of the route's finished answers of the last 30 minutes carried figures, of 20 at least",
        "",
    ),
    _hold(
        Hold.POD_DECAYED,
        "all routes in speculation",
        Source.ENGINES,
        "one pod accepts less than 70 % of what it did in its first 2 hours, and less than 80 % of what its siblings "
        "do now",
        "names the pod; for one dwell, so that it can be restarted before a switch, then the rule goes on",
    ),
    Row(
        POD_FELL,
        Kind.NOTE,
        "all routes in speculation",
        Source.ENGINES,
        "as above, also after the dwell",
        "a restart of the pod is offered",
    ),
    Row(
        CANCELS_DIFFER,
        Kind.NOTE,
        "route",
        Source.ROUTERS,
        "clients hang up more often in one pool: 20 at least, 1.5 times the share, chance 1 in 10,000 or less",
        "both pools' figures are biased by it",
    ),
    Row(
        ALL_ACCEPTED,
        Kind.NOTE,
        "route",
        Source.ROUTERS,
        "every single drafted token of the last 30 minutes was accepted, 2,000 at least",
        "text that recites looks so; synthetic acceptance and a verification that is broken do too",
    ),
)

BY_NAME: Mapping[str, Row] = {row.name: row for row in GUARDS}


def resolved(found: Mapping[str, str]) -> tuple[Hold | None, Guard]:
    """What is to be done about one route, from the guards that have tripped and their sentences: the first of the table
    that holds or acts does, and notes are told."""
    notes = tuple(found[row.name] for row in GUARDS if row.kind is Kind.NOTE and row.name in found)
    for row in GUARDS:
        if row.name not in found or row.kind is Kind.NOTE:
            continue
        if row.kind is Kind.HOLD:
            return Hold(row.name), Guard(notes=(found[row.name], *notes))
        reason = Reason(row.name)
        return None, Guard(off=reason, stay_off=reason, explore=row.explores, why=found[row.name], notes=notes)
    return None, Guard(notes=notes)


def foremost(results: Iterable[tuple[Hold | None, Guard]]) -> tuple[Hold | None, Guard]:
    """What is to be done about routes that are decided together: what the table has first of all of theirs."""
    found = sorted(results, key=lambda one: _place(*one))
    notes = tuple(dict.fromkeys(note for _, guard in found for note in guard.notes))
    hold, guard = found[0] if found else (None, Guard())
    return hold, replace(guard, notes=notes)


def _place(hold: Hold | None, guard: Guard) -> int:
    name = hold.value if hold is not None else guard.off
    return len(GUARDS) if name is None else list(BY_NAME).index(name)


def told_only(guard: Guard) -> Guard:
    """The same for a route that a guard may not move: what it would do becomes a note."""
    if guard.off is None:
        return guard
    return Guard(notes=(f"Guard {guard.off} would switch it off: {guard.why}", *guard.notes))


def table() -> str:
    """The guards in their order, as a Markdown table."""
    lines = ["| | guard | does | to | sees it in | trips when | and |", "|---|---|---|---|---|---|---|"]
    lines += [
        f"| {place} | `{row.name}` | {row.kind} | {row.scope} | {row.source} | {row.trips} | {row.does} |"
        for place, row in enumerate(GUARDS, 1)
    ]
    return "\n".join(lines) + "\n"

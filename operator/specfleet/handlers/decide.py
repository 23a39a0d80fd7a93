"""From samples and policy to where each route belongs. Pure: the clock and the state are passed in."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from specfleet.api.names import BASELINE_POOL
from specfleet.api.status import RouteStatus
from specfleet.api.v1alpha1 import SpecDeploymentSpec
from specfleet.decision.break_even import Estimate
from specfleet.decision.break_even import sentence as found_by
from specfleet.decision.policy import route_config, with_line
from specfleet.decision.reasons import Hold
from specfleet.decision.rule import Block, Guard, Pool, Room, RouteConfig, RouteState, Verdict, decode, start, step
from specfleet.decision.samples import Increment, RouteTotals
from specfleet.handlers.fleet import Fleet
from specfleet.routing.counters import RouteRow, RouterSample

ALL_ROUTES = "*"  # the one row of engines that do not know of routes
HALF_PERCENT = 50  # a route with less of its traffic in speculation is off, and explores


@dataclass(frozen=True)
class RouteDecision:
    """One route after a step. `state` is to be kept only once the decision is committed.

    `line`: what its break-even line was found to be; None where that is not measured.
    """

    name: str
    config: RouteConfig
    state: RouteState
    verdict: Verdict
    line: Estimate | None = None


def pool_name(pool: Pool, draft: str) -> str:
    """The name of a pool in status and labels."""
    return BASELINE_POOL if pool == "baseline" else draft


def pool_roles(draft: str) -> dict[str, Pool]:
    """What the pools are, by their names in status and labels."""
    return {BASELINE_POOL: "baseline", draft: "speculative"}


def as_meant(
    rows: Iterable[RouteRow], pools: Mapping[str, Pool], routes: Container[str]
) -> Iterator[tuple[RouteRow, Pool]]:
    """Answers of a pool to requests that were meant for it; names that are no routes of the spec are passed over."""
    for row in rows:
        if row.route in routes and row.pool in pools and row.pool == row.intended:
            yield row, pools[row.pool]


def route_totals(sample: RouterSample, speculative_pool: str) -> dict[str, RouteTotals]:
    """What counts for decisions: answers of the speculative pool to requests that were meant for it."""
    return {
        row.route: RouteTotals(row.decode_tokens, row.accepted, row.drafted, row.measured)
        for row in sample.rows
        if row.pool == speculative_pool and row.intended == speculative_pool
    }


def coverage_percent(samples: Iterable[RouterSample], route: str, speculative_pool: str) -> int | None:
    """Share of the route's finished answers of the speculative pool that carried figures; None without any."""
    rows = [
        row
        for sample in samples
        for row in sample.rows
        if row.route == route and row.pool == speculative_pool and row.intended == speculative_pool
    ]
    finished = sum(row.finished for row in rows)
    return min(100, round(100 * sum(row.measured for row in rows) / finished)) if finished else None


def blocks(
    increments: Mapping[str, Increment], states: Mapping[str, RouteState], now: float, block_seconds: float
) -> dict[str, Block]:
    """The block of each route that ends now."""
    return {
        route: Block(
            at=now,
            tokens=one.tokens,
            accepted=one.accepted,
            drafted=one.drafted,
            requests=one.requests,
            share=states[route].percent / 100.0 if route in states else 1.0,
            seconds=min(max(one.seconds, 1.0), 2.0 * block_seconds) if one.seconds > 0.0 else None,
        )
        for route, one in increments.items()
    }


def hold_for(state: Fleet, metrics: Hold | None, routes_rejected: bool, *, upgrading: bool = False) -> Hold | None:
    """Why evidence is frozen, if it is; what is nearest to the cause goes first."""
    if state.speculative.absent:
        return None  # a pool alone, without speculation: there is nothing to be counted
    if upgrading:
        return Hold.ROLLOUT_IN_PROGRESS
    if state.speculative.ready == 0:
        return Hold.NO_READY_PODS
    if state.unfit is not None:
        return Hold.POOLS_UNFIT
    if state.speculative.rolling:
        return Hold.ROLLOUT_IN_PROGRESS
    return Hold.ROUTES_REJECTED if routes_rejected else metrics


def states_of(
    spec: SpecDeploymentSpec,
    known: Mapping[str, RouteState],
    status: Mapping[str, RouteStatus],
    now: float,
    traffic: Mapping[str, int] | None = None,
) -> dict[str, RouteState]:
    """The state of every route of the spec: remembered, else from status, else where its traffic goes, else a start.

    `traffic`: speculative percent by route, as routers serve it. A route that status has forgotten stays there, and
    its dwell begins anew.
    """
    served = traffic or {}
    return {
        name: known[name] if name in known else _restored(config, status.get(name), served.get(name), now)
        for name, config in configs(spec).items()
    }


def configs(spec: SpecDeploymentSpec) -> dict[str, RouteConfig]:
    """The policy of every route. Where there is one External pool only, each route is there from the start."""
    found = {
        route.name: route_config(
            spec.policy, draft_tokens=spec.draft.tokens, speculation=route.speculation, route=route.policy
        )
        for route in spec.routing.routes
    }
    external = spec.external
    if external is None or (external.baseline is not None and external.speculative is not None):
        return found
    only: Pool = "speculative" if external.baseline is None else "baseline"
    return {name: replace(config, initial=only, override="Auto", calibration=None) for name, config in found.items()}


def for_all_routes(spec: SpecDeploymentSpec, increment: Increment) -> dict[str, Increment]:
    """One count of all traffic as that of each route which the policy decides about."""
    return {name: increment for name, config in configs(spec).items() if config.override == "Auto"}


def grouped(spec: SpecDeploymentSpec, *, together: bool) -> dict[str, tuple[str, ...]]:
    """The routes that each route is decided with: itself, or with one count for all, those of the same policy."""
    found = configs(spec)
    if not together:
        return {name: (name,) for name in found}
    return {
        name: tuple(other for other, its in found.items() if its == config) if config.override == "Auto" else (name,)
        for name, config in found.items()
    }


def decide(
    spec: SpecDeploymentSpec,
    states: Mapping[str, RouteState],
    news: Mapping[str, Block],
    now: float,
    hold: Hold | None,
    rooms: Mapping[str, Room],
    *,
    together: bool = False,
    watched: Callable[[Iterable[str], RouteState], tuple[Hold | None, Guard]] = lambda routes, state: (None, Guard()),
    lines: Mapping[str, Estimate] | None = None,
) -> dict[str, RouteDecision]:
    """One step of every route, in the order of the spec; `together`, one step for all routes of the same policy.

    Routes that are decided together are where the first of them is, which may move one that was elsewhere before.
    `watched` tells what guards say of routes that are decided together; `hold` goes before it.
    `lines` are the break-even lines that are measured, by route.
    """
    decisions: dict[str, RouteDecision] = {}
    groups = grouped(spec, together=together)
    for name, config in configs(spec).items():
        first = groups[name][0]
        if first != name:
            one = decisions[first]
            moved = one.verdict.pool != states[name].served
            decisions[name] = replace(one, name=name, verdict=replace(one.verdict, switched=moved))
            continue
        line = (lines or {}).get(name)
        config = config if line is None else with_line(config, line, now)
        held, guard = watched([other for other, its in groups.items() if its[0] == name], states[name])
        state, verdict = step(
            states[name], config, news.get(name), now, hold=hold or held, room=rooms.get(name), guard=guard
        )
        found = "" if line is None else found_by(line, now)
        if found:
            verdict = replace(verdict, message=f"{verdict.message} {found}")
        decisions[name] = RouteDecision(name, config, state, verdict, line)
    return decisions


def weights(
    decisions: Mapping[str, RouteDecision],
    baseline_dead: bool,
    speculative_dead: bool,
    *,
    speculative_full: bool = False,
) -> dict[str, int]:
    """Speculative percent by route that routers are to serve. A pool without a ready pod gets nothing.

    With both dead the decision stands: there is nobody to send anything to. A full speculative pool keeps what it has,
    and no route that is off explores in it.
    """
    wanted = {
        name: 0 if speculative_full and one.verdict.pool == "baseline" else one.verdict.speculative_percent
        for name, one in decisions.items()
    }
    if speculative_dead and not baseline_dead:
        return dict.fromkeys(wanted, 0)
    if baseline_dead and not speculative_dead:
        return {name: 0 if decisions[name].config.override == "Never" else 100 for name in wanted}
    return wanted


def _restored(config: RouteConfig, status: RouteStatus | None, percent: int | None, now: float) -> RouteState:
    if status is not None:
        pool: Pool = "baseline" if status.pool == BASELINE_POOL else "speculative"
        return decode(status.state, config, now, pool=pool)
    if percent is not None:
        return replace(start(config, now, "speculative" if percent >= HALF_PERCENT else "baseline"), percent=percent)
    # A new route with an override begins where the override has it: that is no switch.
    return step(decode(None, config, now), config, None, now)[0]

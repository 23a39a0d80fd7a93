"""Everything that one pass computes, from what was read to what is to be written. Pure.

Decide, weigh, render where something is new, compare, and put the status together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from specfleet.api.conditions import ConditionType, Reason
from specfleet.api.names import BASELINE_POOL
from specfleet.api.status import RouteStatus, SpecDeploymentStatus
from specfleet.api.times import timestamp
from specfleet.api.v1alpha1 import SpecDeploymentSpec
from specfleet.capacity.room import room
from specfleet.cluster.applied import digest
from specfleet.decision.reasons import Hold
from specfleet.decision.rule import Room
from specfleet.handlers.by_hand import told
from specfleet.handlers.conditions import Said, Troubles, assess, conditions, first_sight
from specfleet.handlers.decide import (
    RouteDecision,
    coverage_percent,
    decide,
    grouped,
    hold_for,
    states_of,
    weights,
)
from specfleet.handlers.external import Assessment, sentence
from specfleet.handlers.fleet import Fleet
from specfleet.handlers.memory import Memory
from specfleet.handlers.observed import Key, OwnedRecord
from specfleet.handlers.outside import Outside
from specfleet.handlers.pace import measured_lines
from specfleet.handlers.plan import ObjectId, Plan, plan
from specfleet.handlers.planned import planned_limits
from specfleet.handlers.preflight import Gate
from specfleet.handlers.rendering import Checked, Renderer
from specfleet.handlers.sampling import metrics_hold
from specfleet.handlers.scraped import scraped_said
from specfleet.handlers.seen import SeenPool
from specfleet.handlers.status import assembled, parse_status, pools_status, route_status
from specfleet.handlers.step_times import measures
from specfleet.handlers.traffic import traffic
from specfleet.handlers.unfit import unread_pods
from specfleet.handlers.upgrade import Upgrade, upgrade
from specfleet.preflight.request import PreflightRequest
from specfleet.render.start import start_seconds

Body = dict[str, Any]
UNMEASURED = -1  # a pool of which it is not known what it carries has room for nothing


@dataclass(frozen=True)
class View:
    """Everything that one pass has computed. `moving`: an upgrade waits, as routers were seen to take files over."""

    spec: SpecDeploymentSpec
    state: Fleet
    decisions: Mapping[str, RouteDecision]
    plan: Plan
    version: str
    settled_key: str
    status: SpecDeploymentStatus
    moving: bool = False

    @property
    def switches(self) -> bool:
        """Whether a route changes its pool."""
        return any(one.verdict.switched for one in self.decisions.values())


def compute(
    key: Key,
    body: Body,
    checked: Checked,
    spec: SpecDeploymentSpec,
    memory: Memory,
    state: Fleet,
    owned: Mapping[ObjectId, OwnedRecord],
    renderer: Renderer,
    now: float,
    gate: Gate = Gate(),  # noqa: B008 - a frozen value
) -> View:
    """One whole pass's view of a valid SpecDeployment. `memory` is read; what it notes on the way can be lost."""
    before = parse_status(body)
    old_routes = {route.name: route for route in before.routes}
    rejected = memory.rejected(state.routers, memory.wanted_version)
    unread = metrics_hold(memory, state, now)
    states = states_of(spec, memory.routes, old_routes, now, _traffic(key, spec, memory, old_routes, owned))
    together = _together(memory)
    uncounted = unread or (
        memory.outside.hold(_speculative(memory, spec), now) if together and memory.outside else None
    )
    rooms = _rooms(checked, spec, memory, state, gate.sequences, renderer.routers, together=together)
    upgrading = partial(_upgrade, key, body, checked, spec, memory, state, owned, renderer, gate, before)
    upgraded = upgrading(moving=memory.moving(state.routers, now))
    state = upgraded.marked(state)
    if upgraded.redrafted:
        states = {name: one.forgetful() for name, one in states.items()}
    hold = hold_for(state, uncounted, rejected, upgrading=upgraded.frozen)
    guarding = memory.guarding
    guarding.recall({name: route.reason for name, route in old_routes.items()})
    lines = measured_lines(spec, memory.times, states, state, gate.plan, now, together=together)
    decided = decide(spec, states, memory.blocks, now, hold, rooms, together=together, watched=guarding.of, lines=lines)
    decisions = told(decided, memory.by_hand, now)
    dead = memory.dead(state, now, starting=not _has_been_ready(before))
    full = memory.outside is not None and memory.outside.full
    percents = weights(decisions, dead[BASELINE_POOL], dead[spec.draft.name], speculative_full=full)
    outside = memory.outside.assessment if memory.outside is not None else None
    inputs = [body["metadata"]["uid"], body["metadata"]["generation"], percents, _rendered_from(outside), gate.digest]
    inputs.append({name: word.word for name, word in memory.by_hand.items()})
    request = checked.preflight if gate.run else None
    planned = _planned(body, spec, percents, inputs, memory, state, owned, renderer, gate, request, upgraded, upgrading)
    actions, version, settled_key, upgraded = planned
    serving = memory.serving(state.routers, version)
    unseen = memory.unseen(state.routers, now)
    uncovered = together or memory.counts is not None
    routes = [
        route_status(
            decision,
            old_routes.get(name),
            spec.draft.name,
            serving,
            None if uncovered else _coverage(memory, name, spec.draft.name),
            applied_percent=percents[name],
            has_routers=bool(state.routers) and not unseen,
            slow=memory.pods_denied,
            together=together and decision.config.override == "Auto",
            now=now,
            by_hand=memory.by_hand.get(name),
        )
        for name, decision in decisions.items()
    ]
    generation = int(body["metadata"]["generation"])
    said = first_sight()
    if before.conditions:
        said = assess(
            state,
            routes,
            _metrics_said(memory, state, unread, uncounted),
            _troubles(memory, actions),
            (*(outside.warnings if outside is not None else ()), *checked.warnings),
            before,
            generation,
            pending=actions.workloads_pending,
            rejected=rejected,
            no_room=[name for name, decision in decisions.items() if decision.verdict.no_room],
            connected=memory.connected(state),
            unseen=unseen,
            unmeasured=[name for name, limit in outside.capacity.items() if limit is None] if outside else (),
            preflight=gate.said,
            suppressed=memory.counts.suppressed if memory.counts is not None else guarding.outcome.suppressed,
            upgrade=upgraded.status,
            guards=None if state.baseline.absent or state.speculative.absent else guarding.outcome,
        )
    status = assembled(
        name=key[1],
        namespace=key[0],
        generation=generation,
        conditions=conditions(said, before, generation, timestamp(now)),
        routes=routes,
        pools=pools_status(state),
        routes_version=version,
        attribution=_attribution(memory),
        preflight=gate.record,
        plan=gate.plan,
        upgrade=upgraded.status,
        curves=memory.times.curves.encode() if measures(spec) else None,
    )
    moving = upgraded.moving and bool(upgraded.waits)
    return View(spec, state, decisions, actions, version, settled_key, status, moving)


def _coverage(memory: Memory, route: str, draft: str) -> int | None:
    """Share of a route's answers that carried figures: of the last half hour, else since the routers started."""
    recent = memory.guarding.outcome.coverage.get(route)
    return coverage_percent(memory.counted.values(), route, draft) if recent is None else recent


def _traffic(
    key: Key,
    spec: SpecDeploymentSpec,
    memory: Memory,
    status: Mapping[str, RouteStatus],
    owned: Mapping[ObjectId, OwnedRecord],
) -> Mapping[str, int]:
    """Where routers send each route, if there is one of which nothing else is known."""
    if all(route.name in memory.routes or route.name in status for route in spec.routing.routes):
        return {}
    return traffic(memory.served.values(), owned, key[1], spec.draft.name)


def _together(memory: Memory) -> bool:
    """Whether there is one count for all routes."""
    if memory.counts is not None:
        return memory.counts.together
    outside = memory.outside
    return outside is not None and outside.assessment is not None and outside.assessment.attribution == "Deployment"


def _attribution(memory: Memory) -> Literal["Router", "Engine", "Deployment"]:
    """Where acceptance comes from."""
    if memory.counts is not None:
        return "Deployment" if memory.counts.together else "Engine"
    outside = memory.outside.assessment if memory.outside is not None else None
    return "Router" if outside is None else outside.attribution


def _speculative(memory: Memory, spec: SpecDeploymentSpec) -> SeenPool | None:
    seen = memory.outside.sight.seen if memory.outside is not None else None
    return (seen or {}).get(spec.draft.name)


def _rooms(
    checked: Checked,
    spec: SpecDeploymentSpec,
    memory: Memory,
    state: Fleet,
    sequences: Mapping[str, int],
    routers: int,
    *,
    together: bool,
) -> dict[str, Room]:
    """Whether each route, with those that are decided together with it, fits into either pool now.

    `sequences`: that a pod has room for, by pool, where the routers' limits follow the plan.
    """
    samples = memory.loads.values()
    active = [one.active for one in samples]
    breakers = planned_limits(checked.breakers, sequences, spec, routers)
    limits = {pool: limit * max(1, len(state.routers)) for pool, limit in breakers.items()}
    if memory.outside is not None:
        active.append(memory.outside.elsewhere)
        capacity = memory.outside.assessment.capacity if memory.outside.assessment is not None else {}
        limits = {pool: UNMEASURED if limit is None else limit for pool, limit in capacity.items()}
    return {
        name: Room(
            *room(
                active,
                sum(one.route_active.get(route, 0) for one in samples for route in group),
                limits,
                baseline_ready=state.baseline.ready > 0,
                speculative_ready=state.speculative.ready > 0,
                speculative_pool=spec.draft.name,
            )
        )
        for name, group in grouped(spec, together=together).items()
    }


def _rendered_from(outside: Assessment | None) -> list[Any]:
    """What of External pools the router's files depend on."""
    pools = outside.pools.values() if outside is not None else ()
    return [[p.name, p.service, p.headless, p.port, len(p.pods), p.release, p.max_sequences] for p in pools]


def _upgrade(
    key: Key,
    body: Body,
    checked: Checked,
    spec: SpecDeploymentSpec,
    memory: Memory,
    state: Fleet,
    owned: Mapping[ObjectId, OwnedRecord],
    renderer: Renderer,
    gate: Gate,
    before: SpecDeploymentStatus,
    *,
    moving: bool,
) -> Upgrade:
    return upgrade(
        key[1],
        spec,
        body["metadata"]["uid"],
        checked.pools,
        owned,
        state,
        before.upgrade,
        partial(renderer.template, body, spec),
        held=gate.held,
        moving=moving,
        reached=memory.reached(state),
        start_seconds=start_seconds(gate.weight_mebibytes, checked.usual_start_seconds),
    )


def _planned(
    body: Body,
    spec: SpecDeploymentSpec,
    percents: Mapping[str, int],
    inputs: list[Any],
    memory: Memory,
    state: Fleet,
    owned: Mapping[ObjectId, OwnedRecord],
    renderer: Renderer,
    gate: Gate,
    request: PreflightRequest | None,
    upgraded: Upgrade,
    again: Callable[..., Upgrade],
) -> tuple[Plan, str, str, Upgrade]:
    """The plan, the routes' version, the key of both, and what the upgrade comes to with that version.

    Nothing is rendered while neither input nor objects have changed.
    """
    settled_key = digest([*inputs, upgraded.digest])
    if memory.settled_key == settled_key and memory.wanted_version is not None and memory.agrees(owned):
        return Plan(wanted=memory.wanted), memory.wanted_version, settled_key, upgraded
    outside = memory.outside.assessment if memory.outside is not None else None
    pools = None if outside is None else outside.pools
    held = gate.held is not None
    alone, earlier = upgraded.alone, upgraded.from_release
    rendered = renderer.render(
        body,
        spec,
        percents,
        pools,
        preflight=request,
        held=held,
        sequences=gate.sequences,
        alone=alone,
        earlier=earlier,
        starts=upgraded.starts,
    )
    if state.routers and rendered.routes_version != memory.wanted_version:
        upgraded = again(moving=True)
        settled_key = digest([*inputs, upgraded.digest])
    replicas = {pool.name: pool.desired for pool in state.pools if pool.name in upgraded.waits}
    kept = gate.kept(body["metadata"]["name"], spec.draft.name)
    actions = plan(body, rendered.objects, owned, memory.verified, kept, replicas)
    return actions, rendered.routes_version, settled_key, upgraded


def view_pool(decision: RouteDecision, spec: SpecDeploymentSpec) -> str:
    """Name of the pool that a route was switched to."""
    return BASELINE_POOL if decision.verdict.pool == "baseline" else spec.draft.name


def _has_been_ready(before: SpecDeploymentStatus) -> bool:
    return any(c.type == ConditionType.RECONCILING and c.status == "False" for c in before.conditions)


def _troubles(memory: Memory, actions: Plan) -> Troubles:
    taken = {(one.kind, one.name) for one in actions.taken} | set(memory.taken)
    names = tuple(sorted(f"{kind.kind} {name}" for kind, name in taken))
    return Troubles(names, tuple(memory.refused.values()))


def _metrics_said(memory: Memory, state: Fleet, unread: Hold | None, uncounted: Hold | None) -> Said:
    if not state.routers:
        if memory.samples or memory.served:
            return Said("False", Reason.ROUTERS_UNREACHABLE, "No router pod is ready; the last decision holds.")
        return Said("Unknown", Reason.NO_DATA_YET, "No router pod is ready yet.")
    if memory.counts is not None:
        return memory.counts.said(unread)
    if memory.scraped is not None:
        said = scraped_said(memory.scraped, unread, memory.ledger.stale_seconds)
        if said is not None:
            return said
    if unread is Hold.METRICS_UNAVAILABLE:
        return Said("False", Reason.ROUTERS_UNREACHABLE, "No router answers; the last decision holds.")
    if unread is not None:
        return Said(
            "False", Reason.INSUFFICIENT_COVERAGE, "Fewer than half of the routers answer; the last decision holds."
        )
    if memory.implausible:
        return Said(
            "False",
            Reason.FIGURES_IMPLAUSIBLE,
            "Routers report figures that cannot be; they are left out of decisions.",
        )
    read = Said("True", Reason.ROUTERS_READ, "The routers' counters are read.")
    if memory.scraped is not None:
        read = Said("True", Reason.PROMETHEUS_READ, "The routers' counters are read from Prometheus.")
    outside = memory.outside
    if outside is None or outside.assessment is None:
        return read
    return _outside_said(read, outside, outside.assessment, uncounted)


def _outside_said(read: Said, outside: Outside, assessment: Assessment, uncounted: Hold | None) -> Said:
    """For External pools whose routers are `read`."""
    unread = unread_pods(outside.sight.seen or {})
    if assessment.attribution == "Router":
        more = f" {unread} Decisions do not rest on it." if unread else ""
        return replace(read, message=f"{read.message}{more}")
    if assessment.counters is not None:
        return Said("False", assessment.counters.reason, f"{assessment.counters.message}.")
    why = f"{sentence(assessment.why)}."
    if uncounted is not None:
        return Said("Unknown", Reason.NO_DATA_YET, f"{why} They have yet to be read. {unread}".rstrip())
    return Said("True", Reason.ENGINE_COUNTERS_READ, f"{why} {unread}".rstrip())

"""The conditions of a SpecDeployment from what is known of it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from specfleet.api.conditions import ConditionType, Reason
from specfleet.api.findings import Finding
from specfleet.api.names import BASELINE_POOL
from specfleet.api.status import Condition, RouteStatus, SpecDeploymentStatus, UpgradeStatus
from specfleet.decision.reasons import Hold
from specfleet.decision.watch import Outcome
from specfleet.handlers.external import sentence
from specfleet.handlers.fleet import Fleet, readiness
from specfleet.handlers.pods import Problem

Status = Literal["True", "False", "Unknown"]
_STALLING = (Reason.SERVICE_NOT_USABLE, Reason.DRAFT_INCOMPATIBLE)
_GOES_ON = "Traffic stays where it is, and nothing is decided."
_FULL = (Reason.UNSCHEDULABLE, Reason.QUOTA_EXCEEDED)


@dataclass(frozen=True)
class Said:
    """Status, reason and message of one condition."""

    status: Status
    reason: str
    message: str


# The same before anything was read as when nothing can be: that nothing changed is not to be written.
_LOAD_UNKNOWN = Said(
    "Unknown",
    Reason.LOAD_UNKNOWN,
    "The engines' pages do not tell of queues and preemptions: overload would not be seen, and guards that rest on "
    "these pages say nothing.",
)


@dataclass(frozen=True)
class Troubles:
    """What went wrong in applying: names that are taken, and what the API server refused."""

    taken: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


def conditions(
    said: dict[ConditionType, Said], before: SpecDeploymentStatus, generation: int, now: str
) -> list[Condition]:
    """As metav1.Condition; `lastTransitionTime` moves only with the status."""
    known = {condition.type: condition for condition in before.conditions}
    result = []
    for kind, one in said.items():
        old = known.get(kind)
        since = old.last_transition_time if old is not None and old.status == one.status else now
        result.append(
            Condition(
                type=kind.value,
                status=one.status,
                reason=one.reason,
                message=one.message,
                last_transition_time=since,
                observed_generation=generation,
            )
        )
    return result


def first_sight() -> dict[ConditionType, Said]:
    """Before anything is done: without conditions kstatus would call the object current."""
    return {
        ConditionType.READY: Said("Unknown", Reason.NOT_YET_OBSERVED, "The operator has just seen this."),
        ConditionType.RECONCILING: Said("True", Reason.ROLLING_OUT, "The objects are being applied."),
        ConditionType.STALLED: Said("False", Reason.NOT_STALLED, "Nothing waits for a person."),
    }


def invalid(
    findings: Iterable[Finding], before: SpecDeploymentStatus, state: Fleet | None
) -> dict[ConditionType, Said]:
    """For a spec that cannot be rendered: nothing is touched, what runs goes on."""
    found = list(findings)
    first = found[0]
    message = f"{first.path}: {first.message}"
    if len(found) > 1:
        message += f" ({len(found) - 1} more; specfleet validate lists them)"
    running = state is not None and any(one.ready for one in state.pools)
    kept = " What runs from the last valid spec goes on." if running else ""
    said = {
        ConditionType.READY: Said("False", Reason.SPEC_INVALID, message + kept),
        ConditionType.RECONCILING: Said("False", Reason.SPEC_INVALID, "Nothing can be done with this spec."),
        ConditionType.STALLED: Said("True", Reason.SPEC_INVALID, message),
        ConditionType.VALID: Said("False", first.reason, message),
    }
    others = {condition.type: condition for condition in before.conditions}
    for kind in ConditionType:
        if kind not in said and kind.value in others:
            old = others[kind.value]
            said[kind] = Said(old.status, old.reason, old.message)
    return said


def assess(
    state: Fleet,
    routes: list[RouteStatus],
    metrics: Said,
    troubles: Troubles,
    warnings: Iterable[Finding],
    before: SpecDeploymentStatus,
    generation: int,
    *,
    pending: bool,
    rejected: bool,
    no_room: Iterable[str],
    connected: bool = True,
    unseen: bool = False,
    unmeasured: Iterable[str] = (),
    preflight: Said | None = None,
    suppressed: str | None = None,
    upgrade: UpgradeStatus | None = None,
    guards: Outcome | None = None,
) -> dict[ConditionType, Said]:
    """All conditions of a valid spec.

    Args:
        pending: workloads are still to be written.
        connected: every router reaches the pools that are ready.
        unseen: no router can be asked what it serves, and decisions do not rest on asking.
        unmeasured: External pools of which it is not known what they carry.
        preflight: what is said of the draft, where it is compared with its target.
        suppressed: that engines draft nothing, and why that may be.
        upgrade: what status says of an upgrade that is under way.
        guards: what they made of the last block; None where there is one pool only.
    """
    reconciling = _reconciling(state, before, generation, troubles, pending, upgrade)
    found = {
        ConditionType.READY: _hung(_ready(state, troubles, connected or was_ready(before)), upgrade),
        ConditionType.RECONCILING: reconciling,
        ConditionType.STALLED: _hung(_stalled(state, troubles), upgrade),
        ConditionType.VALID: _valid(list(warnings)),
        ConditionType.METRICS_AVAILABLE: metrics,
        ConditionType.SPECULATION_ACTIVE: _active(state, routes, suppressed),
        ConditionType.CAPACITY_SUFFICIENT: _capacity(state, list(no_room), list(unmeasured)),
        ConditionType.MOVING: _moving(routes, rejected, unseen),
    }
    if guards is not None:
        found[ConditionType.OVERLOADED] = _overloaded(guards, before)
    return found if preflight is None else {**found, ConditionType.DRAFT_COMPATIBLE: preflight}


def was_ready(before: SpecDeploymentStatus) -> bool:
    """Whether condition Ready is True."""
    return any(one.type == ConditionType.READY and one.status == "True" for one in before.conditions)


def _ready(state: Fleet, troubles: Troubles, connected: bool) -> Said:
    if troubles.taken:
        return Said("False", Reason.NAME_TAKEN, _taken(troubles))
    if troubles.refused:
        return Said("False", Reason.APPLY_FAILED, "; ".join(troubles.refused))
    if state.unfit is not None:
        return Said("False", state.unfit.reason, f"{_sentence(state.unfit)} {_GOES_ON}")
    ready, reason, message = readiness(state)
    if ready and not connected:
        return Said("False", Reason.ROUTERS_CONNECTING, "All pods are ready; the routers have yet to reach some.")
    return Said("True" if ready else "False", reason, message)


def _hung(said: Said, upgrade: UpgradeStatus | None) -> Said:
    """With what becomes of the other pool, where an upgrade hangs."""
    if upgrade is None or upgrade.state != "Stuck" or upgrade.next is None or said.reason == Reason.NOT_STALLED:
        return said
    return replace(said, message=f"{said.message} Pool {upgrade.next} stays on its old template.")


def _taken(troubles: Troubles) -> str:
    return (
        f"{', '.join(troubles.taken)} exists and is not this SpecDeployment's; it is left alone. "
        "Rename the SpecDeployment, or delete that object."
    )


def _stalled(state: Fleet, troubles: Troubles) -> Said:
    if troubles.taken:
        return Said("True", Reason.NAME_TAKEN, _taken(troubles))
    if state.unfit is not None:
        return Said("True", state.unfit.reason, _sentence(state.unfit))
    for one in state.pools:
        if one.problem is not None and one.problem.reason in _STALLING:
            return Said("True", one.problem.reason, _sentence(one.problem))
    if state.overdue:
        return Said("True", Reason.PROGRESS_DEADLINE_EXCEEDED, readiness(state)[2])
    return Said("False", Reason.NOT_STALLED, "Nothing waits for a person.")


def _reconciling(
    state: Fleet,
    before: SpecDeploymentStatus,
    generation: int,
    troubles: Troubles,
    pending: bool,
    upgrade: UpgradeStatus | None,
) -> Said:
    done = Said("False", Reason.UP_TO_DATE, "The last change of spec is in force.")
    old = next((c for c in before.conditions if c.type == ConditionType.RECONCILING), None)
    if troubles.taken:
        return Said("False", Reason.NAME_TAKEN, "It goes on when the name is free.")
    if (
        old is not None
        and (old.status, old.reason) == ("False", Reason.UP_TO_DATE)
        and old.observed_generation == generation
    ):
        return done
    held = state.speculative.problem
    if held is not None and held.reason is Reason.DRAFT_INCOMPATIBLE and not pending:
        kept = "" if upgrade is None else " Both pools keep their old template."
        return Said("False", held.reason, f"The speculative pool is not made with this draft.{kept}")
    if state.rolled_out and not pending:
        return done
    if state.overdue and not pending:
        names = ", ".join(one.name for one in state.overdue)
        return Said("False", Reason.PROGRESS_DEADLINE_EXCEEDED, f"{names}: no progress within the deadline.")
    if upgrade is not None:
        return Said("True", Reason.ROLLING_OUT, f"Upgrade, {upgrade.changes}. {upgrade.message}")
    waiting = [f"{one.name} {one.ready} of {one.desired}" for one in state.workloads if not one.rolled_out]
    return Said("True", Reason.ROLLING_OUT, f"Waiting for pods of this spec: {', '.join(waiting) or 'all'}.")


def _valid(warnings: list[Finding]) -> Said:
    if not warnings:
        return Said("True", Reason.SPEC_VALID, "The spec can be rendered for this engine release.")
    told = "; ".join(f"{one.path}: {one.message}" for one in warnings[:3])
    return Said("True", Reason.SPEC_VALID, f"Rendered, with {len(warnings)} warning(s): {told}")


def _active(state: Fleet, routes: list[RouteStatus], suppressed: str | None) -> Said:
    on = [route.name for route in routes if route.pool != BASELINE_POOL]
    if not on:
        return Said("False", Reason.OFF_BY_POLICY, "Every route is served without speculation, as decided.")
    if state.speculative.ready == 0:
        return Said("False", Reason.SPECULATIVE_POOL_NOT_READY, f"No pod of pool {state.speculative.name} is ready.")
    if suppressed is not None:
        return Said("False", Reason.ENGINE_SUPPRESSED, suppressed)
    return Said("True", Reason.SPECULATING, f"With speculation: {', '.join(on)}.")


def _sentence(problem: Problem) -> str:
    return f"{sentence(problem.message)}."


def _capacity(state: Fleet, no_room: list[str], unmeasured: list[str]) -> Said:
    if unmeasured:
        waits = f" A switch of {', '.join(no_room)} waits for it." if no_room else ""
        return Said(
            "False",
            Reason.CAPACITY_UNKNOWN,
            f"How many requests a pod of pool {', '.join(unmeasured)} runs at once is not known: write maxSequences of "
            f"its Service in pools.external.{waits}",
        )
    if no_room:
        return Said(
            "False",
            Reason.NO_ROOM_TO_MOVE,
            f"A switch of {', '.join(no_room)} waits: the other pool cannot take its requests in flight now.",
        )
    for one in state.workloads:
        if one.problem is not None and one.problem.reason in _FULL:
            return Said("False", one.problem.reason, f"{one.name}: {one.problem.message}.")
    return Said("True", Reason.ROOM_TO_MOVE, "Decisions can be carried out.")


def _overloaded(guards: Outcome, before: SpecDeploymentStatus) -> Said:
    if not guards.judged:  # by this process: what the last one has said stands for a block
        old = next((one for one in before.conditions if one.type == ConditionType.OVERLOADED), None)
        if old is not None:
            return Said(old.status, old.reason, old.message)
        return _LOAD_UNKNOWN
    silent = f" Guards without figures: {', '.join(guards.silent)}." if guards.silent else ""
    if guards.overloaded is not None:
        return Said("True", Reason.POOLS_OVERLOADED, f"{guards.overloaded} Nothing moves until it is over.{silent}")
    if Hold.OVERLOADED in guards.silent:
        return _LOAD_UNKNOWN
    return Said("False", Reason.LOAD_BEARABLE, f"At least one pool has room.{silent}")


def _moving(routes: list[RouteStatus], rejected: bool, unseen: bool) -> Said:
    if unseen:
        return Said(
            "Unknown",
            Reason.ROUTERS_UNREACHABLE,
            "No router can be asked what it serves; it takes over new weights within 90 s.",
        )
    if rejected:
        return Said("False", Reason.ROUTES_REJECTED, "A router refused the new routes and goes on with the old ones.")
    moving = [route.name for route in routes if route.phase == "Moving"]
    if moving:
        return Said("True", Reason.SWITCHING, f"Routers are taking over new weights for {', '.join(moving)}.")
    return Said("False", Reason.SETTLED, "Every router serves what was decided.")

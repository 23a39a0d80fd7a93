"""The words of a decision that are part of the API: reasons, phases and what freezes evidence."""

from __future__ import annotations

from enum import StrEnum


class Phase(StrEnum):
    """What is going on with a route."""

    SETTLED = "Settled"
    MOVING = "Moving"
    EXPLORING = "Exploring"
    HELD = "Held"


class Hold(StrEnum):
    """Why evidence is frozen and the last decision stands. Each value is also a `Reason`."""

    METRICS_UNAVAILABLE = "MetricsUnavailable"
    INSUFFICIENT_COVERAGE = "InsufficientCoverage"
    ROLLOUT_IN_PROGRESS = "RolloutInProgress"
    NO_READY_PODS = "NoReadyPods"
    ROUTES_REJECTED = "RoutesRejected"
    POOLS_UNFIT = "PoolsUnfit"
    OVERLOADED = "Overloaded"
    ENGINE_SUPPRESSED = "EngineSuppressed"
    POD_DECAYED = "PodDecayed"


class Reason(StrEnum):
    """Why a route is where it is: stable, machine-readable, explained in docs/reference/decision.md."""

    PAYS = "Pays"
    GATHERING = "Gathering"
    NO_EVIDENCE = "NoEvidence"
    BELOW_ACCEPTANCE = "BelowAcceptance"
    BELOW_BREAK_EVEN = "BelowBreakEven"
    EXPLORING = "Exploring"
    NO_EXPLORATION = "NoExploration"
    NO_LINE = "NoLine"
    BREAK_EVEN_UNKNOWN = "BreakEvenUnknown"
    OVERRIDE_ALWAYS = "OverrideAlways"
    OVERRIDE_NEVER = "OverrideNever"
    NO_ROOM_TO_MOVE = "NoRoomToMove"
    METRICS_UNAVAILABLE = "MetricsUnavailable"
    INSUFFICIENT_COVERAGE = "InsufficientCoverage"
    ROLLOUT_IN_PROGRESS = "RolloutInProgress"
    NO_READY_PODS = "NoReadyPods"
    ROUTES_REJECTED = "RoutesRejected"
    POOLS_UNFIT = "PoolsUnfit"
    OVERLOADED = "Overloaded"
    ENGINE_SUPPRESSED = "EngineSuppressed"
    POD_DECAYED = "PodDecayed"
    REQUESTS_REFUSED = "RequestsRefused"
    DRAFT_COLLAPSED = "DraftCollapsed"
    SLO_BREACHED = "SloBreached"
    POOL_SATURATED = "PoolSaturated"


SENTENCES: dict[Reason, str] = {
    Reason.PAYS: "Speculation is on, and nothing that was counted speaks against it.",
    Reason.GATHERING: "Speculation is on; what was counted is too little to say whether it pays.",
    Reason.NO_EVIDENCE: "Nothing was counted yet: no finished request of this route carried acceptance figures.",
    Reason.BELOW_ACCEPTANCE: "Speculation is off: too few drafted tokens were accepted (minAcceptancePercent).",
    Reason.BELOW_BREAK_EVEN: "Speculation is off: a decode step yielded too few tokens to pay (breakEven).",
    Reason.EXPLORING: "The route starts in baseline; a share of it explores speculation until it is shown to pay.",
    Reason.NO_EXPLORATION: "The route is in baseline and nothing looks whether speculation would pay.",
    Reason.NO_LINE: "Neither minAcceptancePercent nor a breakEven is set, so there is nothing to decide by.",
    Reason.BREAK_EVEN_UNKNOWN: "The break-even line is not measured yet: both pools have to serve some of the traffic.",
    Reason.OVERRIDE_ALWAYS: "speculation: Always is set on the route.",
    Reason.OVERRIDE_NEVER: "speculation: Never is set on the route.",
    Reason.NO_ROOM_TO_MOVE: "A switch is due and waits: the other pool has no room for the route's requests in flight.",
    Reason.METRICS_UNAVAILABLE: "The counters that decisions rest on cannot be read; the last decision stands.",
    Reason.INSUFFICIENT_COVERAGE: "Fewer than half of the routers, or engines, report, or fewer than half of "
    "the answers carry figures; the last decision stands.",
    Reason.ROLLOUT_IN_PROGRESS: "The pools are being rolled to a new template; evidence waits until all pods carry it.",
    Reason.NO_READY_PODS: "The pool that the route should be served by has no ready pod; traffic stays elsewhere.",
    Reason.ROUTES_REJECTED: "A router refused the last routing files; nothing moves until they are served.",
    Reason.POOLS_UNFIT: "The External pools are not one with speculation and one without; the last decision stands.",
    Reason.OVERLOADED: "The pools are overloaded: every move is frozen, since one at the peak makes the peak larger.",
    Reason.ENGINE_SUPPRESSED: "The engine has stopped drafting itself, which is no evidence; the last decision stands.",
    Reason.POD_DECAYED: "One pod accepts less than it did; a switch waits for a dwell, for it to be restarted.",
    Reason.REQUESTS_REFUSED: "Speculation is off: its engines refuse requests (4xx) that baseline takes.",
    Reason.DRAFT_COLLAPSED: "Speculation is off: of the first drafted tokens hardly one is accepted.",
    Reason.SLO_BREACHED: "Speculation is off: it missed the SLO, and baseline is faster with the load.",
    Reason.POOL_SATURATED: "Speculation is off: its pool has been short of room, and baseline has not.",
}

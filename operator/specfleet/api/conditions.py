"""Condition types of a SpecDeployment and their stable reasons: the one table that code and documentation share."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from specfleet.api.findings import FINDING_SENTENCES


class ConditionType(StrEnum):
    """`status.conditions[].type`. Ready, Reconciling and Stalled follow the kstatus conventions."""

    READY = "Ready"
    RECONCILING = "Reconciling"
    STALLED = "Stalled"
    VALID = "Valid"
    DRAFT_COMPATIBLE = "DraftCompatible"
    METRICS_AVAILABLE = "MetricsAvailable"
    SPECULATION_ACTIVE = "SpeculationActive"
    CAPACITY_SUFFICIENT = "CapacitySufficient"
    MOVING = "Moving"
    OVERLOADED = "Overloaded"


CONDITION_SENTENCES: dict[ConditionType, str] = {
    ConditionType.READY: "Both pools and the router have their ready pods, and the last spec is in force. "
    "Speculation that is off by policy leaves it True.",
    ConditionType.RECONCILING: "The last change of spec is being carried out. A switch of a route is none.",
    ConditionType.STALLED: "Only a person can mend this.",
    ConditionType.VALID: "The spec can be rendered for this engine release.",
    ConditionType.DRAFT_COMPATIBLE: "The draft fits the target by both models' files. Absent where there is nothing to "
    "compare, and with preflight: Skip.",
    ConditionType.METRICS_AVAILABLE: "The routers' counters can be read and cover enough traffic to decide by.",
    ConditionType.SPECULATION_ACTIVE: "At least one route is served with speculation.",
    ConditionType.CAPACITY_SUFFICIENT: "The pools can take the traffic that decisions send to them.",
    ConditionType.MOVING: "A route is on its way from one pool to the other.",
    ConditionType.OVERLOADED: "Both pools are short of room, or moving would make it worse: every move is frozen. See "
    "[guards](guards.md).",
}


class Reason(StrEnum):
    """`status.conditions[].reason`, beside the reasons of findings (`Valid=False`)."""

    AVAILABLE = "Available"
    NOT_YET_OBSERVED = "NotYetObserved"
    PODS_NOT_READY = "PodsNotReady"
    ROUTER_NOT_READY = "RouterNotReady"
    ROUTERS_CONNECTING = "RoutersConnecting"
    IMAGE_NOT_AVAILABLE = "ImageNotAvailable"
    UNSCHEDULABLE = "Unschedulable"
    QUOTA_EXCEEDED = "QuotaExceeded"
    ADMISSION_DENIED = "AdmissionDenied"
    ENGINE_CRASHES = "EngineCrashes"
    ENGINE_NOT_STARTING = "EngineNotStarting"
    OUT_OF_MEMORY = "OutOfMemory"
    CONFIG_NOT_AVAILABLE = "ConfigNotAvailable"
    VOLUME_NOT_AVAILABLE = "VolumeNotAvailable"
    ROUTES_REJECTED = "RoutesRejected"
    APPLY_FAILED = "ApplyFailed"
    ROLLING_OUT = "RollingOut"
    UP_TO_DATE = "UpToDate"
    NOT_STALLED = "NotStalled"
    SPEC_INVALID = "SpecInvalid"
    NAME_TAKEN = "NameTaken"
    PROGRESS_DEADLINE_EXCEEDED = "ProgressDeadlineExceeded"
    SPEC_VALID = "SpecValid"
    DRAFT_FITS = "DraftFits"
    DRAFT_INCOMPATIBLE = "DraftIncompatible"
    PREFLIGHT_RUNNING = "PreflightRunning"
    PREFLIGHT_INCONCLUSIVE = "PreflightInconclusive"
    PREFLIGHT_TIMED_OUT = "PreflightTimedOut"
    ROUTERS_READ = "RoutersRead"
    ROUTERS_UNREACHABLE = "RoutersUnreachable"
    PROMETHEUS_READ = "PrometheusRead"
    PROMETHEUS_UNREACHABLE = "PrometheusUnreachable"
    PROMETHEUS_UNAUTHORIZED = "PrometheusUnauthorized"
    PROMETHEUS_FAILED = "PrometheusFailed"
    PROMETHEUS_PARTIAL = "PrometheusPartial"
    ROUTERS_NOT_SCRAPED = "RoutersNotScraped"
    SERIES_UNUSABLE = "SeriesUnusable"
    SERIES_STALE = "SeriesStale"
    INSUFFICIENT_COVERAGE = "InsufficientCoverage"
    FIGURES_IMPLAUSIBLE = "FiguresImplausible"
    NO_DATA_YET = "NoDataYet"
    SPECULATING = "Speculating"
    OFF_BY_POLICY = "OffByPolicy"
    SPECULATIVE_POOL_NOT_READY = "SpeculativePoolNotReady"
    ROOM_TO_MOVE = "RoomToMove"
    NO_ROOM_TO_MOVE = "NoRoomToMove"
    SERVICE_NOT_FOUND = "ServiceNotFound"
    SERVICE_PORT_NOT_FOUND = "ServicePortNotFound"
    SERVICE_WITHOUT_ENDPOINTS = "ServiceWithoutEndpoints"
    SERVICE_NOT_USABLE = "ServiceNotUsable"
    ENDPOINTS_NOT_READABLE = "EndpointsNotReadable"
    POOLS_OVERLAP = "PoolsOverlap"
    MIXED_PODS = "MixedPods"
    POOLS_SWAPPED = "PoolsSwapped"
    PODS_DO_NOT_SPECULATE = "PodsDoNotSpeculate"
    BASELINE_SPECULATES = "BaselineSpeculates"
    POOLS_DIFFER = "PoolsDiffer"
    ENGINE_COUNTERS_READ = "EngineCountersRead"
    ENGINE_METRICS_UNREADABLE = "EngineMetricsUnreadable"
    ENGINE_METRICS_LOCKED = "EngineMetricsLocked"
    ENGINE_COUNTS_NOTHING = "EngineCountsNothing"
    ENGINE_SUPPRESSED = "EngineSuppressed"
    CAPACITY_UNKNOWN = "CapacityUnknown"
    SWITCHING = "Switching"
    SETTLED = "Settled"
    POOLS_OVERLOADED = "PoolsOverloaded"
    LOAD_BEARABLE = "LoadBearable"
    LOAD_UNKNOWN = "LoadUnknown"


@dataclass(frozen=True)
class ReasonEntry:
    """One row of the table: which conditions carry the reason, with which status, and what it says."""

    conditions: tuple[ConditionType, ...]
    status: str
    sentence: str


_C = ConditionType
REASONS: dict[Reason, ReasonEntry] = {
    Reason.AVAILABLE: ReasonEntry((_C.READY,), "True", "Both pools and the router serve."),
    Reason.NOT_YET_OBSERVED: ReasonEntry((_C.READY, _C.VALID), "Unknown", "The operator has not looked at it yet."),
    Reason.PODS_NOT_READY: ReasonEntry((_C.READY,), "False", "Engine pods are starting; the message counts them."),
    Reason.ROUTER_NOT_READY: ReasonEntry((_C.READY,), "False", "No router pod is ready: nothing is served."),
    Reason.ROUTERS_CONNECTING: ReasonEntry(
        (_C.READY,), "False", "All pods are ready; a router has yet to find some by DNS and to check their health."
    ),
    Reason.IMAGE_NOT_AVAILABLE: ReasonEntry((_C.READY,), "False", "An image cannot be pulled."),
    Reason.UNSCHEDULABLE: ReasonEntry(
        (_C.READY, _C.CAPACITY_SUFFICIENT), "False", "No node has room for a pod, or the accelerators that it asks for."
    ),
    Reason.QUOTA_EXCEEDED: ReasonEntry(
        (_C.READY, _C.CAPACITY_SUFFICIENT), "False", "A resource quota of the namespace keeps pods from being made."
    ),
    Reason.ADMISSION_DENIED: ReasonEntry((_C.READY,), "False", "Admission (pod security, a webhook) refuses the pods."),
    Reason.ENGINE_CRASHES: ReasonEntry((_C.READY,), "False", "The engine starts and ends again."),
    Reason.ENGINE_NOT_STARTING: ReasonEntry((_C.READY,), "False", "The engine's container cannot be started."),
    Reason.OUT_OF_MEMORY: ReasonEntry((_C.READY,), "False", "The engine was killed for want of memory."),
    Reason.CONFIG_NOT_AVAILABLE: ReasonEntry(
        (_C.READY,), "False", "A Secret or ConfigMap that the pods refer to is missing, or its key is."
    ),
    Reason.VOLUME_NOT_AVAILABLE: ReasonEntry((_C.READY,), "False", "A volume cannot be mounted."),
    Reason.ROUTES_REJECTED: ReasonEntry(
        (_C.MOVING,), "False", "A router refused the new routes and goes on with the old ones."
    ),
    Reason.APPLY_FAILED: ReasonEntry((_C.READY,), "False", "The API server refused an object that was applied."),
    Reason.ROLLING_OUT: ReasonEntry((_C.RECONCILING,), "True", "The last change of spec is being rolled out."),
    Reason.UP_TO_DATE: ReasonEntry((_C.RECONCILING,), "False", "The last change of spec is in force."),
    Reason.NOT_STALLED: ReasonEntry((_C.STALLED,), "False", "Nothing waits for a person."),
    Reason.SPEC_INVALID: ReasonEntry(
        (_C.STALLED, _C.READY, _C.RECONCILING),
        "True, False, False",
        "The spec cannot be rendered; condition Valid says why.",
    ),
    Reason.NAME_TAKEN: ReasonEntry(
        (_C.STALLED, _C.READY, _C.RECONCILING),
        "True, False, False",
        "An object of this name exists and is not ours; it is left alone.",
    ),
    Reason.PROGRESS_DEADLINE_EXCEEDED: ReasonEntry(
        (_C.STALLED, _C.READY, _C.RECONCILING),
        "True, False, False",
        "Pods have not become ready within the start-up probe's time.",
    ),
    Reason.SPEC_VALID: ReasonEntry((_C.VALID,), "True", "The spec can be rendered for this engine release."),
    Reason.DRAFT_FITS: ReasonEntry((_C.DRAFT_COMPATIBLE,), "True", "Draft and target agree in everything compared."),
    Reason.DRAFT_INCOMPATIBLE: ReasonEntry(
        (_C.DRAFT_COMPATIBLE, _C.READY, _C.STALLED, _C.RECONCILING),
        "False, False, True, False",
        "The draft does not fit the target; the message has both values. Baseline serves.",
    ),
    Reason.PREFLIGHT_RUNNING: ReasonEntry(
        (_C.DRAFT_COMPATIBLE, _C.READY), "Unknown, False", "Both models' files are being compared; baseline serves."
    ),
    Reason.PREFLIGHT_INCONCLUSIVE: ReasonEntry(
        (_C.DRAFT_COMPATIBLE,),
        "Unknown",
        "Something could not be read or the Job failed; it counts as a warning, and the speculative pool is made.",
    ),
    Reason.PREFLIGHT_TIMED_OUT: ReasonEntry(
        (_C.DRAFT_COMPATIBLE,),
        "Unknown",
        "There was no verdict in time; it counts as a warning, and the speculative pool is made.",
    ),
    Reason.ROUTERS_READ: ReasonEntry((_C.METRICS_AVAILABLE,), "True", "The routers' counters are read."),
    Reason.ROUTERS_UNREACHABLE: ReasonEntry(
        (_C.METRICS_AVAILABLE, _C.MOVING),
        "False, Unknown",
        "No router answers: the last decision holds. With source Prometheus it goes on; what is served is unknown.",
    ),
    Reason.PROMETHEUS_READ: ReasonEntry(
        (_C.METRICS_AVAILABLE,), "True", "The routers' counters are read from Prometheus (source: Prometheus)."
    ),
    Reason.PROMETHEUS_UNREACHABLE: ReasonEntry(
        (_C.METRICS_AVAILABLE,),
        "False",
        "Prometheus cannot be reached, or does not answer in time; the last decision holds.",
    ),
    Reason.PROMETHEUS_UNAUTHORIZED: ReasonEntry(
        (_C.METRICS_AVAILABLE,),
        "False",
        "Prometheus asks for credentials or refuses them, or their file cannot be read; the last decision holds.",
    ),
    Reason.PROMETHEUS_FAILED: ReasonEntry(
        (_C.METRICS_AVAILABLE,),
        "False",
        "Prometheus answers with an error, or what answers there is no Prometheus; the last decision holds.",
    ),
    Reason.PROMETHEUS_PARTIAL: ReasonEntry(
        (_C.METRICS_AVAILABLE,),
        "False",
        "Prometheus warns that parts of its answer are missing; the last decision holds.",
    ),
    Reason.ROUTERS_NOT_SCRAPED: ReasonEntry(
        (_C.METRICS_AVAILABLE,),
        "False",
        "Prometheus has no series of these routers: nothing scrapes them, or labels `namespace` and `pod` are missing.",
    ),
    Reason.SERIES_UNUSABLE: ReasonEntry(
        (_C.METRICS_AVAILABLE,),
        "False",
        "Prometheus has the routers' series, and what is dropped or renamed on the way keeps them from being used.",
    ),
    Reason.SERIES_STALE: ReasonEntry(
        (_C.METRICS_AVAILABLE,),
        "False",
        "The newest samples that Prometheus has of the routers are too old; the last decision holds.",
    ),
    Reason.INSUFFICIENT_COVERAGE: ReasonEntry(
        (_C.METRICS_AVAILABLE,), "False", "Too few answers carry figures to decide by; the last decision holds."
    ),
    Reason.FIGURES_IMPLAUSIBLE: ReasonEntry(
        (_C.METRICS_AVAILABLE,), "False", "Counters run backwards or accept more than was drafted; they are dropped."
    ),
    Reason.NO_DATA_YET: ReasonEntry((_C.METRICS_AVAILABLE,), "Unknown", "There has been no sample yet."),
    Reason.SPECULATING: ReasonEntry((_C.SPECULATION_ACTIVE,), "True", "At least one route is served with speculation."),
    Reason.OFF_BY_POLICY: ReasonEntry(
        (_C.SPECULATION_ACTIVE,), "False", "Every route is served without speculation, as decided. This is healthy."
    ),
    Reason.SPECULATIVE_POOL_NOT_READY: ReasonEntry(
        (_C.SPECULATION_ACTIVE,), "False", "No speculative pod is ready; baseline serves."
    ),
    Reason.ROOM_TO_MOVE: ReasonEntry((_C.CAPACITY_SUFFICIENT,), "True", "Decisions can be carried out."),
    Reason.NO_ROOM_TO_MOVE: ReasonEntry(
        (_C.CAPACITY_SUFFICIENT,), "False", "A switch waits: the other pool cannot take the route's traffic now."
    ),
    Reason.SERVICE_NOT_FOUND: ReasonEntry(
        (_C.READY,), "False", "A Service that pools.external names does not exist; the other pool serves."
    ),
    Reason.SERVICE_PORT_NOT_FOUND: ReasonEntry(
        (_C.READY,), "False", "A Service that pools.external names has no such port; the message lists those it has."
    ),
    Reason.SERVICE_WITHOUT_ENDPOINTS: ReasonEntry(
        (_C.READY,), "False", "A Service that pools.external names selects no pod; the other pool serves."
    ),
    Reason.SERVICE_NOT_USABLE: ReasonEntry(
        (_C.STALLED, _C.READY),
        "True, False",
        "A Service of pools.external leads elsewhere than to engine pods.",
    ),
    Reason.ENDPOINTS_NOT_READABLE: ReasonEntry(
        (_C.READY,), "False", "The operator may not read the Services, endpoints or pods of External pools."
    ),
    Reason.POOLS_OVERLAP: ReasonEntry(
        (_C.STALLED, _C.READY),
        "True, False",
        "Both Services of External pools select one pod; nothing is decided.",
    ),
    Reason.MIXED_PODS: ReasonEntry(
        (_C.STALLED, _C.READY),
        "True, False",
        "One Service selects pods that speculate and pods that do not; nothing is decided.",
    ),
    Reason.POOLS_SWAPPED: ReasonEntry(
        (_C.STALLED, _C.READY), "True, False", "The two Services are each other's; nothing is decided."
    ),
    Reason.PODS_DO_NOT_SPECULATE: ReasonEntry(
        (_C.STALLED, _C.READY), "True, False", "The pods of the speculative Service do not speculate."
    ),
    Reason.BASELINE_SPECULATES: ReasonEntry(
        (_C.STALLED, _C.READY), "True, False", "The pods of the baseline Service speculate."
    ),
    Reason.POOLS_DIFFER: ReasonEntry(
        (_C.STALLED, _C.READY), "True, False", "A request would be answered by one pool and refused by the other."
    ),
    Reason.ENGINE_COUNTERS_READ: ReasonEntry(
        (_C.METRICS_AVAILABLE,),
        "True",
        "The engines' own counters are read, since their answers carry no figures; the message says whether by route.",
    ),
    Reason.ENGINE_METRICS_UNREADABLE: ReasonEntry(
        (_C.METRICS_AVAILABLE,), "False", "Decisions rest on the engines' counters, and their metrics cannot be read."
    ),
    Reason.ENGINE_METRICS_LOCKED: ReasonEntry(
        (_C.METRICS_AVAILABLE,), "False", "Decisions rest on the engines' counters, and their metrics want a key."
    ),
    Reason.ENGINE_COUNTS_NOTHING: ReasonEntry(
        (_C.METRICS_AVAILABLE,), "False", "The engine counts nothing from which acceptance could be told."
    ),
    Reason.ENGINE_SUPPRESSED: ReasonEntry(
        (_C.SPECULATION_ACTIVE,),
        "False",
        "No engine of the speculative pool drafts any more, though they generate: something in the engine stopped it.",
    ),
    Reason.CAPACITY_UNKNOWN: ReasonEntry(
        (_C.CAPACITY_SUFFICIENT,), "False", "How many requests a pod runs at once is not known; nothing moves there."
    ),
    Reason.SWITCHING: ReasonEntry((_C.MOVING,), "True", "Routers are taking over new weights."),
    Reason.SETTLED: ReasonEntry((_C.MOVING,), "False", "Every router serves what was decided."),
    Reason.POOLS_OVERLOADED: ReasonEntry(
        (_C.OVERLOADED,), "True", "Requests queue, or an SLO is missed, and no move would help; evidence is frozen."
    ),
    Reason.LOAD_BEARABLE: ReasonEntry((_C.OVERLOADED,), "False", "At least one pool has room."),
    Reason.LOAD_UNKNOWN: ReasonEntry(
        (_C.OVERLOADED,), "Unknown", "Fewer than half of the engines of a pool tell their load."
    ),
}


def markdown_tables() -> str:
    """The reference tables of conditions, their reasons and the reasons of findings, as Markdown."""
    rows = ["| condition | meaning |", "|---|---|"]
    rows += [f"| `{kind}` | {sentence} |" for kind, sentence in CONDITION_SENTENCES.items()]
    rows += ["", "| reason | condition | status | meaning |", "|---|---|---|---|"]
    for reason, entry in REASONS.items():
        kinds = ", ".join(f"`{kind}`" for kind in entry.conditions)
        rows.append(f"| `{reason}` | {kinds} | {entry.status} | {entry.sentence} |")
    rows += ["", "| reason of `Valid=False` and of `specfleet validate` | meaning |", "|---|---|"]
    rows += [f"| `{reason}` | {sentence} |" for reason, sentence in FINDING_SENTENCES.items()]
    return "\n".join(rows) + "\n"

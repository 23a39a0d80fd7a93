"""What guards look at: the figures of one block. Everything may be missing, and what is missing says nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from specfleet.decision.reasons import Reason
from specfleet.decision.types import Pool


@dataclass(frozen=True, slots=True)
class Tail:
    """A percentile of times, in seconds, and the number of requests that it is over."""

    seconds: float
    requests: int


@dataclass(frozen=True, slots=True)
class Answers:
    """What became of requests in one pool that were meant for it, in one block.

    `ended` are all; `finished` were answered 2xx to the last byte, `refused` with 4xx by an engine, `cancelled` by a
    client that hung up. `measured` of the finished ones carried acceptance figures: over these, decode tokens, drafted
    and accepted ones.
    """

    ended: int = 0
    finished: int = 0
    refused: int = 0
    cancelled: int = 0
    measured: int = 0
    tokens: int = 0
    drafted: int = 0
    accepted: int = 0
    time_per_output_token: Tail | None = None
    time_to_first_token: Tail | None = None

    def __add__(self, other: Answers) -> Answers:
        """Counts of both; times are those of a block and add up to nothing."""
        return Answers(
            self.ended + other.ended,
            self.finished + other.finished,
            self.refused + other.refused,
            self.cancelled + other.cancelled,
            self.measured + other.measured,
            self.tokens + other.tokens,
            self.drafted + other.drafted,
            self.accepted + other.accepted,
        )


@dataclass(frozen=True, slots=True)
class Slo:
    """Times that a percentile of requests is to keep, in seconds; None where there is no such goal."""

    time_per_output_token: float | None = None
    time_to_first_token: float | None = None
    percentile: int = 95


@dataclass(frozen=True, slots=True)
class Predicted:
    """Times per output token that the measured curves say, in seconds: of baseline at the batch that it would have with
    the route, and of speculation at the batch that it has now."""

    baseline_then: float
    speculation_now: float


@dataclass(frozen=True, slots=True)
class RouteSeen:
    """One route in one block.

    Attributes:
        mode: where the rule has it, since `since`, by `cause` if it went off, as `told`.
        served: where it is served, since `served_since`, `percent` of its traffic with speculation.
        active: its requests in flight.
        tokens_per_step: L of its last blocks.
    """

    name: str
    mode: Pool
    served: Pool
    since: float
    served_since: float
    percent: int
    cause: Reason | None = None
    told: str = ""
    speculative: Answers = field(default_factory=Answers)
    baseline: Answers = field(default_factory=Answers)
    slo: Slo | None = None
    active: int | None = None
    predicted: Predicted | None = None
    tokens_per_step: float | None = None
    judged: bool = True  # False where a person's override has it, or under Observe


@dataclass(frozen=True, slots=True)
class PodSeen:
    """One engine pod: its gauges, and what it has counted in this block and since its process started.

    `kv_used` is 0 to 1. `trials` are what acceptance is counted over (rounds, or drafted tokens), `first_trials` and
    `first_accepted` the same of the first drafted token of each round.
    """

    uid: str
    name: str
    pool: Pool
    running: int | None = None
    waiting: int | None = None
    kv_used: float | None = None
    preempted: int | None = None
    trials: int | None = None
    accepted: int | None = None
    first_trials: int | None = None
    first_accepted: int | None = None
    life_trials: int | None = None
    life_accepted: int | None = None
    age_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Seen:
    """Everything of one SpecDeployment in one block.

    Attributes:
        pods: those that were read; `ready` says how many of each pool are ready.
        baseline_tpot, baseline_ttft: over all routes of baseline, by the percentile of an SLO.
        renewed: the time after which all ready pods of the speculative pool were made; None where it is not known.
        learned_draft: the draft is a head or a model, which drafts in each round.
        suppressed: that the engines draft no more, where their own pages say so.
        by_router: acceptance is counted by the routers.
    """

    now: float
    block_seconds: float
    dwell_seconds: float
    routes: tuple[RouteSeen, ...]
    pods: tuple[PodSeen, ...] = ()
    ready: Mapping[Pool, int] = field(default_factory=dict)
    baseline_tpot: Mapping[int, Tail] = field(default_factory=dict)
    baseline_ttft: Mapping[int, Tail] = field(default_factory=dict)
    renewed: float | None = None
    learned_draft: bool = True
    suppressed: str | None = None
    by_router: bool = True

"""What goes into a decision and what comes out."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from specfleet.decision.reasons import Phase, Reason

Pool = Literal["speculative", "baseline"]
Line = Literal["Acceptance", "BreakEven"]
Override = Literal["Auto", "Always", "Never"]
Certainty = Literal["Known", "Extrapolated", "Prior"]
"""How sure a measured break-even line is: read off two curves, off one that has to be prolonged, or not measured."""

LINES: tuple[Line, ...] = ("Acceptance", "BreakEven")
POOLS: tuple[Pool, ...] = ("baseline", "speculative")

DAY_SECONDS = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Calibration:
    """A window of each day, `start` seconds after midnight UTC, in which `percent` of a route goes to the other pool
    while its measured line is not Known."""

    percent: int
    start: float
    seconds: float

    def end(self, now: float) -> float | None:
        """When the window that `now` lies in ends, in epoch seconds; None outside of it."""
        begun = now - (now - self.start) % DAY_SECONDS
        return begun + self.seconds if now < begun + self.seconds else None


@dataclass(frozen=True, slots=True)
class RouteConfig:
    """The policy of one route, in plain values.

    `draft_tokens` is k, the tokens drafted a round. `min_acceptance_percent` (accepted over drafted, 1 to 100) and
    `break_even` (tokens per decode step, 1 or more) are the two lines; None is a line that is not set.

    `certainty` None is a break-even line that a person has fixed; else it is measured, and `break_even` is what it is
    now, at the batch that the route's pool runs. Only one that is Known switches a route off; one that is Prior says
    nothing, and the route explores for it to become known. `calibrating_until` is the end of the calibration window
    that is open for that now; None where none is.
    """

    initial: Pool = "baseline"
    enforce: bool = True
    override: Override = "Auto"
    draft_tokens: int = 4
    min_acceptance_percent: int | None = None
    break_even: Decimal | float | None = None
    certainty: Certainty | None = None
    block_seconds: float = 60.0
    dwell_seconds: float = 600.0
    exploration_max_percent: int = 10
    calibration: Calibration | None = None
    calibrating_until: float | None = None

    def line_value(self, line: Line) -> float | None:
        """The value that a line's x is held against, in tokens per step; None where the line is not set."""
        if line == "BreakEven":
            return None if self.break_even is None or self.certainty == "Prior" else float(self.break_even)
        if self.min_acceptance_percent is None:
            return None
        return 1.0 + self.draft_tokens * self.min_acceptance_percent / 100.0

    @property
    def has_line(self) -> bool:
        """Whether there is anything to decide by, now or once it is measured."""
        return self.certainty is not None or any(self.line_value(line) is not None for line in LINES)

    def may_switch_off(self, line: Line) -> bool:
        """Whether evidence against this line is enough to take a route out of speculation."""
        return line != "BreakEven" or self.certainty in (None, "Known")


@dataclass(frozen=True, slots=True)
class Block:
    """One interval's increments of a route's rows in the speculative pool.

    `at` is its end, in seconds since the epoch; `tokens` are decode tokens (completion tokens less one a request),
    `requests` finished requests, `share` the fraction of the route's traffic that went to speculation meanwhile.
    `seconds` is the interval's length; None means the policy's block.
    """

    at: float
    tokens: int
    accepted: int
    drafted: int
    requests: int
    share: float
    seconds: float | None = None

    @property
    def tokens_per_step(self) -> float | None:
        """L = N / (N - A); None without decode steps."""
        steps = self.tokens - self.accepted
        return self.tokens / steps if steps > 0 else None


@dataclass(frozen=True, slots=True)
class Room:
    """Whether a pool could take the whole route now."""

    to_baseline: bool = True
    to_speculation: bool = True


@dataclass(frozen=True, slots=True)
class Guard:
    """What the guards say of one route now. They act without a score: what they see cannot wait for evidence.

    `off` takes the route out of speculation, also during a ramp or a dwell; `stay_off` keeps one that is off from
    coming back, and `explore` False stops its exploration as well. `calibrate` False keeps measuring of the other pool
    from taking traffic. `why` is the sentence behind `off` or `stay_off`, with figures. `notes` are sentences that
    change nothing.
    """

    off: Reason | None = None
    stay_off: Reason | None = None
    explore: bool = True
    why: str = ""
    notes: tuple[str, ...] = ()
    calibrate: bool = True


@dataclass(frozen=True, slots=True)
class Evidence:
    """The score of one line towards the next switch. At `score` >= `threshold` the line says to switch."""

    line: Line
    score: float
    threshold: float
    requests: int


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer to one step. `pool` serves the route, or is to; `wanted_pool` is what the rule alone would choose.

    `speculative_percent` is the share of traffic to send to speculation; `calibrating` is the percentage that goes to
    the pool that does not serve the route, to measure it. `tokens_per_step_interval` is a 95 % interval
    over the last blocks, None with fewer than two. `switched` is true on the step that moves `pool`.
    """

    pool: Pool
    wanted_pool: Pool
    phase: Phase
    reason: Reason
    message: str
    speculative_percent: int
    tokens_per_step: float | None
    tokens_per_step_interval: tuple[float, float] | None
    acceptance_percent: int | None
    evidence: Evidence | None
    switched: bool
    next_look_at: float | None
    no_room: bool
    calibrating: int

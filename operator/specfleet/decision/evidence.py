"""The evidence score of one line: a CUSUM of log-likelihood ratios over blocks, with requests as the sample size.

Counted tokens of one request are alike, so tokens are not independent and the noise of a block is learned from how much
blocks differ, per request. Page's CUSUM with a per-block cap; its average run length grows with exp(h) (Lorden 1971).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from itertools import pairwise

from specfleet.decision.types import Block, Line, Pool, RouteConfig

THRESHOLD: dict[Pool, float] = {"speculative": 9.2, "baseline": 6.9}  # to leave that pool: h_off, h_on
MID: dict[Pool, float] = {"speculative": 0.98, "baseline": 1.03}  # of the line's value: hysteresis
DELTA = 0.05
TAU = 0.05
MIN_REQUESTS = 10
BLOCK_REQUESTS = 3
THIN_BLOCKS = 3  # intervals after which a block of thin traffic closes with fewer requests
BLOCK_STEPS = 20
BLOCK_DRAFTED = 20
VARIANCE_PRIOR, VARIANCE_MIN, VARIANCE_MAX = 0.5, 0.05, 5.0
LEARNING = 0.02  # of a block's news, for the variance and for the steps of a request
STEPS_PER_REQUEST_PRIOR = 120.0
STEPS_PRIOR_REQUESTS = 5
KEPT_BLOCKS = 10
LOOK_BACK = 6
MIN_SPAN = 5
GATHER_LIMIT_SECONDS = 3600.0
EARLY_CLOSE = 0.75  # of a block's length: samples come with jitter
LINE_PER_HOUR = 0.05  # by which a measured line that was known moves; evidence against it stays evidence
LINE_SAME = 0.05
LINE_HOUR_SECONDS = 3600.0


def rounded(value: float) -> float:
    """`value` to the six digits in which state is kept, so that a decoded state decides exactly as the one encoded."""
    return float(f"{value:.6g}")


@dataclass(frozen=True, slots=True)
class Gathered:
    """Counts of a block that has not closed yet. `since` is when it began, in seconds since the epoch."""

    since: float = 0.0
    seconds: float = 0.0
    tokens: int = 0
    accepted: int = 0
    drafted: int = 0
    requests: int = 0

    @property
    def empty(self) -> bool:
        """Whether nothing was gathered."""
        return self.seconds == 0.0

    @property
    def steps(self) -> int:
        """Decode steps: every step emits one token of the target's own besides the accepted ones."""
        return self.tokens - self.accepted


@dataclass(frozen=True, slots=True)
class Closed:
    """A closed block. `weight` is what `accepted` is held against: steps (BreakEven) or drafted tokens (Acceptance)."""

    accepted: int
    weight: int
    requests: int
    evidence: float  # in requests: the block's steps in requests of usual length, at most `requests`

    @property
    def ratio(self) -> float:
        """Accepted tokens per step, or per drafted token."""
        return self.accepted / self.weight


@dataclass(frozen=True, slots=True)
class LineState:
    """What is known about one line.

    `score` is G and `requests` is n of the rule; `span` is how many of the last blocks belong to the present trend.
    `firm`: the value was known when it was taken over, and moves slowly since.
    """

    value: float | None = None
    draft_tokens: int = 0
    score: float = 0.0
    requests: float = 0.0
    span: int = 0
    variance: float = VARIANCE_PRIOR
    steps_sum: float = 0.0
    requests_sum: float = 0.0
    gathered: Gathered = Gathered()
    recent: tuple[Closed, ...] = ()
    firm: bool = False

    def says_switch(self, pool: Pool) -> bool:
        """Whether the evidence is enough to leave `pool`."""
        return self.value is not None and self.score >= THRESHOLD[pool] and self.requests >= MIN_REQUESTS

    def restarted(self) -> LineState:
        """The line after a switch: the score starts again, what was learned about the noise stays."""
        return replace(self, score=0.0, requests=0.0, firm=False)

    @property
    def window(self) -> tuple[Closed, ...]:
        """The blocks that figures are shown over: those of the present trend, 5 to 10 where there are as many."""
        return self.recent[-max(self.span, MIN_SPAN) :]

    @property
    def counted_requests(self) -> int:
        """Requests in the blocks that are kept."""
        return sum(block.requests for block in self.recent)


def configured(state: LineState, line: Line, config: RouteConfig, pool: Pool) -> LineState:
    """`state` under `config`: a line that moved restarts its score; another k is another draft and forgets all.

    A measured line moves all the time. While it is not known, a small move goes unnoticed and a larger one restarts
    the score; from when it is known on it goes in small steps with the blocks, see `moved`. Where it is known no more,
    it stands still in speculation, where it switches nothing, and follows what is as good as known in baseline.
    """
    value = config.line_value(line)
    measured = line == "BreakEven" and config.certainty is not None
    firm = measured and config.certainty == "Known"
    value = rounded(value) if measured and value is not None else value
    if state.draft_tokens != config.draft_tokens:
        return LineState(value=value, draft_tokens=config.draft_tokens, firm=firm)
    if not measured or value is None or state.value is None:
        if state.value == value:
            return state if state.firm == firm else replace(state, firm=firm)
        return replace(state.restarted(), value=value, firm=firm)
    if state.firm and (firm or pool == "speculative"):
        return state
    near = abs(value / state.value - 1.0) <= LINE_SAME
    if near and not firm:
        return replace(state, firm=False)
    return replace(state if near else state.restarted(), value=value, firm=firm)


def moved(state: LineState, line: Line, config: RouteConfig, seconds: float) -> LineState:
    """`state` with a measured line that was known `seconds` further on its way to what it is now."""
    value = config.line_value(line)
    if not state.firm or config.certainty != "Known" or value is None or state.value is None:
        return state
    most = LINE_PER_HOUR * min(seconds, LINE_HOUR_SECONDS) / LINE_HOUR_SECONDS
    return replace(state, value=rounded(min(max(value, state.value * (1.0 - most)), state.value * (1.0 + most))))


def gathered(state: LineState, line: Line, block: Block, config: RouteConfig, pool: Pool) -> LineState:
    """`state` after one interval's counts, of which a block closes when they are enough to tell something."""
    state = replace(
        state,
        steps_sum=rounded((1.0 - LEARNING) * state.steps_sum + block.tokens - block.accepted),
        requests_sum=rounded((1.0 - LEARNING) * state.requests_sum + block.requests),
    )
    quiet = block.tokens == 0 and block.requests == 0 and block.drafted == 0
    if state.gathered.empty if quiet else line == "Acceptance" and block.drafted == 0:
        return state
    seconds = config.block_seconds if block.seconds is None else block.seconds
    old = state.gathered
    if old.empty or block.at - old.since > max(GATHER_LIMIT_SECONDS, 2.0 * config.block_seconds):
        old = Gathered(since=block.at - seconds)
    new = Gathered(
        since=old.since,
        seconds=rounded(old.seconds + seconds),
        tokens=old.tokens + block.tokens,
        accepted=old.accepted + block.accepted,
        drafted=old.drafted + block.drafted,
        requests=old.requests + block.requests,
    )
    thin = block.at - new.since >= THIN_BLOCKS * config.block_seconds
    enough = (
        new.requests >= (1 if thin else BLOCK_REQUESTS)
        and new.steps >= BLOCK_STEPS
        and (line == "BreakEven" or new.drafted >= BLOCK_DRAFTED)
        and new.seconds >= EARLY_CLOSE * config.block_seconds
    )
    return _closed(state, line, new, pool) if enough else replace(state, gathered=new)


def _closed(state: LineState, line: Line, counts: Gathered, pool: Pool) -> LineState:
    per_request = STEPS_PER_REQUEST_PRIOR
    if state.requests_sum > STEPS_PRIOR_REQUESTS:
        per_request = state.steps_sum / state.requests_sum
    # An answer much shorter than usual says less. Tokens and not steps are held against the usual steps: content that
    # has come to be drafted well takes fewer steps, which is news and must not count for less.
    block = Closed(
        accepted=counts.accepted,
        weight=counts.steps if line == "BreakEven" else counts.drafted,
        requests=counts.requests,
        evidence=rounded(min(counts.tokens / per_request, counts.requests)),
    )
    per_ratio = scale(line, state.draft_tokens)
    variance = rounded(_learned_variance(state, block, per_ratio))
    score, requests, span = state.score, state.requests, min(state.span + 1, KEPT_BLOCKS)
    if state.value is not None:
        gain = _gain(1.0 + per_ratio * block.ratio, state.value, variance, block.evidence, pool)
        threshold = THRESHOLD[pool]
        score = rounded(min(max(state.score + gain, 0.0), 1.5 * threshold))
        requests = rounded(state.requests + block.evidence) if score > 0.0 else 0.0
        if state.score == 0.0 and score > 0.0:
            span = 1
    return replace(
        state,
        score=score,
        requests=requests,
        span=span,
        variance=variance,
        gathered=Gathered(),
        recent=(*state.recent, block)[-KEPT_BLOCKS:],
    )


def scale(line: Line, draft_tokens: int) -> float:
    """What a block's ratio counts in tokens per step: x = 1 + A/R, or 1 + k A/D."""
    return 1.0 if line == "BreakEven" else float(draft_tokens)


def _learned_variance(state: LineState, block: Closed, per_ratio: float) -> float:
    """v: the variance of x that one request brings, from blocks a few minutes apart (a level shift passes by)."""
    if len(state.recent) < LOOK_BACK:
        return state.variance
    earlier = state.recent[-LOOK_BACK]
    difference = per_ratio * (block.ratio - earlier.ratio)
    news = difference**2 / (1.0 / block.evidence + 1.0 / earlier.evidence)
    news = min(news, 9.0 * state.variance)
    learned = state.variance + LEARNING * (news - state.variance)
    return min(max(learned, VARIANCE_MIN), VARIANCE_MAX)


def _gain(x: float, value: float, variance: float, evidence: float, pool: Pool) -> float:
    """The block's log-likelihood ratio for leaving `pool`, at most a fifth of the threshold either way."""
    noise = variance / evidence + (TAU * value) ** 2
    distance = MID[pool] * value - x
    if pool == "baseline":
        distance = -distance
    cap = THRESHOLD[pool] / 5.0
    return min(max(2.0 * DELTA * value * distance / noise, -cap), cap)


T95 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}
"""Student's t, two-sided 95 %, by degrees of freedom."""


def estimate(blocks: tuple[Closed, ...]) -> tuple[float, float | None] | None:
    """The pooled ratio of `blocks` and the half width of its 95 % interval; None without blocks.

    Ratio estimator with block residuals e_i = A_i - r W_i and their lag-one covariance, Student's t with n - 1 degrees.
    """
    weight = sum(block.weight for block in blocks)
    if weight == 0:
        return None
    ratio = sum(block.accepted for block in blocks) / weight
    count = len(blocks)
    if count < 2:
        return ratio, None
    residuals = [block.accepted - ratio * block.weight for block in blocks]
    squares = sum(e * e for e in residuals)
    lagged = sum(a * b for a, b in pairwise(residuals))
    error = math.sqrt(count / (count - 1) * (squares + 2.0 * max(0.0, lagged))) / weight
    return ratio, T95[count - 1] * error

"""What a policy would have done on traffic that was recorded, and what time per token that would have cost. Pure.

`Trial` is fed one route's blocks in order and runs the shipped rule (`rule.step`). Time per token is compared by the
hour and only where both pools served enough of the route in that hour: where one of them did not, its time per token is
unknown and so is the saving.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import Literal

from specfleet.decision.break_even import Estimate
from specfleet.decision.policy import with_line
from specfleet.decision.reasons import Hold
from specfleet.decision.rule import Block, Pool, RouteConfig, Verdict, start, step
from specfleet.decision.types import Room

HOUR_SECONDS = 3600.0
KNOWN_TOKENS = 200
"""Fewer timed tokens of a pool in an hour say nothing about its time per token."""
UNLIKELY = 4.0  # standard deviations
MAJORITY_REQUESTS = 3

Basis = Literal["streams", "whole answers"]
BASES: tuple[Basis, ...] = ("streams", "whole answers")


@dataclass(frozen=True, slots=True)
class Timed:
    """Microseconds, and the tokens that they were spent on."""

    us: int = 0
    tokens: int = 0

    def __add__(self, other: Timed) -> Timed:
        return Timed(self.us + other.us, self.tokens + other.tokens)

    @property
    def per_token_ms(self) -> float | None:
        """Milliseconds a token; None where too few tokens were timed."""
        return self.us / self.tokens / 1000.0 if self.tokens >= KNOWN_TOKENS else None


@dataclass(frozen=True, slots=True)
class Traffic:
    """What one pool did for one route in an interval.

    `requests` were meant for it. `streams` are first token to last, `whole` are whole answers with their prefill.
    """

    requests: int = 0
    streams: Timed = Timed()
    whole: Timed = Timed()

    def __add__(self, other: Traffic) -> Traffic:
        return Traffic(self.requests + other.requests, self.streams + other.streams, self.whole + other.whole)

    def timed(self, basis: Basis) -> Timed:
        """The times of one kind of answers."""
        return self.streams if basis == "streams" else self.whole


@dataclass(frozen=True, slots=True)
class Recorded:
    """One route in the block that ends at `at`. `block` is None where its figures are unknown."""

    at: float
    seconds: float
    block: Block | None
    speculative: Traffic = Traffic()
    baseline: Traffic = Traffic()

    @property
    def share(self) -> float | None:
        """The share of requests that were sent to speculation; None without requests."""
        requests = self.speculative.requests + self.baseline.requests
        return self.speculative.requests / requests if requests else None

    @property
    def tokens_per_step(self) -> float | None:
        """Of the block; None where that is unknown or held no decode step."""
        return None if self.block is None else self.block.tokens_per_step


@dataclass(frozen=True, slots=True)
class Move:
    """A switch that the policy would have made."""

    at: float
    pool: Pool
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Point:
    """One block, for a plot."""

    at: float
    pool: Pool
    tokens_per_step: float | None
    done_share: float | None


@dataclass(frozen=True, slots=True)
class TimePerToken:
    """Milliseconds a token over the hours in which both pools served the route.

    `hours` of `hours_with_traffic` could be compared, with `tokens_percent` of the timed tokens. `break_even` is the
    tokens per step at which speculation would have cost there what baseline did (L* = L x spec / base), None where
    tokens per step are unknown in these hours.
    """

    basis: Basis
    policy: float
    always_on: float
    always_off: float
    done: float
    hours: int
    hours_with_traffic: int
    tokens_percent: int
    break_even: float | None

    def saved_percent(self, against: float) -> float:
        """What the policy saves of `against`, in percent; negative where it costs more."""
        return 100.0 * (1.0 - self.policy / against)


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result for one route.

    `off_percent` is of the time that was recorded, `done_off_percent` of the requests. `done_moves` are the times at
    which most of the traffic was found in the other pool, for comparison. `time_per_token` None: one pool's is unknown.
    """

    route: str
    began: Pool
    moves: tuple[Move, ...]
    off_percent: int
    done_moves: tuple[tuple[float, Pool], ...]
    done_off_percent: int | None
    seconds: float
    unread_seconds: float
    requests: int
    measured: int
    tokens_per_step: float | None
    acceptance_percent: int | None
    time_per_token: TimePerToken | None
    pools_with_traffic: tuple[Pool, ...]
    last: Verdict | None
    points: tuple[Point, ...]


@dataclass(slots=True)
class _Hour:
    """One hour of one kind of answers: both pools' times, and the tokens that the policy would have sent where."""

    speculative: Timed = Timed()
    baseline: Timed = Timed()
    policy_tokens: float = 0.0  # of all timed tokens, those for speculation
    tokens: int = 0  # decode tokens with acceptance figures
    accepted: int = 0


@dataclass(slots=True)
class _Share:
    """Requests since the policy's share last changed, to see whether the recorded share is another one."""

    percent: int = -1
    requests: int = 0
    speculative: int = 0

    def taken(self, percent: int, recorded: Recorded) -> None:
        if percent != self.percent:  # of the requests of this block a part came before
            self.percent, self.requests, self.speculative = percent, 0, 0
        else:
            self.requests += recorded.speculative.requests + recorded.baseline.requests
            self.speculative += recorded.speculative.requests

    @property
    def surplus(self) -> float:
        """How far the recorded share is above the policy's, in standard deviations."""
        p = self.percent / 100.0
        return (self.speculative - self.requests * p) / math.sqrt(self.requests * p * (1.0 - p) + 1.0)


@dataclass(slots=True)
class _Thinner:
    """Thins counts to a ratio; what rounding leaves is carried to the next block."""

    left: dict[str, float] = field(default_factory=dict)

    def thinned(self, block: Block, ratio: float) -> Block:
        counts = {}
        for name in ("tokens", "accepted", "drafted", "requests"):
            exact = getattr(block, name) * ratio + self.left.get(name, 0.0)
            counts[name] = int(exact)
            self.left[name] = exact - counts[name]
        counts["accepted"] = min(counts["accepted"], counts["drafted"], counts["tokens"])
        return replace(block, **counts)


class Trial:
    """One route under one policy, as if enforced. The route begins where most of its traffic was."""

    def __init__(self, route: str, config: RouteConfig, began_at: float) -> None:
        self._route = route
        self._config = replace(config, enforce=True)
        self._state = start(self._config, began_at)
        self._began_at = began_at
        self._began: Pool | None = None
        self._verdict: Verdict | None = None
        self._moves: list[Move] = []
        self._points: list[Point] = []
        self._hours: dict[tuple[int, Basis], _Hour] = {}
        self._share, self._thinner = _Share(), _Thinner()
        self._done_pool: Pool | None = None
        self._done_moves: list[tuple[float, Pool]] = []
        self._sums: Counter[str] = Counter()
        self._seconds: defaultdict[str, float] = defaultdict(float)

    @property
    def mode(self) -> Pool:
        """Where the rule has the route."""
        return self._state.mode

    def feed(self, recorded: Recorded, hold: Hold | None = None, line: Estimate | None = None) -> Verdict:
        """Take in the block that ends at `recorded.at`, later than all before; say where the route would be.

        `line` is the break-even line as it was then, where the policy has it measured.
        """
        config = self._config if line is None else with_line(self._config, line, recorded.at)
        if self._began is None:
            self._begin(recorded)
        percent = self._state.percent
        self._share.taken(percent, recorded)
        block = None if recorded.block is None else self._let_through(recorded.block, recorded.share, percent)
        was = self._state.served
        self._state, verdict = step(self._state, config, block, recorded.at, hold=hold, room=Room())
        self._account(recorded, was, percent, hold)
        self._notice(recorded)
        if verdict.switched:
            self._moves.append(Move(recorded.at, verdict.pool, verdict.reason.value, verdict.message))
        self._points.append(Point(recorded.at, verdict.pool, recorded.tokens_per_step, recorded.share))
        self._verdict = verdict
        return verdict

    def unread(self, seconds: float) -> None:
        """A block in which nothing of any route is known: the decision stands."""
        self._seconds["unread"] += seconds

    def outcome(self) -> Outcome:
        """What came of it so far."""
        sums, seconds = self._sums, self._seconds
        steps = sums["tokens"] - sums["accepted"]
        requests = sums["speculative"] + sums["baseline"]
        pools: tuple[Pool, ...] = ("speculative", "baseline")
        return Outcome(
            route=self._route,
            began=self._began or self._state.served,
            moves=tuple(self._moves),
            off_percent=_percent(seconds["off"], seconds["read"]) or 0,
            done_moves=tuple(self._done_moves),
            done_off_percent=_percent(sums["baseline"], requests),
            seconds=seconds["read"],
            unread_seconds=seconds["unread"],
            requests=requests,
            measured=sums["measured"],
            tokens_per_step=sums["tokens"] / steps if steps > 0 else None,
            acceptance_percent=_percent(sums["accepted"], sums["drafted"]),
            time_per_token=next((one for one in map(self._compared, BASES) if one is not None), None),
            pools_with_traffic=tuple(pool for pool in pools if sums[pool]),
            last=self._verdict,
            points=tuple(self._points),
        )

    def _begin(self, recorded: Recorded) -> None:
        """Where the route stood when the history begins is where its first traffic went."""
        share = recorded.share
        if share is None:
            return
        self._began = "speculative" if share >= 0.5 else "baseline"
        if self._config.override == "Auto" and self._began != self._state.served:
            self._state = start(self._config, self._began_at, self._began)

    def _let_through(self, block: Block, recorded: float | None, percent: int) -> Block | None:
        """The part of a block that the policy would have let through to speculation, with the share that it came by."""
        surplus = self._share.surplus
        if recorded is None or abs(surplus) <= UNLIKELY:
            return replace(block, share=percent / 100.0)
        if surplus < 0.0 or recorded * 100.0 <= percent:
            return replace(block, share=recorded)
        if percent == 0:
            return None
        return self._thinner.thinned(replace(block, share=percent / 100.0), percent / 100.0 / recorded)

    def _account(self, recorded: Recorded, was: Pool, percent: int, hold: Hold | None) -> None:
        if hold is Hold.METRICS_UNAVAILABLE:
            self._seconds["unread"] += recorded.seconds
            return
        self._seconds["read"] += recorded.seconds
        self._seconds["off"] += recorded.seconds if was == "baseline" else 0.0
        self._sums["speculative"] += recorded.speculative.requests
        self._sums["baseline"] += recorded.baseline.requests
        block = recorded.block
        if block is not None:
            self._sums["measured"] += block.requests
            for name in ("tokens", "accepted", "drafted"):
                self._sums[name] += getattr(block, name)
        for basis in BASES:
            on, off = recorded.speculative.timed(basis), recorded.baseline.timed(basis)
            hour = self._hours.setdefault((int((recorded.at - 0.001) // HOUR_SECONDS), basis), _Hour())
            hour.speculative += on
            hour.baseline += off
            hour.policy_tokens += (on.tokens + off.tokens) * percent / 100.0
            if block is not None:
                hour.tokens += block.tokens
                hour.accepted += block.accepted

    def _notice(self, recorded: Recorded) -> None:
        requests = recorded.speculative.requests + recorded.baseline.requests
        if recorded.share is None or requests < MAJORITY_REQUESTS:
            return
        pool: Pool = "speculative" if recorded.share >= 0.5 else "baseline"
        if self._done_pool is not None and pool != self._done_pool:
            self._done_moves.append((recorded.at, pool))
        self._done_pool = pool

    def _compared(self, basis: Basis) -> TimePerToken | None:
        hours = [hour for (_, kind), hour in sorted(self._hours.items()) if kind == basis]
        used = [hour for hour in hours if hour.speculative.tokens + hour.baseline.tokens > 0]
        policy = on = off = done = needed = weight = 0.0
        tokens = compared = 0
        for hour in used:
            spec, base = hour.speculative.per_token_ms, hour.baseline.per_token_ms
            if spec is None or base is None:
                continue
            whole = hour.speculative.tokens + hour.baseline.tokens
            compared, tokens = compared + 1, tokens + whole
            on, off = on + whole * spec, off + whole * base
            policy += hour.policy_tokens * spec + (whole - hour.policy_tokens) * base
            done += (hour.speculative.us + hour.baseline.us) / 1000.0
            if hour.tokens > hour.accepted:
                needed += hour.tokens / (hour.tokens - hour.accepted) * spec / base * whole
                weight += whole
        if not compared:
            return None
        return TimePerToken(
            basis=basis,
            policy=policy / tokens,
            always_on=on / tokens,
            always_off=off / tokens,
            done=done / tokens,
            hours=compared,
            hours_with_traffic=len(used),
            tokens_percent=_percent(tokens, sum(h.speculative.tokens + h.baseline.tokens for h in used)) or 0,
            break_even=needed / weight if weight else None,
        )


def _percent(part: float, whole: float) -> int | None:
    return round(100.0 * part / whole) if whole else None

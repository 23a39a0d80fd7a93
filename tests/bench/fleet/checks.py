"""What must not be in a fleet's history: limit cycles, wrong switches, and such as a peak of load alone brought about.

Where content is steady every switch is made by load or by chance. Precisely:

- A limit cycle shows as more than two switches of a route in a day, or as three of them within six hours. Load that
  comes and goes with the day is no cycle of its own: a route may follow it, off some hours after noon and on
  before morning. Where load is constant (`day` False) nothing may alternate at all.
- A switch is false if in the half hour before it the truth was more than 3 % on the other side of the model's L* at the
  batch of the pool that served the route.
- A switch falls in a spike if it does so between the spike's begin and ten minutes after its end. The spike alone
  brought it about if the truth of the half hour before it was on the other side of the model's L* as that would have
  been without the spike: whatever a route does in a spike that it is to do anyway is none.
- A switch-off follows the day if it falls where load is above its mean and the route, by the model, pays at the mean
  load: L is more than 3 % above the L* of the batch that all traffic in speculation makes at its mean. That is told,
  and no fault: hours of a load at which speculation does not pay are what a measured line is for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from specfleet.decision.types import Pool
from tests.bench.decision.truth import FALSE_MARGIN, MINUTES
from tests.bench.fleet import model
from tests.bench.fleet.counts import TOKENS
from tests.bench.fleet.run import REPLICAS, History, Minute, Scenario

SETTLED_DAYS = 1  # in which routes find their places
CYCLE_MINUTES, CYCLE_SWITCHES = 6 * 60, 3
MOST_A_DAY = 2
AFTER_SPIKE = 10


@dataclass(frozen=True)
class Route:
    """One route of one run, after the first day."""

    days: int
    switches: int
    most_in_24_hours: int
    days_over: int  # with more than two
    short_cycles: int
    false: int
    in_spikes: int
    by_spikes: int  # alone
    with_the_day: int  # switch-offs that follow it
    off_percent: float
    moves: tuple[tuple[int, bool], ...]  # all, the first day's too: minute, to speculation


def switches(minutes: Sequence[Minute], begin: int = SETTLED_DAYS * MINUTES) -> list[int]:
    """The minutes that begin in another pool than the one before; without `begin`, those after the first day."""
    return [at for at in range(begin, len(minutes)) if minutes[at].on != minutes[at - 1].on]


def checked(history: History) -> dict[str, Route]:
    """Each route's figures."""
    spiky = _spiky(history.spikes)
    return {
        name: _route(history, minutes, mean_break_even(history.scenario), spiky)
        for name, minutes in history.minutes.items()
    }


def _route(history: History, minutes: Sequence[Minute], at_mean: float, spiky: Sequence[bool]) -> Route:
    moves = switches(minutes)
    by_day = Counter(at // MINUTES for at in moves)
    rest = minutes[SETTLED_DAYS * MINUTES :]
    truth = fmean(one.truth for one in minutes)
    peaks = [at for at in moves if not minutes[at].on and history.factors[at] > 1.0]
    return Route(
        days=len(minutes) // MINUTES - SETTLED_DAYS,
        switches=len(moves),
        most_in_24_hours=max((_within(moves, at, MINUTES) for at in moves), default=0),
        days_over=sum(count > MOST_A_DAY for count in by_day.values()),
        short_cycles=sum(_within(moves, at, CYCLE_MINUTES) >= CYCLE_SWITCHES for at in moves),
        false=sum(is_false(minutes, at) for at in moves),
        in_spikes=sum(spiky[at] for at in moves),
        by_spikes=sum(spiky[at] and _against(minutes, at, "calm") for at in moves),
        with_the_day=len(peaks) if truth > (1.0 + FALSE_MARGIN) * at_mean else 0,
        off_percent=100.0 * fmean(not one.on for one in rest),
        moves=tuple((at, minutes[at].on) for at in switches(minutes, begin=1)),
    )


def is_false(minutes: Sequence[Minute], at: int) -> bool:
    """Whether the move in minute `at` went against the truth of the half hour before it."""
    return _against(minutes, at, "break_even", FALSE_MARGIN)


def _against(minutes: Sequence[Minute], at: int, line: str, margin: float = 0.0) -> bool:
    before: float = median(one.truth / getattr(one, line) for one in minutes[max(0, at - 30) : at])
    return before < 1.0 - margin if minutes[at].on else before > 1.0 + margin


def mean_break_even(scenario: Scenario) -> float:
    """L* of the batch that all traffic makes in speculation at the mean load, on all replicas."""
    loads = [model.Load(one.requests, 1.0, TOKENS, one.tokens_per_step) for one in scenario.routes]
    ready: dict[Pool, float] = {"speculative": sum(REPLICAS.values()), "baseline": 0.0}
    return model.break_even(model.batches(loads, ready)["speculative"])


def _within(moves: Sequence[int], begin: int, length: int) -> int:
    return sum(begin <= at < begin + length for at in moves)


def _spiky(spikes: Sequence[bool]) -> list[bool]:
    found, left = [], 0
    for spike in spikes:
        left = AFTER_SPIKE + 1 if spike else left - 1
        found.append(left > 0)
    return found


def time_per_token(history: History) -> float:
    """Milliseconds a token, over all requests."""
    everything = [one for minutes in history.minutes.values() for one in minutes]
    return sum(one.requests * one.milliseconds for one in everything) / sum(one.requests for one in everything)


def static_time_per_token(history: History, pool: Pool) -> float:
    """The same with all traffic and all replicas in one pool, on the same load and content."""
    ready: dict[Pool, float] = {one: sum(REPLICAS.values()) if one == pool else 0.0 for one in model.POOLS}
    share = 1.0 if pool == "speculative" else 0.0
    total = weight = 0.0
    for minutes in zip(*history.minutes.values(), strict=True):
        loads = [model.Load(one.requests, share, TOKENS, one.truth) for one in minutes]
        step = 1000.0 * model.step_seconds(pool, model.batches(loads, ready)[pool])
        for one in loads:
            total += one.requests * step / (one.tokens_per_step if share else 1.0)
            weight += one.requests
    return total / weight

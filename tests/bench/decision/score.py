"""Days held against the oracle, and means of days with the intervals that a bootstrap over route-days gives."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median

import numpy as np

from tests.bench.decision.drive import Minute
from tests.bench.decision.traffic import Cell
from tests.bench.decision.truth import CHANGES, is_false, loss

SWITCH_COST = 0.0007  # of a day: 10 % of the fleet for 10 minutes
RESAMPLES = 4000
MEANS = {
    "falseSwitchesPerDay": "false_switches",
    "switchesPerDay": "switches",
    "wrongPercent": "wrong_percent",
    "regretPercent": "regret_percent",
    "totalPercent": "total_percent",
}


@dataclass(frozen=True, slots=True)
class Day:
    """One route-day. Wrong-pool work, regret and total are percent of the day's work, as time in baseline.

    `delay_minutes` is from the change until the route is in the right pool; None where nothing changes or it never is.
    """

    false_switches: int
    switches: int
    wrong_percent: float
    regret_percent: float
    delay_minutes: int | None
    moves: tuple[tuple[int, bool], ...]

    @property
    def total_percent(self) -> float:
        """GPU time lost against the oracle, switches included."""
        return self.regret_percent + 100.0 * SWITCH_COST * self.switches


def scored(trajectory: str, truths: Sequence[float], expected: Sequence[float], minutes: Sequence[Minute]) -> Day:
    """Hold a day against an oracle that is in the better pool in every minute and moves for nothing."""
    work = wrong = regret = 0.0
    moves: list[tuple[int, bool]] = []
    on = True
    for minute, (truth, requests, went) in enumerate(zip(truths, expected, minutes, strict=True)):
        lost = loss(truth)
        share = went.percent / 100.0
        off_side = share if lost > 0.0 else 1.0 - share
        work += requests
        wrong += requests * off_side
        regret += requests * off_side * abs(lost)
        if went.on != on:
            moves.append((minute, went.on))
            on = went.on
    return Day(
        false_switches=sum(is_false(truths, minute, to_on=to_on) for minute, to_on in moves),
        switches=len(moves),
        wrong_percent=100.0 * wrong / work,
        regret_percent=100.0 * regret / work,
        delay_minutes=_delay(trajectory, minutes),
        moves=tuple(moves),
    )


def _delay(trajectory: str, minutes: Sequence[Minute]) -> int | None:
    change = CHANGES.get(trajectory)
    if change is None:
        return None
    right = trajectory == "recover"
    return next((at - change for at in range(change, len(minutes)) if minutes[at].on is right), None)


Days = Mapping[Cell, Day]


def summary(days: Days) -> dict[str, object]:
    """Means a day, each with its 95 % interval [low, high]; the median delay of days with a change."""
    found: dict[str, object] = {"days": len(days)}
    for name, attribute in MEANS.items():
        values = {cell: float(getattr(day, attribute)) for cell, day in days.items()}
        found[name] = {"mean": round(fmean(values.values()), 4), "interval95": interval(values)}
    false = sum(day.false_switches for day in days.values())
    found["falseSwitchesPerDayAtMost"] = round(rate_at_most(false) / len(days), 4)
    delays = [day.delay_minutes for cell, day in days.items() if cell[0] in CHANGES]
    if delays:
        found["medianDelayMinutes"] = median(math.inf if delay is None else delay for delay in delays)
        found["neverFollowed"] = delays.count(None)
    return found


def interval(values: Mapping[Cell, float]) -> list[float]:
    """The 95 % interval of a mean over route-days: days are drawn again within their trajectory and rate of traffic."""
    strata: dict[tuple[str, str], list[float]] = {}
    for (trajectory, rate, _), value in values.items():
        strata.setdefault((trajectory, rate), []).append(value)
    rng = np.random.default_rng(1)
    sums = np.zeros(RESAMPLES)
    for of_cell in strata.values():
        drawn = np.array(of_cell)[rng.integers(0, len(of_cell), (RESAMPLES, len(of_cell)))]
        sums += drawn.sum(axis=1)
    low, high = np.quantile(sums / len(values), (0.025, 0.975))
    return [round(float(low), 4), round(float(high), 4)]


def difference(one: Days, other: Days) -> dict[str, object]:
    """Total of `one` less that of `other`, day by day on the same traffic, in percent of the day."""
    values = {cell: day.total_percent - other[cell].total_percent for cell, day in one.items()}
    return {"mean": round(fmean(values.values()), 4), "interval95": interval(values)}


def rate_at_most(count: int) -> float:
    """The largest mean of a Poisson count under which `count` or fewer still happen one time in twenty."""
    low, high = float(count), count + 10.0 * math.sqrt(count + 1.0) + 10.0
    for _ in range(60):
        middle = (low + high) / 2.0
        below = sum(math.exp(-middle + i * math.log(middle) - math.lgamma(i + 1)) for i in range(count + 1))
        low, high = (middle, high) if below > 0.05 else (low, middle)
    return high

"""Decision quality in closed loop: simulated traffic, the shipped sample rules and rule, scored by an oracle.

Nine trajectories of the true tokens per step, three rates of traffic, one simulated day each. The simulated routers
count cumulatively and are read every 30 s; some reads are lost, routers restart, and once a day nothing can be read for
a while. What the rule answers sets the next minute's share of traffic. The oracle knows the truth of each minute, moves
at once and pays nothing for it. Two plain rules can run beside it for comparison (`--rules`): `t5m`, the mean of the
last five minutes under the line, and `n5`, five minutes in a row past 5 % of hysteresis; both explore 10 % while off.

    python -m tests.bench.decision --out build/bench-decision.json --seeds 20 21 22
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import NormalDist, fmean, median
from typing import Protocol

from specfleet.decision.rule import Block, RouteConfig, start, step
from specfleet.decision.samples import Ledger, RouteTotals

K = 3
BREAK_EVEN = 1.60
MINUTES = 24 * 60
ROUTERS = 4
READ_SECONDS = 30.0
LOST_READS = 0.01
EPOCH = 1_700_000_000.0
ROUTE = "route"
SWITCH_COST = 0.0007  # of a day: 10 % of the fleet for 10 minutes
RATES = {"low": 0.02, "mid": 0.5, "high": 5.0}  # requests a second
MEAN_TOKENS, LENGTH_CV2, RUNAWAYS, RUNAWAY_TOKENS = 394.0, 0.95, 0.002, 8192  # together: 410 tokens, CV^2 1.7
SPREAD = 0.35  # standard deviation of tokens per step between requests
TOPIC, TOPIC_MINUTES = 0.03, 20.0


def tokens_per_step(alpha: float) -> float:
    """Tokens per step of k i.i.d. drafts that are accepted with probability alpha each."""
    return sum(alpha**j for j in range(K + 1))


def _request(drawn: float) -> float:
    return min(max(drawn, 1.0), K + 1.0)


@cache
def _pooled(centre_percent: int) -> float:
    """Tokens per step of many requests together; one request's are normal around the centre, cut to 1 to k + 1."""
    normal = NormalDist(centre_percent / 100.0, SPREAD)
    quantiles = [(i + 0.5) / 400.0 for i in range(400)]
    return 1.0 / fmean(1.0 / _request(normal.inv_cdf(q)) for q in quantiles)


def request_centre(truth: float) -> float:
    """The centre at which the requests together have `truth` tokens per step."""
    return bisect_left(range(500), truth, key=_pooled) / 100.0


def _between(a: float, b: float, at: float) -> Callable[[float], float]:
    return lambda hour: tokens_per_step(a if hour < at else b)


TRUTH: dict[str, Callable[[float], float]] = {
    "good": lambda _: tokens_per_step(0.62),
    "bad": lambda _: tokens_per_step(0.20),
    "near+5%": lambda _: 1.05 * BREAK_EVEN,
    "near-5%": lambda _: 0.95 * BREAK_EVEN,
    "step": _between(0.62, 0.20, 8),
    "step-small": _between(0.50, 0.33, 8),
    "drift": lambda hour: tokens_per_step(0.62 - 0.42 * hour / 24),
    "diurnal": lambda hour: tokens_per_step(0.41 + 0.19 * math.cos(2 * math.pi * hour / 24)),
    "recover": _between(0.20, 0.62, 12),
}
CHANGES = {"step": 8 * 60, "step-small": 8 * 60, "recover": 12 * 60}


class Rule(Protocol):
    """Takes a minute's counts (None: not known) and answers with the share of traffic for speculation and the pool."""

    def minute(self, at: float, counts: tuple[int, int, int, int] | None) -> tuple[float, bool]:
        """The share (0 to 1) until the next minute, and whether the route is in speculation."""


class Shipped:
    """The rule as the operator runs it."""

    def __init__(self) -> None:
        self.config = RouteConfig(
            initial="speculative", draft_tokens=K, break_even=BREAK_EVEN, block_seconds=60.0, dwell_seconds=600.0
        )
        self.state = start(self.config, EPOCH)

    def minute(self, at: float, counts: tuple[int, int, int, int] | None) -> tuple[float, bool]:
        block = None if counts is None else Block(at, *counts, share=self.state.percent / 100.0)
        self.state, verdict = step(self.state, self.config, block, at)
        return verdict.speculative_percent / 100.0, verdict.pool == "speculative"


class Plain:
    """Five minutes: under the line on average (`in_a_row` False), or each past it by 5 %. Explores 10 % while off."""

    def __init__(self, *, in_a_row: bool) -> None:
        self.in_a_row, self.on = in_a_row, True
        self.recent: deque[tuple[int, int]] = deque(maxlen=5)

    def minute(self, at: float, counts: tuple[int, int, int, int] | None) -> tuple[float, bool]:
        if counts is not None and counts[0] > 0:
            self.recent.append((counts[0], counts[0] - counts[1]))
            if self._past():
                self.on = not self.on
                self.recent.clear()
        return (1.0 if self.on else 0.1), self.on

    def _past(self) -> bool:
        sign = -1.0 if self.on else 1.0
        if self.in_a_row:
            line = BREAK_EVEN * (1.0 + sign * 0.05)
            return len(self.recent) == 5 and all(sign * (n / max(r, 1) - line) > 0 for n, r in self.recent)
        tokens, steps = (sum(column) for column in zip(*self.recent, strict=True))
        return bool(sign * (tokens / max(steps, 1) - BREAK_EVEN) > 0)


RULES: dict[str, Callable[[], Rule]] = {
    "shipped": Shipped,
    "n5": lambda: Plain(in_a_row=True),
    "t5m": lambda: Plain(in_a_row=False),
}


@dataclass(frozen=True, slots=True)
class Day:
    """One simulated day. Losses and wrong-mode tokens are fractions of the day's work."""

    false_switches: int
    switches: int
    wrong: float
    regret: float
    delay_minutes: float | None

    @property
    def total(self) -> float:
        """GPU time lost against the oracle, switches included."""
        return self.regret + SWITCH_COST * self.switches


class Routers:
    """Four router processes with counters that only rise, read every 30 s, not always with success."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.ledger = Ledger(60.0, EPOCH)
        self.started = [EPOCH - 3600.0] * ROUTERS
        self.counters = [[0, 0, 0, 0] for _ in range(ROUTERS)]
        begin = rng.uniform(0, MINUTES)
        self.outage = (EPOCH + 60 * begin, EPOCH + 60 * (begin + rng.uniform(5, 30)))
        self._read(EPOCH)

    def serve(self, at: float, mean_requests: float, truth: float) -> None:
        """Serve 30 s of traffic in which `mean_requests` are expected, then be read at `at`."""
        rng = self.rng
        centre = request_centre(truth)
        sigma2 = math.log(1.0 + LENGTH_CV2)
        for _ in range(_poisson(rng, mean_requests)):
            tokens = int(rng.lognormvariate(math.log(MEAN_TOKENS) - sigma2 / 2, math.sqrt(sigma2))) + 1
            if rng.random() < RUNAWAYS:
                tokens = RUNAWAY_TOKENS
            rounds = max(math.ceil(tokens / (K + 1)), round(tokens / _request(rng.gauss(centre, SPREAD))))
            counters = self.counters[rng.randrange(ROUTERS)]
            for i, n in enumerate((tokens, tokens - rounds, K * rounds, 1)):
                counters[i] += n
        for router in range(ROUTERS):
            if rng.random() < READ_SECONDS / 86400.0:
                self.started[router], self.counters[router] = at - rng.uniform(1, 20), [0, 0, 0, 0]
        self._read(at)

    def _read(self, at: float) -> None:
        for router in range(ROUTERS):
            if self.outage[0] <= at <= self.outage[1] or self.rng.random() < LOST_READS:
                continue
            totals = {ROUTE: RouteTotals(*self.counters[router])}
            self.ledger.observe(f"router-{router}", self.started[router], at, totals)

    def minute(self, at: float) -> tuple[int, int, int, int] | None:
        """What was counted, as the operator gets it; None where the evidence is held."""
        taken, _ = self.ledger.take(at)
        if self.ledger.hold(at, [f"router-{router}" for router in range(ROUTERS)]) is not None or ROUTE not in taken:
            return None
        one = taken[ROUTE]
        return one.tokens, one.accepted, one.drafted, one.requests


def _poisson(rng: random.Random, mean: float) -> int:
    if mean > 60.0:
        return max(0, round(rng.gauss(mean, math.sqrt(mean))))
    limit, count, product = math.exp(-mean), 0, rng.random()
    while product > limit:
        count += 1
        product *= rng.random()
    return count


def day(rule_name: str, trajectory: str, traffic: str, seed: int) -> Day:
    """Run one rule for a day on one trajectory."""
    rng = random.Random(f"{trajectory}/{traffic}/{seed}")
    truths, loads = _truth(rng, trajectory)
    routers, rule = Routers(rng), RULES[rule_name]()
    share, on = 1.0, True
    work = wrong = regret = 0.0
    moves: list[tuple[int, bool]] = []
    for minute in range(MINUTES):
        truth, requests = truths[minute], RATES[traffic] * 60.0 * loads[minute]
        loss = BREAK_EVEN / truth - 1.0  # of speculation against baseline, of baseline's time
        off_side = share if loss > 0 else 1.0 - share
        work += requests
        wrong += requests * off_side
        regret += requests * off_side * abs(loss)
        for half in (1, 2):
            at = EPOCH + 60.0 * minute + 30.0 * half
            routers.serve(at, requests / 2.0 * share, truth)
        share, now_on = rule.minute(at, routers.minute(at))
        if now_on != on:
            moves.append((minute, now_on))
            on = now_on
    return Day(
        false_switches=sum(_false(truths, minute, to_on) for minute, to_on in moves),
        switches=len(moves),
        wrong=wrong / work,
        regret=regret / work,
        delay_minutes=_delay(trajectory, moves),
    )


def _truth(rng: random.Random, trajectory: str) -> tuple[list[float], list[float]]:
    """Tokens per step and load, minute by minute: the trajectory with a slow wobble of topics on it."""
    keep, topic = math.exp(-1.0 / TOPIC_MINUTES), rng.gauss(0.0, TOPIC)
    truths, loads = [], []
    for minute in range(MINUTES):
        topic = keep * topic + math.sqrt(1.0 - keep**2) * rng.gauss(0.0, TOPIC)
        hour = minute / 60.0
        truths.append(min(max(TRUTH[trajectory](hour) * (1.0 + topic), 1.02), K + 0.9))
        loads.append(1.0 + 0.5 * math.cos(2 * math.pi * hour / 24) if trajectory == "diurnal" else 1.0)
    return truths, loads


def _false(truths: Sequence[float], minute: int, to_on: bool) -> bool:
    """Whether the truth was more than 3 % on the other side, at the median of the half hour around the move."""
    around = median(truths[max(0, minute - 15) : minute + 15])
    return around < 0.97 * BREAK_EVEN if to_on else around > 1.03 * BREAK_EVEN


def _delay(trajectory: str, moves: Sequence[tuple[int, bool]]) -> float | None:
    change = CHANGES.get(trajectory)
    if change is None:
        return None
    to_on = trajectory == "recover"
    return next((minute + 1.0 - change for minute, on in moves if minute >= change and on == to_on), None)


def _cell(job: tuple[str, str, str, int]) -> tuple[tuple[str, str, str, int], Day]:
    return job, day(*job)


def summary(days: Sequence[Day]) -> dict[str, float]:
    """Means a day; fractions as percent."""
    delays = [d.delay_minutes for d in days if d.delay_minutes is not None]
    means = {
        "days": float(len(days)),
        "falseSwitchesPerDay": round(fmean(d.false_switches for d in days), 4),
        "switchesPerDay": round(fmean(d.switches for d in days), 3),
        "wrongPercent": round(100 * fmean(d.wrong for d in days), 3),
        "regretPercent": round(100 * fmean(d.regret for d in days), 3),
        "totalPercent": round(100 * fmean(d.total for d in days), 3),
    }
    return {**means, "medianDelayMinutes": median(delays)} if delays else means


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the simulation, print the tables and write the JSON result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("build/bench-decision.json"))
    parser.add_argument("--seeds", type=int, nargs="+", default=[20, 21, 22])
    parser.add_argument("--rules", nargs="+", default=["shipped"], choices=sorted(RULES))
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args(arguments)
    jobs = [(r, t, rate, s) for r in options.rules for t in TRUTH for rate in RATES for s in options.seeds]
    with ProcessPoolExecutor(options.jobs) as pool:
        done = dict(pool.map(_cell, jobs, chunksize=1))
    result = {
        "seeds": options.seeds,
        "breakEven": BREAK_EVEN,
        "rules": {
            rule: report(rule, {job[1:]: d for job, d in done.items() if job[0] == rule}) for rule in options.rules
        },
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    return 0


def report(rule: str, days: Mapping[tuple[str, str, int], Day]) -> dict[str, object]:
    """Print one rule's table; the same as data."""
    cells = {}
    for trajectory in TRUTH:
        for rate in RATES:
            cell = [d for (t, r, _), d in days.items() if (t, r) == (trajectory, rate)]
            cells[f"{trajectory}/{rate}"] = shown = summary(cell)
            figures = (shown["falseSwitchesPerDay"], shown["switchesPerDay"], shown.get("medianDelayMinutes"))
            parts = ["-" if figure is None else f"{figure:.1f}" for figure in figures]
            parts += [f"{shown['wrongPercent']:.1f}", f"{shown['totalPercent']:.2f}"]
            print(f"{rule:8} {trajectory:11} {rate:5} {' / '.join(parts)}")
    every = summary(list(days.values()))
    busy = summary([d for (_, rate, _), d in days.items() if rate != "low"])
    print(f"{rule}: all {every}\n{rule}: mid and high {busy}")
    return {"all": every, "midAndHigh": busy, "cells": cells}


if __name__ == "__main__":
    sys.exit(main())

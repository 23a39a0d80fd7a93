"""One simulated day of a route: every request, and what goes wrong with readings, drawn before any rule decides.

A request has a place between 0 and 1, as a router's hash gives it: it goes to speculation where its place is below the
share. So two rules with the same share see the same requests.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from tests.bench.decision.truth import MINUTES, RATES, TRUTH, K, load, truths

EPOCH = 1_700_000_040.0  # a whole minute
READ_SECONDS = 30.0
READS = MINUTES * 2
ROUTERS = 4
LOST_READS = 0.01
RESTARTS_A_DAY = 1.0  # of each router
OUTAGE_MINUTES = (5.0, 30.0)
MEAN_TOKENS, LENGTH_CV2, RUNAWAYS, RUNAWAY_TOKENS = 394.0, 0.95, 0.002, 8192  # together: 410 tokens, CV^2 1.7
SPREAD = 0.35  # standard deviation of tokens per step between requests

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Cell = tuple[str, str, int]
"""Trajectory, traffic, seed."""


@dataclass(frozen=True, slots=True)
class Counters:
    """What a router has counted of the route since it started: of speculation tokens to requests, then of baseline."""

    tokens: int = 0
    accepted: int = 0
    drafted: int = 0
    requests: int = 0
    baseline_tokens: int = 0
    baseline_requests: int = 0

    def plus(self, requests: int, tokens: int, steps: int, base_requests: int, base_tokens: int) -> Counters:
        """With the requests of one interval more; every step drafts k tokens."""
        return Counters(
            self.tokens + tokens,
            self.accepted + tokens - steps,
            self.drafted + K * steps,
            self.requests + requests,
            self.baseline_tokens + base_tokens,
            self.baseline_requests + base_requests,
        )


@dataclass(frozen=True)
class Traffic:
    """The day. `places` are the requests' places, ascending within each 30 s; `sums` run over all requests before, by
    router: (requests, tokens, steps). Request i of interval j lies between `begins[j]` and `begins[j + 1]`.
    """

    cell: Cell
    truths: list[float]
    expected: list[float]  # requests of each minute, in the mean
    begins: list[int]
    places: Floats
    sums: Ints
    lost: list[list[bool]]  # by read (the first at the day's start) and router
    restarted: dict[tuple[int, int], float]  # read and router: seconds before the read
    outage: tuple[float, float]

    def served(self, interval: int, share: float) -> tuple[list[list[int]], list[list[int]]]:
        """By router (requests, tokens, steps) of one interval: those of speculation, and those of baseline."""
        begin, end = self.begins[interval], self.begins[interval + 1]
        middle = begin + int(np.searchsorted(self.places[begin:end], share))
        first, second = self.sums[middle] - self.sums[begin], self.sums[end] - self.sums[middle]
        return first.tolist(), second.tolist()


def drawn(cell: Cell) -> Traffic:
    """Draw a day. The same cell gives the same day."""
    trajectory, rate, seed = cell
    rng = np.random.default_rng([seed, list(TRUTH).index(trajectory), list(RATES).index(rate)])
    of_minutes = truths(rng, trajectory)
    expected = [RATES[rate] * 60.0 * load(trajectory, minute) for minute in range(MINUTES)]
    counts = rng.poisson(np.repeat(expected, 2) / 2.0)
    total = int(counts.sum())
    tokens = lengths(rng, total)
    centres = np.repeat([request_centre(truth) for truth in of_minutes], 2)
    steps = np.maximum(-(-tokens // (K + 1)), np.rint(tokens / cut(rng.normal(np.repeat(centres, counts), SPREAD))))
    places, routers = rng.random(total), rng.integers(0, ROUTERS, total)
    order = np.lexsort((places, np.repeat(np.arange(READS), counts)))
    sums = np.zeros((total + 1, ROUTERS, 3), dtype=np.int64)
    rows = np.arange(1, total + 1)
    for column, values in enumerate((np.ones(total), tokens, steps)):
        sums[rows, routers[order], column] = values[order]
    np.cumsum(sums, axis=0, out=sums)
    begin = float(rng.uniform(0, MINUTES))
    restarts = rng.random((READS + 1, ROUTERS)) < RESTARTS_A_DAY / READS
    return Traffic(
        cell=cell,
        truths=of_minutes,
        expected=expected,
        begins=[0, *np.cumsum(counts).tolist()],
        places=places[order],
        sums=sums,
        lost=(rng.random((READS + 1, ROUTERS)) < LOST_READS).tolist(),
        restarted={(int(i), int(j)): float(rng.uniform(1.0, 20.0)) for i, j in np.argwhere(restarts)},
        outage=(EPOCH + 60.0 * begin, EPOCH + 60.0 * (begin + float(rng.uniform(*OUTAGE_MINUTES)))),
    )


def lengths(rng: np.random.Generator, count: int) -> Floats:
    """Decode tokens of requests: log-normal, and a few run away to the most that is allowed."""
    sigma2 = math.log(1.0 + LENGTH_CV2)
    tokens = np.floor(rng.lognormal(math.log(MEAN_TOKENS) - sigma2 / 2.0, math.sqrt(sigma2), count)) + 1.0
    return np.where(rng.random(count) < RUNAWAYS, float(RUNAWAY_TOKENS), tokens)


def cut(values: Floats) -> Floats:
    """Tokens per step that one request can have."""
    return np.clip(values, 1.0, K + 1.0)


def request_centre(truth: float) -> float:
    """The centre at which the requests together have `truth` tokens per step; one request's are normal around it."""
    pooled, centres = _table()
    return float(np.interp(truth, pooled, centres))


@cache
def _table() -> tuple[Floats, Floats]:
    """Tokens per step of many requests together, by centre."""
    normal = NormalDist(0.0, SPREAD)
    around = np.array([normal.inv_cdf((i + 0.5) / 400.0) for i in range(400)])
    centres = np.linspace(0.0, 6.0, 601)
    pooled = np.array([1.0 / np.mean(1.0 / cut(centre + around)) for centre in centres])
    rising = np.concatenate(([True], np.diff(pooled) > 0.0))
    return pooled[rising], centres[rising]


class Readings:
    """Four router processes that count, and are read every 30 s, not always with success."""

    def __init__(self, traffic: Traffic) -> None:
        self._traffic = traffic
        self._started = [EPOCH - 3600.0] * ROUTERS
        self._counters = [Counters()] * ROUTERS

    def read(self, read: int, share: float) -> list[tuple[str, float, float, Counters]]:
        """Serve the 30 s before a read (0 is the day's start) and give it: router, process start, time, counters."""
        at = EPOCH + READ_SECONDS * read
        if read > 0:
            speculative, baseline = self._traffic.served(read - 1, share)
            for router, (own, other) in enumerate(zip(speculative, baseline, strict=True)):
                self._counters[router] = self._counters[router].plus(own[0], own[1], own[2], other[0], other[1])
        begin, end = self._traffic.outage
        found = []
        for router in range(ROUTERS):
            ago = self._traffic.restarted.get((read, router))
            if ago is not None:
                self._started[router], self._counters[router] = at - ago, Counters()
            if not (begin <= at <= end or self._traffic.lost[read][router]):
                found.append((f"router-{router}", self._started[router], at, self._counters[router]))
        return found

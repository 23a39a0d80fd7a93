"""The line that a simulated fleet is decided by: the model's own L*, or the one that the product measures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from specfleet.decision.break_even import Estimate, batch_after, break_even
from specfleet.decision.curves import LOAD_SECONDS, STREAMS, Curves, Timing
from specfleet.decision.types import Pool
from tests.bench.fleet import model

READ_SECONDS, STEP = 1800.0, 0.05


class Line(Protocol):
    """L* of a route."""

    def observed(self, pool: Pool, at: float, batch: float, seconds: float, steps: float, requests: int) -> None:
        """A block of one pool: the batch that its engines showed, the time of its answers and the steps they took."""

    def value(self, giver: Pool, at: float, moved: float) -> Estimate:
        """The break-even line of a route that `giver` serves.

        The route would make `moved` sequences more of each replica of the other pool.
        """


class Truth:
    """The model's L*, without the noise of measurements, at the batch that the product reads it at.

    Batches fade as the product's. `giver_only`: at what the giver runs, also for a way back.
    """

    def __init__(self, *, giver_only: bool = False) -> None:
        self._giver_only = giver_only
        self._load: dict[Pool, tuple[float, float]] = {}

    def observed(self, pool: Pool, at: float, batch: float, seconds: float, steps: float, requests: int) -> None:
        total, weight = self._load.get(pool, (0.0, 0.0))
        fade = math.exp(-60.0 / LOAD_SECONDS)
        self._load[pool] = total * fade + batch * 60.0, weight * fade + 60.0

    def value(self, giver: Pool, at: float, moved: float) -> Estimate:
        if len(self._load) < len(model.POOLS):
            return Estimate("Prior", None)
        batches = {pool: total / weight for pool, (total, weight) in self._load.items()}
        batch = batches[giver]
        if giver == "baseline" and not self._giver_only:
            batch = batch_after(batch, batches["speculative"], moved)
        return Estimate("Known", model.break_even(batch), batch=batch)


class Measured:
    """The product's: curves of both pools, kept as status keeps them, and what they say.

    To save time the line is read at batches `STEP` apart (in logarithms), and at the same one again after
    `READ_SECONDS`; the product reads it every block.
    """

    def __init__(self) -> None:
        self._curves = Curves().keyed("baseline", "speculative")
        self._read: dict[tuple[Pool, int], Estimate] = {}
        self._read_at = 0.0
        self.certainties: Counter[str] = Counter()

    def observed(self, pool: Pool, at: float, batch: float, seconds: float, steps: float, requests: int) -> None:
        timings = {STREAMS: Timing(1e6 * seconds, steps, requests)} if requests else {}
        self._curves = self._curves.with_block(pool, at, 60.0, batch, timings)

    def value(self, giver: Pool, at: float, moved: float) -> Estimate:
        own, other = self._curves.pool(giver).batch, self._curves.speculative.batch
        batch = own or 0.0
        if giver == "baseline" and other is not None:
            batch = batch_after(batch, other, moved)
        if at >= self._read_at + READ_SECONDS:
            self._read_at = at
            self._read.clear()
        place = giver, round(math.log1p(batch) / STEP)
        if place not in self._read:
            self._read[place] = break_even(self._curves, giver, model.K, at, batch=math.expm1(place[1] * STEP))
        found = self._read[place]
        self.certainties[found.certainty] += 1
        return found


class Constant:
    """L* without a coupling."""

    def __init__(self, value: float) -> None:
        self._value = value

    def observed(self, pool: Pool, at: float, batch: float, seconds: float, steps: float, requests: int) -> None:
        pass

    def value(self, giver: Pool, at: float, moved: float) -> Estimate:
        return Estimate("Known", self._value)


LINES: dict[str, Callable[[], Line]] = {
    "truth": Truth,
    "giver": lambda: Truth(giver_only=True),
    "measured": Measured,
}

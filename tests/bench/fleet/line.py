"""The line that a simulated fleet is decided by: the model's own L*, or the one that the product measures."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from typing import Protocol

from specfleet.decision.break_even import batch_after, break_even
from specfleet.decision.curves import LOAD_SECONDS, STREAMS, Curves, Timing
from specfleet.decision.types import Pool
from tests.bench.fleet import model


class Line(Protocol):
    """L* of a route."""

    def observed(self, pool: Pool, at: float, batch: float, seconds: float, steps: float, requests: int) -> None:
        """A block of one pool: the batch that its engines showed, the time of its answers and the steps they took."""

    def value(self, giver: Pool, at: float, moved: float) -> float | None:
        """Tokens per step at which speculation pays; None while that is unknown.

        `giver` serves the route, which would make `moved` sequences more of each replica of the other pool.
        """


class Truth:
    """The model's L*, without the noise of measurements, at the batch that the product reads it at.

    Batches fade over half an hour, as the product's. `giver_only`: at what the giver runs, also for a way back.
    """

    def __init__(self, *, giver_only: bool = False) -> None:
        self._giver_only = giver_only
        self._load: dict[Pool, tuple[float, float]] = {}

    def observed(self, pool: Pool, at: float, batch: float, seconds: float, steps: float, requests: int) -> None:
        total, weight = self._load.get(pool, (0.0, 0.0))
        fade = math.exp(-60.0 / LOAD_SECONDS)
        self._load[pool] = total * fade + batch * 60.0, weight * fade + 60.0

    def value(self, giver: Pool, at: float, moved: float) -> float | None:
        if len(self._load) < len(model.POOLS):
            return None
        batches = {pool: total / weight for pool, (total, weight) in self._load.items()}
        batch = batches[giver]
        if giver == "baseline" and not self._giver_only:
            batch = batch_after(batch, batches["speculative"], moved)
        return model.break_even(batch)


class Measured:
    """The product's: curves of both pools, and what they say. A line that is not Known decides nothing."""

    def __init__(self) -> None:
        self._curves = Curves().keyed("baseline", "speculative")
        self.certainties: Counter[str] = Counter()

    def observed(self, pool: Pool, at: float, batch: float, seconds: float, steps: float, requests: int) -> None:
        timings = {STREAMS: Timing(1e6 * seconds, steps, requests)} if requests else {}
        self._curves = self._curves.with_block(pool, at, 60.0, batch, timings)

    def value(self, giver: Pool, at: float, moved: float) -> float | None:
        own, other = self._curves.pool(giver).batch, self._curves.speculative.batch
        batch = own
        if giver == "baseline" and own is not None and other is not None:
            batch = batch_after(own, other, moved)
        found = break_even(self._curves, giver, model.K, at, batch=batch)
        self.certainties[found.certainty] += 1
        return found.tokens_per_step if found.certainty == "Known" else None


class Constant:
    """L* without a coupling."""

    def __init__(self, value: float) -> None:
        self._value = value

    def observed(self, pool: Pool, at: float, batch: float, seconds: float, steps: float, requests: int) -> None:
        pass

    def value(self, giver: Pool, at: float, moved: float) -> float | None:
        return self._value


LINES: dict[str, Callable[[], Line]] = {
    "truth": Truth,
    "giver": lambda: Truth(giver_only=True),
    "measured": Measured,
}

"""Times counted in fixed buckets, and what can be read off them: percentiles, and how many exceed a limit. Pure.

The ladder is the same in the router's filter (`BOUNDS_US` in filter.lua), so counts of several routers add up, and what
happened between two samples is their difference.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import dataclass
from operator import add, sub
from typing import NamedTuple

BOUNDS_US = tuple(round(1000 * 10 ** (step / 10)) for step in range(49))
"""Upper bounds in microseconds, inclusive: 1 ms to 63 s, each 1.26 times the one before. Above the last is one more
bucket, without an upper bound."""

_BUCKETS = {**{str(bound): at for at, bound in enumerate(BOUNDS_US)}, "inf": len(BOUNDS_US)}


class Bounds(NamedTuple):
    """Where a time lies, in microseconds: above `low` and at most `high`, which is infinite in the last bucket."""

    low: float
    high: float


class Between(NamedTuple):
    """How many there are: the bucket in which a limit lies is left out of `least` and counted in `most`."""

    least: int
    most: int


@dataclass(frozen=True, slots=True)
class TimeBuckets:
    """How many times fell into each bucket; `counts` has one more entry than `BOUNDS_US`."""

    counts: tuple[int, ...] = (0,) * (len(BOUNDS_US) + 1)

    @property
    def total(self) -> int:
        """How many there are."""
        return sum(self.counts)

    def plus(self, other: TimeBuckets) -> TimeBuckets:
        """Both together."""
        return TimeBuckets(tuple(map(add, self.counts, other.counts)))

    def since(self, earlier: TimeBuckets) -> TimeBuckets:
        """What was counted after an earlier sample of the same counters.

        Raises:
            ValueError: a count fell, so it is no earlier sample of the same process.
        """
        grown = tuple(map(sub, self.counts, earlier.counts))
        if min(grown) < 0:
            raise ValueError("a bucket's count fell: expected an earlier sample of the same process")
        return TimeBuckets(grown)

    def percentile(self, percent: float) -> Bounds | None:
        """The bucket of the smallest time that at least this share of all do not exceed (nearest rank); None for none.

        Raises:
            ValueError: `percent` is not above 0 and at most 100.
        """
        if not 0.0 < percent <= 100.0:
            raise ValueError(f"percent is {percent}, expected more than 0 and at most 100")
        left = max(1, math.ceil(self.total * percent / 100.0))
        for at, count in enumerate(self.counts):
            left -= count
            if left <= 0:
                return _bounds(at)
        return None

    def over(self, limit_us: float) -> Between:
        """How many exceed a limit in microseconds."""
        at = bisect_left(BOUNDS_US, limit_us)
        surely = sum(self.counts[at + 1 :])
        exact = at < len(BOUNDS_US) and BOUNDS_US[at] == limit_us
        return Between(surely, surely if exact else surely + self.counts[at])


NONE_TIMED = TimeBuckets()


def bucket_of(label: str) -> int | None:
    """The bucket whose upper bound in microseconds a counter's label gives ("inf" for the last); None for another."""
    return _BUCKETS.get(label)


def _bounds(at: int) -> Bounds:
    return Bounds(BOUNDS_US[at - 1] if at else 0.0, BOUNDS_US[at] if at < len(BOUNDS_US) else math.inf)

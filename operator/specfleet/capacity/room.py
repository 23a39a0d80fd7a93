"""Room for a switch: what the receiving pool and the route have in flight together must fit its breaker. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from specfleet.api.names import BASELINE_POOL


class HeadRoom(NamedTuple):
    """Whether a pool could take the whole route now, by direction, in the order of the decision's `Room`."""

    to_baseline: bool
    to_speculation: bool


def room(
    active: Iterable[Mapping[str, int]],
    route_active: int,
    limits: Mapping[str, int],
    *,
    baseline_ready: bool,
    speculative_ready: bool,
    speculative_pool: str,
) -> HeadRoom:
    """Which pool could take the whole route now.

    Args:
        active: requests in flight by pool, as each router counts them.
        route_active: requests of the route in flight, over all routers. Some of them may be in the receiving pool
            already and are counted twice, but no pool can get more than what is in flight in both.
        limits: requests in flight that all routers together let through, by pool. A pool without a limit has room.
        baseline_ready, speculative_ready: whether the pool has a ready pod; without one it has no room while the other
            pool serves. With none ready anywhere nothing is served, and a decision costs nobody anything.
    """
    totals: dict[str, int] = {}
    for one in active:
        for pool, count in one.items():
            totals[pool] = totals.get(pool, 0) + count

    def fits(pool: str) -> bool:
        limit = limits.get(pool)
        expected = min(totals.get(pool, 0) + route_active, max(sum(totals.values()), route_active))
        return limit is None or expected <= limit

    return HeadRoom(
        to_baseline=(baseline_ready or not speculative_ready) and fits(BASELINE_POOL),
        to_speculation=(speculative_ready or not baseline_ready) and fits(speculative_pool),
    )

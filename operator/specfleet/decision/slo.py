"""A route's times against its goals, and whether baseline would be faster with the route than speculation is now."""

from __future__ import annotations

import math
from collections.abc import Mapping

from specfleet.api.base import duration
from specfleet.api.v1alpha1 import Policy, RoutePolicy
from specfleet.decision.measures import RouteSeen, Seen, Slo, Tail
from specfleet.decision.pressure import Load

LEAST_REQUESTS = 20
WARM_SECONDS = 600.0  # after a route has come, its prefixes are not cached
THIN_PERCENT = 50  # below this a pool's batch is not what it would be


def slo_of(policy: Policy, route: RoutePolicy | None) -> Slo | None:
    """The goals of a route; its own go before the general ones, as a whole."""
    asked = route.slo if route is not None and route.slo is not None else policy.slo
    if asked is None:
        return None
    return Slo(_seconds(asked.time_per_output_token), _seconds(asked.time_to_first_token), asked.percentile)


def _seconds(text: str | None) -> float | None:
    return None if text is None else duration(text).total_seconds()


def predicted(route: RouteSeen) -> tuple[float, float] | None:
    """Times of baseline with the route, and of speculation now, where both are known."""
    one = route.predicted
    if one is None or not all(math.isfinite(x) and x > 0.0 for x in (one.baseline_then, one.speculation_now)):
        return None
    return one.baseline_then, one.speculation_now


def has_room(route: RouteSeen, speculative: Load, baseline: Load, seen: Seen) -> bool:
    """Whether baseline is faster with the route: by the curves, else by a batch no larger than speculation's."""
    times = predicted(route)
    if times is not None:
        return times[0] < times[1]
    ready = seen.ready.get("baseline", 0)
    if route.active is None or baseline.batch is None or speculative.batch is None or not ready:
        return False
    return baseline.batch + route.active / ready <= speculative.batch


def faster(
    route: RouteSeen, over: Mapping[str, str], speculative: Load | None, baseline: Load | None, seen: Seen
) -> bool:
    """Whether baseline is faster with the route: by the curves, else it keeps the SLO itself at no smaller batch."""
    times = predicted(route)
    if times is not None:
        return times[0] < times[1]
    if speculative is None or baseline is None or speculative.batch is None or baseline.batch is None:
        return False
    assert route.slo is not None
    goals = {"tpot": route.slo.time_per_output_token, "ttft": route.slo.time_to_first_token}
    tails = {"tpot": seen.baseline_tpot, "ttft": seen.baseline_ttft}
    return baseline.batch >= speculative.batch and all(
        _is_over(tails[which].get(route.slo.percentile), goals[which]) is False for which in over
    )


def misses_in_any_pool(route: RouteSeen) -> bool:
    """Whether the answers of either pool miss a goal of the route in this block, whatever share it has."""
    slo = route.slo
    return slo is not None and any(
        _is_over(answers.time_per_output_token, slo.time_per_output_token)
        or _is_over(answers.time_to_first_token, slo.time_to_first_token)
        for answers in (route.speculative, route.baseline)
    )


def over_goal(route: RouteSeen, now: float) -> dict[str, str] | None:
    """Sentences by what is over its goal; none where nothing is, None where nothing can be said."""
    slo = route.slo
    if slo is None or route.mode != "speculative" or route.served != "speculative":
        return None
    looked: dict[str, tuple[bool | None, Tail | None, float | None, str]] = {}
    if route.percent >= THIN_PERCENT:
        tail, goal = route.speculative.time_per_output_token, slo.time_per_output_token
        looked["tpot"] = _is_over(tail, goal), tail, goal, "Time per output token"
    if route.percent == 100 and now - route.served_since >= WARM_SECONDS:
        tail, goal = route.speculative.time_to_first_token, slo.time_to_first_token
        looked["ttft"] = _is_over(tail, goal), tail, goal, "Time to first token"
    if all(over is None for over, *_ in looked.values()):
        return None
    return {
        which: f"{what} at percentile {slo.percentile} is {_time(tail.seconds)}, over {_time(goal)}"
        for which, (over, tail, goal, what) in looked.items()
        if over and tail is not None and goal is not None
    }


def _is_over(tail: Tail | None, goal: float | None) -> bool | None:
    if tail is None or goal is None or tail.requests < LEAST_REQUESTS or math.isnan(tail.seconds):
        return None
    return tail.seconds > goal


def _time(seconds: float) -> str:
    return f"{1000.0 * seconds:.0f} ms" if seconds < 10.0 else f"{seconds:.0f} s"

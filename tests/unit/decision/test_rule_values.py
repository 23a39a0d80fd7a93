"""Each number of the rule by itself: what it makes of a small history, and that another number makes something else.

The totals of the benchmark hardly feel these values; here a change of one by a tenth is told by its own case.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import pytest

from specfleet.decision import evidence, rule
from specfleet.decision.evidence import LineState
from specfleet.decision.rule import Block, RouteConfig, RouteState, Verdict, dwell_end, start, step

NINE = 1_764_406_800.0
ON = RouteConfig(initial="speculative", draft_tokens=4, break_even=1.60)
OFF = replace(ON, initial="baseline")
DWELL = 600.0


class Route:
    """A route from nine o'clock on. `minute` counts as many steps and accepted tokens as told."""

    def __init__(self, config: RouteConfig = ON) -> None:
        self.config, self.now = config, NINE
        self.state: RouteState = start(config, NINE)

    @property
    def line(self) -> LineState:
        return self.state.line("BreakEven")

    def minute(self, x: float, requests: int = 30, steps: int = 6000, drafted: int | None = None) -> Verdict:
        """A block of `steps` at `x` tokens a step."""
        tokens = round(steps * x)
        accepted = tokens - steps
        self.now += 60.0
        drafts = 4 * steps if drafted is None else drafted
        share = self.state.percent / 100.0
        return self._stepped(Block(self.now, tokens, accepted, drafts, requests, share))

    def minutes(self, count: int, x: float, requests: int = 30, steps: int = 6000) -> Route:
        for _ in range(count):
            self.minute(x, requests, steps)
        return self

    def tick(self, at: float) -> Verdict:
        self.now = at
        return self._stepped(None)

    def switched_after(self, x: float, **counts: int) -> int:
        """Minutes until a switch."""
        return next(minute for minute in range(1, 5000) if self.minute(x, **counts).switched)

    def _stepped(self, block: Block | None) -> Verdict:
        self.state, verdict = step(self.state, self.config, block, self.now)
        return verdict


# --- dwell and back-off, to the second


def switched_off(route: Route) -> float:
    """Switch the route off by evidence as soon as may be; when."""
    route.switched_after(1.0)
    assert route.state.mode == "baseline"
    return route.now


def first_second(route: Route, x: float) -> float:
    """How long after its last switch the route leaves its pool, with all of the evidence there long before.

    Found by ticks to the second: none leaves before, and the answer is the first that does.
    """
    since, end = route.state.since, dwell_end(route.state, route.config)
    while route.now + 60.0 < end:
        assert not route.minute(x).switched
    assert not route.tick(end - 1.0).switched
    assert route.line.says_switch(route.state.mode)
    assert route.tick(end).switched
    return end - since


def test_each_switch_off_doubles_the_wait_up_to_32_dwells() -> None:
    route, waits = Route(), []
    for _ in range(8):
        switched_off(route)
        waits.append(first_second(route, 3.0))
    assert waits == [600, 1200, 2400, 4800, 9600, 19200, 19200, 19200]


def test_another_dwell_scales_all_of_them() -> None:
    route, waits = Route(replace(ON, dwell_seconds=900.0)), []
    for _ in range(7):
        switched_off(route)
        waits.append(first_second(route, 3.0))
    assert waits == [900.0 * 2**n for n in (0, 1, 2, 3, 4, 5, 5)]


@pytest.mark.parametrize("dwell", [900.0, 1200.0, 3600.0])
def test_speculation_lasts_half_a_dwell(dwell: float) -> None:
    route = Route(replace(ON, dwell_seconds=dwell))
    assert first_second(route, 1.0) == dwell / 2.0
    first_second(route, 3.0)
    assert first_second(route, 1.0) == dwell / 2.0


def wait_after(on_for: float) -> float:
    """How long the third switch-off lasts, if speculation lasted `on_for` before it."""
    route = Route()
    for _ in range(2):
        switched_off(route)
        first_second(route, 3.0)
    # All of the evidence comes late, in blocks that say all that a block may say.
    due = route.state.since + on_for
    route.now = due - 300.0
    moved = [route.minute(1.0, 3000, 600_000).switched for _ in range(5)]
    assert moved == [False, False, False, False, True]
    return dwell_end(route.state, route.config) - due


@pytest.mark.parametrize(("on_for", "wait"), [(6 * 3600.0 - 1.0, 2400.0), (6 * 3600.0, 600.0)])
def test_six_hours_in_speculation_forgive_the_earlier_ones(on_for: float, wait: float) -> None:
    assert wait_after(on_for) == wait


def test_the_first_switch_off_ever_waits_one_dwell_also_after_less_than_six_hours() -> None:
    route = Route()
    switched_off(route)
    assert dwell_end(route.state, route.config) - route.now == DWELL


def test_a_switch_back_leaves_the_exponent_alone() -> None:
    route = Route()
    switched_off(route)
    first_second(route, 3.0)
    assert route.state.backoff == 0
    switched_off(route)
    assert route.state.backoff == 1


# --- the numbers of the evidence, and of exploration


@dataclass(frozen=True)
class Number:
    """A number of the rule, and something small that a user could see of it."""

    holder: ModuleType
    name: str
    seen: Callable[[], object]
    expected: object
    key: str | None = None

    def value(self) -> Any:
        found = getattr(self.holder, self.name)
        return found if self.key is None else found[self.key]

    def set(self, monkeypatch: pytest.MonkeyPatch, value: Any) -> None:
        if self.key is None:
            monkeypatch.setattr(self.holder, self.name, value)
        else:
            monkeypatch.setitem(getattr(self.holder, self.name), self.key, value)


def score_of_one(config: RouteConfig, x: float, **counts: int) -> Callable[[], object]:
    def seen() -> object:
        route = Route(config)
        route.minute(x, **counts)
        return round(route.line.score, 3)

    return seen


def few_requests(count: int) -> object:
    return score_of_one(ON, 1.50, requests=count, steps=200)()


def blocks_to_switch(config: RouteConfig, x: float) -> Callable[[], object]:
    """Blocks until the evidence is enough, without a dwell to wait for."""
    return lambda: Route(replace(config, dwell_seconds=1.0)).switched_after(x)


def variance_after(*blocks: tuple[float, int]) -> Callable[[], object]:
    """v after blocks, each so many requests at so many tokens a step."""

    def seen() -> object:
        route = Route()
        for x, requests in blocks:
            route.minute(x, requests, 200 * requests)
        return round(route.line.variance, 4)

    return seen


def minutes_to_a_block(requests: int, steps: int) -> Callable[[], object]:
    """The minute in which so many requests and steps a minute make the first block."""

    def seen() -> object:
        route = Route()
        for minute in range(1, 200):
            route.minute(2.0, requests, steps)
            if route.line.recent:
                return minute
        return None

    return seen


def minutes_of_one_request() -> object:
    """The minute in which one request, and nothing after it, makes a block."""
    route = Route()
    route.minute(2.0, 1, 400)
    return next(minute for minute in range(2, 60) if route.minute(1.0, 0, 0) and route.line.recent)


def longest_wait() -> object:
    route = Route()
    for _ in range(7):
        switched_off(route)
        wait = first_second(route, 3.0)
    return wait


def requests_at_the_switch() -> object:
    """Requests counted when a score that has been enough for long makes a switch: one request every three minutes."""
    route = Route(replace(OFF, dwell_seconds=1.0))
    for request in range(1, 40):
        moved = [route.minute(4.9, 1, 300).switched, route.minute(1.0, 0, 0).switched, route.minute(1.0, 0, 0).switched]
        if any(moved):
            return request
    return None


def drafted_of_the_first_block() -> object:
    route = Route(RouteConfig(initial="speculative", draft_tokens=4, min_acceptance_percent=50))
    for minute in range(1, 60):
        route.minute(1.0, 10, 2000, drafted=1)
        if route.state.line("Acceptance").recent:
            return minute
    return None


def oldest_that_counts() -> object:
    """Minutes after which what was gathered is left out: two requests, then two more that would make a block."""
    for minutes in range(50, 80):
        route = Route()
        route.minute(2.0, 2, 400)
        route.now += 60.0 * (minutes - 1)
        route.minute(2.0, 2, 400)
        if not route.line.recent:
            return minutes
    return None


def seconds_that_close_a_block() -> object:
    for seconds in range(30, 61):
        route = Route()
        tokens = 2 * 6000
        route.now += seconds
        route._stepped(Block(route.now, tokens, 6000, 24000, 30, 1.0, seconds=float(seconds)))
        if route.line.recent:
            return seconds
    return None


def shares(*hours: float) -> Callable[[], object]:
    """The exploring percent at these ages, of a route with 100 requests an hour."""

    def seen() -> object:
        route = Route(replace(OFF, exploration_max_percent=100))
        route.state = replace(route.state, rate_requests=100.0, rate_hours=1.0)
        return [rule.exploration_percent(_lined(route), route.config, NINE + 3600.0 * one) for one in hours]

    return seen


def _lined(route: Route) -> RouteState:
    """The state with its line set, as any step sets it."""
    found, _ = step(route.state, route.config, None, NINE)
    return found


def faded_rate() -> object:
    """Requests an hour after an hour at 60 a minute and one at 6."""
    route = Route()
    for requests in (60, 6):
        route.minutes(60, 2.0, requests)
    assert route.state.requests_per_hour is not None
    return round(route.state.requests_per_hour)


STEADY = [(1.5, 30)] * 7
NUMBERS = [
    Number(evidence, "THRESHOLD", blocks_to_switch(ON, 1.50), 19, "speculative"),
    Number(evidence, "THRESHOLD", blocks_to_switch(OFF, 1.72), 14, "baseline"),
    Number(evidence, "MID", score_of_one(ON, 1.50), 0.472, "speculative"),
    Number(evidence, "MID", score_of_one(OFF, 1.72), 0.499, "baseline"),
    Number(evidence, "DELTA", score_of_one(ON, 1.50), 0.472),
    Number(evidence, "TAU", score_of_one(ON, 1.50), 0.472),
    Number(evidence, "STEPS_PER_REQUEST_PRIOR", score_of_one(ON, 1.50, requests=4, steps=200), 0.053),
    Number(evidence, "STEPS_PRIOR_REQUESTS", lambda: [few_requests(n) for n in (5, 6)], [0.053, 0.121]),
    Number(evidence, "MIN_REQUESTS", requests_at_the_switch, 10),
    Number(evidence, "BLOCK_REQUESTS", lambda: [minutes_to_a_block(n, 400)() for n in (2, 3)], [2, 1]),
    Number(evidence, "THIN_BLOCKS", minutes_of_one_request, 3),
    Number(evidence, "BLOCK_STEPS", minutes_to_a_block(3, 1), 20),
    Number(evidence, "BLOCK_DRAFTED", drafted_of_the_first_block, 20),
    Number(evidence, "GATHER_LIMIT_SECONDS", oldest_that_counts, 60),
    Number(evidence, "EARLY_CLOSE", seconds_that_close_a_block, 45),
    Number(evidence, "LEARNING", variance_after(*STEADY), 0.49),
    Number(evidence, "LOOK_BACK", variance_after(*STEADY), 0.49),
    Number(evidence, "VARIANCE_MIN", variance_after(*([(1.5, 30)] * 200)), 0.05),
    Number(evidence, "VARIANCE_MAX", variance_after(*([(1.0, 900)] * 6 + [(3.0, 900)] * 6) * 40), 5.0),
    Number(rule, "EXPLORATION_REQUESTS", shares(0.0, 8.0, 24.0), [55, 27, 16]),
    Number(rule, "EXPLORATION_AGE_SECONDS", shares(0.5, 1.0), [55, 55]),
    Number(rule, "RATE_SECONDS", faded_rate, 1231),
    Number(rule, "RESET_SECONDS", lambda: [wait_after(6 * 3600.0 - 1.0), wait_after(6 * 3600.0)], [2400, 600]),
    Number(rule, "MAX_BACKOFF", longest_wait, 19200),
]


def other_values(value: float) -> list[float]:
    """A tenth less and more; of a small count one less and more."""
    if isinstance(value, int) and value < 10:
        return [value - 1, value + 1]
    return [type(value)(value * 0.9), type(value)(value * 1.1)]


def named(number: Number) -> str:
    return number.name if number.key is None else f"{number.name}[{number.key}]"


@pytest.mark.parametrize("number", NUMBERS, ids=named)
def test_each_number_makes_what_the_manual_says_and_another_one_makes_something_else(number: Number) -> None:
    assert number.seen() == number.expected
    for other in other_values(number.value()):
        with pytest.MonkeyPatch.context() as patch:
            number.set(patch, other)
            assert number.seen() != number.expected, f"{named(number)} = {other} makes no difference"


def test_a_route_starts_with_a_variance_of_a_half_a_request() -> None:
    assert score_of_one(ON, 1.50, requests=4, steps=200)() == 0.053
    for variance in (0.45, 0.55):
        route = Route()
        route.tick(NINE)
        lines = tuple(replace(line, variance=variance) for line in route.state.lines)
        route.state = replace(route.state, lines=lines)
        route.minute(1.50, requests=4, steps=400)
        assert round(route.line.score, 3) != 0.07


def test_a_block_says_a_fifth_of_the_threshold_at_most_either_way() -> None:
    route = Route()
    route.minute(1.0, 3000, 600_000)
    assert route.line.score == pytest.approx(9.2 / 5.0)
    route.minutes(2, 1.0, 3000, 600_000).minute(4.0, 3000, 600_000)
    assert route.line.score == pytest.approx(2 * 9.2 / 5.0)
    back = Route(OFF)
    back.minute(4.0, 3000, 600_000)
    assert back.line.score == pytest.approx(6.9 / 5.0)


def test_a_score_stops_at_one_and_a_half_thresholds_and_at_none() -> None:
    route = Route(replace(ON, dwell_seconds=7200.0))
    assert route.minutes(20, 1.0).line.score == pytest.approx(1.5 * 9.2)
    assert route.minutes(60, 4.0).line.score == 0.0
    assert route.line.requests == 0.0


def test_one_surprising_block_moves_the_variance_by_nine_of_it_at_most() -> None:
    assert variance_after(*STEADY[:6], (4.9, 3000))() == pytest.approx(0.5 + 0.02 * (9 * 0.5 - 0.5))


def test_the_ramp_is_a_tenth_a_half_and_all_in_thirds_of_half_a_dwell() -> None:
    route = Route()
    switched_off(route)
    first_second(route, 3.0)
    seen = [(0, route.state.percent)]
    began = route.now
    for second in range(1, 302):
        percent = route.tick(began + second).speculative_percent
        if percent != seen[-1][1]:
            seen.append((second, percent))
    assert seen == [(0, 10), (100, 50), (200, 100)]

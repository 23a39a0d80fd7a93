"""The decision benchmark's own parts: the oracle, what a false switch is, the bootstrap, and traffic that is shared."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest

from specfleet.decision.rule import Block
from tests.bench.decision import traffic as days
from tests.bench.decision.drive import Minute, Operated, driven
from tests.bench.decision.rules import RULES, Argo, Shipped, student
from tests.bench.decision.score import SWITCH_COST, Day, difference, interval, rate_at_most, scored, summary
from tests.bench.decision.traffic import EPOCH, Traffic, drawn
from tests.bench.decision.truth import BREAK_EVEN, MINUTES, K, is_false, loss, tokens_per_step

LINE = [BREAK_EVEN] * MINUTES
ONE_EACH = [1.0] * MINUTES


def minutes(*spells: tuple[int, int, bool]) -> list[Minute]:
    """Spells of (minutes, percent, on)."""
    found = [Minute(percent, on) for count, percent, on in spells for _ in range(count)]
    assert len(found) == MINUTES
    return found


# --- the oracle


def test_what_is_in_the_better_pool_loses_nothing() -> None:
    good = scored("good", [2.2] * MINUTES, ONE_EACH, minutes((MINUTES, 100, True)))
    assert (good.wrong_percent, good.regret_percent, good.switches) == (0.0, 0.0, 0)
    never = scored("bad", [1.2] * MINUTES, ONE_EACH, minutes((MINUTES, 0, False)))
    assert (never.wrong_percent, never.regret_percent) == (0.0, 0.0)


def test_what_is_in_the_wrong_pool_loses_the_ratio_of_break_even_to_truth() -> None:
    # Speculation at 1.28 takes 1.60/1.28 = 1.25 of baseline's time; at 2.0 it takes .8 of it.
    bad = scored("bad", [1.28] * MINUTES, ONE_EACH, minutes((MINUTES, 100, True)))
    assert bad.regret_percent == pytest.approx(25.0)
    missed = scored("good", [2.0] * MINUTES, ONE_EACH, minutes((1, 100, True), (MINUTES - 1, 0, False)))
    assert missed.regret_percent == pytest.approx(20.0 * (MINUTES - 1) / MINUTES)
    explored = scored("bad", [1.28] * MINUTES, ONE_EACH, minutes((MINUTES, 10, False)))
    assert explored.wrong_percent == pytest.approx(10.0)
    assert explored.regret_percent == pytest.approx(2.5)


def test_at_the_line_nothing_is_lost_and_switches_cost_what_they_cost() -> None:
    flapping = scored("good", LINE, ONE_EACH, minutes(*[(10, 0, False), (10, 100, True)] * (MINUTES // 20)))
    assert loss(BREAK_EVEN) == 0.0
    assert flapping.switches == MINUTES // 10
    assert flapping.total_percent == pytest.approx(100.0 * SWITCH_COST * flapping.switches)


def test_minutes_weigh_by_their_requests() -> None:
    busy = [9.0] * 720 + [1.0] * 720
    half = scored("good", [1.28] * MINUTES, busy, minutes((720, 100, True), (720, 0, False)))
    assert half.wrong_percent == pytest.approx(90.0)


def test_delay_is_until_the_route_is_in_the_right_pool() -> None:
    truths = [2.2] * 480 + [1.2] * 960
    assert scored("step", truths, ONE_EACH, minutes((487, 100, True), (953, 0, False))).delay_minutes == 7
    assert scored("step", truths, ONE_EACH, minutes((MINUTES, 100, True))).delay_minutes is None
    assert scored("recover", truths, ONE_EACH, minutes((MINUTES, 100, True))).delay_minutes == 0
    assert scored("good", truths, ONE_EACH, minutes((MINUTES, 100, True))).delay_minutes is None


# --- false switches


@pytest.mark.parametrize(
    ("factor", "to_on", "false"),
    [
        (1.031, False, True),
        (1.029, False, False),
        (0.90, False, False),
        (0.969, True, True),
        (0.971, True, False),
        (1.2, True, False),
    ],
)
def test_a_switch_is_false_where_the_truth_is_three_percent_on_the_other_side(
    factor: float, to_on: bool, false: bool
) -> None:
    assert is_false([factor * BREAK_EVEN] * MINUTES, 700, to_on=to_on) is false


def test_it_is_the_half_hour_around_a_switch_that_counts() -> None:
    step = [2.2] * 480 + [1.2] * 960
    assert not is_false(step, 481, to_on=False)
    assert is_false(step, 470, to_on=False)
    blip = [2.2] * 700 + [1.2] * 10 + [2.2] * 730
    assert is_false(blip, 705, to_on=False)
    assert is_false([2.2] * MINUTES, 0, to_on=False)


# --- the bootstrap


def test_an_interval_has_the_width_that_its_days_spread_and_keeps_cells_apart() -> None:
    rng = np.random.default_rng(3)
    # Cells lie far apart: drawn again over all of them, the interval would be as wide as they lie.
    days = {
        (t, "mid", seed): 100.0 * number + float(rng.normal(0.0, 2.0))
        for number, t in enumerate("abcdefgh")
        for seed in range(50)
    }
    low, high = interval(days)
    mean = sum(days.values()) / len(days)
    assert low < mean < high
    assert high - low == pytest.approx(2 * 1.96 * 2.0 / math.sqrt(400), rel=0.15)


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    rng = np.random.default_rng(5)
    held = 0
    for _ in range(100):
        low, high = interval({("a", "mid", seed): float(one) for seed, one in enumerate(rng.exponential(1.0, 40))})
        held += low <= 1.0 <= high
    assert 86 <= held <= 99


def a_day(total: float) -> Day:
    return Day(0, 0, 0.0, total, None, ())


def test_two_rules_are_compared_day_by_day() -> None:
    rng = random.Random(4)
    one = {("a", "mid", seed): a_day(rng.uniform(0.0, 50.0)) for seed in range(20)}
    other = {cell: a_day(day.regret_percent + 1.0) for cell, day in one.items()}
    assert difference(one, other) == {"mean": -1.0, "interval95": [-1.0, -1.0]}


def test_no_false_switch_seen_is_not_none_ever() -> None:
    assert rate_at_most(0) == pytest.approx(2.996, abs=0.001)
    assert rate_at_most(3) == pytest.approx(7.754, abs=0.001)
    found = summary({("a", "mid", seed): a_day(0.0) for seed in range(270)})
    assert found["falseSwitchesPerDayAtMost"] == pytest.approx(0.0111)


@pytest.mark.parametrize(("degrees", "quantile"), [(9, 4.781), (29, 3.659), (59, 3.460)])
def test_quantiles_of_student(degrees: int, quantile: float) -> None:
    assert student(0.9995, degrees) == pytest.approx(quantile, rel=0.01)


# --- traffic


@pytest.fixture(scope="module")
def busy() -> Traffic:
    return drawn(("near-5%", "high", 7))


def test_a_day_is_drawn_the_same_again(busy: Traffic) -> None:
    again = drawn(("near-5%", "high", 7))
    assert np.array_equal(busy.places, again.places)
    assert np.array_equal(busy.sums, again.sums)
    assert (busy.lost, busy.restarted, busy.outage) == (again.lost, again.restarted, again.outage)
    assert not np.array_equal(busy.places[:100], drawn(("near-5%", "high", 8)).places[:100])


def test_requests_are_as_long_and_as_fast_as_the_manual_says(busy: Traffic) -> None:
    requests, tokens, steps = busy.sums[-1].sum(axis=0)
    assert requests == pytest.approx(5.0 * 86400, rel=0.01)
    assert tokens / requests == pytest.approx(410.0, rel=0.01)
    assert tokens / steps == pytest.approx(sum(busy.truths) / MINUTES, rel=0.005)
    rng = np.random.default_rng(1)
    lengths = days.lengths(rng, 400_000)
    assert lengths.std() ** 2 / lengths.mean() ** 2 == pytest.approx(1.7, abs=0.15)


def test_every_request_goes_to_one_pool_and_a_larger_share_only_adds(busy: Traffic) -> None:
    everything = np.array(busy.served(500, 1.0)[0])
    before = np.zeros_like(everything)
    for share in (0.0, 0.1, 0.5, 1.0):
        speculative, baseline = (np.array(part) for part in busy.served(500, share))
        assert np.array_equal(speculative + baseline, everything)
        assert (speculative >= before).all()
        before = speculative
    tenth = sum(np.array(busy.served(interval, 0.1)[0])[:, 0].sum() for interval in range(200))
    whole = sum(np.array(busy.served(interval, 1.0)[0])[:, 0].sum() for interval in range(200))
    assert tenth / whole == pytest.approx(0.1, abs=0.01)


def test_one_request_has_between_one_and_k_plus_one_tokens_a_step() -> None:
    assert (days.cut(np.array([0.2, 2.0, 9.0])) == [1.0, 2.0, K + 1.0]).all()
    for truth in (tokens_per_step(0.2), 1.6, tokens_per_step(0.62)):
        drawn_rates = days.cut(np.random.default_rng(2).normal(days.request_centre(truth), days.SPREAD, 200_000))
        assert 1.0 / float(np.mean(1.0 / drawn_rates)) == pytest.approx(truth, rel=0.003)


# --- the rules beside the shipped one


def test_analysis_fails_after_a_quarter_of_an_hour_and_tries_again_blindly_after_thirty_minutes() -> None:
    argo, answers = Argo(), []
    for minute in range(1, 121):
        at = EPOCH + 60.0 * minute
        answers.append(argo.minute(at, Block(at, 1000, 200, 2400, 30, 1.0), None)[0])
    moves = [minute + 1 for minute in range(1, 120) if answers[minute] != answers[minute - 1]]
    assert moves == [15, 45, 60, 90, 105]


def test_on_a_route_at_the_line_the_plain_threshold_flaps_and_the_shipped_rule_does_not() -> None:
    traffic = drawn(("near-5%", "mid", 7))
    moves = {}
    for name in ("shipped", "T5m"):
        went = driven(traffic, Operated(RULES[name]()))
        moves[name] = scored("near-5%", traffic.truths, traffic.expected, went).switches
    assert moves["shipped"] <= 2
    assert moves["T5m"] > 50


def test_what_cannot_be_read_decides_nothing() -> None:
    """With every read lost from the second hour on, a route that has become bad stays on."""
    traffic = drawn(("step", "mid", 7))
    deaf = replace(traffic, lost=[[read > 240] * days.ROUTERS for read in range(days.READS + 1)])
    assert all(one.on for one in driven(deaf, Operated(Shipped())))
    assert not all(one.on for one in driven(traffic, Operated(Shipped())))

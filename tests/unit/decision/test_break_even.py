"""The break-even line that is read off two curves, against the step times that the curves were made of."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specfleet.decision.break_even import (
    MAX_AGE_SECONDS,
    MIN_POINTS,
    MOST_FACTOR,
    Estimate,
    batch_after,
    break_even,
    step_us,
)
from specfleet.decision.curves import STREAMS, Curves, Timing
from specfleet.decision.types import Pool

BEGIN = 1_800_000_000.0
K = 4
Model = Callable[[float], float]


def base_ms(batch: float) -> float:
    """An 8B model on an H100 with 1,000 tokens of context (decision.md, section 2), as a request finds the batch."""
    return 7.1 + (0.021 + 0.0000393 * 1000) * (1.0 + batch)


def spec_ms(batch: float) -> float:
    """The same with a draft head of k = 4."""
    return 7.1 + 4 * 0.71 + (0.021 * (K + 1) + 0.0000393 * 1000) * (1.0 + batch)


def true(batch: float) -> float:
    return spec_ms(batch) / base_ms(batch)


def seen(
    curves: Curves,
    pool: Pool,
    model: Model,
    batches: Iterable[float],
    *,
    noise: float = 0.0,
    requests: int = 12,
    kind: str = STREAMS,
    seed: int = 1,
    at: float = BEGIN,
) -> Curves:
    """One point of five one-minute blocks for each batch; `noise` is the spread of a block, relative."""
    chance = random.Random(seed)
    for batch in batches:
        for _ in range(5):
            at += 60.0
            step_us = 1000.0 * model(batch) * (1.0 + chance.gauss(0.0, noise))
            timing = Timing(us=step_us * 5000.0, steps=5000.0, requests=requests)
            curves = curves.with_block(pool, at, 60.0, batch, {kind: timing})
    return curves


def both(base: Iterable[float], spec: Iterable[float], **kwargs: Any) -> Curves:
    curves = seen(Curves(), "baseline", base_ms, base, **kwargs)
    return seen(curves, "speculative", spec_ms, spec, **{**kwargs, "seed": 2})


DAY = [10.0 + 60.0 * place / 19 for place in range(20)]


@pytest.mark.parametrize("batch", [11.0, 20.0, 40.0, 69.0, 80.0])
def test_where_both_curves_reach_the_line_is_known_and_right(batch: float) -> None:
    found = break_even(both(DAY, DAY, noise=0.03), "speculative", K, BEGIN + 1e4, batch=batch)
    assert found.certainty == "Known"
    assert found.tokens_per_step == pytest.approx(true(batch), rel=0.03)
    assert found.interval is not None
    assert found.interval[0] <= true(batch) <= found.interval[1]
    assert found.interval[1] / found.interval[0] < 1.12
    assert found.reach == pytest.approx((13.2 / 1.25 - 1.0, 67.8 * 1.25 - 1.0), rel=0.1)
    assert (found.batch, found.kind) == (batch, STREAMS)


def test_without_a_batch_it_is_read_where_the_giver_is_now() -> None:
    curves = both([20.0] * 10, [40.0] * 10)
    on, off = (break_even(curves, pool, K, BEGIN + 3600) for pool in ("speculative", "baseline"))
    assert on.batch == pytest.approx(40.0, rel=0.001)
    assert off.batch == pytest.approx(20.0, rel=0.001)


def test_its_interval_holds_the_truth_in_most_of_many_worlds() -> None:
    held = 0
    for seed in range(100):
        curves = seen(Curves(), "baseline", base_ms, DAY[::2], noise=0.08, seed=seed)
        curves = seen(curves, "speculative", spec_ms, DAY[::2], noise=0.08, seed=1000 + seed)
        found = break_even(curves, "speculative", K, BEGIN + 1e4, batch=35.0)
        assert found.interval is not None
        assert found.interval[1] / found.interval[0] < 1.3
        held += found.interval[0] <= true(35.0) <= found.interval[1]
    assert held >= 93


def test_a_curve_that_is_no_line_is_read_near_the_batch() -> None:
    def bent(batch: float) -> float:
        return 10.0 if batch < 20 else 10.0 + 0.4 * (batch - 20.0)

    day = [1.0, 2.0, 4.0, 8.0, 12.0, 16.0, 20.0, 28.0, 40.0, 60.0] * 3
    curves = seen(Curves(), "baseline", lambda _: 10.0, day, noise=0.02)
    curves = seen(curves, "speculative", bent, day, noise=0.02, seed=3)
    for batch in (1.0, 8.0, 40.0, 60.0):
        found = break_even(curves, "speculative", K, BEGIN + 1e4, batch=batch)
        assert found.tokens_per_step == pytest.approx(bent(batch) / 10.0, rel=0.1)
        assert found.interval is not None
        assert found.interval[0] <= bent(batch) / 10.0 <= found.interval[1]


def test_outliers_do_not_move_it() -> None:
    curves = both(DAY * 2, DAY * 2, noise=0.02)
    spoiled = seen(curves, "baseline", lambda batch: 8.0 * base_ms(batch), [20.0, 40.0, 41.0], at=BEGIN + 12_000)
    found = break_even(spoiled, "speculative", K, BEGIN + 2e4, batch=40.0)
    assert found.tokens_per_step == pytest.approx(true(40.0), rel=0.03)
    assert found.certainty == "Known"


@pytest.mark.parametrize("giver", ["baseline", "speculative"])
def test_a_pool_without_a_curve_leaves_the_callers_guess(giver: Pool) -> None:
    few = both(DAY, DAY[: MIN_POINTS - 1])
    assert break_even(few, giver, K, BEGIN + 1e4) == Estimate("Prior", None)
    assert break_even(few, giver, K, BEGIN + 1e4, prior=1.38) == Estimate("Prior", 1.38)
    assert break_even(few, giver, K, BEGIN + 1e4, prior=99.0) == Estimate("Prior", 5.0)
    assert break_even(few, giver, K, BEGIN + 1e4, prior=math.nan) == Estimate("Prior", None)
    assert break_even(Curves(), giver, K, BEGIN) == Estimate("Prior", None)
    assert break_even(both(DAY, DAY), giver, K, BEGIN, batch=math.nan).certainty == "Prior"
    assert break_even(both(DAY, DAY), giver, K, BEGIN, batch=-1.0).certainty == "Prior"


def test_an_idle_pool_is_prolonged_within_what_the_step_time_model_allows() -> None:
    # A route is off and explores: baseline is busy, speculation nearly idle. So little is known that only trying tells.
    off = break_even(both(DAY, [0.2] * 20), "baseline", K, BEGIN + 1e4, batch=60.0)
    base, slope = base_ms(60.0), 0.021 + 0.0000393 * 1000
    steepest = spec_ms(0.2) + (K + 1) * slope * 59.8
    assert off.certainty == "Extrapolated"
    assert off.interval is not None
    assert off.tokens_per_step == off.interval[0]
    assert off.interval[1] == pytest.approx(steepest / base, rel=0.1)
    assert off.interval[0] <= true(60.0) <= off.interval[1]
    assert off.interval[0] == pytest.approx((spec_ms(0.2) + slope * 59.8) / base, rel=0.1)
    # A route is on and baseline has only been seen nearly idle: the least that it may be.
    on = break_even(both([0.2] * 20, DAY), "speculative", K, BEGIN + 1e4, batch=60.0)
    assert on.certainty == "Extrapolated"
    assert on.tokens_per_step is not None
    assert on.tokens_per_step < true(60.0)
    assert on.interval is not None
    assert on.interval[0] <= true(60.0) <= on.interval[1]
    assert on.tokens_per_step == on.interval[0]


def test_a_route_that_is_off_comes_back_at_worst_where_that_is_nearly_known() -> None:
    off = break_even(both(DAY, DAY[:10]), "baseline", K, BEGIN + 1e4, batch=69.0)
    assert off.certainty == "Extrapolated"
    assert off.interval is not None
    assert off.interval[1] / off.interval[0] < MOST_FACTOR
    assert off.tokens_per_step == off.interval[1] > true(69.0)


def test_nothing_is_tried_that_speculation_has_run_before() -> None:
    steep = seen(Curves(), "baseline", base_ms, [8.0] * 20, noise=0.3)
    steep = seen(steep, "speculative", spec_ms, [0.2] * 10 + [9.0] * 10, noise=0.3, seed=2)
    wide = break_even(steep, "baseline", K, BEGIN + 1e4, batch=9.0)
    assert wide.certainty == "Extrapolated"
    assert wide.interval is not None
    assert wide.interval[1] / wide.interval[0] > MOST_FACTOR
    assert wide.tokens_per_step == wide.interval[1]


def test_the_same_batch_in_both_pools_needs_no_slope() -> None:
    found = break_even(both([8.0] * 10, [9.0] * 10, noise=0.02), "speculative", K, BEGIN + 1e4, batch=8.5)
    assert found.certainty == "Known"
    assert found.tokens_per_step == pytest.approx(true(8.5), rel=0.08)
    assert found.interval is not None
    assert found.interval[0] <= true(8.5) <= found.interval[1]


def test_pools_that_have_never_run_alike_are_not_compared() -> None:
    found = break_even(both([2.0] * 20, [40.0] * 20), "speculative", K, BEGIN + 1e4)
    assert (found.certainty, found.reach) == ("Extrapolated", None)


def test_a_slope_of_ones_own_is_kept_within_the_other_pools() -> None:
    steep = seen(Curves(), "baseline", base_ms, DAY)
    steep = seen(steep, "speculative", lambda batch: 5.0 + 2.0 * (1.0 + batch), [1.0, 2.0, 3.0, 4.0] * 4)
    found = break_even(steep, "baseline", K, BEGIN + 1e4, batch=60.0)
    assert found.certainty == "Extrapolated"
    assert found.interval is not None
    at_edge, slope = 5.0 + 2.0 * 3.5, 0.021 + 0.0000393 * 1000
    assert found.interval[0] < (at_edge + (K + 1) * slope * 57.5) / base_ms(60.0) * 1.1


def test_one_point_far_out_reaches_nothing() -> None:
    curves = both([*DAY, 300.0], [*DAY, 300.0])
    assert break_even(curves, "speculative", K, BEGIN + 1e4, batch=250.0).certainty == "Extrapolated"
    twice = both([*DAY, 300.0, 300.0], [*DAY, 300.0, 300.0])
    assert break_even(twice, "speculative", K, BEGIN + 1e4, batch=250.0).certainty == "Known"


def test_few_requests_old_points_and_wide_scatter_are_no_knowledge() -> None:
    now = BEGIN + 1e4
    few = both(DAY[:15], DAY[:15], requests=2)
    assert break_even(few, "speculative", K, now, batch=30.0).certainty == "Extrapolated"
    assert break_even(both(DAY, DAY), "speculative", K, now, batch=30.0).certainty == "Known"
    old = break_even(both(DAY, DAY), "speculative", K, BEGIN + 1e4 + MAX_AGE_SECONDS, batch=30.0)
    assert old.certainty == "Extrapolated"
    assert old.at == pytest.approx(BEGIN + 6000.0, abs=60.0)
    assert break_even(both(DAY, DAY), "speculative", K, BEGIN, batch=30.0).at == BEGIN
    wild = both(DAY[:6], DAY[:6], noise=0.6)
    assert break_even(wild, "speculative", K, now, batch=30.0).certainty == "Extrapolated"


def test_points_of_hardly_any_requests_reach_nothing() -> None:
    curves = both([1.0] * 6, [1.0] * 6, requests=0)
    assert curves.baseline.curve().points == ()
    thin = seen(seen(Curves(), "baseline", base_ms, DAY), "speculative", spec_ms, [1.0] * 60, requests=0)
    found = break_even(thin, "baseline", K, BEGIN + 1e5, batch=30.0)
    assert (found.certainty, found.reach) == ("Extrapolated", None)


def test_it_never_leaves_one_to_k_plus_one() -> None:
    fast = seen(seen(Curves(), "baseline", base_ms, DAY), "speculative", lambda b: 0.5 * base_ms(b), DAY)
    slow = seen(seen(Curves(), "baseline", base_ms, DAY), "speculative", lambda b: 9.0 * base_ms(b), DAY)
    assert break_even(fast, "speculative", K, BEGIN + 1e4).tokens_per_step == 1.0
    assert break_even(slow, "speculative", K, BEGIN + 1e4).tokens_per_step == K + 1


def test_streams_go_before_whole_answers_and_classes_are_never_mixed() -> None:
    def late(batch: float) -> float:
        return 3.0 * base_ms(batch)

    short = both(DAY, DAY, kind="p1", requests=20)
    found = break_even(short, "speculative", K, BEGIN + 1e4, batch=30.0)
    assert (found.certainty, found.kind) == ("Known", "p1")
    # Prompts of another length in the other pool: nothing in common, nothing known.
    apart = seen(seen(Curves(), "baseline", base_ms, DAY, kind="p1"), "speculative", late, DAY, kind="p4")
    assert break_even(apart, "speculative", K, BEGIN + 1e4, batch=30.0).certainty == "Prior"
    long = seen(seen(short, "baseline", base_ms, DAY, kind="p4"), "speculative", late, DAY, kind="p4")
    assert break_even(long, "speculative", K, BEGIN + 1e4, batch=30.0).kind == "p1"
    streams = seen(seen(long, "baseline", base_ms, DAY), "speculative", spec_ms, DAY)
    assert break_even(streams, "speculative", K, BEGIN + 1e4, batch=30.0).kind == STREAMS
    one_sided = seen(short, "baseline", base_ms, DAY)
    assert break_even(one_sided, "speculative", K, BEGIN + 1e4, batch=30.0).kind == "p1"


def test_a_route_comes_back_to_what_the_receiver_will_run_with_it() -> None:
    assert batch_after(giver=8.0, receiver=8.0, moved=8.0) == 16.0
    assert batch_after(giver=20.0, receiver=1.0, moved=8.0) == 20.0


def test_a_step_s_time_is_told_only_where_it_was_measured() -> None:
    curves = both(DAY, DAY)
    assert step_us(curves, "baseline", 40.0) == pytest.approx(1000.0 * base_ms(40.0), rel=0.02)
    assert step_us(curves, "speculative", 40.0) == pytest.approx(1000.0 * spec_ms(40.0), rel=0.02)
    assert step_us(curves, "speculative", 400.0) is None
    assert step_us(curves, "speculative", math.nan) is None
    assert step_us(curves, "speculative", 40.0, "to512") is None
    flat = both([8.0] * 10, [8.0] * 10)
    assert step_us(flat, "baseline", 8.0) == pytest.approx(1000.0 * base_ms(8.0), rel=0.02)


batches = st.lists(st.floats(0.0, 500.0), min_size=0, max_size=30)
times = st.lists(st.floats(0.01, 1e5), min_size=1, max_size=8)


@given(
    batches,
    batches,
    times,
    times,
    st.sampled_from(["baseline", "speculative"]),
    st.floats(0.0, 1e4),
    st.integers(1, 16),
)
@settings(max_examples=150, deadline=None)
def test_any_measurements_give_a_line_in_its_bounds(
    base: list[float],
    spec: list[float],
    base_times: list[float],
    spec_times: list[float],
    giver: Pool,
    batch: float,
    k: int,
) -> None:
    curves = seen(Curves(), "baseline", lambda b: base_times[int(b) % len(base_times)], base)
    curves = seen(curves, "speculative", lambda b: spec_times[int(b) % len(spec_times)], spec)
    for at in (None, batch):
        found = break_even(curves, giver, k, BEGIN + 1e4, batch=at)
        if found.certainty == "Prior":
            assert found.tokens_per_step is None
            continue
        assert found.tokens_per_step is not None
        assert found.interval is not None
        assert 1.0 <= found.interval[0] <= found.tokens_per_step <= found.interval[1] <= k + 1.0
        if found.certainty == "Known":
            assert found.reach is not None
            assert found.batch is not None
            assert found.reach[0] - 1e-9 <= found.batch <= found.reach[1] + 1e-9


@given(st.floats(0.5, 60.0), st.floats(1.0, 5.0), st.integers(0, 2**16))
@settings(max_examples=50, deadline=None)
def test_what_is_known_is_near_the_truth(batch: float, ratio: float, seed: int) -> None:
    day = [batch * 0.7, batch, batch * 1.4] * 4
    curves = seen(Curves(), "baseline", base_ms, day, noise=0.02, seed=seed)
    curves = seen(curves, "speculative", lambda b: ratio * base_ms(b), day, noise=0.02, seed=seed + 1)
    found = break_even(curves, "speculative", K, BEGIN + 1e4, batch=batch)
    assert found.certainty == "Known"
    assert found.tokens_per_step == pytest.approx(ratio, rel=0.05)

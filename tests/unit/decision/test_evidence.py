"""One line's evidence by itself: when blocks close, what they count for, and how a line that moves is followed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specfleet.decision.evidence import Closed, LineState, configured, estimate, gathered, moved
from specfleet.decision.types import Block, Line, RouteConfig

CONFIG = RouteConfig(initial="speculative", draft_tokens=4, break_even=1.60, min_acceptance_percent=50)
MEASURED = replace(CONFIG, certainty="Known")
FRESH = LineState(value=1.60, draft_tokens=4)


def counted(
    *blocks: tuple[float, int, int, int, int],
    line: Line = "BreakEven",
    config: RouteConfig = CONFIG,
    state: LineState = FRESH,
) -> LineState:
    """`state` after blocks of (end, steps, accepted, drafted, requests)."""
    for at, steps, accepted, drafted, requests in blocks:
        block = Block(at, steps + accepted, accepted, drafted, requests, share=1.0)
        state = gathered(state, line, block, config, "speculative")
    return state


@pytest.mark.parametrize(("score", "requests", "says"), [(9.2, 10.0, True), (9.19, 10.0, False), (9.2, 9.99, False)])
def test_a_line_says_to_leave_from_its_threshold_on_with_ten_requests(
    score: float, requests: float, says: bool
) -> None:
    assert LineState(value=1.6, score=score, requests=requests).says_switch("speculative") is says


# --- which minutes make a block


def test_minutes_before_the_first_request_do_not_count_as_waiting() -> None:
    # Three minutes after its request a thin block closes; the silence before it is no part of them.
    quiet = [(60.0 * minute, 0, 0, 0, 0) for minute in range(1, 6)]
    first = counted(*quiet, (360.0, 400, 100, 1600, 1))
    assert first.recent == ()
    assert counted((420.0, 0, 0, 0, 0), state=first).recent == ()
    assert len(counted((420.0, 0, 0, 0, 0), (480.0, 0, 0, 0, 0), state=first).recent) == 1


def test_requests_without_a_token_to_decode_count_as_requests() -> None:
    # Two answers of one token each, which the prompt's own step brings.
    assert counted((60.0, 0, 0, 0, 2)).gathered.requests == 2
    assert len(counted((60.0, 0, 0, 0, 2), (120.0, 400, 100, 1600, 1)).recent) == 1


def test_tokens_of_requests_that_go_on_are_kept_for_the_block_in_which_they_end() -> None:
    state = counted((60.0, 100, 50, 400, 0), (120.0, 100, 10, 400, 3))
    assert [(one.accepted, one.weight, one.requests) for one in state.recent] == [(60, 200, 3)]


def test_requests_for_which_nothing_was_drafted_say_nothing_about_acceptance() -> None:
    state = counted((60.0, 400, 0, 0, 2), (120.0, 200, 20, 25, 1), line="Acceptance")
    assert state.recent == ()
    assert state.gathered.requests == 1


def test_blocks_longer_than_half_an_hour_are_gathered_over_two_of_them() -> None:
    hourly = replace(CONFIG, block_seconds=3600.0)
    assert len(counted((3600.0, 400, 100, 1600, 1), (7200.0, 800, 200, 3200, 2), config=hourly).recent) == 1
    assert counted((3600.0, 400, 100, 1600, 1), (10800.0, 800, 200, 3200, 2), config=hourly).recent == ()


# --- what a block counts for


def test_a_request_counts_for_less_where_its_tokens_are_fewer_than_the_usual_steps() -> None:
    # 400 steps a request, then 100 in 125 tokens: usual are (.98 x 4000 + 1000) / (.98 x 10 + 10) steps.
    state = counted((60.0, 4000, 1000, 16_000, 10), (120.0, 1000, 250, 4000, 10))
    assert [one.evidence for one in state.recent] == [10.0, pytest.approx(1250 / (4920 / 19.8), rel=1e-5)]


def test_requests_count_in_full_where_the_same_tokens_have_come_to_take_fewer_steps() -> None:
    state = counted((60.0, 4000, 0, 16_000, 10), (120.0, 1000, 3000, 4000, 10))
    assert [one.evidence for one in state.recent] == [10.0, 10.0]


def test_the_noise_is_learned_from_blocks_six_apart_weighted_by_their_requests() -> None:
    # x 1.5 with 30 requests, then 1.7 with 10: news .04 / (1/30 + 1/10) = .3, and v = .5 + .02 x (.3 - .5).
    state = counted(*((60.0 * n, 6000, 3000, 24_000, 30) for n in range(1, 7)), (420.0, 2000, 1400, 8000, 10))
    assert state.variance == pytest.approx(0.496)


def test_two_blocks_have_an_interval() -> None:
    # r = .4; residuals 10, -10: SE = sqrt(2/1 x 200) / 200 = .1, t(1) = 12.706.
    figure = estimate((Closed(50, 100, 3, 3.0), Closed(30, 100, 3, 3.0)))
    assert figure is not None
    assert figure == pytest.approx((0.4, 1.2706))


# --- a line that is measured


def test_a_measured_line_is_kept_to_six_digits_as_status_writes_it() -> None:
    state = configured(FRESH, "BreakEven", replace(MEASURED, break_even=1.623456789), "speculative")
    assert state.value == 1.62346


def test_a_line_that_is_not_measured_any_more_is_none_and_forgets_its_score() -> None:
    known = replace(FRESH, value=1.60, firm=True, score=5.0, requests=40.0)
    after = configured(known, "BreakEven", replace(MEASURED, certainty="Prior"), "speculative")
    assert (after.value, after.score, after.requests, after.firm) == (None, 0.0, 0.0, False)


def test_a_line_that_becomes_known_is_taken_as_it_is_and_followed_from_then_on() -> None:
    prior = LineState(value=None, draft_tokens=4)
    known = configured(prior, "BreakEven", MEASURED, "speculative")
    assert (known.value, known.firm) == (1.60, True)
    higher = replace(MEASURED, break_even=2.0)
    assert configured(known, "BreakEven", higher, "speculative").value == 1.60
    assert moved(known, "BreakEven", higher, 3600.0).value == pytest.approx(1.68)


def test_after_a_switch_a_known_line_is_taken_as_it_is_now() -> None:
    known = replace(FRESH, value=1.60, firm=True, score=9.5, requests=40.0)
    higher = replace(MEASURED, break_even=2.0)
    assert configured(known, "BreakEven", higher, "speculative").value == 1.60
    assert configured(known.restarted(), "BreakEven", higher, "baseline").value == 2.0


def test_a_known_line_without_a_value_stays_where_it_is() -> None:
    known = replace(FRESH, value=1.60, firm=True)
    assert moved(known, "BreakEven", replace(MEASURED, break_even=None), 3600.0) == known

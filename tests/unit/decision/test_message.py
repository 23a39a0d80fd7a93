"""The sentence about a route, word for word: figures, score, times in UTC, and what else is to be known."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from specfleet.decision.evidence import Closed, LineState
from specfleet.decision.message import clock
from specfleet.decision.reasons import SENTENCES, Hold, Reason
from specfleet.decision.rule import Guard, Override, Room, RouteConfig, RouteState, start, step

NINE = 1_764_406_800.0  # 2025-11-29 09:00 UTC
DAY = 86_400.0
CONFIG = RouteConfig(initial="speculative", draft_tokens=4, break_even=1.60)
BOTH = replace(CONFIG, min_acceptance_percent=50)


def told(
    state: RouteState,
    config: RouteConfig = CONFIG,
    after: float = 300.0,
    *,
    hold: Hold | None = None,
    room: Room | None = None,
    guard: Guard | None = None,
) -> str:
    """What is said of a route in `state`, so many seconds after nine."""
    return step(state, config, None, NINE + after, hold=hold, room=room, guard=guard)[1].message


def with_blocks(
    break_even: tuple[Closed, ...] = (),
    acceptance: tuple[Closed, ...] = (),
    config: RouteConfig = CONFIG,
    score: float = 0.0,
    **changed: object,
) -> RouteState:
    """A route since nine with these blocks closed, and a score of the break-even line."""
    acceptance_value = config.line_value("Acceptance")
    lines = (
        LineState(value=acceptance_value, draft_tokens=4, recent=acceptance),
        LineState(value=1.60, draft_tokens=4, recent=break_even, score=score, requests=40.0),
    )
    return replace(start(config, NINE), lines=lines, **changed)  # type: ignore[arg-type]


def blocks(*ratios: float, weight: int = 1000, requests: int = 10) -> tuple[Closed, ...]:
    return tuple(Closed(round(weight * ratio), weight, requests, float(requests)) for ratio in ratios)


ONE = blocks(0.8)
# r = .8; residuals 100, 0, -100: SE = sqrt(3/2 x 20000) / 3000, times t(2) = 4.303: .25.
THREE = blocks(0.9, 0.8, 0.7)


def test_one_block_is_told_without_an_interval() -> None:
    assert told(with_blocks(ONE)) == "1.80 tokens a step over 10 requests; 1.60 needed to pay. On since 09:00."


def test_several_blocks_with_theirs() -> None:
    assert told(with_blocks(THREE)) == (
        "1.80 tokens a step [1.55, 2.05] over 30 requests; 1.60 needed to pay. On since 09:00."
    )


def test_no_interval_begins_below_one_token_a_step() -> None:
    # r = .5; residuals 300, -200, -100: SE = sqrt(3/2 x 140000) / 3000, times t(2): .66.
    assert "1.50 tokens a step [1.00, 2.16]" in told(with_blocks(blocks(0.8, 0.3, 0.4)))


def test_acceptance_is_told_in_percent_with_the_line_that_decides() -> None:
    config = replace(BOTH, break_even=None)
    state = with_blocks(acceptance=THREE, config=config)
    assert told(state, config) == (
        "80 % of drafted tokens accepted [55, 100] over 30 requests; 50 % needed. On since 09:00."
    )
    low = with_blocks(acceptance=blocks(0.2, 0.1, 0.0), config=config)
    assert "10 % of drafted tokens accepted [0, 35] over 30 requests; 50 % needed." in told(low, config)


def test_a_score_is_told_with_its_threshold_and_direction() -> None:
    assert told(with_blocks(THREE, score=3.14)) == (
        "1.80 tokens a step [1.55, 2.05] over 30 requests; 1.60 needed to pay. "
        "Score 3.1 of 9.2 towards off. On since 09:00."
    )
    off = with_blocks(THREE, score=3.14, mode="baseline", served="baseline", placed="baseline", percent=10)
    assert "Score 3.1 of 6.9 towards on." in told(off)


@pytest.mark.parametrize(
    ("cause", "figures"),
    [
        (Reason.BELOW_ACCEPTANCE, "80 % of drafted tokens accepted over 10 requests; 50 % needed."),
        (Reason.BELOW_BREAK_EVEN, "1.80 tokens a step over 10 requests; 1.60 needed to pay."),
    ],
)
def test_the_line_that_cut_is_the_one_that_is_told(cause: Reason, figures: str) -> None:
    state = with_blocks(
        ONE, ONE, BOTH, mode="baseline", served="baseline", placed="baseline", percent=10, cause=cause, backoff=0
    )
    assert told(state, BOTH) == f"{figures} Off since 09:00, next look 09:10."


def test_a_reason_told_by_figures_has_its_sentence_where_there_are_none() -> None:
    off = replace(
        start(replace(CONFIG, initial="baseline"), NINE), cause=Reason.BELOW_BREAK_EVEN, backoff=0, percent=10
    )
    assert told(off) == f"{SENTENCES[Reason.BELOW_BREAK_EVEN]} Off since 09:00, next look 09:10."


def test_another_reason_comes_first_and_figures_follow() -> None:
    held = told(with_blocks(ONE), hold=Hold.OVERLOADED)
    assert held == (
        f"{SENTENCES[Reason.OVERLOADED]} 1.80 tokens a step over 10 requests; 1.60 needed to pay. On since 09:00."
    )


def test_without_a_line_figures_are_told_and_no_look_is_promised() -> None:
    config = replace(CONFIG, break_even=None)
    state = replace(with_blocks(ONE), since=NINE + 240.0)
    assert told(state, config) == (f"{SENTENCES[Reason.NO_LINE]} 1.80 tokens a step over 10 requests. On since 09:00.")


def test_what_always_holds_promises_no_look_and_says_what_the_rule_would_do() -> None:
    config = replace(CONFIG, override="Always")
    state = with_blocks(ONE, mode="baseline", since=NINE + 240.0)
    assert told(state, config) == (
        f"{SENTENCES[Reason.OVERRIDE_ALWAYS]} 1.80 tokens a step over 10 requests; 1.60 needed to pay. "
        "Served by speculative; the rule alone would choose baseline. On since 09:00."
    )


def test_a_look_is_promised_only_while_there_is_something_to_look_at() -> None:
    state = with_blocks(ONE, since=NINE + 240.0)
    assert told(state).endswith("On since 09:00, next look 09:09.")
    nothing = replace(CONFIG, initial="baseline", exploration_max_percent=0)
    off = replace(start(nothing, NINE), cause=Reason.BELOW_BREAK_EVEN, backoff=0)
    assert told(off, nothing).endswith("Off since 09:00.")


def test_what_waits_for_room_is_not_told_as_another_choice() -> None:
    state = with_blocks(ONE, score=9.5)
    message = told(state, room=Room(to_baseline=False))
    assert message == (
        f"{SENTENCES[Reason.NO_ROOM_TO_MOVE]} 1.80 tokens a step over 10 requests; 1.60 needed to pay. "
        "Score 9.5 of 9.2 towards off. On since 09:00."
    )
    guarded = told(
        with_blocks(ONE), room=Room(to_baseline=False), guard=Guard(off=Reason.SLO_BREACHED, why="TPOT 90 ms of 50.")
    )
    assert guarded.endswith("On since 09:00. TPOT 90 ms of 50.")


# --- a rate that is too low to decide soon


def few(per_hour: float, after: float = 3600.0, config: RouteConfig = CONFIG) -> str:
    state = with_blocks(ONE, rate_requests=per_hour, rate_hours=1.0, block_at=NINE)
    return told(state, config, after)


def test_fewer_than_a_hundred_requests_an_hour_are_said_to_be_few_after_an_hour() -> None:
    sentence = "About 99 requests an hour are few: a decision can take hours."
    assert few(99.4).endswith(f"On since 09:00. {sentence}")
    assert sentence not in few(99.4, after=3599.0)
    assert "few" not in few(100.0)
    assert "few" not in few(99.0, config=replace(CONFIG, override="Always"))
    assert "few" not in few(99.0, config=replace(CONFIG, break_even=None))


def test_a_rate_that_is_not_known_is_not_told() -> None:
    assert "few" not in told(with_blocks(ONE), after=7200.0)


# --- guards


def test_notes_come_last_and_what_keeps_it_off_before_them() -> None:
    off = replace(start(replace(CONFIG, initial="baseline"), NINE), cause=Reason.BELOW_BREAK_EVEN, percent=10)
    guard = Guard(stay_off=Reason.POOL_SATURATED, why="KV cache 99 %.", notes=("Cancel rates differ.", "Two."))
    assert told(off, guard=guard).endswith(
        "Off since 09:00, next look 09:10. Kept off: KV cache 99 %. Cancel rates differ. Two."
    )
    assert "Kept off" not in told(with_blocks(ONE), guard=guard)


def test_the_guard_that_switched_off_is_told_once() -> None:
    guard = Guard(off=Reason.SLO_BREACHED, stay_off=Reason.SLO_BREACHED, why="TPOT 90 ms of 50.")
    state, verdict = step(with_blocks(ONE), CONFIG, None, NINE + 300.0, guard=guard)
    assert verdict.switched
    expected = (
        f"{SENTENCES[Reason.SLO_BREACHED]} TPOT 90 ms of 50. 1.80 tokens a step over 10 requests; "
        "1.60 needed to pay. Off since 09:05, next look 09:15."
    )
    assert verdict.message == expected
    assert told(state, after=360.0, guard=guard) == expected
    assert told(state, after=360.0) == expected
    other = Guard(stay_off=Reason.POOL_SATURATED, why="KV cache 99 %.")
    assert told(state, after=360.0, guard=other) == f"{expected} Kept off: KV cache 99 %."


# --- a measured line


def test_a_line_that_is_not_measured_yet_says_nothing_beside_one_that_is_set() -> None:
    config = replace(BOTH, break_even=None, certainty="Prior")
    state = with_blocks(acceptance=blocks(0.8), config=config)
    assert told(state, config) == (
        "80 % of drafted tokens accepted over 10 requests; 50 % needed. "
        "The break-even line is not measured yet and says nothing. On since 09:00."
    )


def test_a_line_that_is_not_known_says_that_it_does_not_switch() -> None:
    config = replace(CONFIG, certainty="Extrapolated")
    sentence = "Only a line that is known switches off. Score 9.5 of 9.2 towards off. On since 09:00."
    assert told(with_blocks(ONE, score=9.5), config).endswith(sentence)
    assert "Only a line" not in told(with_blocks(ONE, score=9.1), config)


# --- who would choose otherwise, and what was told before


@pytest.mark.parametrize(
    ("enforce", "override", "owner"),
    [(False, "Auto", "Observe"), (True, "Always", "the rule alone"), (False, "Always", "the rule alone")],
)
def test_it_says_who_would_choose_the_other_pool(enforce: bool, override: Override, owner: str) -> None:
    state = with_blocks(ONE, mode="baseline")
    message = told(state, replace(CONFIG, enforce=enforce, override=override))
    assert f"Served by speculative; {owner} would choose baseline." in message


def test_a_guards_sentence_is_told_with_its_own_reason_only() -> None:
    state = with_blocks(ONE, cause=Reason.SLO_BREACHED, told="TPOT 90 ms of 50.")
    assert "TPOT" not in told(state, hold=Hold.OVERLOADED)
    assert "TPOT" not in told(state)


def test_a_guard_whose_sentence_was_not_kept_is_told_by_what_it_says_now() -> None:
    off = replace(start(replace(CONFIG, initial="baseline"), NINE), cause=Reason.SLO_BREACHED, backoff=0)
    guard = Guard(stay_off=Reason.SLO_BREACHED, why="TPOT 80 ms of 50.")
    assert told(off, guard=guard).endswith("Kept off: TPOT 80 ms of 50.")


def test_a_small_score_is_told_and_one_of_nothing_is_not() -> None:
    assert "Score 0.4 of 9.2 towards off." in told(with_blocks(ONE, score=0.4))
    assert "Score" not in told(with_blocks(ONE))


def test_a_line_that_cut_and_was_taken_out_since_is_told_without_what_it_needed() -> None:
    state = with_blocks(
        ONE, ONE, mode="baseline", served="baseline", placed="baseline", cause=Reason.BELOW_ACCEPTANCE, backoff=0
    )
    assert told(state).startswith("80 % of drafted tokens accepted over 10 requests. Off since")


def test_one_percent_of_exploring_is_something_to_look_at() -> None:
    config = replace(CONFIG, exploration_max_percent=1)
    off = replace(start(replace(config, initial="baseline"), NINE), cause=Reason.BELOW_BREAK_EVEN, backoff=0)
    assert told(off, config).endswith("Off since 09:00, next look 09:10.")


# --- times


def test_times_are_utc_wherever_the_operator_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        assert clock(NINE, NINE) == "09:00"
        assert clock(NINE + 14 * 3600.0, NINE + 14 * 3600.0 + 7200.0) == "2025-11-29 23:00"
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("moment", "now", "text"),
    [
        (NINE, NINE, "09:00"),
        (NINE + 59.9, NINE + 3600.0, "09:00"),
        (NINE, NINE + DAY, "2025-11-29 09:00"),
        (NINE - DAY, NINE, "2025-11-28 09:00"),
        (-1.0, 0.0, "00:00"),
        (0.0, -1.0, "00:00"),
        (1e15, NINE, "9999-12-31 23:59"),
        (NINE, 1e15, "2025-11-29 09:00"),
        (0.0, DAY - 1.0, "00:00"),
        (0.0, DAY, "1970-01-01 00:00"),
    ],
)
def test_times_of_today_are_the_hour_and_the_minute_in_utc(moment: float, now: float, text: str) -> None:
    assert clock(moment, now) == text

"""The rule with a break-even line that is measured: what each certainty may do, and how the line moves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specfleet.decision.break_even import Estimate, sentence
from specfleet.decision.evidence import MIN_REQUESTS, THRESHOLD
from specfleet.decision.policy import with_line
from specfleet.decision.reasons import Phase, Reason
from specfleet.decision.rule import Block, Guard, RouteConfig, RouteState, Verdict, decode, start, step
from specfleet.decision.sealed import sealed
from specfleet.decision.types import Certainty

BEGIN = 1_800_000_000.0
CONFIG = RouteConfig(initial="speculative", break_even=1.6, certainty="Known", dwell_seconds=600.0)


def block(at: float, steps: float, share: float = 1.0) -> Block:
    """A minute of 30 requests with 6,000 tokens, `steps` tokens a decode step."""
    accepted = round(6000 * (1.0 - 1.0 / steps))
    return Block(at=at, tokens=6000, accepted=accepted, drafted=20_000, requests=30, share=share)


def run(
    state: RouteState, config: RouteConfig, steps: float, minutes: int, at: float = BEGIN
) -> tuple[RouteState, Verdict, float]:
    verdict = None
    for _ in range(minutes):
        at += 60.0
        state, verdict = step(state, config, block(at, steps), at)
        if verdict.switched:
            break
    assert verdict is not None
    return state, verdict, at


def measured(certainty: Certainty, value: float | None = 1.6, **changes: object) -> RouteConfig:
    return replace(CONFIG, certainty=certainty, break_even=value, **changes)  # type: ignore[arg-type]


def test_a_known_line_switches_off_as_a_fixed_one() -> None:
    _, verdict, at = run(start(CONFIG, BEGIN), CONFIG, 1.1, 30)
    assert (verdict.switched, verdict.reason, at - BEGIN) == (True, Reason.BELOW_BREAK_EVEN, 300.0)
    assert "1.60 needed to pay" in verdict.message


def test_an_extrapolated_line_never_switches_off_and_says_why() -> None:
    config = measured("Extrapolated")
    state, verdict, at = run(start(config, BEGIN), config, 1.1, 120)
    assert (verdict.pool, verdict.switched, verdict.reason) == ("speculative", False, Reason.GATHERING)
    assert "Only a line that is known switches off." in verdict.message
    assert state.line("BreakEven").score == pytest.approx(1.5 * THRESHOLD["speculative"], rel=1e-3)
    # Known to be where it was taken to be: what was counted counts.
    _, verdict = step(state, measured("Known", 1.62), block(at + 60, 1.1), at + 60)
    assert (verdict.switched, verdict.reason) == (True, Reason.BELOW_BREAK_EVEN)


def test_a_line_that_turns_out_elsewhere_starts_its_evidence_again() -> None:
    config = measured("Extrapolated", 1.2)
    state, _, at = run(start(config, BEGIN), config, 1.1, 60)
    assert state.line("BreakEven").requests > MIN_REQUESTS
    state, verdict = step(state, measured("Known"), block(at + 60, 1.1), at + 60)
    line = state.line("BreakEven")
    assert (line.value, line.firm, verdict.switched) == (1.6, True, False)
    assert line.requests <= 30.0


def test_a_known_line_moves_by_five_percent_an_hour_and_keeps_its_evidence() -> None:
    state, _, at = run(start(CONFIG, BEGIN), CONFIG, 1.55, 10)
    before = state.line("BreakEven")
    assert before.score > 0.0
    for minute in range(1, 61):
        state, _ = step(state, measured("Known", 3.0), block(at + 60 * minute, 1.9), at + 60 * minute)
        assert state.line("BreakEven").value == pytest.approx(1.6 * (1 + 0.05 / 60) ** minute, rel=1e-4)
    assert state.line("BreakEven").requests >= 0.0
    # After ten hours without traffic it moves by one hour's worth, and down as well as up.
    late = at + 60 * 60 + 10 * 3600
    up, _ = step(state, measured("Known", 3.0), block(late, 1.9), late)
    down, _ = step(state, measured("Known", 1.0), block(late, 1.9), late)
    value = state.line("BreakEven").value
    assert value is not None
    assert up.line("BreakEven").value == pytest.approx(1.05 * value, rel=1e-4)
    assert down.line("BreakEven").value == pytest.approx(0.95 * value, rel=1e-4)
    there, _ = step(state, measured("Known", 1.001 * value), block(late, 1.9), late)
    assert there.line("BreakEven").value == pytest.approx(1.001 * value, rel=1e-5)


def test_a_small_move_keeps_the_score() -> None:
    state, _, at = run(start(CONFIG, BEGIN), CONFIG, 1.1, 3)
    score = state.line("BreakEven").score
    state, _ = step(state, measured("Known", 1.5), block(at + 60, 1.1), at + 60)
    assert state.line("BreakEven").score > score > 0.0


def test_in_speculation_a_line_that_is_known_no_more_stands_still() -> None:
    state, _, at = run(start(CONFIG, BEGIN), CONFIG, 1.1, 3)
    state, _ = step(state, measured("Extrapolated", 1.1), block(at + 60, 1.1), at + 60)
    assert (state.line("BreakEven").value, state.line("BreakEven").firm) == (1.6, True)


def test_in_baseline_a_line_that_is_known_no_more_follows_what_it_may_be() -> None:
    off = replace(CONFIG, initial="baseline")
    state = start(off, BEGIN)
    state, _ = step(state, off, block(BEGIN + 60, 1.8, 0.1), BEGIN + 60)
    assert (state.line("BreakEven").value, state.line("BreakEven").firm) == (1.6, True)
    assert state.line("BreakEven").score > 0.0
    near, _ = step(state, replace(off, certainty="Extrapolated", break_even=1.61), None, BEGIN + 70)
    assert (near.line("BreakEven").value, near.line("BreakEven").firm) == (1.6, False)
    assert near.line("BreakEven").score == state.line("BreakEven").score
    far, _ = step(state, replace(off, certainty="Extrapolated", break_even=2.6), None, BEGIN + 70)
    assert (far.line("BreakEven").value, far.line("BreakEven").firm, far.line("BreakEven").score) == (2.6, False, 0.0)


def test_an_extrapolated_line_lets_a_route_come_back() -> None:
    config = measured("Extrapolated", initial="baseline")
    state, verdict, at = run(start(config, BEGIN), config, 2.5, 60)
    assert (verdict.switched, verdict.pool, verdict.phase) == (True, "speculative", Phase.MOVING)
    assert at - BEGIN == 600.0
    # In its new place the line is read anew, at once.
    state, _ = step(state, measured("Known", 2.0), block(at + 60, 2.5), at + 60)
    assert (state.line("BreakEven").value, state.line("BreakEven").firm) == (2.0, True)


def test_a_line_that_is_not_measured_says_nothing_and_explores() -> None:
    config = measured("Prior", 1.3, initial="baseline")
    assert config.has_line
    assert config.line_value("BreakEven") is None
    state, verdict, _ = run(start(config, BEGIN), config, 4.0, 60)
    assert (verdict.pool, verdict.reason, verdict.evidence) == ("baseline", Reason.BREAK_EVEN_UNKNOWN, None)
    assert (verdict.phase, verdict.speculative_percent) == (Phase.EXPLORING, 10)
    assert verdict.message.startswith("The break-even line is not measured yet: both pools have to serve")
    on = measured("Prior", None)
    _, verdict, _ = run(start(on, BEGIN), on, 1.0, 60)
    assert (verdict.pool, verdict.reason, verdict.speculative_percent) == (
        "speculative",
        Reason.BREAK_EVEN_UNKNOWN,
        100,
    )
    assert state.line("BreakEven").value is None


def test_a_route_that_was_off_for_a_reason_keeps_it_when_the_line_is_forgotten() -> None:
    state, _, at = run(start(CONFIG, BEGIN), CONFIG, 1.1, 30)
    state, verdict = step(state.forgetful(), measured("Prior", None), None, at + 60)
    assert (verdict.pool, verdict.reason, verdict.speculative_percent) == ("baseline", Reason.BELOW_BREAK_EVEN, 10)
    assert state.line("BreakEven").value is None


def test_beside_a_line_that_is_not_measured_the_other_decides() -> None:
    config = measured("Prior", None, min_acceptance_percent=50)
    _, verdict, _ = run(start(config, BEGIN), config, 1.1, 30)
    assert (verdict.switched, verdict.reason) == (True, Reason.BELOW_ACCEPTANCE)
    assert "The break-even line is not measured yet and says nothing." in verdict.message


def test_both_lines_have_to_hold_for_a_route_to_come_back() -> None:
    config = measured("Known", 1.6, initial="baseline", min_acceptance_percent=20)
    rich = Block(at=0.0, tokens=6000, accepted=4000, drafted=40_000, requests=30, share=0.1)
    state, at = start(config, BEGIN), BEGIN
    for _ in range(60):  # three tokens a step, and one drafted token in ten accepted
        at += 60.0
        state, verdict = step(state, config, replace(rich, at=at), at)
        assert verdict.pool == "baseline"
    assert state.line("BreakEven").says_switch("baseline")
    assert verdict.evidence is not None
    assert verdict.evidence.line == "Acceptance"


def test_another_draft_forgets_and_takes_the_line_over() -> None:
    state, _, at = run(start(CONFIG, BEGIN), CONFIG, 1.1, 3)
    state, _ = step(state, measured("Known", 1.4, draft_tokens=5), None, at + 1)
    line = state.line("BreakEven")
    assert (line.value, line.firm, line.score, line.recent) == (1.4, True, 0.0, ())


def test_from_measured_to_fixed_and_back_the_score_starts_again() -> None:
    state, _, at = run(start(CONFIG, BEGIN), CONFIG, 1.1, 3)
    fixed = replace(CONFIG, certainty=None, break_even=1.7)
    state, _ = step(state, fixed, None, at + 1)
    assert (state.line("BreakEven").value, state.line("BreakEven").score) == (1.7, 0.0)
    state, _ = step(state, replace(fixed, break_even=1.6), None, at + 2)
    back, _ = step(state, CONFIG, None, at + 3)
    assert (back.line("BreakEven").firm, back.line("BreakEven").value) == (True, 1.6)
    again, _ = step(back, replace(CONFIG, certainty=None), None, at + 4)
    assert again.line("BreakEven").firm is False


def test_a_guard_in_the_ramp_goes_straight_back() -> None:
    config = measured("Known", 1.6, initial="baseline")
    state, verdict, at = run(start(config, BEGIN), config, 2.5, 60)
    assert (verdict.phase, verdict.speculative_percent) == (Phase.MOVING, 10)
    shares = []
    for _ in range(5):
        at += 60.0
        state, verdict = step(state, config, block(at, 2.5, verdict.speculative_percent / 100), at)
        shares.append((verdict.speculative_percent, verdict.phase))
    moving, settled = Phase.MOVING, Phase.SETTLED
    assert shares == [(10, moving), (50, moving), (50, moving), (100, settled), (100, settled)]
    config_on = measured("Known", 1.6, initial="baseline")
    state, verdict, at = run(start(config_on, BEGIN), config_on, 2.5, 60)
    guard = Guard(off=Reason.SLO_BREACHED, stay_off=Reason.SLO_BREACHED, explore=False, why="Too slow.")
    state, verdict = step(state, config_on, block(at + 120, 2.5, 0.5), at + 120, guard=guard)
    assert (verdict.pool, verdict.switched, verdict.reason) == ("baseline", True, Reason.SLO_BREACHED)
    assert verdict.speculative_percent == 0
    assert "Too slow." in verdict.message


@pytest.mark.parametrize("hours", [0, 2, 8, 50, 300])
def test_exploration_falls_with_the_age_of_the_state(hours: int) -> None:
    config = measured("Prior", None, initial="baseline")
    state, verdict, at = run(start(config, BEGIN), config, 2.0, 60)
    later = at + hours * 3600.0
    state, verdict = step(replace(state, block_at=later - 60.0), config, None, later)
    rate = state.requests_per_hour
    assert rate is not None
    expected = 100.0 * (60.0 / (rate * max(2.0, (later - BEGIN) / 3600.0))) ** 0.5
    assert verdict.speculative_percent == max(1, min(10, round(expected)))


def earlier(text: str, version: str, cause: str) -> str:
    """A state as it was written by version 1 or 2: without what later ones added."""
    body, _, _ = text.rpartition(";")
    _, head, *lines = body.split(";")
    fields = head.split(",")
    head = ",".join([fields[0] + cause, *fields[3:]]) if version == "1" else head
    old_lines = []
    for line in lines:
        first, partial, blocks = line.split("|")
        old_lines.append("|".join([first.rpartition(",")[0], partial, blocks]))
    body = ";".join([version, head, *old_lines])
    return sealed(body)


@pytest.mark.parametrize(
    ("code", "cause"), [("-", None), ("a", Reason.BELOW_ACCEPTANCE), ("e", Reason.BELOW_BREAK_EVEN)]
)
def test_states_of_version_1_are_read(code: str, cause: Reason | None) -> None:
    fixed = replace(CONFIG, certainty=None)
    state, _, at = run(start(fixed, BEGIN), fixed, 1.1, 7)
    assert state.cause is Reason.BELOW_BREAK_EVEN
    old = decode(earlier(state.encode(), "1", code), replace(fixed, initial="baseline"), at)
    assert old == replace(state, cause=cause)
    assert decode(earlier(state.encode(), "1", "x"), fixed, at, "baseline") == start(fixed, at, "baseline")


def test_states_of_version_2_are_read() -> None:
    fixed = replace(CONFIG, certainty=None)
    state, _, at = run(start(fixed, BEGIN), fixed, 1.1, 7)
    assert decode(earlier(state.encode(), "2", ""), fixed, at) == state
    # Another version's number over this version's text is no state, nor the other way round.
    body = state.encode().rpartition(";")[0]
    of_version_2 = earlier(state.encode(), "2", "").rpartition(";")[0]
    for wrong in ("2" + body[1:], of_version_2.replace("2", "3", 1), "9" + body[1:]):
        assert decode(sealed(wrong), fixed, at, "baseline") == start(fixed, at, "baseline")


def test_a_firm_line_is_read_back() -> None:
    state, _, at = run(start(CONFIG, BEGIN), CONFIG, 1.5, 7)
    assert state.line("BreakEven").firm
    assert decode(state.encode(), CONFIG, at) == state


def test_the_line_of_a_policy_is_filled_in_only_where_it_is_measured() -> None:
    estimate = Estimate("Known", 1.42, (1.3, 1.5), 8.0, (2.0, 12.0), BEGIN)
    fixed = RouteConfig(break_even=1.6)
    assert with_line(fixed, estimate, BEGIN) is fixed
    assert with_line(RouteConfig(certainty="Prior"), estimate, BEGIN) == RouteConfig(certainty="Known", break_even=1.42)


def test_how_the_line_was_found_is_told() -> None:
    estimate = Estimate("Known", 1.42, (1.31, 1.53), 8.04, (2.0, 12.0), BEGIN)
    assert sentence(estimate, BEGIN) == (
        "Break-even Known: 1.42 [1.31, 1.53] at 8.04 running requests a replica; both pools tell of "
        "2 to 12, last at 08:00."
    )
    apart = replace(estimate, certainty="Extrapolated", reach=None, kind="p512")
    assert "no batch was seen in both pools, last at 08:00, whole answers to prompts of class p512." in sentence(
        apart, BEGIN
    )
    assert sentence(Estimate("Prior", 1.2), BEGIN) == ""

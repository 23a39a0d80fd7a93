"""Where the rule's words meet: overrides and Observe, guards and lines, room, and the figures to the last digit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specfleet.decision.reasons import Hold, Phase, Reason
from specfleet.decision.rule import (
    Block,
    Guard,
    Room,
    RouteConfig,
    RouteState,
    Verdict,
    exploration_percent,
    start,
    step,
)

NINE = 1_764_406_800.0  # 2025-11-29 09:00 UTC
ON = RouteConfig(initial="speculative", draft_tokens=4, break_even=1.60)
BOTH = replace(ON, min_acceptance_percent=50)
SLOW = Guard(off=Reason.SLO_BREACHED, stay_off=Reason.SLO_BREACHED, explore=False, why="TPOT 90 ms of 50.")


class Route:
    """A route from nine o'clock on, a minute a block."""

    def __init__(self, config: RouteConfig = ON) -> None:
        self.config, self.now = config, NINE
        self.state: RouteState = start(config, NINE)

    def minute(
        self,
        x: float = 2.0,
        requests: int = 30,
        steps: int = 6000,
        *,
        acceptance: float = 0.8,
        room: Room | None = None,
        guard: Guard | None = None,
        hold: Hold | None = None,
        **changed: object,
    ) -> Verdict:
        """A minute in which `steps` yielded `x` tokens each."""
        accepted = round(steps * (x - 1.0))
        block = Block(self.now + 60.0, steps + accepted, accepted, round(accepted / acceptance), requests, 1.0)
        return self._stepped(replace(block, **changed), 60.0, room, guard, hold)  # type: ignore[arg-type]

    def minutes(self, count: int, x: float = 2.0, **given: object) -> Verdict:
        return [self.minute(x, **given) for _ in range(count)][-1]  # type: ignore[arg-type]

    def until_switch(self, x: float) -> Verdict:
        while not (verdict := self.minute(x)).switched:
            assert self.now < NINE + 86_400.0
        return verdict

    def tick(
        self,
        seconds: float = 0.0,
        *,
        room: Room | None = None,
        guard: Guard | None = None,
        hold: Hold | None = None,
        **config: object,
    ) -> Verdict:
        """Time passes and nothing is counted; `config` are changes of the policy."""
        self.config = replace(self.config, **config)  # type: ignore[arg-type]
        return self._stepped(None, seconds, room, guard, hold)

    def _stepped(
        self, block: Block | None, seconds: float, room: Room | None, guard: Guard | None, hold: Hold | None
    ) -> Verdict:
        self.now += seconds
        self.state, verdict = step(self.state, self.config, block, self.now, hold=hold, room=room, guard=guard)
        return verdict


# --- counts that cannot be, and those that can


@pytest.mark.parametrize(
    "changed",
    [
        {"requests": -3},
        {"requests": 2.5},
        {"requests": True},
        {"share": 1.5},
        {"share": -0.1},
        {"seconds": 0.0},
        {"seconds": -60.0},
        {"seconds": float("nan")},
        {"seconds": float("inf")},
    ],
    ids=str,
)
def test_counts_that_cannot_be_change_nothing(changed: dict[str, object]) -> None:
    route = Route()
    route.minutes(3)
    before = route.state
    route.minute(**changed)  # type: ignore[arg-type]
    assert route.state == before


@pytest.mark.parametrize("changed", [{"share": 0.0}, {"seconds": 1.0}], ids=str)
def test_the_last_requests_of_a_share_that_ended_and_short_intervals_count(changed: dict[str, object]) -> None:
    route = Route()
    route.minute(**changed)  # type: ignore[arg-type]
    assert route.state.block_at == route.now


def test_the_rate_is_requests_over_the_time_that_was_counted() -> None:
    route = Route()
    route.minute()
    assert route.state.requests_per_hour == pytest.approx(1800.0, rel=1e-5)
    half = Route()
    half.minute(seconds=30.0)
    assert half.state.requests_per_hour == pytest.approx(3600.0, rel=1e-5)


def test_times_of_blocks_count_to_the_millisecond() -> None:
    # One request whose minute ends .4 ms late: its thin block closes with the third minute all the same.
    route = Route()
    route.minute(requests=1, steps=400, at=NINE + 60.0004)
    route.now = NINE + 120.0
    assert route.minute(1.0, 0, 0).tokens_per_step == pytest.approx(2.0)


# --- figures


def test_figures_and_their_interval_to_the_last_digit() -> None:
    # A/R .5, .4, .3 of 10,000 steps each: r = .4, SE = sqrt(3/2 x 2 x 1000^2) / 30000, t(2) = 4.303.
    route = Route()
    verdicts = [route.minute(x, steps=10_000) for x in (1.5, 1.4, 1.3)]
    assert verdicts[0].tokens_per_step_interval is None
    half = 4.303 * 3e6**0.5 / 30_000
    assert verdicts[2].tokens_per_step == pytest.approx(1.4)
    assert verdicts[2].tokens_per_step_interval == pytest.approx((1.4 - half, 1.4 + half))


def test_no_interval_begins_below_one_token_a_step() -> None:
    route = Route()
    route.minute(1.05)
    interval = route.minute(1.5).tokens_per_step_interval
    assert interval is not None
    assert interval[0] == 1.0


def test_acceptance_in_whole_percent() -> None:
    assert Route(BOTH).minute(2.0, acceptance=0.6).acceptance_percent == 60
    assert Route(BOTH).minute(2.0, acceptance=0.9).acceptance_percent == 90


def test_requests_count_from_the_first_sign_of_a_trend_on_and_figures_are_of_the_trend() -> None:
    route = Route()
    route.minutes(12)
    verdict = route.minute(1.5)
    assert verdict.evidence is not None
    assert verdict.evidence.score == pytest.approx(0.46, abs=0.05)
    assert verdict.evidence.requests in (29, 30)  # of usual length, which is learned to six digits
    assert "over 150 requests" in verdict.message
    assert "over 180 requests" in route.minutes(5, 1.5).message


# --- which line decides, and what is said of it


def test_of_two_lines_that_say_so_the_one_with_more_evidence_is_the_cause() -> None:
    # Half a dwell is six minutes: acceptance has said all that six blocks may, break-even just enough.
    route = Route(replace(BOTH, dwell_seconds=720.0))
    shown = route.minutes(5, 1.33, acceptance=0.05).evidence
    assert shown is not None
    assert shown.line == "Acceptance"
    assert shown.score == pytest.approx(9.2)
    verdict = route.minute(1.33, acceptance=0.05)
    assert (verdict.switched, verdict.reason) == (True, Reason.BELOW_ACCEPTANCE)


def test_while_off_the_line_that_is_furthest_from_coming_back_is_shown() -> None:
    route = Route(replace(BOTH, initial="baseline"))
    verdict = route.minutes(3, 1.1, acceptance=0.9)
    assert verdict.evidence is not None
    assert (verdict.evidence.line, verdict.evidence.score) == ("BreakEven", 0.0)


def test_a_route_says_that_nothing_was_counted_until_something_was() -> None:
    route = Route()
    assert route.tick().reason is Reason.NO_EVIDENCE
    assert route.minute(requests=9, steps=1800).reason is Reason.GATHERING
    assert route.minute(requests=3, steps=600).reason is Reason.PAYS


def test_ten_requests_are_enough_to_say_that_it_pays() -> None:
    assert Route().minute(requests=10, steps=2000).reason is Reason.PAYS


def test_one_weak_minute_after_many_good_ones_is_no_doubt() -> None:
    route = Route()
    route.minutes(12)
    verdict = route.minute(1.5)
    assert verdict.evidence is not None
    assert verdict.evidence.score > 0.0
    assert verdict.reason is Reason.PAYS


def test_three_long_requests_that_did_badly_are_no_doubt_where_thirty_pay() -> None:
    route = Route()
    assert route.minute(1.2, requests=3).reason is Reason.GATHERING
    verdict = route.minute(1.7)
    assert verdict.tokens_per_step == pytest.approx(1.45)
    assert verdict.evidence is not None
    assert (verdict.evidence.score, verdict.reason) == (0.0, Reason.PAYS)


def test_figures_at_the_middle_of_the_line_are_no_doubt() -> None:
    # 0.98 x 2.00 is where evidence turns; 1.90 of thirty requests and 2.02 of ten leave some against it.
    route = Route(replace(ON, break_even=2.0))
    assert route.minute(1.90).reason is Reason.GATHERING
    verdict = route.minute(2.02, requests=10)
    assert verdict.tokens_per_step == 1.96
    assert verdict.evidence is not None
    assert verdict.evidence.score > 0.0
    assert verdict.reason is Reason.PAYS


def test_a_route_that_came_back_waits_for_a_line_that_is_known_no_more() -> None:
    route = Route(replace(ON, certainty="Known"))
    route.until_switch(1.1)
    route.until_switch(2.5)
    assert route.tick(certainty="Prior").reason is Reason.BREAK_EVEN_UNKNOWN


def test_a_known_line_goes_by_the_time_of_the_first_block_too() -> None:
    route = Route(replace(ON, certainty="Known"))
    route.tick()
    route.config = replace(route.config, break_even=2.0)
    route.minute()
    assert route.state.line("BreakEven").value == pytest.approx(1.60 * (1 + 0.05 / 60), rel=1e-5)


# --- exploration


def test_no_exploration_stays_none_when_the_rate_is_known() -> None:
    route = Route(replace(ON, exploration_max_percent=0))
    verdict = route.until_switch(1.1)
    assert (verdict.speculative_percent, verdict.phase) == (0, Phase.SETTLED)


def test_one_percent_explores() -> None:
    verdict = Route(RouteConfig(initial="baseline", break_even=1.6, exploration_max_percent=1)).tick()
    assert (verdict.speculative_percent, verdict.phase) == (1, Phase.EXPLORING)


def test_the_share_is_of_requests_an_hour_and_hours() -> None:
    # 100 x sqrt(60 / (2721.6 x 2)) is 10.499: not yet 11.
    route = Route(replace(ON, initial="baseline", exploration_max_percent=100))
    route.tick()
    known = replace(route.state, rate_requests=2721.6, rate_hours=1.0)
    assert exploration_percent(known, route.config, NINE) == 10


# --- guards


def test_what_a_guard_saw_is_told_for_as_long_as_it_has_the_route_off() -> None:
    route = Route()
    route.minutes(3)
    verdict = route.minute(guard=SLOW)
    assert (verdict.switched, verdict.reason, verdict.speculative_percent) == (True, Reason.SLO_BREACHED, 0)
    over = route.tick(60.0)
    assert over.message.startswith("Speculation is off: it missed the SLO, and baseline is faster with the load.")
    assert "TPOT 90 ms of 50." in over.message
    assert "Off since 09:04, next look 09:14." in over.message


def test_a_line_that_switches_off_tells_nothing_of_a_guard() -> None:
    route = Route()
    kept = Guard(stay_off=Reason.POOL_SATURATED, why="KV cache 99 %.")
    verdict = route.minutes(5, 1.1, guard=kept)
    assert (verdict.switched, verdict.reason, route.state.told) == (True, Reason.BELOW_BREAK_EVEN, "")


def test_without_a_line_a_route_comes_back_from_a_guard_after_its_dwell() -> None:
    route = Route(replace(ON, break_even=None))
    assert route.tick(60.0, guard=SLOW).pool == "baseline"
    assert route.tick(599.0).pool == "baseline"
    verdict = route.tick(1.0)
    assert (verdict.pool, verdict.switched) == ("speculative", True)


def test_without_a_line_a_route_does_not_come_back_from_a_line() -> None:
    route = Route()
    route.until_switch(1.1)
    assert route.tick(break_even=None).pool == "baseline"
    verdict = route.tick(86_400.0)
    assert (verdict.pool, verdict.reason) == ("baseline", Reason.NO_LINE)


# --- room


FULL = Room(to_baseline=False, to_speculation=False)


def test_without_room_in_speculation_coming_back_waits() -> None:
    route = Route()
    route.until_switch(1.1)
    room = Room(to_speculation=False)
    verdict = route.minutes(20, 2.5, room=room)
    assert (verdict.pool, verdict.switched, verdict.no_room) == ("baseline", False, True)
    assert (verdict.reason, verdict.wanted_pool) == (Reason.NO_ROOM_TO_MOVE, "speculative")
    assert verdict.evidence is not None
    assert verdict.evidence.score == pytest.approx(1.5 * 6.9)
    assert verdict.evidence.threshold == 6.9
    assert route.tick().pool == "speculative"


def test_an_override_without_room_in_speculation_waits_and_switches_nothing() -> None:
    route = Route()
    route.until_switch(1.1)
    verdict = route.tick(override="Always", room=Room(to_speculation=False))
    assert (verdict.pool, verdict.switched, verdict.no_room) == ("baseline", False, True)
    assert route.tick().pool == "speculative"


@pytest.mark.parametrize("config", [replace(ON, enforce=False), replace(ON, override="Always")], ids=["Observe", "on"])
def test_a_rule_that_moves_nothing_needs_no_room(config: RouteConfig) -> None:
    verdict = Route(config).minutes(6, 1.0, room=FULL)  # the sixth minute follows the fifth, in which it would switch
    assert (verdict.pool, verdict.wanted_pool, verdict.no_room) == ("speculative", "baseline", False)


def test_a_rule_that_has_the_route_elsewhere_already_needs_no_room() -> None:
    route = Route(replace(ON, override="Never"))
    verdict = route.minutes(6, 1.0, room=FULL)
    assert (verdict.pool, verdict.no_room) == ("speculative", True)
    assert route.state.mode == "baseline"


# --- Observe and overrides: where the rule itself last had the route


def test_while_evidence_is_held_a_change_to_enforce_moves_nothing() -> None:
    route = Route(replace(ON, enforce=False))
    assert route.minutes(10, 1.0).wanted_pool == "baseline"
    held = route.tick(enforce=True, hold=Hold.METRICS_UNAVAILABLE)
    assert (held.pool, held.switched) == ("speculative", False)
    assert route.tick().pool == "baseline"


def test_under_observe_a_route_goes_back_after_an_override() -> None:
    route = Route(replace(ON, enforce=False))
    assert route.tick(override="Never").pool == "baseline"
    verdict = route.tick(override="Auto")
    assert (verdict.pool, verdict.speculative_percent, verdict.switched) == ("speculative", 100, True)


def test_an_override_that_agrees_with_the_rule_is_still_the_persons() -> None:
    # Always has it on; the rule comes to want the same, and to the time after it that makes no difference.
    route = Route()
    route.until_switch(1.1)
    route.tick(override="Always")
    assert route.minutes(30, 2.5).wanted_pool == "speculative"
    assert route.tick(override="Auto", enforce=False).pool == "baseline"


def test_a_hold_after_an_override_does_not_make_the_place_the_rules_own() -> None:
    route = Route()
    route.until_switch(1.1)
    route.tick(override="Always")
    held = route.tick(override="Auto", hold=Hold.METRICS_UNAVAILABLE)
    assert held.pool == "speculative"
    assert route.tick(enforce=False).pool == "baseline"


def test_a_place_that_the_rule_takes_over_from_an_override_is_its_own() -> None:
    route = Route()
    route.until_switch(1.1)
    route.tick(override="Always")
    route.minutes(30, 2.5)
    assert not route.tick(override="Auto").switched
    assert route.tick(enforce=False).pool == "speculative"


def test_what_a_person_switched_on_is_not_ramped() -> None:
    route = Route()
    assert route.tick(60.0, override="Never").speculative_percent == 0
    assert route.tick(60.0, override="Always").speculative_percent == 100
    assert route.tick(override="Auto").speculative_percent == 100


def test_a_route_says_since_when_it_is_where_it_is() -> None:
    route = Route()
    route.minutes(3)
    assert "Off since 09:04." in route.tick(60.0, override="Never").message
    assert "Off since 09:04." in route.tick(60.0).message

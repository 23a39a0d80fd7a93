"""The rule as a platform engineer meets it: what moves a route, what does not, and what is said about it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from specfleet.decision.reasons import SENTENCES, Hold, Phase, Reason
from specfleet.decision.rule import Block, Room, RouteConfig, RouteState, Verdict, decode, start, step

NINE = 1_764_406_800.0  # 2025-11-29 09:00 UTC
STARTS_ON = RouteConfig(initial="speculative", draft_tokens=4, break_even=1.60)


class Route:
    """One route under the rule, fed minute by minute."""

    def __init__(self, config: RouteConfig, at: float = NINE) -> None:
        self.config, self.now = config, at
        self.state: RouteState = start(config, at)
        self.verdicts: list[Verdict] = []

    @property
    def last(self) -> Verdict:
        return self.verdicts[-1]

    def tick(self, seconds: float = 0.0, *, hold: Hold | None = None, room: Room | None = None) -> Verdict:
        """Nothing counted; `seconds` pass."""
        return self._step(None, seconds, hold, room)

    def minutes(
        self,
        count: int,
        *,
        tokens_per_step: float,
        acceptance: float = 0.5,
        requests: int = 30,
        hold: Hold | None = None,
        room: Room | None = None,
    ) -> Verdict:
        """`count` minutes in which `requests` of 200 decode tokens each finish in the speculative pool."""
        for _ in range(count):
            self._step(self.block(tokens_per_step, acceptance, requests), 60.0, hold, room)
        return self.last

    def until_switch(self, *, tokens_per_step: float, acceptance: float = 0.5, requests: int = 30) -> int:
        """Minutes until the next switch."""
        for minute in range(1, 24 * 60):
            if self.minutes(1, tokens_per_step=tokens_per_step, acceptance=acceptance, requests=requests).switched:
                return minute
        raise AssertionError("no switch within a day")

    def block(self, tokens_per_step: float, acceptance: float, requests: int) -> Block:
        tokens = 200 * requests
        accepted = round(tokens * (1.0 - 1.0 / tokens_per_step))
        drafted = max(round(accepted / acceptance), accepted) if acceptance else 0
        return Block(self.now + 60.0, tokens, accepted, drafted, requests, share=self.state.percent / 100.0)

    def _step_quiet(self) -> Verdict:
        """A minute in which no request finished."""
        return self._step(Block(self.now + 60.0, 0, 0, 0, 0, share=self.state.percent / 100.0), 60.0, None, None)

    def _step(self, block: Block | None, seconds: float, hold: Hold | None, room: Room | None) -> Verdict:
        self.now += seconds
        self.state, verdict = step(self.state, self.config, block, self.now, hold=hold, room=room)
        self.verdicts.append(verdict)
        return verdict


def test_a_route_that_pays_stays_on_and_says_why() -> None:
    route = Route(STARTS_ON)
    verdict = route.minutes(30, tokens_per_step=2.0)
    assert (verdict.pool, verdict.phase, verdict.speculative_percent) == ("speculative", Phase.SETTLED, 100)
    assert verdict.reason is Reason.PAYS
    assert verdict.message == ("2.00 tokens a step [2.00, 2.00] over 300 requests; 1.60 needed to pay. On since 09:00.")


def test_a_route_that_stops_paying_goes_off_within_ten_minutes_and_says_why() -> None:
    route = Route(STARTS_ON)
    route.minutes(12, tokens_per_step=2.0)
    assert 5 <= route.until_switch(tokens_per_step=1.12) <= 10
    verdict = route.last
    assert verdict.pool == "baseline"
    assert verdict.reason is Reason.BELOW_BREAK_EVEN
    assert verdict.phase is Phase.EXPLORING
    assert verdict.message.startswith("1.12 tokens a step [")
    assert "1.60 needed to pay. Off since 09:" in verdict.message
    assert verdict.next_look_at == route.now + 600.0


def test_evidence_against_that_is_not_enough_yet_is_told_as_such() -> None:
    route = Route(STARTS_ON)
    route.minutes(12, tokens_per_step=2.0)
    verdict = route.minutes(3, tokens_per_step=1.0)
    assert (verdict.pool, verdict.reason) == ("speculative", Reason.GATHERING)
    assert "of 9.2 towards off" in verdict.message


def test_the_worked_example_of_the_manual() -> None:
    """30 requests of 6,000 decode tokens, 800 of them accepted drafts, at a break-even of 1.60."""
    route = Route(STARTS_ON)
    scores = []
    for _ in range(5):
        route._step(Block(route.now + 60.0, 6000, 800, 20_800, 30, share=1.0), 60.0, None, None)
        assert route.last.evidence is not None
        scores.append(route.last.evidence.score)
    assert scores == pytest.approx([1.84, 3.68, 5.52, 7.36, 0.0])
    assert route.last.pool == "baseline"
    near = Route(STARTS_ON)
    near._step(Block(near.now + 60.0, 6000, 2000, 16_000, 30, share=1.0), 60.0, None, None)
    assert near.last.evidence is not None
    assert near.last.evidence.score == pytest.approx(0.472, abs=0.001)


def test_a_route_with_little_traffic_is_told_that_it_takes_long() -> None:
    route = Route(STARTS_ON)
    verdict = route.minutes(90, tokens_per_step=2.0, requests=1)
    assert "About 60 requests an hour are few: a decision can take hours." in verdict.message
    assert "few" not in Route(STARTS_ON).minutes(90, tokens_per_step=2.0, requests=2).message


def test_no_single_block_decides_however_bad_it_is() -> None:
    route = Route(STARTS_ON)
    route.minutes(12, tokens_per_step=2.0)
    verdict = route.minutes(1, tokens_per_step=1.0, requests=100_000)
    assert not verdict.switched
    assert verdict.evidence is not None
    assert verdict.evidence.score <= verdict.evidence.threshold / 5 + 1e-6


def test_nothing_is_decided_on_fewer_than_10_requests() -> None:
    # One request in three minutes, each as good as can be: the score is enough before the requests are.
    route = Route(replace(STARTS_ON, initial="baseline", dwell_seconds=1.0))
    while not any(one.switched for one in route.verdicts[-3:]):
        route.minutes(1, tokens_per_step=5.0, requests=1)
        route._step_quiet()
        route._step_quiet()
    known = [one.evidence for one in route.verdicts if one.evidence is not None and not one.switched]
    waiting = [one.requests for one in known if one.score >= one.threshold]
    assert waiting
    assert max(waiting) == 9


def test_off_lasts_the_dwell_even_where_it_pays_again_at_once() -> None:
    route = Route(STARTS_ON)
    route.until_switch(tokens_per_step=1.1)
    assert route.until_switch(tokens_per_step=2.2, requests=60) == 10


def test_back_on_ramps_over_half_a_dwell() -> None:
    route = Route(STARTS_ON)
    route.until_switch(tokens_per_step=1.1)
    route.until_switch(tokens_per_step=2.2)
    assert (route.last.pool, route.last.phase) == ("speculative", Phase.MOVING)
    percents = [route.last.speculative_percent, *(route.tick(60.0).speculative_percent for _ in range(5))]
    assert percents == [10, 10, 50, 50, 100, 100]
    assert route.last.phase is Phase.SETTLED


def test_repeated_switch_offs_wait_twice_as_long_each_time_up_to_32_dwells() -> None:
    route = Route(STARTS_ON)
    waits = []
    for _ in range(8):
        route.until_switch(tokens_per_step=1.05)
        assert route.last.next_look_at is not None
        waits.append(round((route.last.next_look_at - route.now) / 600.0))
        route.until_switch(tokens_per_step=2.5)
    assert waits == [1, 2, 4, 8, 16, 32, 32, 32]


def test_at_most_nine_switch_offs_on_the_first_day() -> None:
    route = Route(STARTS_ON)
    offs = []
    for minute in range(24 * 60):
        off = route.last.pool == "baseline" if route.verdicts else False
        if route.minutes(1, tokens_per_step=3.0 if off else 1.0, requests=300).switched and not off:
            offs.append(minute + 1)
    assert offs == [5, 20, 45, 90, 175, 340, 665, 990, 1315]


def test_six_hours_in_speculation_start_the_back_off_again() -> None:
    route = Route(STARTS_ON)
    for _ in range(3):
        route.until_switch(tokens_per_step=1.05)
        route.until_switch(tokens_per_step=2.5)
    route.minutes(6 * 60, tokens_per_step=2.5)
    route.until_switch(tokens_per_step=1.05)
    assert route.last.next_look_at == route.now + 600.0


def test_one_line_is_enough_to_go_off_and_all_are_needed_to_come_back() -> None:
    route = Route(replace(STARTS_ON, min_acceptance_percent=40))
    route.minutes(12, tokens_per_step=2.2, acceptance=0.6)
    route.until_switch(tokens_per_step=2.2, acceptance=0.2)
    assert route.last.reason is Reason.BELOW_ACCEPTANCE
    assert "20 % of drafted tokens accepted" in route.last.message
    assert "40 % needed" in route.last.message
    assert route.minutes(120, tokens_per_step=2.2, acceptance=0.2).pool == "baseline"
    assert route.minutes(120, tokens_per_step=1.1, acceptance=0.6).pool == "baseline"
    assert route.until_switch(tokens_per_step=2.2, acceptance=0.6) < 60
    assert route.last.pool == "speculative"


def test_drafting_nothing_speaks_against_break_even_and_not_about_acceptance() -> None:
    route = Route(replace(STARTS_ON, min_acceptance_percent=90))
    verdict = route.minutes(4, tokens_per_step=1.0, acceptance=0.0)
    assert verdict.acceptance_percent is None
    assert verdict.evidence is not None
    assert verdict.evidence.line == "BreakEven"
    route.until_switch(tokens_per_step=1.0, acceptance=0.0)
    assert route.last.reason is Reason.BELOW_BREAK_EVEN


def test_acceptance_goes_on_gathering_until_20_tokens_were_drafted() -> None:
    route = Route(RouteConfig(initial="speculative", draft_tokens=4, min_acceptance_percent=50, dwell_seconds=1.0))
    for _ in range(3):
        at = route.now + 60.0
        route._step(Block(at, 2000, 0, 6, 10, share=1.0), 60.0, None, None)
        assert route.last.acceptance_percent is None
    route._step(Block(route.now + 60.0, 2000, 0, 6, 10, share=1.0), 60.0, None, None)
    assert route.last.acceptance_percent == 0


def test_thin_minutes_are_kept_until_they_make_a_block() -> None:
    route = Route(STARTS_ON)
    for requests, figures in ((1, None), (1, None), (1, 2.0)):
        assert route.minutes(1, tokens_per_step=2.0, requests=requests).tokens_per_step == figures


def test_after_three_minutes_one_request_makes_a_block() -> None:
    route = Route(STARTS_ON)
    route.minutes(1, tokens_per_step=2.0, requests=1)
    quiet = [route._step_quiet() for _ in range(2)]
    assert [one.tokens_per_step for one in quiet] == [None, 2.0]
    route.minutes(1, tokens_per_step=2.0, requests=1)
    assert len(route.state.line("BreakEven").recent) == 1


def test_acceptance_too_closes_a_thin_block_but_not_on_few_drafted_tokens() -> None:
    route = Route(RouteConfig(initial="speculative", draft_tokens=4, min_acceptance_percent=50))
    route._step(Block(route.now + 60.0, 200, 10, 19, 1, share=1.0), 60.0, None, None)
    assert [route._step_quiet().acceptance_percent for _ in range(3)] == [None, None, None]
    route._step(Block(route.now + 60.0, 200, 0, 1, 1, share=1.0), 60.0, None, None)
    assert route.last.acceptance_percent == 50


def test_what_was_gathered_more_than_an_hour_ago_is_left_out() -> None:
    route = Route(STARTS_ON)
    route.minutes(1, tokens_per_step=1.0, requests=2)
    route.tick(3600.0)
    assert route.minutes(1, tokens_per_step=2.0, requests=2).tokens_per_step is None
    assert route.minutes(1, tokens_per_step=2.0, requests=2).tokens_per_step == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("requests_a_minute", "percent"), [(300, 4), (30, 10), (3, 10)], ids=["18000/h", "1800/h", "180/h"]
)
def test_the_exploring_share_follows_the_rate_of_the_route(requests_a_minute: int, percent: int) -> None:
    route = Route(STARTS_ON)
    route.until_switch(tokens_per_step=1.1, requests=requests_a_minute)
    assert route.last.speculative_percent == percent


def test_the_exploring_share_falls_with_age() -> None:
    route = Route(STARTS_ON)
    route.until_switch(tokens_per_step=1.1, requests=300)
    shares = []
    for hours in (2, 8, 24):
        while route.now < NINE + hours * 3600:
            route.minutes(1, tokens_per_step=1.1, requests=max(1, round(3 * route.state.percent)))
        shares.append(route.last.speculative_percent)
    assert shares == [4, 2, 1]


def test_exploration_0_means_none_and_is_said() -> None:
    config = RouteConfig(initial="baseline", break_even=1.6, exploration_max_percent=0)
    verdict = Route(config).tick(3600.0)
    assert (verdict.pool, verdict.speculative_percent) == ("baseline", 0)
    assert verdict.reason is Reason.NO_EXPLORATION


def test_initial_baseline_explores_its_way_in() -> None:
    route = Route(RouteConfig(initial="baseline", break_even=1.6))
    verdict = route.minutes(1, tokens_per_step=2.4, requests=3)
    assert (verdict.pool, verdict.phase, verdict.reason) == ("baseline", Phase.EXPLORING, Reason.EXPLORING)
    assert verdict.speculative_percent == 10
    assert route.until_switch(tokens_per_step=2.4, requests=10) >= 9
    assert route.last.pool == "speculative"


def test_always_and_never_act_at_once_and_auto_keeps_what_was_learnt() -> None:
    route = Route(STARTS_ON)
    route.until_switch(tokens_per_step=1.1)
    route.minutes(3, tokens_per_step=1.1)
    before = route.state
    route.config = replace(STARTS_ON, override="Always")
    verdict = route.tick()
    assert (verdict.pool, verdict.speculative_percent, verdict.switched) == ("speculative", 100, True)
    assert verdict.reason is Reason.OVERRIDE_ALWAYS
    assert verdict.wanted_pool == "baseline"
    route.config = replace(STARTS_ON, override="Never")
    verdict = route.tick()
    assert (verdict.pool, verdict.speculative_percent, verdict.reason) == ("baseline", 0, Reason.OVERRIDE_NEVER)
    route.config = STARTS_ON
    verdict = route.tick()
    assert (verdict.pool, verdict.reason) == ("baseline", Reason.BELOW_BREAK_EVEN)
    assert (route.state.lines, route.state.since, route.state.backoff) == (before.lines, before.since, before.backoff)


def test_a_persons_override_acts_while_metrics_are_down() -> None:
    route = Route(replace(STARTS_ON, override="Never"))
    assert route.tick(hold=Hold.METRICS_UNAVAILABLE).pool == "baseline"


def test_observe_reports_and_moves_nothing() -> None:
    route = Route(replace(STARTS_ON, enforce=False))
    verdict = route.minutes(60, tokens_per_step=1.1)
    assert (verdict.pool, verdict.speculative_percent, verdict.wanted_pool) == ("speculative", 100, "baseline")
    assert verdict.reason is Reason.BELOW_BREAK_EVEN
    assert "Served by speculative; Observe would choose baseline." in verdict.message
    assert not any(verdict.switched for verdict in route.verdicts)
    route.config = STARTS_ON
    assert route.tick().pool == "baseline"


def test_from_enforce_to_observe_the_route_stays_where_it_is() -> None:
    route = Route(STARTS_ON)
    route.until_switch(tokens_per_step=1.1)
    route.config = replace(STARTS_ON, enforce=False)
    verdict = route.tick()
    assert (verdict.pool, verdict.speculative_percent, verdict.switched) == ("baseline", 0, False)


def test_a_hold_freezes_evidence_while_the_dwell_runs_on() -> None:
    route = Route(STARTS_ON)
    route.minutes(12, tokens_per_step=2.0)
    lines = route.state.lines
    verdict = route.minutes(60, tokens_per_step=1.0, hold=Hold.ROLLOUT_IN_PROGRESS)
    assert (verdict.pool, verdict.phase, verdict.reason) == ("speculative", Phase.HELD, Reason.ROLLOUT_IN_PROGRESS)
    assert route.state.lines == lines
    route.until_switch(tokens_per_step=1.0)
    end = route.last.next_look_at
    for _ in range(10):
        route.tick(60.0, hold=Hold.METRICS_UNAVAILABLE)
    assert end == route.now
    assert route.last.next_look_at is None


def test_a_hold_leaves_the_share_of_traffic_as_it_is() -> None:
    route = Route(STARTS_ON)
    route.until_switch(tokens_per_step=1.1)
    route.until_switch(tokens_per_step=2.2)
    assert route.last.speculative_percent == 10
    assert route.tick(3600.0, hold=Hold.METRICS_UNAVAILABLE).speculative_percent == 10
    assert route.tick().speculative_percent == 100


def test_without_room_a_switch_waits_and_falls_when_there_is_room() -> None:
    route = Route(STARTS_ON)
    full = Room(to_baseline=False, to_speculation=True)
    verdict = route.minutes(30, tokens_per_step=1.05, room=full)
    assert (verdict.pool, verdict.no_room, verdict.phase) == ("speculative", True, Phase.HELD)
    assert (verdict.reason, verdict.wanted_pool) == (Reason.NO_ROOM_TO_MOVE, "baseline")
    assert verdict.evidence is not None
    assert verdict.evidence.score == pytest.approx(1.5 * 9.2)
    verdict = route.tick()
    assert (verdict.pool, verdict.no_room, verdict.switched) == ("baseline", False, True)


def test_an_override_without_room_waits_and_sends_no_more_traffic_the_other_way() -> None:
    route = Route(STARTS_ON)
    route.until_switch(tokens_per_step=1.1)
    route.until_switch(tokens_per_step=2.2)
    route.config = replace(STARTS_ON, override="Never")
    verdict = route.tick(room=Room(to_baseline=False))
    assert (verdict.pool, verdict.speculative_percent, verdict.no_room) == ("speculative", 10, True)
    verdict = route.tick()
    assert (verdict.pool, verdict.speculative_percent, verdict.switched) == ("baseline", 0, True)


def test_a_changed_line_starts_its_score_again_and_keeps_mode_and_dwell() -> None:
    route = Route(STARTS_ON)
    route.until_switch(tokens_per_step=1.1)
    route.minutes(5, tokens_per_step=1.9)
    known = route.state
    assert known.line("BreakEven").score > 0
    route.config = replace(STARTS_ON, break_even=1.50)
    route.tick()
    after = route.state
    assert (after.mode, after.since, after.backoff) == (known.mode, known.since, known.backoff)
    assert after.line("BreakEven").score == 0.0
    assert after.line("BreakEven").variance == known.line("BreakEven").variance
    assert after.line("BreakEven").recent == known.line("BreakEven").recent


def test_another_k_forgets_the_noise_too() -> None:
    route = Route(STARTS_ON)
    route.minutes(20, tokens_per_step=2.0)
    route.config = replace(STARTS_ON, draft_tokens=8)
    verdict = route.tick()
    assert (verdict.pool, verdict.tokens_per_step) == ("speculative", None)


def test_without_a_line_nothing_is_decided() -> None:
    verdict = Route(replace(STARTS_ON, break_even=None)).minutes(60, tokens_per_step=1.0)
    assert (verdict.pool, verdict.evidence, verdict.reason) == ("speculative", None, Reason.NO_LINE)


@pytest.mark.parametrize(
    "counts",
    [
        {"accepted": 7000},
        {"accepted": 5000, "drafted": 4000},
        {"tokens": -1},
        {"requests": -3},
        {"share": float("nan")},
        {"at": float("inf")},
    ],
    ids=lambda counts: next(iter(counts)),
)
def test_counts_that_cannot_be_are_left_out(counts: dict[str, float]) -> None:
    route = Route(STARTS_ON)
    sound = route.block(1.0, 0.0, 30)
    route._step(replace(sound, **counts), 60.0, None, None)  # type: ignore[arg-type]
    assert route.last.tokens_per_step is None


def test_a_block_counts_once() -> None:
    route = Route(STARTS_ON)
    route.minutes(1, tokens_per_step=2.0, requests=2)
    block = route.block(2.0, 0.5, 2)
    route._step(block, 60.0, None, None)
    lines = route.state.lines
    route._step(block, 0.0, None, None)
    assert route.state.lines == lines


def test_after_the_clock_was_set_back_a_dwell_is_not_waited_for_longer() -> None:
    route = Route(STARTS_ON)
    route.until_switch(tokens_per_step=1.1)
    route.now -= 7 * 24 * 3600.0
    route.tick()
    assert route.last.next_look_at == route.now + 600.0
    assert route.until_switch(tokens_per_step=2.2, requests=60) == 10


def test_lost_or_spoilt_state_starts_in_the_known_pool() -> None:
    route = Route(STARTS_ON)
    route.until_switch(tokens_per_step=1.1)
    text = route.state.encode()
    for spoilt in (None, "", "2;" + text[2:], text[:-20], text.replace("bbb", "sss"), "x" * 500):
        state = decode(spoilt, STARTS_ON, route.now, pool="baseline")
        assert (state.served, state.mode) == ("baseline", "baseline")
    assert decode("?", STARTS_ON, route.now).served == "speculative"
    assert decode(text, STARTS_ON, route.now) == route.state


def test_every_reason_has_its_sentence() -> None:
    assert set(SENTENCES) == set(Reason)
    assert {hold.value for hold in Hold} <= {reason.value for reason in Reason}


def test_the_manual_lists_every_reason_with_its_sentence() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "decision.md").read_text()
    assert [f"| `{reason.value}` | {sentence} |" for reason, sentence in SENTENCES.items()] == [
        row for row in page.splitlines() if row.startswith("| `") and row.split("`")[1] in set(Reason)
    ]

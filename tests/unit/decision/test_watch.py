"""What trips the guards, and what does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from specfleet.decision.measures import Answers, PodSeen, Predicted, RouteSeen, Seen, Slo, Tail
from specfleet.decision.reasons import Hold, Reason
from specfleet.decision.types import Guard
from specfleet.decision.watch import Outcome, Watch

BLOCK = 60.0
START = 1_900_000_000.0
ON = RouteSeen("chat", "speculative", "speculative", START - 7200.0, START - 7200.0, 100)
OFF = replace(ON, mode="baseline", served="baseline", percent=5)
FINE = Answers(ended=100, finished=100, measured=100, tokens=10_000, drafted=8000, accepted=4000)
IDLE = Answers()
READY = {"speculative": 2, "baseline": 2}


def pods(pool: str = "speculative", **figures: object) -> tuple[PodSeen, ...]:
    return tuple(PodSeen(f"{pool}-{n}", f"{pool}-{n}", pool, **figures) for n in (0, 1))  # type: ignore[arg-type]


CALM: dict[str, Any] = {"running": 8, "waiting": 0, "kv_used": 0.4, "preempted": 0}
SHORT: dict[str, Any] = CALM | {"waiting": 3}


@dataclass
class Blocks:
    """One watch, fed block after block."""

    watch: Watch = field(default_factory=Watch)
    now: float = START
    last: Outcome = field(default_factory=Outcome)

    def feed(self, *routes: RouteSeen, blocks: int = 1, **seen: object) -> Outcome:
        for _ in range(blocks):
            self.now += BLOCK
            given = {"ready": READY, **seen}
            self.last = self.watch.block(Seen(self.now, BLOCK, 600.0, routes, **given))  # type: ignore[arg-type]
        return self.last

    def guard(self, name: str = "chat") -> Guard:
        return self.last.guards[name]


@pytest.fixture
def blocks() -> Blocks:
    return Blocks()


# --- refusals


def refusing(refused: int, finished: int = 20) -> Answers:
    return Answers(ended=refused + finished, finished=finished, refused=refused, measured=finished)


def test_refusals_that_baseline_does_not_have_switch_off_and_end_exploration(blocks: Blocks) -> None:
    blocks.feed(replace(ON, speculative=refusing(8), baseline=refusing(1, 99)))
    guard = blocks.guard()
    assert (guard.off, guard.explore) == (Reason.REQUESTS_REFUSED, False)
    assert guard.why == "Engines answered 8 of 28 requests with 4xx under speculation, and 1 of 100 in baseline."


@pytest.mark.parametrize(
    ("speculative", "baseline"),
    [
        (refusing(4, 0), refusing(0, 200)),  # too few
        (refusing(30, 70), refusing(28, 72)),  # as many
        (refusing(100, 900), refusing(60, 940)),  # not twice as many
        (refusing(6, 94), refusing(0, 25)),  # may be chance
        (refusing(9, 0), refusing(0, 19)),  # nothing to compare with, and few
        (refusing(49, 51), IDLE),  # nothing to compare with, and less than half
        (IDLE, IDLE),
    ],
)
def test_refusals_that_prove_nothing(blocks: Blocks, speculative: Answers, baseline: Answers) -> None:
    blocks.feed(replace(ON, speculative=speculative, baseline=baseline))
    assert blocks.guard() == Guard()


def test_half_refused_is_enough_where_baseline_has_no_traffic(blocks: Blocks) -> None:
    blocks.feed(replace(ON, speculative=refusing(10, 10)))
    assert blocks.guard().off is Reason.REQUESTS_REFUSED


def test_refusals_keep_it_off_for_a_day_after_the_window_is_over_or_lost(blocks: Blocks) -> None:
    gone = replace(OFF, cause=Reason.REQUESTS_REFUSED, since=START)
    blocks.feed(replace(gone, baseline=FINE))
    guard = blocks.guard()
    assert (guard.stay_off, guard.explore) == (Reason.REQUESTS_REFUSED, False)
    assert "not tried before" in guard.why
    blocks.now = START + 24 * 3600.0 - BLOCK
    blocks.feed(gone)
    assert blocks.guard() == Guard()


def test_refusals_of_pods_that_are_gone_count_no_more(blocks: Blocks) -> None:
    blocks.feed(replace(ON, speculative=refusing(20, 0)))
    gone = replace(OFF, cause=Reason.REQUESTS_REFUSED, since=blocks.now)
    blocks.feed(gone, renewed=START - 1.0)
    assert blocks.guard().stay_off is Reason.REQUESTS_REFUSED
    blocks.feed(gone, renewed=blocks.now + 1.0)
    assert blocks.guard() == Guard()


def test_a_client_whose_requests_are_wrong_is_refused_by_baseline_too_and_the_route_is_free_again(
    blocks: Blocks,
) -> None:
    blocks.feed(replace(ON, speculative=refusing(20, 10)))
    gone = replace(OFF, cause=Reason.REQUESTS_REFUSED, since=blocks.now)
    blocks.feed(replace(gone, baseline=refusing(10, 5)))
    assert blocks.guard().stay_off is Reason.REQUESTS_REFUSED
    blocks.feed(replace(gone, baseline=refusing(20, 10)), blocks=2)
    assert blocks.guard() == Guard()
    blocks.feed(gone, blocks=40)  # the window is over, and what it showed holds
    assert blocks.guard() == Guard()
    blocks.feed(replace(ON, speculative=refusing(20, 0)))  # that client again: nothing new
    assert blocks.guard() == Guard()
    blocks.feed(replace(ON, speculative=refusing(20, 0), baseline=refusing(0, 200)))  # and this is
    assert blocks.guard().off is Reason.REQUESTS_REFUSED
    blocks.feed(replace(OFF, cause=Reason.REQUESTS_REFUSED, since=blocks.now))
    assert blocks.guard().stay_off is Reason.REQUESTS_REFUSED


def test_after_a_day_a_client_s_innocence_is_forgotten(blocks: Blocks) -> None:
    blocks.feed(replace(ON, speculative=refusing(20, 10)))
    gone = replace(OFF, cause=Reason.REQUESTS_REFUSED, since=blocks.now)
    blocks.feed(replace(gone, baseline=refusing(40, 20)))
    blocks.now += 24 * 3600.0
    blocks.feed(replace(ON, speculative=refusing(20, 0)))
    assert blocks.guard().off is Reason.REQUESTS_REFUSED


def test_refusals_while_exploring_end_exploration(blocks: Blocks) -> None:
    exploring = replace(OFF, cause=Reason.BELOW_BREAK_EVEN)
    blocks.feed(replace(exploring, speculative=refusing(6, 0), baseline=FINE))
    assert (blocks.guard().stay_off, blocks.guard().explore) == (Reason.REQUESTS_REFUSED, False)
    blocks.feed(replace(exploring, baseline=FINE), blocks=60)
    assert blocks.guard().explore is False
    blocks.now += 24 * 3600.0
    blocks.feed(replace(exploring, baseline=FINE))
    assert blocks.guard() == Guard()


# --- cancels, coverage, figures


def test_cancel_rates_that_differ_are_told_and_change_nothing(blocks: Blocks) -> None:
    blocks.feed(replace(ON, speculative=replace(FINE, ended=150, cancelled=50), baseline=replace(FINE, cancelled=5)))
    guard = blocks.guard()
    assert replace(guard, notes=()) == Guard()
    assert guard.notes[0].startswith("Clients hung up on 50 of 150 requests with speculation and on 5 of 100")


@pytest.mark.parametrize(("one", "other"), [(19, 0), (30, 25), (50, 45)])
def test_cancel_rates_that_may_be_the_same(blocks: Blocks, one: int, other: int) -> None:
    blocks.feed(
        replace(ON, speculative=replace(FINE, cancelled=other), baseline=replace(FINE, cancelled=one)),
    )
    assert blocks.guard().notes == ()


def test_cancels_in_baseline_are_told_as_well(blocks: Blocks) -> None:
    blocks.feed(replace(ON, speculative=FINE, baseline=replace(FINE, cancelled=40)))
    assert "on 0 of 100 requests with speculation and on 40 of 100 in baseline" in blocks.guard().notes[0]


def test_a_route_whose_answers_hardly_carry_figures_is_held_alone(blocks: Blocks) -> None:
    other = replace(ON, name="code", speculative=FINE)
    blocks.feed(replace(ON, speculative=replace(FINE, measured=49)), other)
    assert blocks.last.holds == {"chat": Hold.INSUFFICIENT_COVERAGE}
    assert blocks.last.coverage == {"chat": 49, "code": 100}
    assert blocks.guard().notes == ("49 % of 100 answers carried figures.",)
    blocks.feed(replace(ON, speculative=FINE), other, blocks=2)
    assert blocks.last.holds == {}


def test_few_answers_and_engines_that_count_themselves_hold_nothing(blocks: Blocks) -> None:
    blocks.feed(replace(ON, speculative=Answers(ended=19, finished=19)))
    assert (blocks.last.holds, blocks.last.coverage) == ({}, {})
    blocks.feed(replace(ON, speculative=Answers(ended=100, finished=100)), by_router=False)
    assert blocks.last.holds == {}


def test_every_draft_accepted_is_told(blocks: Blocks) -> None:
    perfect = Answers(ended=30, finished=30, measured=30, tokens=1500, drafted=1200, accepted=1200)
    blocks.feed(replace(ON, speculative=perfect))
    assert blocks.guard().notes == ()
    blocks.feed(replace(ON, speculative=perfect))
    assert blocks.guard().notes[0].startswith("Every one of 2400 drafted tokens was accepted")
    blocks.feed(replace(ON, speculative=replace(perfect, accepted=1199)))
    assert blocks.guard() == Guard()


# --- engines that stop drafting, drafts that fit nothing


def test_tokens_without_a_draft_hold_what_a_head_drafts(blocks: Blocks) -> None:
    plain = Answers(ended=5, finished=5, measured=5, tokens=600)
    blocks.feed(replace(ON, speculative=plain))
    assert blocks.last.holds == {}
    blocks.feed(replace(ON, speculative=plain))
    assert blocks.last.holds == {"chat": Hold.ENGINE_SUPPRESSED}
    assert blocks.last.suppressed == "Engines decode on and draft nothing any more: they have stopped it themselves."
    blocks.feed(replace(ON, speculative=replace(plain, drafted=4)))
    assert blocks.last.holds == {}


def test_lookup_drafts_nothing_where_it_finds_nothing_and_that_is_evidence(blocks: Blocks) -> None:
    plain = Answers(ended=50, finished=50, measured=50, tokens=6000)
    blocks.feed(replace(ON, speculative=plain), learned_draft=False, blocks=3)
    assert (blocks.last.holds, blocks.last.suppressed) == ({}, None)


def test_what_an_engines_own_page_says_of_suppression_holds_too(blocks: Blocks) -> None:
    blocks.feed(ON, suppressed="Its gate has closed.", learned_draft=False)
    assert blocks.last.holds == {}
    blocks.feed(ON, suppressed="Its gate has closed.")
    assert blocks.last.holds == {"chat": Hold.ENGINE_SUPPRESSED}
    assert blocks.last.suppressed == "Its gate has closed."


def first(share: float, trials: int = 200) -> tuple[PodSeen, ...]:
    return pods(first_trials=trials, first_accepted=round(trials * share))


def test_a_draft_whose_first_token_is_never_accepted_goes_off(blocks: Blocks) -> None:
    blocks.feed(ON, OFF, pods=first(0.02), blocks=2)
    assert blocks.guard() == Guard()
    blocks.feed(ON, pods=first(0.02))
    guard = blocks.guard()
    assert (guard.off, guard.explore) == (Reason.DRAFT_COLLAPSED, True)
    assert guard.why.startswith("2.0% of the first drafted tokens")
    blocks.feed(OFF, pods=first(0.4))
    assert blocks.guard() == Guard()


@pytest.mark.parametrize(
    "seen",
    [
        {"pods": first(0.03)},
        {"pods": first(0.0), "learned_draft": False},
        {"pods": first(0.0, trials=20)},  # four blocks make no block of 200 drafts
        {"pods": pods(**CALM)},
        {"pods": pods("baseline", first_trials=500, first_accepted=0)},
    ],
)
def test_drafts_that_have_not_collapsed(blocks: Blocks, seen: Mapping[str, object]) -> None:
    blocks.feed(ON, blocks=4, **seen)
    assert blocks.guard() == Guard()


def test_first_drafts_gather_for_an_hour_at_most(blocks: Blocks) -> None:
    for _ in range(6):
        blocks.feed(ON, pods=first(0.0, trials=99))
        blocks.now += 3600.0
    assert blocks.guard() == Guard()
    blocks.feed(ON, pods=first(0.0), blocks=3)
    assert blocks.guard().off is Reason.DRAFT_COLLAPSED
    blocks.feed(ON, pods=first(0.0, trials=0), blocks=60)  # nothing has been drafted for an hour
    assert blocks.guard() == Guard()


# --- one pod


def living(trials: int, accepted: int, life: int, life_accepted: int, *, age: float | None) -> dict[str, object]:
    return {
        "trials": trials,
        "accepted": accepted,
        "life_trials": life,
        "life_accepted": life_accepted,
        "age_seconds": age,
    }


def two(first_pod: Mapping[str, object], second: Mapping[str, object]) -> tuple[PodSeen, ...]:
    one, other = pods()
    return replace(one, **first_pod), replace(other, **second)  # type: ignore[arg-type]


def test_a_pod_that_accepts_ever_less_is_named_and_a_switch_waits_for_a_dwell(blocks: Blocks) -> None:
    good = living(500, 300, 50_000, 30_000, age=9000.0)
    blocks.feed(ON, pods=two(good, good))
    ill = living(2000, 600, 52_000, 30_600, age=9060.0)
    fit = living(2000, 1200, 52_000, 31_200, age=9060.0)
    blocks.feed(ON, replace(OFF, name="code"), pods=two(ill, fit), blocks=3)
    assert blocks.last.holds == {"chat": Hold.POD_DECAYED}
    held, told = blocks.guard().notes
    assert held.startswith("Held until ")
    assert told.startswith("Pod speculative-0 accepts 32% of its drafts, in its first hours 60%; the others accept 60%")
    assert blocks.guard("code") == Guard()
    blocks.feed(ON, pods=two(ill, fit), blocks=10)
    assert blocks.last.holds == {}
    assert blocks.guard().notes == (told.replace("32%", "30%"),)
    blocks.feed(ON, pods=two({**ill, "life_trials": 2000, "life_accepted": 1200, "age_seconds": 60.0}, fit))
    assert blocks.guard() == Guard()


@pytest.mark.parametrize(
    ("ill", "fit"),
    [
        (living(2000, 600, 52_000, 30_600, age=60.0), living(2000, 1200, 52_000, 31_200, age=60.0)),  # young
        (living(2000, 600, 52_000, 30_600, age=None), living(2000, 600, 52_000, 31_200, age=None)),  # so do all
        (living(2000, 1000, 52_000, 30_600, age=None), living(2000, 1500, 52_000, 31_200, age=None)),  # hardly less
        (living(100, 0, 52_000, 30_600, age=None), living(2000, 1200, 52_000, 31_200, age=None)),  # little
        (living(2000, 600, 52_000, 30_600, age=None), living(100, 60, 52_000, 31_200, age=None)),  # no sibling
        ({}, living(2000, 1200, 52_000, 31_200, age=None)),
    ],
)
def test_pods_that_have_not_decayed(blocks: Blocks, ill: Mapping[str, object], fit: Mapping[str, object]) -> None:
    old = living(0, 0, 50_000, 30_000, age=9000.0)
    young = ill.get("age_seconds") == 60.0
    blocks.feed(ON, pods=two(old | ({"age_seconds": 0.0} if young else {}), old))
    blocks.feed(ON, pods=two(ill, fit), blocks=4)
    assert blocks.guard() == Guard()


# --- load


def loaded(speculative: Mapping[str, Any], baseline: Mapping[str, Any]) -> tuple[PodSeen, ...]:
    return (*pods(**speculative), *pods("baseline", **baseline))


@pytest.mark.parametrize("sign", [{"waiting": 1}, {"waiting": 1, "kv_used": 0.99}, {"preempted": 1}])
def test_both_pools_short_of_room_freeze_every_move_until_they_are_not(blocks: Blocks, sign: dict[str, object]) -> None:
    short = loaded(CALM | sign, CALM | sign)
    blocks.feed(ON, OFF, pods=short)
    assert blocks.last.holds == {}
    blocks.feed(ON, replace(OFF, name="code"), pods=short)
    assert blocks.last.holds == {"chat": Hold.OVERLOADED, "code": Hold.OVERLOADED}
    assert blocks.last.overloaded is not None
    blocks.feed(ON, pods=loaded(CALM, SHORT), blocks=2)
    assert blocks.last.holds == {"chat": Hold.OVERLOADED}
    blocks.feed(ON, pods=loaded(CALM, SHORT))
    assert blocks.last.holds == {}
    assert blocks.last.overloaded is None


def test_a_full_kv_cache_is_told_beside_a_queue_and_is_no_shortage_alone(blocks: Blocks) -> None:
    full = CALM | {"kv_used": 0.97}
    blocks.feed(replace(ON, active=1), pods=loaded(full, full), blocks=6)
    assert (blocks.last.holds, blocks.guard()) == ({}, Guard())
    blocks.feed(replace(ON, active=1), pods=loaded(full | {"preempted": 2, "running": 20}, full), blocks=5)
    assert "4 requests were preempted, a KV cache is 97% full" in blocks.guard().why


def test_speculation_alone_short_of_room_sends_off_one_route_after_five_blocks(blocks: Blocks) -> None:
    worst = replace(ON, tokens_per_step=1.4, active=2)
    routes = worst, replace(ON, name="code", tokens_per_step=2.4), replace(ON, name="json"), replace(OFF, name="tool")
    crowded = loaded(SHORT | {"running": 20}, CALM)
    blocks.feed(*routes, pods=crowded, blocks=4)
    assert all(blocks.guard(name) == Guard() for name in ("chat", "code", "json"))
    assert blocks.guard("tool").stay_off is Reason.POOL_SATURATED
    blocks.feed(*routes, pods=crowded)
    assert blocks.guard().off is Reason.POOL_SATURATED
    assert "6 requests wait" in blocks.guard().why
    assert all(blocks.guard(name) == Guard() for name in ("code", "json"))
    blocks.feed(replace(OFF, name="chat"), *routes[1:], pods=crowded)
    assert blocks.guard("code") == Guard()
    assert blocks.guard("chat").stay_off is Reason.POOL_SATURATED


@pytest.mark.parametrize(
    ("route", "baseline", "ready"),
    [
        (replace(ON, active=40), CALM, READY),  # the batch would be larger than speculation's
        (replace(ON, active=2, predicted=Predicted(0.020, 0.019)), CALM, READY),
        (replace(ON), CALM, READY),
        (replace(ON, active=2), {**CALM, "running": None}, READY),
        (replace(ON, active=2), CALM, {"speculative": 2}),
    ],
)
def test_where_baseline_is_not_shown_to_be_faster_it_is_overload(
    blocks: Blocks, route: RouteSeen, baseline: Mapping[str, object], ready: Mapping[str, int]
) -> None:
    blocks.feed(route, pods=loaded(SHORT | {"running": 20}, baseline), ready=ready, blocks=5)
    assert blocks.last.holds == {"chat": Hold.OVERLOADED}
    assert "not shown to be faster" in (blocks.last.overloaded or "")


def test_curves_say_that_baseline_is_faster(blocks: Blocks) -> None:
    route = replace(ON, active=40, predicted=Predicted(0.018, 0.019))
    blocks.feed(route, pods=loaded(SHORT, CALM), blocks=5)
    assert blocks.guard().off is Reason.POOL_SATURATED


@pytest.mark.parametrize(
    "seen",
    [
        (),
        pods(**SHORT),  # of baseline nothing is known
        loaded(CALM, SHORT),
        loaded({}, CALM),
        (*pods(**SHORT)[:1], *pods("baseline", **CALM)),  # half of the pods: enough to say so
    ],
)
def test_what_is_not_known_does_not_act(blocks: Blocks, seen: tuple[PodSeen, ...]) -> None:
    blocks.feed(replace(ON, active=1), pods=seen, ready={"speculative": 3, "baseline": 2}, blocks=6)
    assert blocks.last.holds == {}
    assert blocks.guard() == Guard()


def test_a_route_that_people_have_placed_is_not_chosen(blocks: Blocks) -> None:
    blocks.feed(replace(ON, active=1, judged=False), pods=loaded(SHORT, CALM), blocks=6)
    assert (blocks.last.holds, blocks.guard()) == ({}, Guard())


# --- SLO

GOAL = Slo(0.040, 0.800, 95)


def timed(tpot: float | None = None, ttft: float | None = None, requests: int = 20) -> Answers:
    return replace(
        FINE,
        time_per_output_token=None if tpot is None else Tail(tpot, requests),
        time_to_first_token=None if ttft is None else Tail(ttft, requests),
    )


def goal(answers: Answers, **more: object) -> RouteSeen:
    return replace(replace(ON, slo=GOAL, speculative=answers), **more)  # type: ignore[arg-type]


FASTER = Predicted(0.030, 0.045)
SLOWER = Predicted(0.050, 0.045)


@pytest.mark.parametrize("answers", [timed(0.041), timed(ttft=0.81), timed(0.041, 0.81)])
def test_a_missed_slo_switches_off_where_baseline_is_faster_with_the_load(blocks: Blocks, answers: Answers) -> None:
    blocks.feed(goal(answers, predicted=FASTER), blocks=2)
    assert blocks.guard() == Guard(calibrate=False)
    blocks.feed(goal(answers, predicted=FASTER))
    assert blocks.guard().off is Reason.SLO_BREACHED
    assert "in 3 blocks in a row" in blocks.guard().why


def test_figures_of_a_missed_slo_are_told(blocks: Blocks) -> None:
    blocks.feed(goal(timed(0.041, 12.0), predicted=FASTER), blocks=3)
    assert blocks.guard().why == (
        "Time per output token at percentile 95 is 41 ms, over 40 ms and Time to first token at percentile 95 is 12 s, "
        "over 800 ms in 3 blocks in a row."
    )


def test_where_it_is_known_to_be_slower_all_moves_freeze_for_an_hour(blocks: Blocks) -> None:
    other = replace(ON, name="code")
    blocks.feed(goal(timed(0.041), predicted=SLOWER), other, blocks=3)
    assert blocks.last.holds == {"chat": Hold.OVERLOADED, "code": Hold.OVERLOADED}
    blocks.feed(goal(timed(0.041), predicted=SLOWER), other, blocks=60)
    assert (blocks.last.holds, blocks.last.overloaded) == ({}, None)


def test_where_it_is_not_known_only_that_route_freezes(blocks: Blocks) -> None:
    blocks.feed(goal(timed(0.041)), replace(ON, name="code"), blocks=3)
    assert blocks.last.holds == {"chat": Hold.OVERLOADED}
    assert blocks.last.overloaded is None
    assert "not shown to be faster" in blocks.guard().notes[0]


@pytest.mark.parametrize(
    ("baseline_running", "tail", "off"),
    [(8, Tail(0.039, 20), True), (8, Tail(0.041, 20), False), (8, Tail(0.039, 19), False), (7, Tail(0.039, 20), False)],
)
def test_without_curves_baseline_must_keep_the_slo_at_no_smaller_batch(
    blocks: Blocks, baseline_running: int, tail: Tail, off: bool
) -> None:
    seen = loaded(CALM, CALM | {"running": baseline_running})
    blocks.feed(goal(timed(0.041)), pods=seen, baseline_tpot={95: tail}, blocks=3)
    assert (blocks.guard().off is Reason.SLO_BREACHED) is off


@pytest.mark.parametrize(
    ("route", "calibrate"),
    [
        (goal(timed(0.041, requests=19)), True),
        (goal(timed(0.039, 0.79)), True),
        (goal(timed(0.041), percent=10), False),
        (goal(timed(ttft=5.0), percent=50), False),
        (goal(timed(ttft=5.0), served_since=START), False),
        (goal(timed(float("nan"))), True),
        (goal(timed(0.041), mode="baseline", served="baseline"), False),
        (goal(timed(0.041), slo=None), True),
        (goal(timed(0.041), slo=Slo(time_to_first_token=0.8)), True),
    ],
)
def test_what_is_no_evidence_of_a_missed_slo_and_what_calibration_stops_for_anyway(
    blocks: Blocks, route: RouteSeen, calibrate: bool
) -> None:
    blocks.feed(replace(route, predicted=FASTER), blocks=3)
    assert (blocks.guard(), blocks.last.holds) == (Guard(calibrate=calibrate), {})


def test_a_block_within_the_slo_begins_the_row_anew_and_a_thin_one_does_not(blocks: Blocks) -> None:
    over, thin, within = timed(0.041), timed(0.041, requests=3), timed(0.039)
    for answers in (over, over, within, over, over, thin):
        blocks.feed(goal(answers, predicted=FASTER))
    assert blocks.guard() == Guard(calibrate=False)
    blocks.feed(goal(over, predicted=FASTER))
    assert blocks.guard().off is Reason.SLO_BREACHED


def test_predictions_that_are_no_times_are_none(blocks: Blocks) -> None:
    blocks.feed(goal(timed(0.041), predicted=Predicted(float("nan"), 0.045)), blocks=3)
    assert blocks.last.holds == {"chat": Hold.OVERLOADED}
    assert blocks.last.overloaded is None


# --- who may act, and what is said


def test_under_observe_and_with_an_override_a_guard_only_tells(blocks: Blocks) -> None:
    blocks.feed(replace(ON, speculative=refusing(20, 0), judged=False))
    guard = blocks.guard()
    assert (guard.off, guard.stay_off, guard.explore) == (None, None, True)
    assert guard.notes[0].startswith("Guard RequestsRefused would switch it off: Engines answered 20 of 20")


def test_guards_without_figures_are_named(blocks: Blocks) -> None:
    blocks.feed(ON)
    assert blocks.last.silent == ("Overloaded", "PoolSaturated", "DraftCollapsed", "PodDecayed")
    told = {**CALM, "first_trials": 1, "life_trials": 1}
    blocks.feed(ON, pods=loaded(told, CALM))
    assert not blocks.last.silent
    blocks.feed(ON, learned_draft=False)
    assert "DraftCollapsed" not in blocks.last.silent


def test_routes_that_are_gone_are_forgotten(blocks: Blocks) -> None:
    blocks.feed(replace(ON, speculative=refusing(20, 0)), replace(ON, name="code"))
    blocks.feed(replace(ON, name="code"))
    assert set(blocks.last.guards) == {"code"}
    blocks.feed(ON)
    assert blocks.guard() == Guard()


# --- calibration


def test_an_slo_that_either_pool_misses_pauses_calibration_for_an_hour(blocks: Blocks) -> None:
    blocks.feed(goal(timed(0.039, 0.7)))
    assert blocks.guard().calibrate
    for missed in (goal(timed(0.041)), goal(FINE, baseline=timed(0.041)), goal(FINE, baseline=timed(ttft=0.9))):
        blocks.feed(missed)
        assert not blocks.guard().calibrate
        blocks.feed(goal(timed(0.030)), blocks=59)
        assert not blocks.guard().calibrate
        blocks.feed(goal(timed(0.030)))
        assert blocks.guard().calibrate
    blocks.feed(goal(FINE, baseline=timed(0.041, requests=5)))
    assert blocks.guard().calibrate

"""Corners of decisions that the other tests pass by: routes decided together, goals, spoilt state, thin history."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from fractions import Fraction
from math import comb

import pytest

from specfleet.api.v1alpha1 import Policy, RoutePolicy
from specfleet.decision.curves import STREAMS, Curves, Timing
from specfleet.decision.curves import decode as decode_curves
from specfleet.decision.guards import foremost
from specfleet.decision.measures import PodSeen, RouteSeen, Seen, Slo
from specfleet.decision.reasons import Hold, Reason
from specfleet.decision.report import Report, policy_text
from specfleet.decision.rule import Block, Guard, Pool, RouteConfig, decode, start, step
from specfleet.decision.samples import MOST_ROUTES, Increment, Kind, Ledger, RouteTotals
from specfleet.decision.significance import excess
from specfleet.decision.slo import slo_of
from specfleet.decision.watch import Watch
from specfleet.decision.whatif import Recorded, Timed, Traffic, Trial

NINE = 1_764_406_800.0
CONFIG = RouteConfig(initial="speculative", draft_tokens=4, break_even=1.60)


# --- routes that are decided together


SATURATED = Guard(off=Reason.POOL_SATURATED, stay_off=Reason.POOL_SATURATED, why="KV 99 %.", notes=("a", "b"))
REFUSED = Guard(off=Reason.REQUESTS_REFUSED, stay_off=Reason.REQUESTS_REFUSED, explore=False, why="422.", notes=("b",))


def test_of_routes_together_the_first_of_the_table_decides_and_all_notes_are_told_once() -> None:
    both = [(None, SATURATED), (None, REFUSED)]
    assert foremost(both) == foremost(reversed(both)) == (None, replace(REFUSED, notes=("b", "a")))


def test_a_hold_of_one_route_holds_those_that_are_decided_with_it() -> None:
    held = (Hold.OVERLOADED, Guard(notes=("queue 40",)))
    assert foremost([(None, REFUSED), held]) == (Hold.OVERLOADED, Guard(notes=("queue 40", "b")))


def test_routes_without_a_guard_are_free() -> None:
    assert foremost([]) == (None, Guard())
    assert foremost([(None, Guard()), (None, SATURATED)]) == (None, SATURATED)


def test_a_route_that_a_guard_keeps_off_says_so_beside_the_reason_it_went() -> None:
    state = start(CONFIG, NINE)
    for minute in range(1, 6):
        block = Block(NINE + 60.0 * minute, 6000, 800, 20_800, 30, 1.0)
        state, verdict = step(state, CONFIG, block, block.at)
    assert verdict.switched
    kept = Guard(stay_off=Reason.POOL_SATURATED, why="KV cache at 99 %.")
    _, verdict = step(state, CONFIG, None, NINE + 360.0, guard=kept)
    assert verdict.reason is Reason.BELOW_BREAK_EVEN
    assert "Kept off: KV cache at 99 %." in verdict.message


def test_a_new_operator_that_is_told_of_overload_freezes_from_its_first_block_until_three_without_it() -> None:
    on = RouteSeen("chat", "speculative", "speculative", NINE - 7200.0, NINE - 7200.0, 100)

    def holds(watch: Watch, minute: int, waiting: int) -> object:
        pods = tuple(
            PodSeen(f"{pool}-0", f"{pool}-0", pool, running=8, waiting=waiting, kv_used=0.4, preempted=0)
            for pool in ("speculative", "baseline")
        )
        ready: dict[Pool, int] = {"speculative": 1, "baseline": 1}
        return watch.block(Seen(NINE + 60.0 * minute, 60.0, 600.0, (on,), pods=pods, ready=ready)).holds

    watch, new = Watch(), Watch()
    watch.recall_overload()
    assert (holds(watch, 1, 3), holds(new, 1, 3)) == ({"chat": Hold.OVERLOADED}, {})
    assert [holds(watch, minute, 0) for minute in (2, 3, 4)] == [
        {"chat": Hold.OVERLOADED},
        {"chat": Hold.OVERLOADED},
        {},
    ]


# --- goals, and the lines of a policy


def test_a_routes_own_goals_go_before_the_general_ones_as_a_whole() -> None:
    general = Policy.model_validate_json(json.dumps({"slo": {"timePerOutputToken": "40ms", "timeToFirstToken": "2s"}}))
    own = RoutePolicy.model_validate_json(json.dumps({"slo": {"timePerOutputToken": "80ms", "percentile": 99}}))
    assert slo_of(general, None) == Slo(0.04, 2.0, 95)
    assert slo_of(general, RoutePolicy()) == Slo(0.04, 2.0, 95)
    assert slo_of(general, own) == Slo(0.08, None, 99)
    assert slo_of(Policy(), None) is None


def test_a_report_names_the_lines_that_it_is_judged_by() -> None:
    assert policy_text(RouteConfig(min_acceptance_percent=40, break_even=1.6)) == (
        "minAcceptancePercent 40, breakEven 1.6"
    )
    assert policy_text(RouteConfig(certainty="Known", break_even=1.6)) == "breakEven Measured"
    assert policy_text(RouteConfig()) == ""


# --- floods


def test_of_a_flood_of_routes_those_that_were_known_go_on() -> None:
    ledger = Ledger(60.0, NINE)
    ledger.observe("router", NINE - 3600.0, NINE, {"zz": RouteTotals(100, 10, 40, 1)})
    flood = {f"{number:06}": RouteTotals(0, 0, 0, 0) for number in range(MOST_ROUTES + 5)}
    ledger.observe("router", NINE - 3600.0, NINE + 60.0, {**flood, "zz": RouteTotals(300, 30, 120, 3)})
    increments, problems = ledger.take(NINE + 60.0)
    assert increments["zz"] == Increment(200, 20, 80, 2, seconds=60.0)
    assert len(increments) == MOST_ROUTES
    assert [problem.kind for problem in problems] == [Kind.FLOOD]


def test_a_flood_at_first_sight_is_bounded_too() -> None:
    ledger = Ledger(60.0, NINE)
    ledger.observe("router", NINE - 3600.0, NINE, {f"{n:06}": RouteTotals(0, 0, 0, 0) for n in range(MOST_ROUTES + 1)})
    increments, problems = ledger.take(NINE)
    assert (len(increments), [problem.kind for problem in problems]) == (MOST_ROUTES, [Kind.FLOOD])


# --- routers that go and come


def test_a_process_that_has_overtaken_its_predecessor_is_counted_from_the_next_read_on() -> None:
    # Every counter is higher, but 80 more accepted of 10 more drafted are no growth of one process.
    ledger = Ledger(60.0, NINE)
    ledger.observe("router", NINE - 3600.0, NINE, {"chat": RouteTotals(1000, 100, 500, 5)})
    ledger.observe("router", NINE + 40.0, NINE + 60.0, {"chat": RouteTotals(1200, 180, 510, 6)})
    ledger.observe("router", NINE + 40.0, NINE + 120.0, {"chat": RouteTotals(1300, 200, 600, 7)})
    increments, problems = ledger.take(NINE + 120.0)
    assert increments["chat"] == Increment(100, 20, 90, 1, seconds=60.0)
    assert [problem.kind for problem in problems] == [Kind.ACCEPTED_OVER_DRAFTED]


def test_more_accepted_in_all_than_drafted_is_dropped() -> None:
    ledger = Ledger(60.0, NINE)
    ledger.observe("router", NINE - 3600.0, NINE, {"chat": RouteTotals(1000, 600, 500, 5)})
    [problem] = ledger.take(NINE).problems
    assert (problem.kind, problem.route) == (Kind.ACCEPTED_OVER_DRAFTED, "chat")
    assert problem.message == "600 tokens accepted of 500 drafted and 1000 decoded"


def test_a_router_that_was_not_read_for_an_hour_is_forgotten_and_counts_from_its_next_reading_on() -> None:
    ledger = Ledger(60.0, NINE)
    ledger.forget("never seen")
    ledger.observe("gone", NINE - 3600.0, NINE, {"chat": RouteTotals(1000, 100, 500, 5)})
    assert ledger.take(NINE + 3600.0).problems != []  # nothing is recent
    for seconds in (3601.0, 7300.0):
        assert ledger.take(NINE + seconds).increments == {}
    ledger.observe("gone", NINE - 3600.0, NINE + 7300.0, {"chat": RouteTotals(1300, 200, 900, 9)})
    assert ledger.take(NINE + 7300.0).increments == {"chat": Increment()}


# --- state that somebody wrote by hand, with a checksum that is right


def written() -> str:
    state = start(CONFIG, NINE)
    for minute in range(1, 4):
        block = Block(NINE + 60.0 * minute, 6000, 800, 20_800, 30, 1.0)
        state, _ = step(state, CONFIG, block, block.at)
    return state.encode()


@pytest.mark.parametrize(
    ("what", "by"),
    [
        (",100,", ",101,"),
        (",100,", ",-1,"),
        ("800,5200,30,", "800,0,30,"),
        ("800,5200,30,30", "800,5200,30,0"),
        ("800,5200,30,30", "800,5200,30,-30"),
        ("800,5200,30,30", "800,5200,30,nan"),
        ("800,5200,30,30", "800,5200,30,inf"),
        (",|", ",x|"),
    ],
)
def test_numbers_that_no_state_holds_start_anew(what: str, by: str) -> None:
    body = written().rpartition(";")[0]
    spoilt = body.replace(what, by, 1)
    assert spoilt != body
    text = f"{spoilt};{zlib.crc32(spoilt.encode()):08x}"
    assert decode(text, CONFIG, NINE + 300.0, pool="baseline") == start(CONFIG, NINE + 300.0, "baseline")


def test_a_block_that_had_not_closed_goes_on_after_a_restart() -> None:
    state = start(CONFIG, NINE)
    state, _ = step(state, CONFIG, Block(NINE + 60.0, 800, 400, 1600, 2, 1.0), NINE + 60.0)
    restored = decode(state.encode(), CONFIG, NINE + 61.0)
    assert restored == state
    _, verdict = step(restored, CONFIG, Block(NINE + 120.0, 400, 200, 800, 1, 1.0), NINE + 120.0)
    assert verdict.tokens_per_step == 2.0


def test_step_times_of_which_none_makes_a_point_yet_leave_nothing_in_status() -> None:
    curves = Curves().with_block("baseline", NINE, 60.0, 4.0, {STREAMS: Timing(2e7, 1000.0, 10)})
    assert decode_curves(curves.encode()).baseline.kinds == {}


# --- reports and significance


def test_a_report_that_has_just_begun_has_no_share() -> None:
    assert Report(since=NINE, policy="breakEven 1.6", would_be="baseline").off_percent(NINE) == 0


def test_a_tail_of_terms_too_small_to_matter_is_cut() -> None:
    ways = sum(comb(200, one) * comb(200, 160 - one) for one in range(120, 161))
    assert excess(120, 200, 40, 200) == pytest.approx(float(Fraction(ways, comb(400, 160))), rel=1e-12)


# --- a history with holes


def told(*rows: tuple[int, int, Block | None]) -> Trial:
    """A trial of minutes, each with requests meant for speculation and for baseline, and what was counted."""
    trial = Trial("chat", CONFIG, NINE)
    for number, (spec, base, block) in enumerate(rows, start=1):
        at = NINE + 60.0 * number
        own = None if block is None else replace(block, at=at)
        trial.feed(Recorded(at, 60.0, own, _traffic(spec), _traffic(base)))
    return trial


def _traffic(requests: int) -> Traffic:
    return Traffic(requests, Timed(2_000_000 * requests, 200 * requests))


GOOD = Block(NINE, 6000, 3000, 12_000, 30, 1.0)


def test_minutes_without_requests_and_without_figures_say_nothing() -> None:
    outcome = told((0, 0, None), (0, 0, None)).outcome()
    assert (outcome.requests, outcome.done_off_percent, outcome.tokens_per_step) == (0, None, None)
    assert (outcome.off_percent, outcome.time_per_token, outcome.moves) == (0, None, ())
    assert outcome.began == "speculative"


def test_traffic_of_two_readings_adds_up_and_time_without_any_is_told() -> None:
    both = Traffic(2, Timed(10, 20), Timed(30, 40)) + Traffic(1, Timed(1, 2), Timed(3, 4))
    assert both == Traffic(3, Timed(11, 22), Timed(33, 44))
    trial = told((30, 0, GOOD))
    trial.unread(600.0)
    outcome = trial.outcome()
    assert (outcome.seconds, outcome.unread_seconds) == (60.0, 600.0)


def test_two_requests_are_no_majority() -> None:
    assert told((30, 0, GOOD), (0, 2, None), (30, 0, GOOD)).outcome().done_moves == ()
    assert [pool for _, pool in told((30, 0, GOOD), (0, 3, None), (30, 0, GOOD)).outcome().done_moves] == [
        "baseline",
        "speculative",
    ]


def test_hours_without_acceptance_figures_have_times_and_no_break_even() -> None:
    times = told(*([(30, 30, None)] * 10)).outcome().time_per_token
    assert times is not None
    assert (times.always_on, times.always_off, times.break_even) == (10.0, 10.0, None)


def test_a_policy_without_exploration_lets_nothing_through_while_off() -> None:
    trial = Trial("chat", replace(CONFIG, exploration_max_percent=0), NINE)
    for minute in range(1, 121):
        x = 1.1 if minute <= 20 else 3.0
        accepted = round(6000 * (1.0 - 1.0 / x))
        block = Block(NINE + 60.0 * minute, 6000, accepted, 4 * (6000 - accepted), 30, 1.0)
        trial.feed(Recorded(block.at, 60.0, block, _traffic(30), Traffic()))
    outcome = trial.outcome()
    assert [move.pool for move in outcome.moves] == ["baseline"]
    assert outcome.last is not None
    assert (outcome.last.pool, outcome.last.speculative_percent) == ("baseline", 0)

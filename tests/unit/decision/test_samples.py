"""The data rules, case by case: what becomes of a router's counters."""

from __future__ import annotations

from typing import Any

import pytest

from specfleet.decision.reasons import Hold
from specfleet.decision.samples import Increment, Kind, Ledger, RouteTotals

BEGIN = 1_764_400_000.0
OLD = BEGIN - 86_400.0


def totals(requests: int) -> RouteTotals:
    """Counters after so many requests of 200 decode tokens, 80 accepted of 400 drafted."""
    return RouteTotals(tokens=200 * requests, accepted=80 * requests, drafted=400 * requests, requests=requests)


def observe(ledger: Ledger, seconds: float, requests: int, source: str = "a", started: float = OLD) -> None:
    ledger.observe(source, started, BEGIN + seconds, {"chat": totals(requests)})


def taken(ledger: Ledger, seconds: float) -> tuple[int, set[Kind]]:
    """Requests counted for chat, and the kinds of problem."""
    increments, problems = ledger.take(BEGIN + seconds)
    return increments.get("chat", Increment()).requests, {problem.kind for problem in problems}


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(60.0, BEGIN)


def test_the_first_sample_of_an_old_router_is_only_a_base(ledger: Ledger) -> None:
    observe(ledger, 0, 1000)
    assert taken(ledger, 0) == (0, set())
    observe(ledger, 60, 1030)
    increments, _ = ledger.take(BEGIN + 60)
    assert increments == {"chat": Increment(30 * 200, 30 * 80, 30 * 400, 30, seconds=60.0)}


def test_a_router_younger_than_a_block_is_counted_from_its_start(ledger: Ledger) -> None:
    observe(ledger, 100, 12, started=BEGIN + 50)
    assert taken(ledger, 100) == (12, set())


def test_a_young_router_that_an_earlier_operator_may_have_counted_is_only_a_base(ledger: Ledger) -> None:
    observe(ledger, 10, 12, started=BEGIN - 30)
    assert taken(ledger, 10) == (0, set())


def test_several_reads_and_routers_add_up_and_the_time_is_of_one_of_them(ledger: Ledger) -> None:
    for source in ("a", "b"):
        for read in range(5):
            observe(ledger, 15 * read, 10 * read, source)
    increments, problems = ledger.take(BEGIN + 60)
    assert (increments["chat"].requests, increments["chat"].seconds, problems) == (80, 60.0, [])


def test_what_was_taken_is_not_taken_again(ledger: Ledger) -> None:
    observe(ledger, 0, 0)
    observe(ledger, 60, 7)
    assert taken(ledger, 60)[0] == 7
    assert ledger.take(BEGIN + 61).increments == {"chat": Increment()}


def test_a_missed_read_is_covered_by_the_next(ledger: Ledger) -> None:
    observe(ledger, 0, 0)
    observe(ledger, 120, 9)
    assert taken(ledger, 120) == (9, set())


def test_more_than_two_minutes_without_a_read_are_dropped(ledger: Ledger) -> None:
    observe(ledger, 0, 0)
    observe(ledger, 121, 9)
    assert taken(ledger, 121) == (0, {Kind.GAP})
    observe(ledger, 181, 14)
    assert taken(ledger, 181) == (5, set())


def test_with_longer_blocks_a_gap_is_two_of_them() -> None:
    ledger = Ledger(300.0, BEGIN)
    observe(ledger, 0, 0)
    observe(ledger, 600, 9)
    assert taken(ledger, 600) == (9, set())


def test_a_restart_loses_only_what_was_counted_since_the_last_read(ledger: Ledger) -> None:
    observe(ledger, 0, 100)
    observe(ledger, 60, 4, started=BEGIN + 40)
    assert taken(ledger, 60) == (4, {Kind.RESTART})


def test_a_restarted_router_that_shows_no_route_yet_counts_its_first_requests(ledger: Ledger) -> None:
    observe(ledger, 0, 100)
    ledger.observe("a", BEGIN + 40, BEGIN + 60, {})
    observe(ledger, 120, 6, started=BEGIN + 40)
    assert taken(ledger, 120) == (6, {Kind.RESTART})


def test_a_clock_that_jumps_forward_is_no_restart(ledger: Ledger) -> None:
    observe(ledger, 0, 100)
    observe(ledger, 60 + 30, 103, started=OLD + 30)
    assert taken(ledger, 90) == (3, set())


def test_a_clock_that_is_set_back_starts_the_counting_again(ledger: Ledger) -> None:
    observe(ledger, 0, 100)
    observe(ledger, -3600, 105, started=OLD - 3660)
    observe(ledger, -3540, 109, started=OLD - 3660)
    assert taken(ledger, -3540) == (4, {Kind.CLOCK_JUMP})


def test_a_counter_that_falls_without_a_restart_is_never_counted_up_again(ledger: Ledger) -> None:
    observe(ledger, 0, 100)
    observe(ledger, 30, 40)
    observe(ledger, 60, 110)
    assert taken(ledger, 60) == (10, {Kind.COUNTER_FELL})


def test_a_counter_that_stays_fallen_is_a_new_base_after_two_minutes(ledger: Ledger) -> None:
    observe(ledger, 0, 100)
    for minute in range(1, 5):
        observe(ledger, 60 * minute, 40 + minute)
    assert taken(ledger, 240) == (1, {Kind.COUNTER_FELL, Kind.GAP})


def test_duplicates_and_late_samples_count_nothing(ledger: Ledger) -> None:
    observe(ledger, 0, 0)
    observe(ledger, 60, 7)
    observe(ledger, 60, 7)
    observe(ledger, 30, 3)
    assert taken(ledger, 60) == (7, {Kind.OUT_OF_ORDER})


def test_a_route_that_first_shows_up_counts_from_zero(ledger: Ledger) -> None:
    ledger.observe("a", OLD, BEGIN, {})
    observe(ledger, 60, 5)
    assert taken(ledger, 60) == (5, set())


def test_a_router_that_is_gone_leaves_what_it_counted(ledger: Ledger) -> None:
    observe(ledger, 0, 0)
    observe(ledger, 60, 7)
    ledger.forget("a")
    assert taken(ledger, 60) == (7, set())


def test_a_router_that_comes_back_is_not_counted_twice(ledger: Ledger) -> None:
    observe(ledger, 20, 5, started=BEGIN + 5)
    ledger.forget("a")
    observe(ledger, 40, 8, started=BEGIN + 5)
    observe(ledger, 50, 9, started=BEGIN + 5)
    assert taken(ledger, 50) == (6, set())


def test_nothing_is_given_out_while_no_sample_is_recent(ledger: Ledger) -> None:
    observe(ledger, 0, 0)
    observe(ledger, 60, 7)
    assert ledger.take(BEGIN + 151).increments == {}
    assert Kind.STALE in taken(ledger, 152)[1]
    observe(ledger, 170, 8)
    assert taken(ledger, 170)[0] == 8


@pytest.mark.parametrize("value", [-1, float("nan"), float("inf"), 1.5, True, None, "7"], ids=repr)
def test_what_is_no_count_is_dropped_and_told(ledger: Ledger, value: Any) -> None:
    observe(ledger, 0, 0)
    ledger.observe("a", OLD, BEGIN + 60, {"chat": RouteTotals(value, 0, 0, 0), "code": totals(0)})
    increments, problems = ledger.take(BEGIN + 60)
    assert increments["chat"] == Increment()
    assert [(p.kind, p.route) for p in problems] == [(Kind.NOT_A_COUNT, "chat")]
    observe(ledger, 90, 6)
    assert taken(ledger, 90) == (6, set())


def test_more_accepted_than_drafted_is_dropped_and_the_next_read_covers_it(ledger: Ledger) -> None:
    ledger.observe("a", OLD, BEGIN, {"chat": RouteTotals(1000, 100, 500, 5)})
    ledger.observe("a", OLD, BEGIN + 30, {"chat": RouteTotals(1200, 180, 510, 6)})
    ledger.observe("a", OLD, BEGIN + 60, {"chat": RouteTotals(1200, 180, 900, 6)})
    increments, problems = ledger.take(BEGIN + 60)
    assert increments["chat"] == Increment(200, 80, 400, 1, seconds=60.0)
    assert [p.kind for p in problems] == [Kind.ACCEPTED_OVER_DRAFTED]


def test_a_sample_without_a_time_is_dropped(ledger: Ledger) -> None:
    ledger.observe("a", OLD, float("nan"), {"chat": totals(5)})
    assert taken(ledger, 0) == (0, {Kind.NOT_A_COUNT})


def test_evidence_is_held_while_fewer_than_half_of_the_routers_report(ledger: Ledger) -> None:
    routers = ["a", "b", "c"]
    assert ledger.hold(BEGIN, routers) is Hold.METRICS_UNAVAILABLE
    observe(ledger, 0, 0, "a")
    assert ledger.hold(BEGIN, routers) is Hold.INSUFFICIENT_COVERAGE
    observe(ledger, 60, 0, "b")
    assert ledger.hold(BEGIN + 60, routers) is None
    assert ledger.hold(BEGIN + 120, routers) is Hold.INSUFFICIENT_COVERAGE
    assert ledger.hold(BEGIN + 300, routers) is Hold.METRICS_UNAVAILABLE
    assert ledger.hold(BEGIN + 300, []) is Hold.METRICS_UNAVAILABLE


def test_a_counter_that_leaps_is_left_out_until_it_comes_back(ledger: Ledger) -> None:
    observe(ledger, 0, 1000)
    ledger.observe("a", OLD, BEGIN + 30, {"chat": RouteTotals(2**63, 80_000, 2**63, 2**63)})
    assert taken(ledger, 30) == (0, {Kind.LEAP})
    observe(ledger, 60, 1030)
    assert taken(ledger, 60) == (30, set())


def test_a_counter_that_stays_where_it_leapt_is_a_new_base_after_two_minutes(ledger: Ledger) -> None:
    observe(ledger, 0, 1000)
    for seconds in (30, 60, 90, 120, 150):
        observe(ledger, seconds, 2**60 + seconds)
    assert taken(ledger, 150) == (0, {Kind.LEAP, Kind.GAP})
    observe(ledger, 180, 2**60 + 180)
    assert taken(ledger, 180) == (30, set())


def test_a_young_router_that_has_served_more_than_it_can_is_only_a_base(ledger: Ledger) -> None:
    observe(ledger, 100, 2**60, started=BEGIN + 50)
    assert taken(ledger, 100) == (0, {Kind.LEAP})

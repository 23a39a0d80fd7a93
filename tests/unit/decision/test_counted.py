"""Differences of counters: what cannot be told is not counted, and nothing is counted twice."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.decision.counted import MOST_KEYS, Counted

GAP = 120.0


def counted(*samples: tuple[float, object], source: str = "a") -> tuple[dict[str, int], int]:
    ledger: Counted[str] = Counted(GAP)
    for at, value in samples:
        ledger.observe(source, at, {"n": value})
    return ledger.take(), ledger.left_out


def test_increments_add_up_over_samples_and_sources_and_are_taken_once() -> None:
    ledger: Counted[str] = Counted(GAP)
    for at, value in ((0.0, 5), (60.0, 8), (120.0, 20)):
        ledger.observe("a", at, {"n": value})
        ledger.observe("b", at, {"n": 2 * value})
    assert ledger.take() == {"n": 45}
    assert ledger.take() == {}


@pytest.mark.parametrize(
    "samples",
    [
        [(0.0, 100)],  # a process seen first
        [(0.0, 100), (60.0, 7)],  # restarted
        [(60.0, 100), (60.0, 110)],  # twice
        [(60.0, 100), (50.0, 110)],  # late
        [(500.0, 100), (0.0, 110)],  # the clock was set back
        [(0.0, 100), (121.0, 110)],  # a gap
        [(0.0, 100), (math.nan, 110)],
    ],
)
def test_what_cannot_be_told_is_left_out(samples: list[tuple[float, object]]) -> None:
    assert counted(*samples)[0] == {}


@pytest.mark.parametrize("rubbish", [-1, 2**63, math.nan, math.inf, 3.0, True, None, "7"])
def test_what_is_no_count_is_left_out_and_the_next_sample_covers_it(rubbish: object) -> None:
    assert counted((0.0, 10), (30.0, rubbish), (60.0, 14)) == ({"n": 4}, 1)


def test_a_counter_that_comes_later_counts_from_zero_and_one_that_is_missing_keeps_its_base() -> None:
    ledger: Counted[str] = Counted(GAP)
    ledger.observe("a", 0.0, {"old": 10})
    ledger.observe("a", 30.0, {"new": 3})
    ledger.observe("a", 60.0, {"old": 11, "new": 3})
    assert ledger.take() == {"new": 3, "old": 1}


def test_a_process_that_is_gone_keeps_what_it_counted_and_begins_anew() -> None:
    ledger: Counted[str] = Counted(GAP)
    ledger.observe("a", 0.0, {"n": 1})
    ledger.observe("a", 30.0, {"n": 5})
    ledger.kept({"b"})
    ledger.observe("a", 60.0, {"n": 9})
    assert ledger.take() == {"n": 4}


def test_a_flood_of_labels_takes_bounded_room_and_is_counted() -> None:
    ledger: Counted[int] = Counted(GAP)
    for at in range(3):
        ledger.observe("a", float(at), {key + at * 1000: 1 for key in range(MOST_KEYS)})
    assert len(ledger._sources["a"].counts) == MOST_KEYS
    assert ledger.left_out == 1000 + 2000


@given(st.lists(st.tuples(st.floats(), st.one_of(st.integers(), st.floats(), st.none())), max_size=12))
def test_no_sample_raises_and_no_increment_is_negative(samples: list[tuple[float, object]]) -> None:
    assert all(value > 0 for value in counted(*samples)[0].values())

"""What is read off buckets holds for the times that went into them, and the filter has the same ladder."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.percentiles import BOUNDS_US, NONE_TIMED, Bounds, TimeBuckets, bucket_of
from specfleet.routing.counters import PROMPT_CLASSES
from tests.unit.routing.lua import Filter

FILTER = Filter()
TIMES = st.lists(st.integers(0, 90_000_000) | st.sampled_from(BOUNDS_US), max_size=40)


def counted(times: list[int]) -> TimeBuckets:
    """Buckets as the router fills them."""
    counts = list(NONE_TIMED.counts)
    for time in times:
        bucket = bucket_of(FILTER.upper_bound("bounds_us", time))
        assert bucket is not None
        counts[bucket] += 1
    return TimeBuckets(tuple(counts))


def test_the_ladder_goes_from_a_millisecond_to_a_minute_in_steps_of_a_quarter() -> None:
    assert (BOUNDS_US[0], BOUNDS_US[-1]) == (1000, 63_095_734)
    assert all(1.25 < b / a < 1.27 for a, b in itertools.pairwise(BOUNDS_US))


def test_the_filter_has_the_same_bounds() -> None:
    assert tuple(FILTER.bounds("bounds_us")) == BOUNDS_US
    assert (*FILTER.bounds("prompt_tokens"), None) == PROMPT_CLASSES


@given(TIMES, st.sampled_from([1, 50, 90, 95, 99, 99.9, 100]))
def test_a_percentile_lies_within_its_bucket(times: list[int], percent: float) -> None:
    found = counted(times).percentile(percent)
    if not times:
        assert found is None
        return
    rank = max(1, math.ceil(len(times) * percent / 100.0))
    exact = sorted(times)[rank - 1]
    assert found is not None
    assert found.low < exact <= found.high or exact == found.low == 0


@given(TIMES, st.integers(1, 100_000_000) | st.sampled_from(BOUNDS_US))
def test_the_number_over_a_limit_lies_between(times: list[int], limit: int) -> None:
    found = counted(times).over(limit)
    exact = sum(time > limit for time in times)
    assert found.least <= exact <= found.most
    if limit in BOUNDS_US:
        assert found.least == exact == found.most


@given(TIMES, TIMES)
def test_counts_add_up_and_what_came_later_is_the_difference(first: list[int], second: list[int]) -> None:
    both = counted(first).plus(counted(second))
    assert both == counted([*first, *second])
    assert both.since(counted(first)) == counted(second)
    assert both.total == len(first) + len(second)


def test_beyond_the_last_bound_nothing_is_promised() -> None:
    assert counted([70_000_000]).percentile(50) == Bounds(63_095_734, math.inf)


def test_a_count_that_fell_is_no_earlier_sample() -> None:
    with pytest.raises(ValueError, match="count fell"):
        counted([5]).since(counted([5, 5]))


@pytest.mark.parametrize("percent", [0, -1, 101, math.nan])
def test_a_percentage_that_is_none_is_refused(percent: float) -> None:
    with pytest.raises(ValueError, match="expected more than 0"):
        NONE_TIMED.percentile(percent)


@pytest.mark.parametrize("label", ["", "x", "1001", "-1", "1000.0"])
def test_a_label_of_another_ladder_is_no_bucket(label: str) -> None:
    assert bucket_of(label) is None

"""Fisher's test against its definition."""

from __future__ import annotations

from fractions import Fraction
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.decision.significance import excess


def by_definition(hits: int, of: int, other_hits: int, other_of: int) -> float:
    everything = comb(of + other_of, hits + other_hits)
    ways = sum(
        comb(of, one) * comb(other_of, hits + other_hits - one) for one in range(hits, min(of, hits + other_hits) + 1)
    )
    return float(Fraction(ways, everything))


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 60), st.integers(0, 60))
def test_the_tail_is_that_of_the_definition(a: int, b: int, c: int, d: int) -> None:
    hits, of, other_hits, other_of = a, a + b, c, c + d
    found = excess(hits, of, other_hits, other_of)
    if hits * other_of <= other_hits * of:
        assert found == 1.0
    else:
        assert found == pytest.approx(by_definition(hits, of, other_hits, other_of), rel=1e-9)


@pytest.mark.parametrize("counts", [(5, 4, 0, 9), (-1, 4, 0, 9), (1, 4, 5, 4), (1, 1, -1, 4)])
def test_counts_that_cannot_be_say_nothing(counts: tuple[int, int, int, int]) -> None:
    assert excess(*counts) == 1.0


def test_millions_of_requests_take_no_time_and_no_underflow_for_an_excess() -> None:
    assert excess(10, 10**6, 10**5, 10**6) == 1.0
    assert excess(10**5, 10**6, 10**4, 10**6) < 1e-12
    assert excess(500_100, 10**6, 500_000, 10**6) == pytest.approx(0.444, abs=0.01)

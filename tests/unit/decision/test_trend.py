"""The few points of a route's last hours: bounded, evenly apart, and nothing that anybody wrote breaks them."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.decision.trend import MAX_LENGTH, MAX_POINTS, Point, appended, points

SIX = 1_795_932_000.0  # 2026-11-29 06:00 UTC


def test_a_day_of_looks_leaves_six_hours_of_points() -> None:
    text = None
    for minute in range(24 * 60 + 1):
        text = appended(text, SIX + 60 * minute, 2.5, 1.8, "speculative")
    assert text is not None
    found = points(text)
    assert len(found) == MAX_POINTS == 46
    assert {b.minute - a.minute for a, b in pairwise(found)} == {8}
    assert (found[0].at, found[-1].at) == (SIX + 18 * 3600, SIX + 24 * 3600)
    assert text.startswith("2026-11-30T00:00Z 0:2.50/1.80s 8:2.50/1.80s ")


def test_what_is_documented_is_what_is_written() -> None:
    text = appended(None, SIX, 2.41, 1.8, "speculative")
    text = appended(text, SIX + 479, 9.9, 1.8, "speculative")
    text = appended(text, SIX + 600, 2.384, 1.8, "speculative")
    text = appended(text, SIX + 1200, None, 1.8, "baseline")
    assert text == "2026-11-29T06:00Z 0:2.41/1.80s 10:2.38/1.80s 20:-/1.80b"
    assert points(text)[2] == Point(int(SIX // 60) + 20, None, 1.8, "baseline")


def test_it_begins_with_the_first_figure() -> None:
    assert appended(None, SIX, None, 1.8, "speculative") is None


def test_a_clock_set_back_drops_what_has_not_come_yet() -> None:
    text = appended(appended(None, SIX, 2.0, None, "speculative"), SIX + 7200, 2.1, None, "speculative")
    again = appended(text, SIX + 3600, 2.2, None, "speculative")
    assert [one.tokens_per_step for one in points(again)] == [2.0, 2.2]


@pytest.mark.parametrize(
    "text", ["", "nonsense", "2026-11-29T06:00Z 0", "2026-11-29T06:00Z 0:1/2x", "2026-11-29T06:00Z a:1/2s", "9" * 900]
)
def test_a_text_of_anybody_else_is_no_trend(text: str) -> None:
    assert points(text) == []
    assert appended(text, SIX, 2.0, None, "baseline") == "2026-11-29T06:00Z 0:2.00/-b"


@given(
    st.lists(
        st.tuples(
            st.floats(0, 4e9),
            st.none() | st.floats(1, 1e300),
            st.none() | st.floats(1, 1e300),
            st.sampled_from(("speculative", "baseline")),
        ),
        max_size=60,
    )
)
def test_however_it_is_called_it_stays_short_and_is_read_again(looks: list[tuple[float, float, float, str]]) -> None:
    text = None
    for at, steps, line, pool in sorted(looks, key=lambda look: look[0]):
        text = appended(text, at, steps, line, pool)  # type: ignore[arg-type]
        assert text is None or (len(text) <= MAX_LENGTH and points(text))

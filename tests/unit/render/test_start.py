"""How long pods may take to start, by the size of their models."""

from __future__ import annotations

import pytest

from specfleet.render.start import LONGEST_SECONDS, start_seconds

USUAL = 1800


@pytest.mark.parametrize(
    ("gibibytes", "seconds"),
    [(0, 0), (16, 0), (100, 0), (131, 2100), (380, 4500), (640, 7200), (5000, LONGEST_SECONDS)],
)
def test_a_large_model_gets_more_and_none_gets_more_than_the_longest(gibibytes: int, seconds: int) -> None:
    assert start_seconds(gibibytes * 1024, USUAL) == seconds


def test_an_unknown_size_gets_the_usual_time() -> None:
    assert start_seconds(None, USUAL) == 0

"""The figures shown with a decision, against values worked out by hand."""

from __future__ import annotations

import pytest

from specfleet.decision.evidence import Closed, estimate


def test_no_blocks_no_figure() -> None:
    assert estimate(()) is None


def test_one_block_has_a_figure_and_no_interval() -> None:
    assert estimate((Closed(50, 100, 3, 3.0),)) == (0.5, None)


def test_the_interval_follows_the_spread_between_blocks() -> None:
    # r = .4; residuals 10, 0, -10, neighbours' products 0: SE = sqrt(3/2 x 200) / 300, t(2) = 4.303.
    blocks = (Closed(50, 100, 3, 3.0), Closed(40, 100, 3, 3.0), Closed(30, 100, 3, 3.0))
    figure = estimate(blocks)
    assert figure is not None
    assert figure[0] == pytest.approx(0.4)
    assert figure[1] == pytest.approx(4.303 * 300**0.5 / 300)


def test_blocks_that_resemble_their_neighbours_widen_it() -> None:
    # Residuals 10, 10, -10, -10: neighbours' products sum to 100, so the squares count 400 + 200.
    blocks = tuple(Closed(a, 100, 3, 3.0) for a in (50, 50, 30, 30))
    figure = estimate(blocks)
    assert figure is not None
    assert figure[1] == pytest.approx(3.182 * (4 / 3 * 600) ** 0.5 / 400)

"""A clock that is set moves a route's times with it."""

from __future__ import annotations

import pytest

from specfleet.decision.clock import shifted
from specfleet.decision.rule import Block, RouteConfig, RouteState, decode, start, step

NOW = 1_800_000_000.0
CONFIG = RouteConfig(initial="speculative", min_acceptance_percent=30)


def switched_off() -> tuple[RouteState, float]:
    """A route that was switched off on evidence, and when."""
    state, at = start(CONFIG, NOW), NOW
    for _ in range(60):
        at += 60.0
        state, verdict = step(state, CONFIG, Block(at, 1200, 10, 2000, 40, share=1.0), at)
        if verdict.switched:
            return state, at
    raise AssertionError("never switched")


def ends(state: RouteState, now: float) -> float | None:
    """When the dwell ends."""
    return step(state, CONFIG, None, now)[1].next_look_at


@pytest.mark.parametrize("seconds", [-3600.0, 3600.0])
def test_what_is_left_of_a_dwell_is_left_after_the_clock_was_set(seconds: float) -> None:
    state, at = switched_off()
    assert ends(state, at + 1.0) == at + CONFIG.dwell_seconds
    moved = shifted(state, seconds)
    assert ends(moved, at + 1.0 + seconds) == at + CONFIG.dwell_seconds + seconds
    assert shifted(moved, -seconds) == state


def test_back_and_forth_again_ends_no_dwell() -> None:
    state, at = switched_off()
    state, _ = step(shifted(state, -3600.0), CONFIG, None, at + 1.0 - 3600.0)
    state, _ = step(shifted(state, 3600.0), CONFIG, None, at + 2.0)
    assert ends(state, at + 2.0) == at + CONFIG.dwell_seconds


def test_times_that_are_not_set_stay_so_and_none_is_before_the_epoch() -> None:
    moved = shifted(start(CONFIG, 100.0), -3600.0)
    assert (moved.since, moved.served_since, moved.block_at, moved.ramp_since) == (0.0, 0.0, 0.0, None)
    assert decode(moved.encode(), CONFIG, 0.0) == moved

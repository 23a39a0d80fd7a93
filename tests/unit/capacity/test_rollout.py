"""Which pool may take a new pod template, and what the other one has to do meanwhile."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from specfleet.capacity.rollout import Order, PoolRollout, order

SPECULATIVE = PoolRollout("eagle", changed=True)
BASELINE = PoolRollout("baseline", changed=True)
DOWN: dict[str, Any] = {"ready": 0, "serving": False, "rolled_out": False}


def ordered(
    speculative: dict[str, Any] | None = None, baseline: dict[str, Any] | None = None, *, moving: bool = False
) -> Order:
    return order(replace(SPECULATIVE, **speculative or {}), replace(BASELINE, **baseline or {}), moving=moving)


def test_speculation_goes_first_and_baseline_after_it() -> None:
    found = ordered()
    assert found.go == {"eagle"}
    assert found.waits == {"baseline": "eagle goes first"}


def test_baseline_waits_until_all_pods_of_the_first_pool_are_there_and_routers_reach_them() -> None:
    rolling = {"changed": False, "rolled_out": False, "underway": True}
    assert ordered(rolling).waits == {"baseline": "eagle has not all its pods"}
    short = {"changed": False, "rolled_out": False}
    assert ordered(short).waits == {"baseline": "eagle has not all its pods"}
    unreached = {"changed": False, "reached": False}
    assert ordered(unreached).waits == {"baseline": "routers have yet to reach eagle"}
    assert ordered({"changed": False}) == Order(frozenset({"baseline"}), {})


def test_a_pool_that_does_not_come_up_stops_there() -> None:
    hung = ordered({"changed": False, **DOWN})
    assert hung == Order(frozenset(), {"baseline": "eagle does not serve"})


def test_nothing_begins_during_a_move_of_weights() -> None:
    found = ordered(moving=True)
    assert found.go == frozenset()
    assert found.waits["eagle"] == "routers are taking over what was decided last"
    assert ordered({"changed": False}, moving=True).go == frozenset()


def test_a_pool_without_a_ready_pod_never_waits_since_it_has_nothing_to_lose() -> None:
    assert ordered(DOWN, moving=True).go == {"eagle"}
    assert ordered(DOWN, {"serving": True}).waits == {"baseline": "eagle does not serve"}
    assert ordered(DOWN, DOWN).go == {"eagle", "baseline"}
    assert ordered(None, DOWN) == Order(frozenset({"baseline"}), {"eagle": "baseline does not serve"})


def test_a_pool_in_the_middle_of_a_roll_goes_on_before_the_other_begins() -> None:
    found = ordered(None, {"underway": True, "rolled_out": False})
    assert found == Order(frozenset({"baseline"}), {"eagle": "baseline goes first"})


def test_a_change_of_the_draft_alone_needs_baseline_whole() -> None:
    assert ordered(None, {"changed": False}) == Order(frozenset({"eagle"}), {})
    assert ordered(None, {"changed": False, **DOWN}).waits == {"eagle": "baseline does not serve"}
    short = {"changed": False, "rolled_out": False}
    assert ordered(None, short).waits == {"eagle": "baseline has not all its pods"}


@pytest.mark.parametrize("undecided", [True, False], ids=["compared", "refused"])
def test_while_the_draft_is_kept_out_both_pools_stay_alike(undecided: bool) -> None:
    found = ordered({"kept": "the draft does not fit", "undecided": undecided})
    assert found.go == frozenset()
    assert found.waits == {
        "eagle": "the draft does not fit",
        "baseline": "eagle stays as it is: the draft does not fit",
    }


def test_baseline_alone_goes_once_the_draft_is_refused() -> None:
    absent: dict[str, Any] = {"exists": False, "changed": False, "kept": "the draft does not fit", **DOWN}
    assert ordered(absent | {"undecided": True}).go == frozenset()
    assert ordered(absent) == Order(frozenset({"baseline"}), {})
    # A baseline that is down waits for no verdict.
    assert ordered(absent | {"undecided": True}, DOWN).go == {"baseline"}


def test_a_pool_of_a_new_draft_is_made_before_baseline_is_touched() -> None:
    absent = {"exists": False, "changed": False, **DOWN}
    assert ordered(absent).waits == {"baseline": "eagle is made first"}


def test_nothing_to_change_is_nothing_to_order() -> None:
    assert ordered({"changed": False}, {"changed": False}) == Order()

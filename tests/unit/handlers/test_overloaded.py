"""Condition Overloaded from what the guards make of a block."""

from __future__ import annotations

import pytest

from specfleet.api.conditions import ConditionType
from specfleet.api.status import Condition, SpecDeploymentStatus
from specfleet.decision.watch import Outcome
from specfleet.handlers.conditions import Said, Troubles, assess
from tests.unit.handlers.test_decide import state

FROZEN = "Both pools are short of room: a move would only push the load about."


def said(guards: Outcome | None, before: SpecDeploymentStatus | None = None) -> Said | None:
    found = assess(
        state(),
        [],
        Said("True", "RoutersRead", "ok"),
        Troubles(),
        [],
        before or SpecDeploymentStatus(),
        1,
        pending=False,
        rejected=False,
        no_room=[],
        guards=guards,
    )
    return found.get(ConditionType.OVERLOADED)


@pytest.mark.parametrize(
    ("guards", "status", "reason", "words"),
    [
        (Outcome(judged=True), "False", "LoadBearable", "At least one pool has room."),
        (
            Outcome(judged=True, overloaded=FROZEN),
            "True",
            "PoolsOverloaded",
            f"{FROZEN} Nothing moves until it is over.",
        ),
        (Outcome(judged=True, silent=("PodDecayed",)), "False", "LoadBearable", "Guards without figures: PodDecayed."),
        (
            Outcome(judged=True, silent=("Overloaded", "PoolSaturated")),
            "Unknown",
            "LoadUnknown",
            "overload would not be seen, and guards that rest on these pages say nothing.",
        ),
        (Outcome(), "Unknown", "LoadUnknown", "overload would not be seen"),
    ],
)
def test_what_is_said(guards: Outcome, status: str, reason: str, words: str) -> None:
    found = said(guards)
    assert found is not None
    assert (found.status, found.reason) == (status, reason)
    assert words in found.message


def test_of_one_pool_alone_nothing_is_said() -> None:
    assert said(None) is None


def test_a_new_operator_lets_stand_what_the_last_one_said() -> None:
    old = Condition(
        type="Overloaded",
        status="True",
        reason="PoolsOverloaded",
        message=FROZEN,
        last_transition_time="2026-11-29T09:00:00Z",
        observed_generation=1,
    )
    assert said(Outcome(), SpecDeploymentStatus(conditions=[old])) == Said("True", "PoolsOverloaded", FROZEN)

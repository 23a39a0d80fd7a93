"""What makes a status worth writing, and the conditions' conventions."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from specfleet.api.conditions import ConditionType, Reason
from specfleet.api.findings import FindingReason, error
from specfleet.api.status import SpecDeploymentStatus
from specfleet.handlers.conditions import Said, Troubles, assess, conditions, first_sight, invalid
from specfleet.handlers.fleet import Fleet
from specfleet.handlers.status import counts_only, figures, noticeable
from tests.unit.handlers.test_fleet import observed

STATUS: dict[str, Any] = {
    "observedGeneration": 3,
    "conditions": [
        {"type": "Ready", "status": "True", "reason": "Available", "message": "m", "lastTransitionTime": "t"}
    ],
    "summary": {"mode": "1/2 speculative", "acceptance": "61%"},
    "pools": [{"name": "ngram", "desired": 2, "ready": 2}],
    "routes": [
        {
            "name": "chat",
            "pool": "ngram",
            "phase": "Settled",
            "reason": "Pays",
            "message": "1.9 tokens a step",
            "speculativePercent": {"intended": 100, "served": 100},
            "acceptancePercent": 61,
            "tokensPerStep": "1.90",
            "breakEven": {"tokensPerStep": "1.41", "state": "Known", "measured": "1.42"},
            "evidence": {"line": "Acceptance", "score": "1.0", "threshold": "9.2", "requests": 40},
            "state": "abc",
        }
    ],
}
METRICS = Said("True", Reason.ROUTERS_READ, "read")


def changed(*path: Any, value: Any) -> dict[str, Any]:
    status = copy.deepcopy(STATUS)
    node: Any = status
    for part in path[:-1]:
        node = node[part]
    if value is None:
        del node[path[-1]]
    else:
        node[path[-1]] = value
    return status


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("routes", 0, "message"), "2.0 tokens a step"),
        (("routes", 0, "acceptancePercent"), 62),
        (("routes", 0, "tokensPerStep"), "2.00"),
        (("routes", 0, "state"), "xyz"),
        (("routes", 0, "trend"), "2026-11-29T06:00Z 0:2.41/1.80s"),
        (("routes", 0, "evidence", "score"), "3.0"),
        (("routes", 0, "breakEven", "tokensPerStep"), "1.45"),
        (("routes", 0, "breakEven", "measured"), "1.44"),
        (("routes", 0, "breakEven", "state"), "Extrapolated"),
        (("curves",), "other"),
        (("summary", "acceptance"), "62%"),
        (("conditions", 0, "lastTransitionTime"), "later"),
    ],
)
def test_figures_that_move_with_every_block_are_no_news(path: tuple[Any, ...], value: Any) -> None:
    assert noticeable(changed(*path, value=value)) == noticeable(STATUS)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("routes", 0, "pool"), "baseline"),
        (("routes", 0, "phase"), "Moving"),
        (("routes", 0, "reason"), "BelowAcceptance"),
        (("routes", 0, "speculativePercent", "intended"), 10),
        (("routes", 0, "speculativePercent", "served"), None),
        (("routes", 0, "acceptancePercent"), None),
        (("routes", 0, "breakEven", "state"), "Prior"),
        (("conditions", 0, "status"), "False"),
        (("conditions", 0, "message"), "other"),
        (("observedGeneration",), 4),
        (("pools", 0, "ready"), 1),
    ],
)
def test_what_a_person_would_notice_is_news(path: tuple[Any, ...], value: Any) -> None:
    assert noticeable(changed(*path, value=value)) != noticeable(STATUS)


def test_numbers_of_ready_pods_can_wait_for_more_of_them() -> None:
    assert counts_only(STATUS, changed("pools", 0, "ready", value=1))
    assert not counts_only(STATUS, changed("conditions", 0, "status", value="False"))


def test_figures_change_only_when_something_was_counted() -> None:
    assert figures(changed("routes", 0, "message", value="since 09:13")) == figures(STATUS)
    assert figures(changed("routes", 0, "evidence", "score", value="2.0")) != figures(STATUS)
    # With the load a measured line moves while nothing is counted; it is told with the rest.
    assert figures(changed("routes", 0, "breakEven", "measured", value="1.50")) == figures(STATUS)
    assert figures(changed("curves", value="other")) == figures(STATUS)


def assessed(
    before: SpecDeploymentStatus | None = None,
    *,
    state: Fleet | None = None,
    pending: bool = False,
    troubles: Troubles | None = None,
) -> Any:
    return assess(
        state or observed(),
        [],
        METRICS,
        troubles or Troubles(),
        [],
        before or SpecDeploymentStatus(),
        3,
        pending=pending,
        rejected=False,
        no_room=[],
    )


def test_at_first_sight_it_is_in_progress_and_not_current() -> None:
    said = first_sight()
    assert said[ConditionType.READY].status == "Unknown"
    assert said[ConditionType.RECONCILING].status == "True"


def test_a_spec_that_is_still_to_be_applied_is_in_progress_though_all_pods_are_ready() -> None:
    assert assessed(pending=True)[ConditionType.RECONCILING].status == "True"
    assert assessed(pending=False)[ConditionType.RECONCILING].status == "False"


def test_a_generation_that_was_reached_stays_reached_and_another_does_not() -> None:
    reached = SpecDeploymentStatus(conditions=conditions(assessed(), SpecDeploymentStatus(), 3, "t0"))
    assert assessed(reached, pending=True)[ConditionType.RECONCILING].status == "False"
    older = SpecDeploymentStatus(conditions=conditions(assessed(), SpecDeploymentStatus(), 2, "t0"))
    assert assessed(older, pending=True)[ConditionType.RECONCILING].status == "True"


def test_a_taken_name_is_for_a_person() -> None:
    said = assessed(troubles=Troubles(taken=("Service assistant",)))
    assert (said[ConditionType.STALLED].status, said[ConditionType.STALLED].reason) == ("True", Reason.NAME_TAKEN)
    assert said[ConditionType.READY].status == "False"
    assert said[ConditionType.RECONCILING].status == "False"
    assert "Service assistant" in said[ConditionType.STALLED].message


def test_a_rollout_without_progress_is_for_a_person_and_not_in_progress() -> None:
    conditions = [{"type": "Progressing", "status": "False", "reason": "ProgressDeadlineExceeded"}]
    overdue = observed("assistant-ngram", workload={"readyReplicas": 0, "conditions": conditions})
    said = assessed(state=overdue)
    assert said[ConditionType.STALLED].status == "True"
    assert said[ConditionType.STALLED].reason == Reason.PROGRESS_DEADLINE_EXCEEDED
    assert said[ConditionType.RECONCILING].status == "False"
    assert said[ConditionType.READY].reason == Reason.PROGRESS_DEADLINE_EXCEEDED


def test_a_transition_time_moves_only_with_the_status() -> None:
    before = SpecDeploymentStatus(
        conditions=conditions({ConditionType.READY: METRICS}, SpecDeploymentStatus(), 1, "t0")
    )
    same = conditions({ConditionType.READY: Said("True", "Other", "words")}, before, 2, "t1")
    other = conditions({ConditionType.READY: Said("False", "Other", "words")}, before, 2, "t1")
    assert (same[0].last_transition_time, same[0].observed_generation) == ("t0", 2)
    assert other[0].last_transition_time == "t1"


def test_a_spec_that_cannot_be_rendered_says_so_and_what_goes_on() -> None:
    findings = [error(FindingReason.OWNED_FLAG, "spec.engine.args[port]", "write nothing here")] * 2
    said = invalid(findings, SpecDeploymentStatus(), observed())
    assert said[ConditionType.VALID].reason == FindingReason.OWNED_FLAG
    assert said[ConditionType.STALLED].status == "True"
    assert said[ConditionType.RECONCILING].status == "False"
    assert said[ConditionType.READY].message == (
        "spec.engine.args[port]: write nothing here (1 more; specfleet validate lists them) "
        "What runs from the last valid spec goes on."
    )

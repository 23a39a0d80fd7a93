"""Checks of what is installed, on what an API server of a test cannot be made to say."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from specfleet.api.conditions import REASONS, ConditionType, Reason
from specfleet.doctor.actions import ACTIONS, action_for
from specfleet.doctor.checks import definition, fleets, operators
from specfleet.doctor.facts import Listing, Log, Query, Unread
from specfleet.doctor.findings import Finding, info
from specfleet.doctor.rights import OPERATOR, PATCH_PODS
from specfleet.doctor.settings_text import given
from tests.unit.chart.helm import rendered, rules_of
from tests.unit.doctor.asking import OPERATORS, operator, say


def test_the_rights_asked_about_are_those_that_the_chart_grants() -> None:
    granted = {
        (resource.partition("/")[0], resource.partition("/")[2], verb)
        for kind, _, resources, verbs in rules_of(rendered({"rbac": {"aggregate": False}}))
        for resource in resources
        for verb in verbs
        if kind == "ClusterRole"
    }
    asked = {(group, resource, verb) for group, resource, verbs in (*OPERATOR, PATCH_PODS) for verb in verbs}

    assert asked == granted


def test_a_difference_between_schemas_is_named_and_descriptions_are_none() -> None:
    one = {
        "properties": {
            "a": {"type": "string", "description": "x", "enum": ["p", "q"]},
            "description": {"type": "string"},
        }
    }
    same = {
        "properties": {
            "a": {"type": "string", "description": "y", "enum": ["p", "q"]},
            "description": {"type": "string"},
        }
    }
    other = {"properties": {"a": {"type": "string", "enum": ["p"]}, "description": {"type": "string"}}}
    less = {"properties": {"a": {"type": "string", "enum": ["p", "q"]}}}

    assert definition.difference(one, same) is None
    assert definition.difference(one, other) == ".a.enum"
    assert definition.difference(one, less) == ".description"


def test_settings_as_the_operator_would_read_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECFLEET_WATCH_NAMESPACES", '["mine"]')

    good = given("watchNamespaces: [serving]\nprometheus: {timeoutSeconds: 3}\n")

    assert (good.problem, good.watch_namespaces) == (None, ("serving",))
    assert given("").watch_namespaces == ()
    assert given("watchNamespaces: [serving]\nrouterImag: x\n").watch_namespaces == ("serving",)
    assert "allow_hostpath is no setting" in str(given("allowHostpath: true\n").problem)
    assert "no YAML" in str(given("a: [").problem)
    assert "expected names and values" in str(given("- a\n").problem)


def test_every_reason_of_a_problem_has_an_action_that_can_be_filled_in() -> None:
    for reason in ACTIONS:
        assert "{" not in action_for(reason, "serving", "assistant")
    assert action_for("Unheard", "serving", "assistant") == "kubectl describe specdeployment assistant -n serving"
    waiting = {Reason.NOT_STALLED, Reason.PODS_NOT_READY, Reason.ROUTER_NOT_READY}
    told = {
        ConditionType.READY,
        ConditionType.STALLED,
        ConditionType.METRICS_AVAILABLE,
        ConditionType.CAPACITY_SUFFICIENT,
    }
    problems = {reason for reason, entry in REASONS.items() if "False" in entry.status and told & set(entry.conditions)}
    problems |= {reason for reason, entry in REASONS.items() if ConditionType.OVERLOADED in entry.conditions}
    problems.discard(Reason.LOAD_BEARABLE)
    assert problems - waiting - set(ACTIONS) == set(), "write in doctor/actions.py what to do about it"


PODS = Listing("/api/v1/namespaces/specfleet-system/pods", "a=b")


def crashing(message: str | None) -> dict[str, Any]:
    """A pod of it that ends again and again."""
    ended: dict[str, Any] = {"exitCode": 2, "finishedAt": "2026-11-29T11:59:00Z"}
    if message is not None:
        ended["message"] = message
    state = {"waiting": {"reason": "CrashLoopBackOff"}}
    container = {"name": "operator", "restartCount": 3, "state": state, "lastState": {"terminated": ended}}
    return {
        "metadata": {"name": "specfleet-a", "namespace": "specfleet-system", "uid": "u"},
        "status": {"containerStatuses": [container]},
    }


LOG = Log("specfleet-system", "specfleet-a", "operator", previous=True)


@pytest.mark.parametrize(
    ("message", "log", "words", "action"),
    [
        ("specfleet run: no such file", None, "and says: specfleet run: no such file", "mend what it says"),
        (
            None,
            "starting\nspecfleet run: token=abcdefgh1234 refused\n",
            "says: specfleet run: token=*** refused",
            "mend",
        ),
        (None, Unread("pods/log is forbidden"), "exit code 2 (restarted 3 times)", "--previous"),
    ],
)
def test_an_operator_that_ends_speaks_for_itself(message: str | None, log: Any, words: str, action: str) -> None:
    answers: dict[Query, Any] = {OPERATORS: (operator(),), PODS: (crashing(message),), LOG: log}

    (said,) = say(operators.check, answers)

    assert isinstance(said, Finding)
    assert words in said.found
    assert action in said.action


def test_an_operator_that_was_killed_for_want_of_memory() -> None:
    pod = crashing(None)
    pod["status"]["containerStatuses"][0]["lastState"]["terminated"] = {"exitCode": 137, "reason": "OOMKilled"}

    (said,) = say(operators.check, {OPERATORS: (operator(),), PODS: (pod,)})

    assert isinstance(said, Finding)
    assert "resources.limits.memory" in said.action


def test_an_operator_whose_pods_are_refused() -> None:
    failure = {"type": "ReplicaFailure", "status": "True", "message": 'pods "x" is forbidden: violates PodSecurity'}

    (said,) = say(operators.check, {OPERATORS: (operator(conditions=[failure]),)})

    assert isinstance(said, Finding)
    assert "violates PodSecurity" in said.found


def routes_since(since: str, reason: str = "BreakEvenUnknown") -> dict[str, Any]:
    return {"routes": [{"name": "chat", "reason": reason, "since": since}, {"name": "code", "reason": "Pays"}]}


def test_a_line_that_is_not_measured_for_hours_is_told() -> None:
    now = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
    (said,) = fleets._unmeasured(now, "SpecDeployment a/b", routes_since("2026-11-30T10:00:00Z"))
    assert said == info(
        "SpecDeployment a/b",
        "the break-even line of route chat has not been measured for more than an hour",
        "both pools serve streams, at least 200 of each: until then nothing switches these routes",
        "let both pools serve: policy.initial: Baseline with exploration.maxPercent above 0, or another route "
        "with speculation: Never, or breakEven.calibration; or write breakEven {source: Fixed} or minAcceptancePercent",
    )
    assert list(fleets._unmeasured(now, "", routes_since("2026-11-30T11:30:00Z"))) == []
    assert list(fleets._unmeasured(now, "", routes_since("2026-11-30T10:00:00Z", "Gathering"))) == []
    assert list(fleets._unmeasured(now, "", {})) == []

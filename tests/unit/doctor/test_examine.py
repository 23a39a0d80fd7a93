"""Checks ask for what they need, and one that cannot be made breaks no other."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime

from specfleet.doctor.examine import examine
from specfleet.doctor.facts import Facts, Get, Query, Scope, Unread
from specfleet.doctor.findings import Item, Report, Seen, error, info
from specfleet.doctor.report import json_text, text

SCOPE = Scope(None, "default", "specfleet-system", "0.1.0")
NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)


def needs_two(facts: Facts) -> Iterator[Item]:
    first = facts.get("/first") or {}
    second = facts.get(f"/{first['then']}") or {}
    yield Seen(f"found {second['value']}")


def says_then_stops(facts: Facts) -> Iterator[Item]:
    yield error("Node a", "it is broken", "one that is whole", "mend it")
    facts.get("/secret")
    yield Seen("never said")


def examined(answers: dict[Query, object]) -> Report:
    report = examine(Facts(SCOPE, NOW, answers), [("two", needs_two), ("stops", says_then_stops)])
    assert report is not None
    return report


def test_what_is_missing_is_named_until_nothing_is() -> None:
    answers: dict[Query, object] = {Get("/secret"): {}}
    first = Facts(SCOPE, NOW, answers)
    assert examine(first, [("two", needs_two)]) is None
    assert first.missing == {Get("/first")}

    answers[Get("/first")] = {"then": "second"}
    second = Facts(SCOPE, NOW, answers)
    assert examine(second, [("two", needs_two)]) is None
    assert second.missing == {Get("/second")}

    answers[Get("/second")] = {"value": 7}
    report = examine(Facts(SCOPE, NOW, answers), [("two", needs_two)])
    assert report is not None
    assert [one.text for one in report.seen] == ["found 7"]


def test_what_cannot_be_read_is_not_checked_and_the_rest_is_said() -> None:
    report = examined({Get("/first"): Unread("first is forbidden"), Get("/secret"): Unread("secret is forbidden")})

    assert [(one.check, one.why) for one in report.not_checked] == [
        ("two", "first is forbidden"),
        ("stops", "secret is forbidden"),
    ]
    assert [(one.check, one.found) for one in report.findings] == [("stops", "it is broken")]
    assert report.errors == 1


def test_an_object_of_an_odd_form_costs_its_own_check_only() -> None:
    report = examined({Get("/first"): {}, Get("/secret"): {}})

    assert [(one.check, one.why) for one in report.not_checked] == [
        ("two", "what was read has a form that is not expected (KeyError: 'then')")
    ]
    assert [one.text for one in report.seen] == ["never said"]


def test_the_report_for_people() -> None:
    cause = Unread("nodes is forbidden")
    report = examined({Get("/first"): cause, Get("/secret"): cause})

    assert list(text(report, "https://cluster")) == [
        "error  stops: Node a: it is broken",
        "    expected: one that is whole",
        "    to do: mend it",
        "not checked  two, stops: nodes is forbidden",
        "1 error in 2 checks of https://cluster; 2 of them could not be made in full.",
    ]


def test_the_report_for_programs() -> None:
    report = examined({Get("/first"): Unread("no"), Get("/secret"): {}})

    parsed = json.loads(json_text(report, "https://cluster"))

    assert parsed["counts"] == {"error": 1, "warning": 0, "info": 0, "notChecked": 1}
    assert parsed["findings"][0] == {
        "severity": "error",
        "about": "Node a",
        "found": "it is broken",
        "expected": "one that is whole",
        "action": "mend it",
        "check": "stops",
    }


def test_the_worst_is_told_first() -> None:
    def mild(facts: Facts) -> Iterator[Item]:
        yield info("", "b", "c", "d")

    report = examine(Facts(SCOPE, NOW, {Get("/secret"): {}}), [("mild", mild), ("stops", says_then_stops)])

    assert report is not None
    assert [one.severity for one in report.findings] == ["error", "info"]
    assert list(text(report, "here"))[-1] == "1 error, 1 info in 2 checks of here."

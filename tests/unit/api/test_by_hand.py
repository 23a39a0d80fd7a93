"""What is said by hand: read with care, ends by itself, and gives way to the spec's Never."""

from __future__ import annotations

import json

import pytest

from specfleet.api.by_hand import ALL, ANNOTATION_BY_HAND, ByHand, Words, applied, obeyed, words_of
from specfleet.api.v1alpha1 import SpecDeploymentSpec, Speculation
from tests.unit.handlers.samples import owner, spec_of

NOW = 1_800_000_000.0  # 2027-01-15T08:00:00Z
ROUTES = ("code", "chat")


def entry(**changes: object) -> dict[str, object]:
    return {"speculation": "off", "until": "2027-01-15T09:00:00Z", "reason": "pages", **changes}


def read(document: object) -> Words:
    text = document if isinstance(document, str) else json.dumps(document)
    return words_of({ANNOTATION_BY_HAND: text}, ROUTES)


def spec(**speculation: str) -> SpecDeploymentSpec:
    body = owner()
    for route in body["spec"]["routing"]["routes"]:
        route["speculation"] = speculation.get(route["name"], "Auto")
    found = spec_of(body)
    assert isinstance(found, SpecDeploymentSpec)
    return found


def speculation_of(spec: SpecDeploymentSpec) -> dict[str, Speculation]:
    return {route.name: route.speculation for route in spec.routing.routes}


def test_what_is_written_is_what_is_read() -> None:
    words = Words({"chat": ByHand("off", NOW + 60, "pages"), ALL: ByHand("on", NOW + 90, "bench")})
    text = words.text()
    assert text is not None
    assert read(text) == words
    assert Words({}).text() is None


def test_a_word_ends_by_itself() -> None:
    words = read({"chat": entry()})
    assert words.in_force(ROUTES, NOW)["chat"].word == "off"
    assert words.in_force(ROUTES, NOW + 3599) != {}
    assert words.in_force(ROUTES, NOW + 3600) == {}


def test_a_routes_own_word_goes_before_the_one_for_all_and_leaves_it_when_it_ends() -> None:
    words = read({ALL: entry(until="2027-01-15T10:00:00Z"), "code": entry(speculation="on")})
    assert {name: one.word for name, one in words.in_force(ROUTES, NOW).items()} == {"code": "on", "chat": "off"}
    assert {name: one.word for name, one in words.in_force(ROUTES, NOW + 3600).items()} == {
        "code": "off",
        "chat": "off",
    }


def test_off_wins_over_always_and_never_wins_over_on() -> None:
    always, never = spec(chat="Always"), spec(chat="Never")
    off, on = {"chat": ByHand("off", NOW, "x")}, {"chat": ByHand("on", NOW, "x")}
    assert speculation_of(applied(always, off)) == {"code": "Auto", "chat": "Never"}
    assert speculation_of(applied(spec(), on)) == {"code": "Auto", "chat": "Always"}
    assert speculation_of(applied(never, on)) == {"code": "Auto", "chat": "Never"}
    assert obeyed(never.routing, on) == {}
    assert applied(always, {}) is always


@pytest.mark.parametrize(
    ("document", "problem"),
    [
        ("{", "expected JSON, found '{'"),
        ("[" * 100_000, "expected at most 16384 bytes"),
        ("[" * 9_000, "expected JSON"),
        ([], "expected an object of route names, found '[]'"),
        ({"chta": entry()}, "there is no route 'chta'"),
        ({"chat": "off"}, "route chat: expected an object with speculation, until and reason"),
        ({"chat": entry(by="me")}, "route chat: expected an object with speculation, until and reason"),
        ({"chat": entry(speculation="Never")}, "route chat: expected speculation off or on, found '\"Never\"'"),
        ({"chat": entry(speculation=None)}, "route chat: expected speculation off or on, found 'null'"),
        ({"chat": entry(reason=" ")}, "route chat: expected a reason of 1 to 200 characters"),
        ({"chat": entry(reason="x" * 201)}, "route chat: expected a reason of 1 to 200 characters"),
        ({"chat": entry(until=None)}, "route chat: expected until, a time such as 2026-11-29T12:00:00Z"),
        ({"chat": entry(until=1_800_000_000)}, "route chat: expected until, a time such as"),
        ({"chat": entry(until="2027-01-15")}, "route chat: expected until as 2026-11-29T12:00:00Z, in UTC, found"),
        ({"chat": entry(until="2027-01-15T09:00:00+01:00")}, "route chat: expected until as"),
    ],
)
def test_what_cannot_be_read_is_left_out_and_named(document: object, problem: str) -> None:
    words = read(document)
    assert words.of == {}
    (found,) = words.problems
    assert problem in found


def test_one_wrong_entry_takes_nothing_from_the_others() -> None:
    words = read({"code": entry(speculation="maybe"), "chat": entry()})
    assert list(words.of) == ["chat"]
    assert len(words.problems) == 1


@pytest.mark.parametrize("annotations", [None, {}, {ANNOTATION_BY_HAND: " "}, {"note": "mine"}])
def test_without_the_annotation_nothing_is_said(annotations: dict[str, str] | None) -> None:
    assert words_of(annotations, ROUTES) == Words({})

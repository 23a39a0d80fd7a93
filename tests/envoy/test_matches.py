"""Every shape a match can have, in one table: it loads, and what matches is what was written."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest

from specfleet.routing.plan import Match, RoutePlan
from tests.envoy.harness import Bed, bed, make_plan

ROUTES = (
    RoutePlan("both", (Match(header=("X-Team", "a b"), model="m:1/x"),), 100),
    RoutePlan("schema", (Match(response_format=("json_schema",)),), 0),
    RoutePlan("notools", (Match(header=("x-team", "plain"), tools=False),), 50),
    RoutePlan("all", (Match(header=("x-team", "t"), response_format=("text", "json_object"), tools=True),), 0),
    RoutePlan("either", (Match(model="alias-1"), Match(model="alias-2"), Match(header=("x-e", "%REQ(x)%"))), 0),
    RoutePlan("rest", (), 100),
)


@pytest.fixture(scope="module")
def matches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """A bed with these routes."""
    with bed(tmp_path_factory.mktemp("matches"), make_plan(routes=ROUTES)) as made:
        yield made


@pytest.mark.parametrize(
    ("headers", "body", "route"),
    [
        ({"x-team": "a b"}, {"model": "m:1/x"}, "both"),
        ({"x-team": "a b"}, {"model": "stub"}, "rest"),
        ({}, {"model": "m:1/x"}, "rest"),
        ({}, {"response_format": {"type": "json_schema"}}, "schema"),
        ({}, {"response_format": {"type": "json_object"}}, "rest"),
        ({"x-team": "plain"}, {}, "notools"),
        ({"x-team": "plain"}, {"tools": []}, "notools"),
        ({"x-team": "plain"}, {"tools": [1]}, "rest"),
        ({"x-team": "t"}, {"response_format": {"type": "json_object"}, "tools": [1]}, "all"),
        ({"x-team": "t"}, {"response_format": {"type": "text"}, "tools": [1]}, "all"),
        ({"x-team": "t"}, {"response_format": {"type": "text"}}, "rest"),
        ({"x-team": "t"}, {"tools": [1]}, "rest"),
        ({}, {"model": "alias-1"}, "either"),
        ({}, {"model": "alias-2"}, "either"),
        ({"x-e": "%REQ(x)%"}, {}, "either"),
        ({}, {}, "rest"),
        ({}, {"min_p": 0.5, "model": "alias-1"}, "either"),
    ],
)
async def test_a_request_takes_the_route_whose_keys_all_hold(
    matches: Bed, client: aiohttp.ClientSession, headers: dict[str, str], body: dict[str, Any], route: str
) -> None:
    mark = json.dumps([headers, body], separators=(",", ":"))
    sent = {**headers, "x-request-id": mark}
    async with client.post(
        matches.router.url + "/v1/completions", json={"prompt": "x", **body}, headers=sent
    ) as answer:
        assert answer.status == 200, await answer.text()
    line = matches.router.line(mark)
    assert line["route"] == route
    assert line["countedAs"] == ("ineligible" if "min_p" in body else route)

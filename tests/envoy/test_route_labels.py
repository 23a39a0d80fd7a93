"""Engines that count by a label are told each request's route, by the router alone."""

from __future__ import annotations

import json
from collections.abc import Iterator

import aiohttp
import pytest

from specfleet.routing.plan import Match, RoutePlan
from tests.envoy.harness import Bed, bed, make_plan

ROUTES = (
    RoutePlan("code", (Match(header=("x-route", "code")), Match(model="coder")), 100),
    RoutePlan("half", (Match(header=("x-route", "half")),), 50),
    RoutePlan("chat", (), 0),
)


@pytest.fixture(scope="module")
def labelled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """A bed whose plan has a label, as for SGLang."""
    with bed(
        tmp_path_factory.mktemp("labels"), make_plan(routes=ROUTES, route_label="route", refused_fields=())
    ) as one:
        yield one


@pytest.mark.parametrize(
    ("headers", "body", "route"),
    [
        ({"x-route": "code"}, {}, "code"),
        ({}, {"model": "coder"}, "code"),
        ({"x-route": "half"}, {}, "half"),
        ({}, {}, "chat"),
        ({"x-custom-labels": '{"route":"code"}'}, {}, "chat"),
        ({"X-Custom-Labels": "no JSON", "x-route": "code"}, {}, "code"),
    ],
)
async def test_the_engine_gets_the_route_and_nothing_that_a_client_claims(
    labelled: Bed, client: aiohttp.ClientSession, headers: dict[str, str], body: dict[str, str], route: str
) -> None:
    mark = json.dumps([headers, body])
    sent = {**headers, "x-stub-request-log": mark}
    async with client.post(
        labelled.router.url + "/v1/completions", json={"prompt": "x", **body}, headers=sent
    ) as answer:
        assert answer.status == 200, await answer.text()

    kept = [one["headers"] for engine in labelled.engines for one in engine.seen()["seen"]]
    (arrived,) = [{name.lower(): text for name, text in one.items()} for one in kept if mark in one.values()]
    assert json.loads(arrived["x-custom-labels"]) == {"route": route}


async def test_without_a_label_no_such_header_arrives(shared: Bed, client: aiohttp.ClientSession) -> None:
    sent = {"x-custom-labels": '{"route":"code"}', "x-stub-request-log": "unlabelled"}
    async with client.post(shared.router.url + "/v1/completions", json={"prompt": "x"}, headers=sent) as answer:
        assert answer.status == 200, await answer.text()

    kept = [one["headers"] for engine in shared.engines for one in engine.seen()["seen"]]
    (arrived,) = [one for one in kept if "unlabelled" in one.values()]
    assert "x-custom-labels" not in {name.lower() for name in arrived}

"""Through the router a client gets what the engine says: text, finish reason and event types, at temperature 0."""

from __future__ import annotations

import asyncio
import random

import aiohttp
import pytest

from tests.node import prompts
from tests.node.conftest import Fleet
from tests.node.install import pods_of
from tests.node.kube import Kube, ready_pods
from tests.node.traffic import Answer, Ask, ask

pytestmark = pytest.mark.node

# Whole, stream with usage asked for, whole, stream without: the four shapes of `prompts`.
SHAPES = range(4)


def engine_address(kube: Kube, fleet: Fleet, pool: str) -> str:
    pods = [
        pod
        for pod in ready_pods(pods_of(kube, fleet.name, fleet.namespace))
        if pod["metadata"]["labels"].get("specfleet.dev/pool") == pool
    ]
    return f"http://{pods[0]['status']['podIP']}:8000"


def answers(endpoints: list[str], request: Ask) -> list[Answer]:
    async def one_by_one() -> list[Answer]:
        async with aiohttp.ClientSession() as session:
            return [await ask(session, endpoint, request) for endpoint in endpoints]

    return asyncio.run(one_by_one())


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("kind", [prompts.code, prompts.json_records, prompts.chat])
def test_routed_and_direct_answers_are_equal(kube: Kube, real_fleet: Fleet, kind: prompts.Maker, shape: int) -> None:
    request = kind(random.Random(7), shape)
    pool = real_fleet.route(request.route)["pool"]

    routed, direct = answers([real_fleet.endpoint, engine_address(kube, real_fleet, pool)], request)

    assert routed.failure is None
    assert direct.failure is None
    assert routed.content is not None
    assert direct.content is not None
    assert routed.content.text == direct.content.text
    assert routed.content.finish_reason == direct.content.finish_reason
    assert routed.content.event_types == direct.content.event_types
    assert routed.content.completion_tokens == direct.content.completion_tokens

"""Which requests explore: by a hash of the affinity key where there is one, else drawn for each request."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest

from specfleet.routing.plan import RoutePlan, RouterPlan
from tests.envoy.harness import Bed, bed, eventually_async, make_plan

HEADER = "x-session-id"
KEYS = [f"session-{number}" for number in range(800)]
OPTIONS = ("--step-ms", "0", "--prefill-ms", "0")


def plan(version: str, percent: int, header: str | None = HEADER) -> RouterPlan:
    """One route with this share of speculation."""
    return replace(make_plan(version, routes=(RoutePlan("chat", (), percent),)), affinity_header=header)


async def pods(client: aiohttp.ClientSession, made: Bed, headers: list[dict[str, str]]) -> list[str]:
    """The pod that served each request, by what the engine calls itself."""
    limit = asyncio.Semaphore(32)

    async def one(given: dict[str, str]) -> str:
        body = {"messages": [], "max_tokens": 1}
        async with (
            limit,
            client.post(
                made.router.url + "/v1/chat/completions", json=body, headers={**given, "x-stub-host": ""}
            ) as answer,
        ):
            assert answer.status == 200, await answer.text()
            return answer.headers["x-stub-host"]

    return await asyncio.gather(*(one(given) for given in headers))


def speculating(made: Bed, served: list[str]) -> list[bool]:
    """Whether each was served by the speculative pool."""
    hosts = {engine.host for engine in made.speculative}
    return [host in hosts for host in served]


def near(count: int, of: int, share: float) -> bool:
    """Whether a count is within four standard deviations of its share."""
    return abs(count - of * share) <= 4 * math.sqrt(of * share * (1 - share))


async def test_a_key_keeps_its_pool_and_pod_and_a_rising_share_only_adds(
    tmp_path: Path, client: aiohttp.ClientSession
) -> None:
    sessions = [{HEADER: key} for key in KEYS]
    with bed(tmp_path, plan("v0", 0), baseline=2, speculative=2, options=OPTIONS) as made:
        before: set[str] = set()
        homes: dict[str, str] = {}
        for percent in (3, 10, 50, 100):
            made.router.serve(plan(f"v{percent}", percent))
            served = await pods(client, made, sessions)
            assert await pods(client, made, sessions) == served
            now = {key for key, speculates in zip(KEYS, speculating(made, served), strict=True) if speculates}
            assert before <= now
            assert near(len(now), len(KEYS), percent / 100)
            for key, host in zip(KEYS, served, strict=True):
                if key in before:
                    assert homes[key] == host
            homes |= dict(zip(KEYS, served, strict=True))
            before = now
        assert min(Counter(served).values()) > len(KEYS) / 3, "one pod has nearly all the keys"


@pytest.mark.parametrize("header", [HEADER, None])
async def test_without_the_key_each_request_is_drawn_whatever_else_the_client_sends(
    tmp_path: Path, client: aiohttp.ClientSession, header: str | None
) -> None:
    with bed(tmp_path, plan("v1", 20, header), options=OPTIONS) as made:
        forms: list[dict[str, str]] = [{}, {"x-request-id": "0"}]
        if header is None:
            forms.append({HEADER: "one"})
        for given in forms:
            served = await pods(client, made, [given] * 600)
            assert near(sum(speculating(made, served)), 600, 0.2), given


async def test_a_header_in_other_letters_is_the_same_key(tmp_path: Path, client: aiohttp.ClientSession) -> None:
    with bed(tmp_path, plan("v1", 50, "X-Session-ID"), options=OPTIONS) as made:
        for key in KEYS[:20]:
            served = await pods(client, made, [{"x-session-id": key}, {"X-SESSION-ID": key}, {"x-request-id": "a"}])
            assert served[0] == served[1]


async def test_a_key_whose_pod_dies_is_served_by_another_of_its_pool_and_then_by_the_other_pool(
    tmp_path: Path, client: aiohttp.ClientSession
) -> None:
    with bed(tmp_path, plan("v1", 50), speculative=2, options=OPTIONS) as made:
        sessions = [{HEADER: key} for key in KEYS[:300]]
        before = await pods(client, made, sessions)
        dead, alive = made.speculative
        dead.kill()
        after = await pods(client, made, sessions)
        for was, now in zip(before, after, strict=True):
            assert now == (alive.host if was == dead.host else was)
        await eventually_async("one healthy", lambda: made.router.healthy("ngram") == 1)
        alive.kill()
        last = await pods(client, made, sessions)
        assert set(last) == {made.baseline[0].host}
        assert made.router.total("failovers") > 0
        assert made.router.total("server_errors") == 0

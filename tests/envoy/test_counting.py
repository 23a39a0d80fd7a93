"""What is counted of a request, by route, pool that answered and intended pool."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from specfleet.routing.counters import RouteRow
from tests.envoy.harness import Bed, eventually_async, get

CHAT_PATH = "/v1/chat/completions"


async def ask(
    client: aiohttp.ClientSession, bed: Bed, body: dict[str, Any], path: str = CHAT_PATH, **headers: str
) -> str:
    """The answer's text."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with client.post(bed.router.url + path, json={"messages": [], **body}, headers=named) as answer:
        assert answer.status == 200, await answer.text()
        return await answer.text()


def delta(before: RouteRow, after: RouteRow) -> dict[str, int]:
    """What grew, by counter."""
    return {
        name: grown
        for name in vars(after)
        if isinstance(getattr(after, name), int) and (grown := getattr(after, name) - getattr(before, name))
    }


@pytest.mark.parametrize("path", [CHAT_PATH, "/v1/completions"])
@pytest.mark.parametrize("stream", [True, False])
async def test_tokens_and_acceptance_of_an_answer_are_those_that_the_engine_gives(
    shared: Bed, client: aiohttp.ClientSession, path: str, stream: bool
) -> None:
    engine = shared.speculative[0]
    drafted, accepted = await asyncio.to_thread(_engine_counters, engine.url)
    before = shared.router.row("code", "ngram", "ngram")
    await ask(client, shared, {"stream": stream, "max_tokens": 40}, path, x_route="code", x_stub_acceptance="0.5")
    after_drafted, after_accepted = await asyncio.to_thread(_engine_counters, engine.url)
    grown = delta(before, shared.router.row("code", "ngram", "ngram"))
    assert after_drafted > drafted
    assert grown["drafted"] == after_drafted - drafted
    assert grown["accepted"] == after_accepted - accepted
    assert grown["rounds"] == grown["drafted"] // 4
    # Every round emits one token of its own: N = rounds + A.
    assert grown["decode_tokens"] == 39 == grown["rounds"] + grown["accepted"]
    assert (grown["requests"], grown["finished"], grown["measured"], grown["completion_tokens"]) == (1, 1, 1, 40)
    timed = ("stream_decode_us", "stream_decode_tokens") if stream else ("whole_us", "whole_tokens")
    assert grown[timed[1]] == (39 if stream else 40)
    assert grown[timed[0]] > 0
    assert not {"stream_decode_us", "whole_us"} - set(timed) & set(grown)


def _engine_counters(url: str) -> tuple[int, int]:
    lines = dict(line.rsplit(" ", 1) for line in get(f"{url}/metrics")[1].decode().splitlines())
    values = {name.split("{")[0]: int(value) for name, value in lines.items()}
    return (
        values["vllm:spec_decode_num_draft_tokens_total"],
        values["vllm:spec_decode_num_accepted_tokens_total"],
    )


async def test_the_time_per_token_of_a_stream_is_that_of_the_engine(shared: Bed, client: aiohttp.ClientSession) -> None:
    before = shared.router.row("chat", "baseline", "baseline")
    await ask(
        client,
        shared,
        {"stream": True, "max_tokens": 20},
        x_stub_step_ms="20",
        x_stub_prefill_ms="300",
        x_request_id="paced",
    )
    grown = delta(before, shared.router.row("chat", "baseline", "baseline"))
    assert grown["stream_decode_tokens"] == 19
    # 19 steps of 20 ms each and never the 300 ms of prefill, whatever the machine adds.
    assert grown["stream_decode_us"] >= 19 * 20_000
    assert shared.router.line("paced")["ttftMs"] >= 300


async def test_baseline_counts_tokens_without_acceptance(shared: Bed, client: aiohttp.ClientSession) -> None:
    before = shared.router.row("chat", "baseline", "baseline")
    await ask(client, shared, {"max_tokens": 10})
    grown = delta(before, shared.router.row("chat", "baseline", "baseline"))
    assert (grown["measured"], grown["decode_tokens"], grown["completion_tokens"]) == (1, 9, 10)
    assert not {"accepted", "drafted", "rounds"} & set(grown)


async def test_an_answer_too_large_to_be_read_passes_whole_and_unmeasured(
    shared: Bed, client: aiohttp.ClientSession
) -> None:
    before = shared.router.row("chat", "baseline", "baseline")
    answer = json.loads(await ask(client, shared, {"max_tokens": 500_000}, x_stub_step_ms="0"))
    assert answer["usage"]["completion_tokens"] == 500_000
    assert len(answer["choices"][0]["message"]["content"]) > 2 << 20
    assert delta(before, shared.router.row("chat", "baseline", "baseline")) == {"requests": 1, "finished": 1}
    assert shared.router.sample().lua_errors == 0


async def test_an_answer_of_one_token_has_no_decode_step(shared: Bed, client: aiohttp.ClientSession) -> None:
    before = shared.router.row("code", "ngram", "ngram")
    await ask(client, shared, {"max_tokens": 1, "stream": True}, x_route="code")
    grown = delta(before, shared.router.row("code", "ngram", "ngram"))
    assert (grown["measured"], grown["completion_tokens"]) == (1, 1)
    assert not {"decode_tokens", "drafted", "rounds", "stream_decode_us"} & set(grown)


@pytest.mark.parametrize(
    ("body", "measured"),
    [
        ({"n": 2}, False),
        ({"n": 1}, True),
        ({"n": None}, True),
        ({"n": 2, "stream": True}, False),
        ({"prompt": ["a", "b"]}, False),
        ({"prompt": ["a"]}, True),
        ({"prompt": [1, 2, 3]}, True),
        ({"prompt": [[1], [2]]}, False),
    ],
)
async def test_requests_for_several_answers_are_counted_but_not_measured(
    shared: Bed, client: aiohttp.ClientSession, body: dict[str, Any], measured: bool
) -> None:
    before = shared.router.row("code", "ngram", "ngram")
    await ask(client, shared, {"max_tokens": 5, **body}, "/v1/completions", x_route="code")
    grown = delta(before, shared.router.row("code", "ngram", "ngram"))
    assert (grown["finished"], grown.get("measured", 0)) == (1, int(measured))


async def test_a_hundred_at_once_are_counted_exactly(shared: Bed, client: aiohttp.ClientSession) -> None:
    routes = {"code": ("ngram", "code"), "pinned": ("baseline", "pinned"), "-": ("baseline", "chat")}
    before = {route: shared.router.row(route, pool, pool) for pool, route in routes.values()}
    jobs = [
        ask(client, shared, {"stream": bool(i % 2), "max_tokens": 10 + i % 7}, x_route=list(routes)[i % 3])
        for i in range(102)
    ]
    await asyncio.gather(*jobs)
    for number, (pool, route) in enumerate(routes.values()):
        grown = delta(before[route], shared.router.row(route, pool, pool))
        mine = [i for i in range(102) if i % 3 == number]
        assert grown["measured"] == grown["finished"] == len(mine)
        assert grown["decode_tokens"] == sum(9 + i % 7 for i in mine)
        assert grown["stream_decode_tokens"] == sum(9 + i % 7 for i in mine if i % 2)
        assert grown["whole_tokens"] == sum(10 + i % 7 for i in mine if not i % 2)


async def test_large_counts_keep_every_digit(shared: Bed, client: aiohttp.ClientSession) -> None:
    before = shared.router.row("chat", "baseline", "baseline").prompt_tokens
    long = {"messages": ["x" * 900_000], "max_tokens": 1}
    await asyncio.gather(*[ask(client, shared, long) for _ in range(5)])
    expected = 5 * (1 + len(json.dumps(long["messages"])) // 4)
    assert expected > 1_000_000
    assert shared.router.row("chat", "baseline", "baseline").prompt_tokens == before + expected


async def test_requests_in_flight_are_known_by_pool_and_by_route(shared: Bed, client: aiohttp.ClientSession) -> None:
    slow = {"x_stub_prefill_ms": "1500"}
    jobs = [asyncio.create_task(ask(client, shared, {"stream": bool(i % 2)}, x_route="code", **slow)) for i in range(6)]
    jobs += [asyncio.create_task(ask(client, shared, {}, **slow)) for i in range(3)]

    def in_flight() -> tuple[Any, ...]:
        sample = shared.router.sample()
        return (sample.active, sample.route_active.get("code"), sample.route_active.get("chat"))

    await eventually_async("9 in flight", lambda: in_flight() == ({"ngram": 6, "baseline": 3}, 6, 3), 5)
    await asyncio.gather(*jobs)
    await eventually_async("0 in flight", lambda: in_flight() == ({"ngram": 0, "baseline": 0}, 0, 0), 5)


async def test_a_client_that_hangs_up_is_a_cancel_and_no_error_of_the_pool(
    shared: Bed, client: aiohttp.ClientSession
) -> None:
    before = shared.router.row("code", "ngram", "ngram")
    for stream in (True, False):
        body: dict[str, Any] = {"messages": [], "stream": stream, "max_tokens": 500}
        headers = {"x-route": "code", "x-stub-step-ms": "50"}
        async with asyncio.timeout(20):
            request = asyncio.create_task(client.post(shared.router.url + CHAT_PATH, json=body, headers=headers))
            await eventually_async("in flight", lambda: shared.router.sample().route_active.get("code", 0) == 1)
            if stream:
                answer = await request
                await answer.content.readline()
                answer.close()
            else:
                request.cancel()
            await eventually_async("ended", lambda: shared.router.sample().route_active.get("code", 0) == 0)
    grown = delta(before, shared.router.row("code", "ngram", "ngram"))
    assert grown == {"requests": 2, "cancelled": 2}
    assert shared.router.admin_stat("cluster.hosts-ngram.outlier_detection.ejections_active") == 0
    assert shared.router.healthy("ngram") == 1


async def test_what_is_not_routed_is_counted_apart(shared: Bed, client: aiohttp.ClientSession) -> None:
    before = shared.router.settled()
    async with client.get(shared.router.url + "/nowhere") as answer:
        assert answer.status == 404
    after = shared.router.settled()
    assert after.unrouted == before.unrouted + 1
    assert after.rows == before.rows


async def test_prometheus_finds_the_same_counts_with_their_labels(shared: Bed, client: aiohttp.ClientSession) -> None:
    await ask(client, shared, {"max_tokens": 10}, x_route="code")
    row = shared.router.row("code", "ngram", "ngram")
    page = get(f"{shared.router.read_url}/stats/prometheus")[1].decode()
    (line,) = [line for line in page.splitlines() if line.startswith("envoy_specfleet_decode_tokens{")]
    for label in ('route="code"', 'pool="ngram"', 'intended="ngram"'):
        assert label in line
    assert int(line.rsplit(" ", 1)[1]) == row.decode_tokens

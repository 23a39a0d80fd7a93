"""Times in buckets, and whole answers by the length of the prompt, as the router counts them."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import aiohttp
import pytest

from specfleet.percentiles import BOUNDS_US, TimeBuckets
from specfleet.routing.counters import PROMPT_CLASSES, RouteRow
from tests.envoy.harness import Bed, eventually_async

CHAT_PATH = "/v1/chat/completions"
STEP_MS = (3, 3, 3, 3, 10, 10, 10, 40)
PREFILL_MS = (20, 20, 20, 20, 80, 80, 80, 400)


async def ask(client: aiohttp.ClientSession, bed: Bed, body: dict[str, Any], **headers: str) -> tuple[int, str]:
    """Status and text of one answer."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with client.post(bed.router.url + CHAT_PATH, json={"messages": [], **body}, headers=named) as answer:
        return answer.status, await answer.text()


def grown(bed: Bed, before: RouteRow, name: str) -> TimeBuckets:
    """What was counted since."""
    found: TimeBuckets = getattr(bed.router.row(before.route, before.pool, before.intended), name)
    earlier: TimeBuckets = getattr(before, name)
    return found.since(earlier)


async def timed(client: aiohttp.ClientSession, bed: Bed, step_ms: int, prefill_ms: int) -> tuple[float, float]:
    """Microseconds to the first token and between two tokens, of one stream of 26 tokens as its client sees them."""
    headers = {"x-stub-step-ms": str(step_ms), "x-stub-prefill-ms": str(prefill_ms)}
    body = {"messages": [], "stream": True, "max_tokens": 26}
    begun = time.perf_counter()
    async with client.post(bed.router.url + CHAT_PATH, json=body, headers=headers) as answer:
        await answer.content.readany()
        first = time.perf_counter()
        await answer.read()
        return (first - begun) * 1e6, (time.perf_counter() - first) * 1e6 / 25


@pytest.mark.parametrize("percent", [50, 75, 99])
async def test_percentiles_of_two_samples_are_those_that_clients_saw(
    shared: Bed, client: aiohttp.ClientSession, percent: int
) -> None:
    before = shared.router.row("chat", "baseline", "baseline")
    seen = [await timed(client, shared, *paces) for paces in zip(STEP_MS, PREFILL_MS, strict=True)]
    for name, mine in (("stream_ttft_us", sorted(a for a, _ in seen)), ("stream_tpot_us", sorted(b for _, b in seen))):
        found = grown(shared, before, name)
        assert found.total == len(seen)
        bounds = found.percentile(percent)
        exact = mine[-(-len(mine) * percent // 100) - 1]
        assert bounds is not None
        # A client sees what the router sees, and a little more or less of it: one step of the ladder at most.
        assert bounds.low / 1.26 < exact < bounds.high * 1.26, f"{name}: {mine}"


async def test_the_number_over_a_limit_is_the_number_of_slow_streams(
    shared: Bed, client: aiohttp.ClientSession
) -> None:
    before = shared.router.row("chat", "baseline", "baseline")
    await asyncio.gather(*[timed(client, shared, 2, 5) for _ in range(3)])
    await asyncio.gather(*[timed(client, shared, 60, 5) for _ in range(2)])
    tpot = grown(shared, before, "stream_tpot_us")
    assert tpot.over(BOUNDS_US[16]) == (2, 2)  # 40 ms
    assert tpot.over(1_000_000) == (0, 0)


async def test_a_stream_that_breaks_off_has_a_time_to_first_token_and_no_time_per_token(
    shared: Bed, client: aiohttp.ClientSession
) -> None:
    before = shared.router.row("code", "ngram", "ngram")
    headers = {"x-route": "code", "x-stub-step-ms": "50", "x-stub-prefill-ms": "100"}
    body = {"messages": [], "stream": True, "max_tokens": 500}
    answer = await client.post(shared.router.url + CHAT_PATH, json=body, headers=headers)
    await answer.content.readline()
    answer.close()
    await eventually_async("ended", lambda: shared.router.sample().route_active.get("code", 0) == 0)
    ttft = grown(shared, before, "stream_ttft_us")
    assert ttft.total == 1
    assert ttft.over(100_000 / 1.26).least == 1
    assert grown(shared, before, "stream_tpot_us").total == 0
    assert shared.router.row("code", "ngram", "ngram").cancelled == before.cancelled + 1


@pytest.mark.parametrize(
    ("body", "counted"),
    [
        ({"stream": True, "max_tokens": 1}, (1, 0)),
        ({"stream": True, "max_tokens": 5, "n": 2}, (1, 0)),
        ({"stream": False, "max_tokens": 5}, (0, 0)),
    ],
)
async def test_which_answers_have_which_times(
    shared: Bed, client: aiohttp.ClientSession, body: dict[str, Any], counted: tuple[int, int]
) -> None:
    before = shared.router.row("code", "ngram", "ngram")
    assert (await ask(client, shared, body, x_route="code"))[0] == 200
    names = ("stream_ttft_us", "stream_tpot_us")
    assert tuple(grown(shared, before, name).total for name in names) == counted
    assert shared.router.sample().lua_errors == 0


async def test_whole_answers_are_counted_by_the_length_of_their_prompt_and_streams_are_not(
    shared: Bed, client: aiohttp.ClientSession
) -> None:
    before = shared.router.row("chat", "baseline", "baseline")
    prompts = {}
    for tokens in (100, 128, 129, 5000, 40_000):
        # The stub counts a token for each four characters of the messages' JSON, and one more.
        message = "x" * (4 * (tokens - 1) - len(json.dumps([""])))
        for stream in (False, True):
            _, text = await ask(client, shared, {"messages": [message], "max_tokens": 10, "stream": stream})
            if not stream:
                prompts[tokens] = json.loads(text)["usage"]["prompt_tokens"]
    assert prompts == {tokens: tokens for tokens in prompts}
    after = shared.router.row("chat", "baseline", "baseline")
    answers = [b.answers - a.answers for a, b in zip(before.whole_by_prompt, after.whole_by_prompt, strict=True)]
    assert dict(zip(PROMPT_CLASSES, answers, strict=True)) == {128: 2, 512: 1, 2048: 0, 8192: 1, 32768: 0, None: 1}
    assert after.whole_tokens - before.whole_tokens == 50
    for a, b in zip(before.whole_by_prompt, after.whole_by_prompt, strict=True):
        assert b.tokens - a.tokens == 10 * (b.answers - a.answers)
        assert (b.us > a.us) == (b.answers > a.answers)
    assert after.prompt_tokens - before.prompt_tokens == 2 * sum(prompts)


async def test_a_refusal_of_the_engine_counts_in_its_pool_and_one_of_the_router_in_none(
    shared: Bed, client: aiohttp.ClientSession
) -> None:
    before = shared.router.row("code", "ngram", "ngram")
    own = shared.router.total("client_errors", route="code", pool="")
    assert (await ask(client, shared, {}, x_route="code", x_stub_status="400"))[0] == 400

    async def chunked() -> Any:
        for _ in range(shared.plan.max_request_bytes // 65536 + 2):
            yield b"x" * 65536

    async with client.post(shared.router.url + CHAT_PATH, data=chunked(), headers={"x-route": "code"}) as answer:
        assert answer.status == 413
    after = shared.router.row("code", "ngram", "ngram")
    assert (after.client_errors, after.requests) == (before.client_errors + 1, before.requests + 1)
    assert shared.router.total("client_errors", route="code", pool="") == own + 1

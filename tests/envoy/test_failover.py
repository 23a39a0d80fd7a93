"""Engines that die, refuse or are full: who gets the request then, and what is counted."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.envoy.harness import Bed, bed, eventually_async, make_plan

CHAT_PATH = "/v1/chat/completions"
CODE = {"x-route": "code"}


async def ask(
    client: aiohttp.ClientSession, made: Bed, headers: dict[str, str], **body: Any
) -> tuple[int, bytes, dict[str, str]]:
    """Status (0: none came), body as far as it came, headers."""
    try:
        async with client.post(made.router.url + CHAT_PATH, json={"messages": [], **body}, headers=headers) as answer:
            raw = b""
            try:
                async for piece in answer.content.iter_any():
                    raw += piece
            except aiohttp.ClientError:
                pass
            return answer.status, raw, dict(answer.headers)
    except aiohttp.ClientError:
        return 0, b"", {}


def running(made: Bed) -> list[int]:
    """Requests in work by engine, speculative pool first."""
    return [int(engine.seen()["running"]) for engine in made.speculative]


def kill_the_busier(made: Bed) -> int:
    """Kill the engine of the speculative pool that has the most requests in work; returns how many."""
    at_work = running(made)
    busiest = at_work.index(max(at_work))
    made.speculative[busiest].kill()
    return at_work[busiest]


async def test_thirty_in_flight_on_a_killed_host_are_all_answered(
    tmp_path: Path, client: aiohttp.ClientSession
) -> None:
    with bed(tmp_path, speculative=2) as made:
        jobs = [
            asyncio.create_task(ask(client, made, {**CODE, "x-stub-prefill-ms": "3000"}, max_tokens=8))
            for _ in range(60)
        ]
        await eventually_async("60 at work", lambda: sum(running(made)) == 60)
        lost = kill_the_busier(made)
        assert lost >= 30
        answers = await asyncio.gather(*jobs)
        assert Counter(status for status, _, _ in answers) == {200: 60}
        row = made.router.row("code", "ngram", "ngram")
        assert (row.finished, row.failovers) == (60, 0)
        # What had a second attempt is no evidence.
        assert row.measured == 60 - lost
        assert row.retries == lost


async def test_large_bodies_are_kept_for_a_second_attempt(tmp_path: Path, client: aiohttp.ClientSession) -> None:
    with bed(tmp_path, make_plan(max_request_bytes=8 << 20), speculative=2) as made:
        image = "A" * (3 << 20)
        headers = {**CODE, "x-stub-prefill-ms": "4000"}
        jobs = [asyncio.create_task(ask(client, made, headers, image=image, stream=False)) for _ in range(8)]
        await eventually_async("8 at work", lambda: sum(running(made)) == 8)
        assert kill_the_busier(made) >= 4
        assert Counter(status for status, _, _ in await asyncio.gather(*jobs)) == {200: 8}


async def test_a_pool_killed_as_a_whole_costs_only_what_had_its_headers(
    tmp_path: Path, client: aiohttp.ClientSession
) -> None:
    with bed(tmp_path, speculative=2) as made:
        await asyncio.gather(*[ask(client, made, CODE, stream=True, max_tokens=20) for _ in range(20)])
        steady = made.router.row("code", "ngram", "ngram")
        assert steady.measured == 20
        slow = {**CODE, "x-stub-prefill-ms": "4000"}
        begun = {**CODE, "x-stub-step-ms": "100"}
        whole = [asyncio.create_task(ask(client, made, slow, max_tokens=8)) for _ in range(30)]
        prefill = [asyncio.create_task(ask(client, made, slow, stream=True)) for _ in range(10)]
        streams = [asyncio.create_task(ask(client, made, begun, stream=True, max_tokens=400)) for _ in range(10)]
        await eventually_async("50 at work", lambda: sum(running(made)) == 50)
        await asyncio.sleep(0.3)
        for engine in made.speculative:
            engine.kill()
        assert Counter(status for status, _, _ in await asyncio.gather(*whole)) == {200: 30}
        for status, raw, _ in [*await asyncio.gather(*prefill), *await asyncio.gather(*streams)]:
            assert status == 200
            assert b"[DONE]" not in raw
        row = made.router.row("code", "ngram", "ngram")
        assert (row.lost_before_first_token, row.aborted) == (10, 10)
        moved = made.router.row("code", "baseline", "ngram")
        assert (moved.finished, moved.failovers, moved.measured) == (30, 30, 0)
        evidence = ("measured", "decode_tokens", "accepted", "drafted", "rounds", "stream_decode_us", "whole_us")
        assert {name: getattr(row, name) for name in evidence} == {name: getattr(steady, name) for name in evidence}


async def test_one_two_and_three_of_three_hosts_down(tmp_path: Path, client: aiohttp.ClientSession) -> None:
    with bed(tmp_path, baseline=3, speculative=3) as made:
        for down in (1, 2, 3):
            made.speculative[down - 1].kill()
            at_once = await asyncio.gather(*[ask(client, made, CODE, max_tokens=2) for _ in range(60)])
            assert Counter(status for status, _, _ in at_once) == {200: 60}, f"{down} of 3 just killed"
            await asyncio.to_thread(made.router.await_healthy, "ngram", 3 - down)
            rows = {row: row.finished for row in made.router.settled().rows if row.route == "code"}
            settled = await asyncio.gather(*[ask(client, made, CODE, max_tokens=2) for _ in range(300)])
            assert Counter(status for status, _, _ in settled) == {200: 300}
            grown: Counter[str] = Counter()
            for row in made.router.settled().rows:
                if row.route == "code":
                    old = next((n for r, n in rows.items() if (r.pool, r.intended) == (row.pool, row.intended)), 0)
                    assert row.intended == "ngram"
                    grown[row.pool] += row.finished - old
            assert +grown == ({"ngram": 300} if down < 3 else {"baseline": 300}), f"{down} of 3 down"
        made.speculative[0].start()
        await asyncio.to_thread(made.router.await_healthy, "ngram", 1)
        # The main thread knows first; the workers hear of it a moment later.
        before = made.router.row("code", "ngram", "ngram").finished
        async with asyncio.timeout(5):
            while made.router.row("code", "ngram", "ngram").finished == before:
                await ask(client, made, CODE, max_tokens=2)
        before = made.router.row("code", "ngram", "ngram").finished
        await asyncio.gather(*[ask(client, made, CODE, max_tokens=2) for _ in range(50)])
        assert made.router.row("code", "ngram", "ngram").finished == before + 50


async def test_without_baseline_only_what_may_speculate_is_served(
    tmp_path: Path, client: aiohttp.ClientSession
) -> None:
    with bed(tmp_path) as made:
        made.baseline[0].kill()
        await asyncio.to_thread(made.router.await_healthy, "baseline", 0)
        status, _, _ = await ask(client, made, {})
        assert status == 200
        assert made.router.row("chat", "ngram", "baseline").failovers == 1
        for headers, body in (({"x-route": "pinned"}, {}), (CODE, {"min_p": 0.2})):
            status, raw, seen = await ask(client, made, headers, **body)
            assert status == 503
            assert b"no_ready_engine" in raw
            assert seen["Content-Type"] == "application/json"
        assert made.router.sample().healthy == {"baseline": 0, "ngram": 1}
        made.speculative[0].kill()
        await asyncio.to_thread(made.router.await_healthy, "ngram", 0)
        status, raw, _ = await ask(client, made, CODE)
        assert (status, b"no_ready_engine" in raw) == (503, True)


async def test_above_the_planned_sequences_the_answer_is_429_and_no_cascade(
    tmp_path: Path, client: aiohttp.ClientSession
) -> None:
    with bed(tmp_path, make_plan(max_requests=5)) as made:
        answers = await asyncio.gather(
            *[ask(client, made, {**CODE, "x-stub-prefill-ms": "1500"}, max_tokens=2) for _ in range(12)]
        )
        assert Counter(status for status, _, _ in answers) == {200: 5, 429: 7}
        for status, raw, headers in answers:
            if status == 429:
                assert headers["Retry-After"] == "1"
                assert b"rate_limit_error" in raw
        row = made.router.row("code", "ngram", "ngram")
        assert made.router.total("overflow", route="code") == 7
        assert (row.finished, row.client_errors, made.router.total("client_errors", route="code")) == (5, 0, 0)
        assert made.router.total("requests", pool="baseline") == 0


async def test_a_prompt_that_breaks_the_engine_is_not_tried_again_and_ejects_nobody(
    tmp_path: Path, client: aiohttp.ClientSession
) -> None:
    with bed(tmp_path, speculative=2) as made:
        answers = [await ask(client, made, {**CODE, "x-stub-status": "500"}) for _ in range(20)]
        assert {status for status, _, _ in answers} == {500}
        assert sum(int(engine.seen()["requests"]) for engine in made.speculative) == 20
        assert made.router.healthy("ngram") == 2
        assert made.router.row("code", "ngram", "ngram").server_errors == 20


async def test_a_503_of_one_host_is_answered_by_another_and_is_no_evidence(
    tmp_path: Path, client: aiohttp.ClientSession
) -> None:
    with bed(tmp_path, speculative=2) as made:
        refusing = made.speculative[0]
        refusing.stop()
        refusing.options = (*refusing.options, "--answer-status", "503")
        refusing.start()
        await asyncio.to_thread(made.router.await_healthy, "ngram", 2)
        asked_before = int(refusing.seen()["requests"])
        answers = await asyncio.gather(*[ask(client, made, CODE, max_tokens=3) for _ in range(20)])
        assert Counter(status for status, _, _ in answers) == {200: 20}
        refused = int(refusing.seen()["requests"]) - asked_before
        assert refused > 0
        row = made.router.row("code", "ngram", "ngram")
        assert (row.finished, row.retries, row.measured) == (20, refused, 20 - refused)


async def test_a_request_that_every_host_breaks_off_ends_as_503_in_json(
    tmp_path: Path, client: aiohttp.ClientSession
) -> None:
    with bed(tmp_path) as made:
        status, raw, _ = await ask(client, made, {**CODE, "x-stub-die": "before-headers"})
        assert (status, b"engine_unavailable" in raw) == (503, True)
        assert made.router.total("server_errors", route="code") == 1


@pytest.mark.parametrize("stream", [True, False])
async def test_a_pod_that_drains_while_dns_forgets_it_loses_nothing(
    tmp_path: Path, client: aiohttp.ClientSession, stream: bool
) -> None:
    with bed(tmp_path, speculative=2) as made:
        stop = asyncio.Event()
        results: list[tuple[int, bytes]] = []

        async def load() -> None:
            while not stop.is_set():
                status, raw, _ = await ask(client, made, CODE, stream=stream, max_tokens=10)
                results.append((status, raw))

        workers = [asyncio.create_task(load()) for _ in range(8)]
        await eventually_async("traffic", lambda: len(results) > 50)
        made.dns.table["ngram.test"] = [made.speculative[1].host]
        await eventually_async(
            "the router has forgotten it", lambda: made.router.admin_stat("cluster.hosts-ngram.membership_total") == 1
        )
        await asyncio.to_thread(made.speculative[0].stop)
        count = len(results)
        await eventually_async("more traffic", lambda: len(results) > count + 50)
        stop.set()
        await asyncio.gather(*workers)
        assert Counter(status for status, _ in results) == {200: len(results)}
        if stream:
            assert all(raw.endswith(b"data: [DONE]\n\n") for _, raw in results)

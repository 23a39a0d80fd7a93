"""A router that is rolled or evicted: `specfleet drain` beside a real Envoy under traffic."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import aiohttp

from tests.envoy.harness import LOOPBACK, ROOT, Bed, Router, bed, eventually, free_ports, get
from tests.envoy.test_failover import CODE, ask


@contextmanager
def helper(router: Router, *, limit: float = 30, least: float = 2) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """The shutdown helper beside a router, and the address that Envoy's preStop hook asks."""
    (port,) = free_ports(1)
    command = [sys.executable, "-c", "from specfleet.cli.main import main; main()", "drain"]
    command += ["--admin", f"http://{LOOPBACK}:{router.admin}"]
    command += ["--limit-seconds", str(limit), "--least-seconds", str(least), "--port", str(port)]
    process = subprocess.Popen(command, cwd=ROOT / "operator", stderr=subprocess.PIPE)
    try:
        assert process.stderr is not None
        assert b"waiting for SIGTERM" in process.stderr.readline()
        yield process, f"http://{LOOPBACK}:{port}/drained"
    finally:
        process.kill()
        process.wait()
        if process.stderr is not None:
            process.stderr.close()


def is_served(made: Bed) -> bool:
    """Whether readiness holds."""
    return get(f"{made.router.read_url}/ready")[0] == 200


async def test_a_router_that_ends_loses_no_request(tmp_path: Path, client: aiohttp.ClientSession) -> None:
    with bed(tmp_path) as made, helper(made.router) as (process, hook):
        stop = asyncio.Event()
        results: list[tuple[int, bytes]] = []

        async def load() -> None:
            while not stop.is_set():
                # A connection each: what a Service still sends while it has not yet heard.
                async with aiohttp.ClientSession() as session:
                    status, raw, _ = await ask(session, made, CODE, stream=True, max_tokens=5)
                    if is_gone.is_set() and status == 0:
                        return
                    results.append((status, raw))

        is_gone = asyncio.Event()
        slow = [
            asyncio.create_task(ask(client, made, {**CODE, "x-stub-step-ms": "100"}, stream=True, max_tokens=200))
            for _ in range(20)
        ]
        workers = [asyncio.create_task(load()) for _ in range(4)]
        await asyncio.to_thread(eventually, "24 at work", lambda: made.speculative[0].seen()["running"] >= 20)
        waiting = asyncio.create_task(asyncio.to_thread(get, hook))
        process.terminate()
        await asyncio.to_thread(eventually, "readiness fails", lambda: not is_served(made))
        # Endpoints leave the Service now; a client that has not heard is still answered.
        status, raw, _ = await ask(client, made, CODE, stream=True, max_tokens=3)
        assert (status, raw.endswith(b"[DONE]\n\n")) == (200, True)
        stop.set()
        await asyncio.gather(*workers)
        is_gone.set()
        for status, raw, _ in await asyncio.gather(*slow):
            assert (status, raw.endswith(b"data: [DONE]\n\n")) == (200, True)
        assert Counter(status for status, _ in results) == {200: len(results)}
        assert await asyncio.to_thread(process.wait, 30) == 0
        assert made.router.process is not None
        assert await asyncio.to_thread(made.router.process.wait, 10) == 0
        await waiting


async def test_the_wait_is_bounded_and_says_what_was_cut_off(tmp_path: Path, client: aiohttp.ClientSession) -> None:
    with bed(tmp_path) as made, helper(made.router, limit=3, least=0) as (process, _):
        stuck = asyncio.create_task(ask(client, made, {**CODE, "x-stub-prefill-ms": "60000"}, stream=True))
        await asyncio.to_thread(eventually, "at work", lambda: made.speculative[0].seen()["running"] == 1)
        process.terminate()
        assert await asyncio.to_thread(process.wait, 30) == 1
        assert process.stderr is not None
        said = [json.loads(line)["message"] for line in process.stderr.read().splitlines()]
        assert any(message.startswith("1 requests are still in flight") for message in said)
        await stuck


def test_the_hook_starts_nothing_and_does_not_hang_without_a_drain(tmp_path: Path) -> None:
    with bed(tmp_path) as made, helper(made.router) as (process, hook):
        assert get(hook)[0] == 200
        assert process.poll() is None
        assert is_served(made)


def test_without_envoy_the_helper_ends_at_once(tmp_path: Path) -> None:
    with bed(tmp_path) as made, helper(made.router) as (process, _):
        made.router.stop()
        process.terminate()
        assert process.wait(10) == 0

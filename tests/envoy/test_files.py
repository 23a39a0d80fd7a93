"""Clusters and routes by file: swapped as the kubelet swaps a ConfigMap, refused where they are wrong."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import aiohttp
import pytest
import yaml

from specfleet.routing.files import routes_files
from specfleet.routing.plan import Match, PoolPlan, RoutePlan, RouterPlan
from tests.envoy.harness import (
    CHAT,
    CODE,
    JSON,
    PINNED,
    Bed,
    Dns,
    Engine,
    Router,
    bed,
    eventually,
    eventually_async,
    get,
    make_plan,
)
from tests.envoy.test_failover import ask

CODE_HEADERS = {"x-route": "code"}


def with_code(version: str, percent: int, **changes: object) -> RouterPlan:
    """The plan with another share of speculation on route code."""
    routes = (replace(CODE, speculative_percent=percent), JSON, PINNED, CHAT)
    return make_plan(version, routes=routes, **changes)


class Load:
    """Requests on route code from some clients until it is stopped."""

    def __init__(self, client: aiohttp.ClientSession, made: Bed, clients: int = 8) -> None:
        self.results: list[tuple[int, bytes, bool]] = []
        self._stop = asyncio.Event()
        self._tasks = [asyncio.create_task(self._run(client, made, bool(i % 2))) for i in range(clients)]

    async def _run(self, client: aiohttp.ClientSession, made: Bed, stream: bool) -> None:
        while not self._stop.is_set():
            status, raw, _ = await ask(client, made, CODE_HEADERS, stream=stream, max_tokens=10)
            self.results.append((status, raw, stream))

    async def more(self, count: int = 40) -> None:
        """Wait for so many further answers."""
        target = len(self.results) + count
        await eventually_async(f"{count} more answers", lambda: len(self.results) >= target)

    async def stop(self) -> None:
        """End, and check that nothing failed and every stream is whole."""
        self._stop.set()
        await asyncio.gather(*self._tasks)
        assert Counter(status for status, _, _ in self.results) == {200: len(self.results)}
        assert all(raw.endswith(b"data: [DONE]\n\n") for _, raw, stream in self.results if stream)


async def test_a_switch_under_load_is_served_and_fails_nothing(tmp_path: Path, client: aiohttp.ClientSession) -> None:
    with bed(tmp_path) as made:
        load = Load(client, made)
        await load.more()
        for number, percent in enumerate((0, 100, 0, 50), start=2):
            await asyncio.to_thread(made.router.serve, with_code(f"v{number}", percent))
            await load.more()
        await load.stop()
        assert made.router.served()["routes"]["code"] == {"baseline": 50, "ngram": 50}
        stopped = made.router.total("requests", route="code", pool="ngram")
        await asyncio.to_thread(made.router.serve, with_code("v9", 0))
        for _ in range(20):
            await ask(client, made, CODE_HEADERS)
        assert made.router.total("requests", route="code", pool="ngram") == stopped
        assert made.router.total("failovers") == 0


async def test_a_share_is_kept(tmp_path: Path, client: aiohttp.ClientSession) -> None:
    with bed(tmp_path, with_code("v1", 20), options=("--step-ms", "0", "--prefill-ms", "0")) as made:
        await asyncio.gather(*[ask(client, made, CODE_HEADERS, max_tokens=1) for _ in range(500)])
        served = made.router.row("code", "ngram", "ngram").finished
        assert served + made.router.row("code", "baseline", "baseline").finished == 500
        # 100 expected, standard deviation 9.
        assert 55 < served < 145


async def test_sizes_and_a_renamed_draft_change_under_load_without_a_failure(
    tmp_path: Path, client: aiohttp.ClientSession
) -> None:
    with bed(tmp_path) as made:
        load = Load(client, made)
        await load.more()
        await asyncio.to_thread(made.router.serve, make_plan("v2", max_requests=500))
        await load.more()
        made.dns.table["eagle.test"] = made.dns.table["ngram.test"]
        eagle = PoolPlan("eagle", "eagle.test", 8000, "/health", 500)
        await asyncio.to_thread(made.router.serve, make_plan("v3", speculative=eagle))
        await eventually_async(
            "eagle answers", lambda: made.router.row("code", "eagle", "eagle", under_load=True).finished > 20
        )
        await load.stop()
        assert made.router.total("server_errors") == 0


async def test_streams_under_way_outlive_a_switch_a_resize_and_a_rename(
    tmp_path: Path, client: aiohttp.ClientSession
) -> None:
    with bed(tmp_path, make_plan(max_requests=5)) as made:
        slow = {**CODE_HEADERS, "x-stub-step-ms": "100"}
        streams = [asyncio.create_task(ask(client, made, slow, stream=True, max_tokens=200)) for _ in range(5)]
        await eventually_async("5 at work", lambda: made.router.sample().active["ngram"] == 5)
        status, _, _ = await ask(client, made, CODE_HEADERS)
        assert status == 429
        made.dns.table["eagle.test"] = made.dns.table["ngram.test"]
        eagle = PoolPlan("eagle", "eagle.test", 8000, "/health", 6)
        for plan in (with_code("v2", 0), make_plan("v3", max_requests=6), make_plan("v4", speculative=eagle)):
            await asyncio.to_thread(made.router.serve, plan)
        for status, raw, _ in await asyncio.gather(*streams):
            assert (status, raw.endswith(b"data: [DONE]\n\n")) == (200, True)


@pytest.mark.parametrize(
    "damage",
    [
        lambda files: {**files, "rds.yaml": "resources: [{"},
        lambda files: {**files, "rds.yaml": files["rds.yaml"].replace("weight: 60", "weight: -1")},
        lambda files: {**files, "rds.yaml": files["rds.yaml"].replace("safe_regex", "unsafe_regex")},
        lambda files: {**files, "cds.yaml": files["cds.yaml"].replace("LEAST_REQUEST", "NO_SUCH_POLICY")},
    ],
    ids=["no yaml", "a weight below zero", "an unknown field", "an unknown policy"],
)
async def test_a_bad_file_is_refused_counted_and_the_old_table_goes_on(
    tmp_path: Path, client: aiohttp.ClientSession, damage: Callable[[dict[str, str]], dict[str, str]]
) -> None:
    with bed(tmp_path) as made:
        assert made.router.sample().routes_rejected == 0
        good = routes_files(with_code("v2", 40))
        bad = damage(good)
        assert bad != good
        made.router.write_files(bad)
        await eventually_async("refused", lambda: made.router.sample().routes_rejected > 0)
        status, _, _ = await ask(client, made, CODE_HEADERS)
        assert status == 200
        if bad["rds.yaml"] != good["rds.yaml"]:
            assert made.router.served()["version"] == "v1"
        await asyncio.to_thread(made.router.serve, with_code("v3", 100))


async def test_a_router_without_a_table_is_not_ready_and_becomes_it(tmp_path: Path) -> None:
    dns, engine = Dns(), Engine().start()
    dns.table = {"baseline.test": [engine.host], "ngram.test": []}
    router = Router(tmp_path, dns, make_plan())
    good = routes_files(make_plan())
    router.write_files({**good, "rds.yaml": "resources: [{"})
    try:
        router.start(ready=False)
        await eventually_async("stats", lambda: get(f"{router.read_url}/stats")[0] == 200)
        assert get(f"{router.read_url}/ready")[0] != 200
        router.write_files(good)
        await eventually_async("ready", lambda: get(f"{router.read_url}/ready")[0] == 200)
        eventually("the engine is in", lambda: router.healthy("baseline") == 1)
    finally:
        router.stop()
        engine.kill()
        dns.close()


def test_a_table_of_two_hundred_routes_is_served(tmp_path: Path) -> None:
    many = tuple(RoutePlan(f"route-{i}", (Match(header=("x-route", str(i))),), i % 101) for i in range(200))
    with bed(tmp_path, make_plan(routes=(*many, CHAT))) as made:
        assert len(made.router.served()["routes"]) == 201
        assert yaml.safe_load((made.router.routes / "rds.yaml").read_text())["version_info"] == "v1"

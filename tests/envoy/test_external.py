"""Pools that somebody else runs: one side alone, a Service that is not there yet, one with a cluster IP, engines with
a key."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import aiohttp

from specfleet.engines.running import IDLE_SECONDS
from specfleet.routing.plan import PoolPlan, RoutePlan, RouterPlan
from tests.envoy.harness import (
    CHAT,
    CODE,
    ENGINE_PORT,
    Bed,
    Dns,
    Engine,
    Router,
    bed,
    eventually,
    eventually_async,
    get,
    loopback_host,
    make_plan,
)
from tests.envoy.proxy import ServiceAddress
from tests.envoy.test_failover import CODE as CODE_HEADERS
from tests.envoy.test_failover import ask
from tests.envoy.test_files import Load

ROUTES = (CODE, CHAT)
ABSENT = PoolPlan("baseline", None, 0, "/health", 1000)


def only_speculative(version: str = "v1") -> RouterPlan:
    """One side: everything goes to pool ngram."""
    return make_plan(version, routes=tuple(replace(one, speculative_percent=100) for one in ROUTES), baseline=ABSENT)


def only_baseline(version: str = "v1") -> RouterPlan:
    """One side: everything goes to pool baseline."""
    return make_plan(
        version,
        routes=tuple(replace(one, speculative_percent=0) for one in ROUTES),
        speculative=PoolPlan("ngram", None, 0, "/health", 1000),
    )


async def test_one_pool_with_speculation_takes_every_request_and_its_figures_are_counted(
    tmp_path: Path, client: aiohttp.ClientSession
) -> None:
    with bed(tmp_path, only_speculative(), baseline=0) as made:
        for headers in (CODE_HEADERS, {}):
            for stream in (True, False):
                status, _, _ = await ask(client, made, headers, stream=stream, max_tokens=20)
                assert status == 200
        # What speculation refuses has nowhere else to go: the engine answers it, as it did before there was a router.
        status, raw, _ = await ask(client, made, {}, min_p=0.2)
        assert (status, b"min_p" in raw) == (400, True)
        assert get(f"{made.router.url}/v1/models")[0] == 200

        assert made.router.served()["routes"] == {
            "code": {"baseline": 0, "ngram": 100},
            "chat": {"baseline": 0, "ngram": 100},
        }
        code, chat = (made.router.row(name, "ngram", "ngram") for name in ("code", "chat"))
        assert (code.finished, chat.finished, chat.client_errors) == (2, 2, 1)
        assert code.measured == 2
        assert code.decode_tokens == 38
        assert 0 < code.accepted <= code.drafted
        sample = made.router.sample()
        assert {row.pool for row in sample.rows} == {"ngram"}
        assert sum(row.failovers for row in sample.rows) == 0
        assert sample.healthy == {"ngram": 1}

        made.speculative[0].kill()
        await asyncio.to_thread(made.router.await_healthy, "ngram", 0)
        status, raw, seen = await ask(client, made, CODE_HEADERS)
        assert (status, b"no_ready_engine" in raw, seen["Content-Type"]) == (503, True, "application/json")


async def test_one_pool_without_speculation_is_counted_by_its_usage(
    tmp_path: Path, client: aiohttp.ClientSession
) -> None:
    with bed(tmp_path, only_baseline(), speculative=0) as made:
        for headers, more in ((CODE_HEADERS, {}), ({}, {"min_p": 0.2})):
            status, _, _ = await ask(client, made, headers, max_tokens=20, **more)
            assert status == 200
        assert made.router.served()["routes"]["code"] == {"baseline": 100, "ngram": 0}
        row = made.router.row("code", "baseline", "baseline")
        assert (row.finished, row.measured, row.decode_tokens, row.accepted) == (1, 1, 19, 0)
        assert made.router.row("chat", "baseline", "baseline").finished == 1


async def test_the_other_pool_is_added_and_taken_away_under_load(tmp_path: Path, client: aiohttp.ClientSession) -> None:
    with bed(tmp_path, only_speculative(), baseline=0) as made:
        load = Load(client, made)
        await load.more()
        made.baseline.append(Engine().start())
        made.dns.table["baseline.test"] = [made.baseline[0].host]
        await asyncio.to_thread(made.router.serve, make_plan("v2", routes=ROUTES))
        await asyncio.to_thread(made.router.await_healthy, "baseline", 1)
        to_baseline = make_plan("v3", routes=tuple(replace(one, speculative_percent=0) for one in ROUTES))
        await asyncio.to_thread(made.router.serve, to_baseline)
        await load.more()
        assert made.router.row("code", "baseline", "baseline", under_load=True).finished > 0
        await asyncio.to_thread(made.router.serve, only_speculative("v4"))
        await load.more()
        await load.stop()
        await eventually_async("baseline is gone", lambda: made.router.sample().healthy == {"ngram": 1})


async def test_a_service_that_is_not_there_is_a_503_in_json_until_it_is(
    tmp_path: Path, client: aiohttp.ClientSession
) -> None:
    dns = Dns()
    engine, other = Engine(options=("--draft-tokens", "4")), Engine()
    router = Router(tmp_path, dns, make_plan(routes=ROUTES))
    made = Bed(router, dns, [other], [engine], make_plan(routes=ROUTES))
    try:
        router.start()
        status, raw, seen = await ask(client, made, CODE_HEADERS)
        assert (status, b"no_ready_engine" in raw, seen["Content-Type"]) == (503, True, "application/json")

        other.start()
        dns.table["baseline.test"] = [other.host]
        await asyncio.to_thread(router.await_healthy, "baseline", 1)
        status, _, _ = await ask(client, made, CODE_HEADERS)
        assert status == 200
        assert router.row("code", "baseline", "ngram").failovers == 1

        engine.start()
        dns.table["ngram.test"] = [engine.host]
        await asyncio.to_thread(router.await_healthy, "ngram", 1)
        async with asyncio.timeout(5):
            while router.row("code", "ngram", "ngram").finished == 0:
                status, _, _ = await ask(client, made, CODE_HEADERS)
                assert status == 200
    finally:
        router.stop()
        engine.kill()
        other.kill()
        dns.close()


async def test_an_unused_connection_is_closed_by_the_router_before_the_engine_does(
    tmp_path: Path, client: aiohttp.ClientSession
) -> None:
    # As vLLM and SGLang do unless told otherwise; a request on a connection that just closed would have to be retried.
    plan = make_plan(
        routes=(replace(CHAT, speculative_percent=100),),
        baseline=ABSENT,
        speculative=PoolPlan("ngram", "ngram.test", ENGINE_PORT, "/health", 1000, idle_seconds=IDLE_SECONDS),
    )
    with bed(tmp_path, plan, baseline=0, options=("--keep-alive-seconds", "5")) as made:
        await asyncio.gather(*[ask(client, made, {}, max_tokens=4) for _ in range(8)])

        def connections(what: str) -> int:
            return made.router.admin_stat(f"cluster.hosts-ngram.upstream_cx_{what}")

        await eventually_async("no connection is open", lambda: connections("active") == 0)
        assert connections("total") > 0
        assert connections("idle_timeout") == connections("total")
        assert connections("destroy_remote") == 0


# --- one address for all pods


@contextmanager
def behind_one_address(directory: Path, pods: int) -> Iterator[tuple[Bed, ServiceAddress]]:
    """Pool ngram behind a Service with a cluster IP, pool baseline headless with one pod."""
    speculative = PoolPlan("ngram", "ngram.test", ENGINE_PORT, "/health", 1000, one_address=True)
    plan = make_plan(routes=ROUTES, speculative=speculative)
    dns = Dns()
    engines = [Engine(options=("--draft-tokens", "4", "--step-ms", "1")) for _ in range(pods)]
    baseline = Engine()
    router = Router(directory, dns, plan)
    service = ServiceAddress([engine.host for engine in engines])
    dns.table = {"ngram.test": [service.host], "baseline.test": [baseline.host]}
    try:
        for engine in [*engines, baseline]:
            engine.start()
        router.start()
        router.await_healthy("ngram", 1)
        router.await_healthy("baseline", 1)
        yield Bed(router, dns, [baseline], engines, plan), service
    finally:
        router.stop()
        service.close()
        for engine in [*engines, baseline]:
            engine.kill()
        dns.close()


async def test_behind_one_address_every_request_goes_by_a_connection_of_its_own(
    tmp_path: Path, client: aiohttp.ClientSession
) -> None:
    with behind_one_address(tmp_path, 3) as (made, service):
        for _ in range(30):
            status, _, _ = await ask(client, made, CODE_HEADERS, max_tokens=4)
            assert status == 200
        # In turns as the proxy here picks; health checks are connections too, so that no pod gets exactly ten.
        asked = [int(engine.seen()["requests"]) for engine in made.speculative]
        assert sum(asked) == 30
        assert min(asked) >= 5

        gone = made.speculative[0]
        service.backends.remove(gone.host)
        before = int(gone.seen()["requests"])
        for _ in range(10):
            await ask(client, made, CODE_HEADERS, max_tokens=4)
        assert int(gone.seen()["requests"]) == before


async def test_behind_one_address_a_dead_pod_costs_no_request_and_the_pool_stays(
    tmp_path: Path, client: aiohttp.ClientSession
) -> None:
    with behind_one_address(tmp_path, 3) as (made, _):
        jobs = [
            asyncio.create_task(ask(client, made, {**CODE_HEADERS, "x-stub-prefill-ms": "1500"}, max_tokens=4))
            for _ in range(30)
        ]
        await eventually_async(
            "30 at work", lambda: sum(int(engine.seen()["running"]) for engine in made.speculative) == 30
        )
        made.speculative[0].kill()
        answers = await asyncio.gather(*jobs)
        # Kubernetes has yet to notice: the proxy goes on picking the dead pod.
        answers += [await ask(client, made, CODE_HEADERS, max_tokens=4) for _ in range(30)]
        assert Counter(status for status, _, _ in answers) == {200: 60}
        assert made.router.total("requests", pool="ngram") >= 50


async def test_behind_one_address_without_pods_the_other_pool_serves(
    tmp_path: Path, client: aiohttp.ClientSession
) -> None:
    with behind_one_address(tmp_path, 2) as (made, service):
        service.backends.clear()
        # Before the active check has noticed, each request is tried and then answered by the other pool.
        answers = [await ask(client, made, CODE_HEADERS, max_tokens=4) for _ in range(10)]
        assert Counter(status for status, _, _ in answers) == {200: 10}
        await asyncio.to_thread(made.router.await_healthy, "ngram", 0)
        status, _, _ = await ask(client, made, CODE_HEADERS, max_tokens=4)
        assert status == 200
        service.backends.extend(engine.host for engine in made.speculative)
        await asyncio.to_thread(made.router.await_healthy, "ngram", 1)


# --- an engine that wants a key


class _Locked(BaseHTTPRequestHandler):
    """Answers 401 without a key, as engines do below /v1; with one it serves."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", 0)))
        self._answer()

    def _answer(self) -> None:
        status = 200 if self.headers.get("authorization") == "Bearer key" else 401
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


async def test_an_engine_behind_a_key_is_healthy_and_clients_bring_the_key(
    tmp_path: Path, client: aiohttp.ClientSession
) -> None:
    host = loopback_host()
    server = ThreadingHTTPServer((host, ENGINE_PORT), _Locked)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    dns = Dns()
    dns.table["ngram.test"] = [host]
    locked = PoolPlan("ngram", "ngram.test", ENGINE_PORT, "/v1/models", 1000, also_healthy=(401,))
    plan = make_plan(routes=(RoutePlan("chat", (), 100),), speculative=locked, baseline=ABSENT)
    router = Router(tmp_path, dns, plan)
    made = Bed(router, dns, [], [], plan)
    try:
        router.start()
        router.await_healthy("ngram", 1)
        assert (await ask(client, made, {"authorization": "Bearer key"}))[0] == 200
        assert (await ask(client, made, {}))[0] == 401
        eventually("still healthy", lambda: router.healthy("ngram") == 1)
    finally:
        router.stop()
        server.shutdown()
        server.server_close()
        dns.close()

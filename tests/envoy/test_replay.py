"""`specfleet replay` on what a real Prometheus scraped from a real router: names, labels and units are right."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from typer.testing import CliRunner

from specfleet.cli.main import app
from specfleet.handlers.decide import route_totals
from specfleet.routing.plan import RoutePlan
from tests.envoy.harness import CODE, ROOT, Bed, bed, make_plan
from tests.testbed.prometheus_server import PrometheusServer, Target

ACCEPTANCE = {"code": "0.9", "chat": "0.02"}
SECONDS = 14.0
POD = {"namespace": "serving", "pod": "assistant-router-5d8f7c9b6-x2x4z"}


@pytest.fixture
def routed(tmp_path: Path) -> Iterator[tuple[Bed, PrometheusServer]]:
    """A router that sends half of chat and all of code to speculation, scraped with Envoy's own names."""
    for name in ("router", "prometheus"):
        (tmp_path / name).mkdir()
    plan = make_plan(routes=(CODE, RoutePlan("chat", (), 50)))
    options = ("--step-ms", "1", "--prefill-ms", "1", "--recordings", str(ROOT / "tests/envoy/recordings"))
    server = PrometheusServer(tmp_path / "prometheus", scrape_seconds=0.5, raw=True)
    with bed(tmp_path / "router", plan, options=options) as made:
        try:
            server.targets([Target(f"127.0.0.1:{made.router.read}", POD)])
            server.start()
            yield made, server
        finally:
            server.stop()


async def traffic(client: aiohttp.ClientSession, url: str, until: float) -> None:
    """Streams on both routes."""

    async def one(route: str) -> None:
        headers = {"x-route": route, "x-stub-acceptance": ACCEPTANCE[route]}
        body = {"messages": [], "max_tokens": 30, "stream": True}
        while time.time() < until:
            async with client.post(f"{url}/v1/chat/completions", json=body, headers=headers) as answer:
                await answer.read()

    await asyncio.gather(*(one(route) for route in ACCEPTANCE))


async def test_a_scraped_router_replays_with_its_own_figures(
    routed: tuple[Bed, PrometheusServer], client: aiohttp.ClientSession, tmp_path: Path
) -> None:
    made, server = routed
    (tmp_path / "policy.yaml").write_text('block: 2s\ndwell: 4s\nbreakEven: {source: Fixed, tokensPerStep: "1.30"}\n')
    begin = time.time()
    await traffic(client, made.router.url, begin + SECONDS)
    said = await asyncio.to_thread(made.router.settled)
    options = ["--prometheus", server.url, "--deployment", "serving/assistant", "--start", str(begin), "-o", "json"]
    result = await asyncio.to_thread(
        CliRunner().invoke, app, ["replay", *options, "--policy", str(tmp_path / "policy.yaml")]
    )
    assert result.exit_code == 0, result.output
    routes: dict[str, dict[str, Any]] = {one["route"]: one for one in json.loads(result.stdout)["routes"]}
    totals = route_totals(said, "ngram")
    assert routes.keys() == totals.keys() == ACCEPTANCE.keys()
    for name, one in routes.items():
        counted = totals[name]
        steps = counted.tokens / (counted.tokens - counted.accepted)
        assert float(one["tokensPerStep"]) == pytest.approx(steps, rel=0.1)
        assert one["acceptancePercent"] == pytest.approx(100 * counted.accepted / counted.drafted, abs=5)
        assert 0 < one["measuredRequests"] <= counted.requests
    assert 35 <= routes["chat"]["done"]["offPercentOfRequests"] <= 65
    assert routes["code"]["done"]["offPercentOfRequests"] == 0
    assert routes["code"]["timePerToken"] is None
    times = routes["chat"]["timePerToken"]
    rows = {row.pool: row for row in said.rows if row.route == "chat"}
    for pool, name in (("ngram", "alwaysOn"), ("baseline", "alwaysOff")):
        truth = rows[pool].stream_decode_us / rows[pool].stream_decode_tokens / 1000.0
        assert float(times["milliseconds"][name]) == pytest.approx(truth, rel=0.25)

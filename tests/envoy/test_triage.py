"""The queries of the triage page, asked of a real Prometheus that scrapes a real router as the manual says."""

from __future__ import annotations

import json
import re
import urllib.parse
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.envoy.harness import ROOT, Bed, bed, eventually, get
from tests.envoy.test_prometheus import discovered, documented_job
from tests.testbed.prometheus_server import PrometheusServer, Target
from tests.unit.chart.test_triage import QUERIES

CHAT_PATH = "/v1/chat/completions"
ROUTERS = [query for query in QUERIES if not re.search("specfleet_(operator|route|pool)_", query)]


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Bed, PrometheusServer]]:
    """A router, and a server that scrapes it by its annotations."""
    directory = tmp_path_factory.mktemp("triage")
    for name in ("router", "prometheus"):
        (directory / name).mkdir()
    options = ("--step-ms", "1", "--prefill-ms", "1", "--recordings", str(ROOT / "tests/envoy/recordings"))
    server = PrometheusServer(directory / "prometheus", scrape_seconds=0.5, job=documented_job())
    with bed(Path(directory / "router"), options=options) as made:
        try:
            server.targets([Target("127.0.0.1", discovered(made.router.read))])
            server.start()
            yield made, server
        finally:
            server.stop()


def answer(server: PrometheusServer, query: str) -> list[Any]:
    """What the server answers; an error of the query's is a failure."""
    status, body = get(f"{server.url}/api/v1/query?{urllib.parse.urlencode({'query': query})}")
    document = json.loads(body)
    assert (status, document["status"]) == (200, "success"), document
    result: list[Any] = document["data"]["result"]
    return result


@pytest.mark.parametrize("query", QUERIES)
def test_prometheus_takes_every_query(scraped: tuple[Bed, PrometheusServer], query: str) -> None:
    answer(scraped[1], query)


async def test_queries_about_the_routers_find_what_happened(
    scraped: tuple[Bed, PrometheusServer], client: aiohttp.ClientSession
) -> None:
    made, server = scraped
    for headers in ({}, {"x-stub-status": "500"}):
        for stream in (True, False):
            body: dict[str, Any] = {"messages": [], "stream": stream, "max_tokens": 20}
            async with client.post(made.router.url + CHAT_PATH, json=body, headers=headers) as got:
                await got.read()
    failed = ROUTERS[0]
    (found,) = eventually("the failed requests", lambda: answer(server, failed))
    assert {key: found["metric"][key] for key in ("route", "pool", "code", "flags")} == {
        "route": "chat",
        "pool": "baseline",
        "code": "500",
        "flags": "-",
    }
    alarm = [query for query in ROUTERS if " > " in query]
    assert len(alarm) == 1
    for query in set(ROUTERS) - set(alarm):
        eventually(query, partial(answer, server, query))

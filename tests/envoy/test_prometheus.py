"""A real Prometheus scrapes a real router: what the operator makes of it is what it reads from the router itself."""

from __future__ import annotations

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from typing import Any

import aiohttp
import pytest
import yaml

from specfleet.api.conditions import Reason
from specfleet.decision import samples
from specfleet.decision.reasons import Hold
from specfleet.decision.rule import RouteConfig, Verdict, start, step
from specfleet.handlers.decide import route_totals
from specfleet.handlers.fleet import Fleet, WorkloadHealth
from specfleet.handlers.memory import Memory
from specfleet.handlers.pods import PodRecord
from specfleet.handlers.sampling import metrics_hold, sample
from specfleet.handlers.scraped import Scraping, scraped_said
from specfleet.metrics.direct import RouterReader
from specfleet.metrics.own import OperatorMetrics
from specfleet.metrics.promapi import Endpoint
from specfleet.metrics.prometheus import PrometheusSource, Wanted
from specfleet.render.router import scrape_annotations
from specfleet.routing.plan import RoutePlan
from tests.envoy.harness import CODE, ROOT, Bed, bed, eventually_async, make_plan
from tests.testbed.prometheus_server import PrometheusServer, Target
from tests.unit.handlers.samples import owner, spec_of

KEY = ("serving", "assistant")
POD = PodRecord(
    uid="router-1",
    name="assistant-router-5d8f7c9b6-x2x4z",
    namespace=KEY[0],
    resource_version="1",
    component="router",
    pool=None,
    ip="127.0.0.1",
    ready=True,
    deleting=False,
    routes_version=None,
    problem=None,
)
WELL = WorkloadHealth("any", 1, 1, True, True, False, False, None)
FLEET = Fleet(WELL, WELL, WELL, (POD,), (POD,))
DRAFT = "ngram"
BLOCK_SECONDS = 2.0
CONFIG = RouteConfig(
    initial="speculative", min_acceptance_percent=40, block_seconds=BLOCK_SECONDS, dwell_seconds=4.0, draft_tokens=4
)
ACCEPTANCE = {"code": "0.9", "chat": "0.02"}


@pytest.fixture
def scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    """The data rules' limits are 90 s and 2 min, or 1.5 and 2 blocks where that is more: here, the latter."""
    monkeypatch.setattr(samples, "MIN_STALE_SECONDS", 0.0)
    monkeypatch.setattr(samples, "MIN_GAP_SECONDS", 0.0)


@dataclass(frozen=True)
class Scraped:
    """A router and the servers that scrape it: as the PodMonitor says, twice with Envoy's own names, by annotations."""

    bed: Bed
    renamed: PrometheusServer
    raw: PrometheusServer
    annotated: PrometheusServer


def documented_job() -> dict[str, Any]:
    """The scrape job of the manual."""
    page = (ROOT / "docs/operations/prometheus.md").read_text()
    blocks = [yaml.safe_load(block) for block in re.findall(r"^```yaml\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)]
    (job,) = next(block["scrape_configs"] for block in blocks if "scrape_configs" in block)
    assert isinstance(job, dict)
    return job


def discovered(port: int) -> dict[str, str]:
    """The labels that Prometheus' discovery of pods gives to a router pod as it is rendered, on another port."""
    pod = "__meta_kubernetes_pod_"
    annotations = {**scrape_annotations(), "prometheus.io/port": str(port)}
    return {
        "__meta_kubernetes_namespace": KEY[0],
        f"{pod}name": POD.name,
        f"{pod}ip": "127.0.0.1",
        f"{pod}label_specfleet_dev_deployment": KEY[1],
        **{f"{pod}annotation_{re.sub('[./]', '_', name)}": value for name, value in annotations.items()},
    }


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scraped]:
    """All traffic goes to speculation. Scrapes come twice a second, as a router is read twice a block."""
    directory = tmp_path_factory.mktemp("scraped")
    for name in ("router", "renamed", "raw", "annotated"):
        (directory / name).mkdir()
    plan = make_plan(routes=(CODE, RoutePlan("chat", (), 100)))
    options = ("--step-ms", "1", "--prefill-ms", "1", "--recordings", str(ROOT / "tests/envoy/recordings"))
    renamed = PrometheusServer(directory / "renamed", scrape_seconds=0.5)
    raw = PrometheusServer(directory / "raw", scrape_seconds=0.5, raw=True, jobs=2)
    annotated = PrometheusServer(directory / "annotated", scrape_seconds=0.5, job=documented_job())
    with bed(directory / "router", plan, options=options) as made:
        try:
            address = f"127.0.0.1:{made.router.read}"
            for server in (renamed, raw):
                server.targets([Target(address, {"namespace": KEY[0], "pod": POD.name})])
                server.start()
            annotated.targets([Target("127.0.0.1", discovered(made.router.read))])
            annotated.start()
            yield Scraped(made, renamed, raw, annotated)
        finally:
            for server in (renamed, raw, annotated):
                server.stop()


async def asking() -> AsyncIterator[PrometheusSource]:
    """The operator's task that asks."""
    made = PrometheusSource(lambda key, seconds: None)
    task = asyncio.create_task(made.run())
    yield made
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


source = pytest.fixture(asking, name="source")
other = pytest.fixture(asking, name="other")


class Side:
    """One operator's view of the routes, from either source."""

    def __init__(self, reader: RouterReader, source: PrometheusSource | None = None, url: str = "") -> None:
        self._reader = reader
        self._source = source
        now = time.time()
        self.memory = Memory.new("uid", BLOCK_SECONDS, now)
        self._states = {route: start(CONFIG, now) for route in ACCEPTANCE}
        self.verdicts: dict[str, Verdict] = {}
        self.switched: dict[str, float] = {}
        if source is not None:
            endpoint = Endpoint(url, timeout_seconds=2.0)
            source.want(KEY, Wanted(endpoint, 1.0, 60.0))
            self.memory.scraped = Scraping(endpoint, now)

    def hold(self) -> Hold | None:
        """Why nothing is decided."""
        return metrics_hold(self.memory, FLEET, time.time())

    def said(self) -> Reason | str | None:
        """The reason of MetricsAvailable=False, if so."""
        assert self.memory.scraped is not None
        found = scraped_said(self.memory.scraped, self.hold(), self.memory.ledger.stale_seconds)
        return found.reason if found is not None else None

    def trouble(self) -> str:
        """What is wrong with the last answer."""
        reading = self.memory.scraped.reading if self.memory.scraped is not None else None
        return reading.trouble.message if reading is not None and reading.trouble is not None else ""

    async def tick(self) -> None:
        """One pass."""
        now = time.time()
        if self._source is not None and self.memory.scraped is not None:
            self.memory.scraped.reading = self._source.reading(KEY)
        await sample(self.memory, FLEET, spec_of(owner()), self._reader, OperatorMetrics(), now)
        for route, state in self._states.items():
            block = self.memory.blocks.get(route)
            self._states[route], verdict = step(state, CONFIG, block, now, hold=self.hold())
            self.verdicts[route] = verdict
            if verdict.switched:
                self.switched[route] = now
        self.memory.blocks = {}


async def traffic(client: aiohttp.ClientSession, bed: Bed) -> None:
    """Short answers on both routes, for ever."""

    async def one(route: str) -> None:
        headers = {"x-route": route, "x-stub-acceptance": ACCEPTANCE[route]}
        body = {"messages": [], "max_tokens": 30}
        while True:
            async with client.post(f"{bed.router.url}/v1/chat/completions", json=body, headers=headers) as answer:
                await answer.read()

    await asyncio.gather(*(one(route) for route in (*ACCEPTANCE, *ACCEPTANCE)))


@contextlib.asynccontextmanager
async def running(*sides: Side) -> AsyncIterator[None]:
    """Passes of all of them, ten a second."""

    async def loop() -> None:
        while True:
            await asyncio.gather(*(side.tick() for side in sides))
            await asyncio.sleep(0.1)

    task = asyncio.create_task(loop())
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def followed(*sources: PrometheusSource) -> None:
    """Wait until there are samples: a server takes five seconds until it first scrapes."""

    def found() -> bool:
        return all((reading := one.reading(KEY)) is not None and POD.name in reading.routers for one in sources)

    await eventually_async("Prometheus has scraped the router", found)


@pytest.mark.parametrize("which", ["renamed", "raw", "annotated"])
async def test_what_prometheus_has_of_a_router_is_what_the_router_says(
    scraped: Scraped, source: PrometheusSource, client: aiohttp.ClientSession, which: str
) -> None:
    for route, acceptance in ACCEPTANCE.items():
        for stream in (False, True):
            headers = {"x-route": route, "x-stub-acceptance": acceptance}
            body = {"messages": [], "max_tokens": 40, "stream": stream}
            url = f"{scraped.bed.router.url}/v1/chat/completions"
            async with client.post(url, json=body, headers=headers) as answer:
                assert answer.status == 200
                await answer.read()
        async with client.post(url, json=body, headers={**headers, "x-stub-status": "400"}) as answer:
            assert answer.status == 400
    said = await asyncio.to_thread(scraped.bed.router.settled)
    source.want(KEY, Wanted(Endpoint(getattr(scraped, which).url), 1.0, 60.0, buckets=True))
    # All but what nothing is decided by.
    expected = [replace(row, completion_tokens=0, rounds=0) for row in said.rows]

    def same() -> bool:
        reading = source.reading(KEY)
        found = reading.routers.get(POD.name) if reading is not None else None
        if not found:
            return False
        newest = found[-1]
        return (
            route_totals(newest, DRAFT) == route_totals(said, DRAFT)
            and list(newest.rows) == expected
            and abs(newest.started_at - said.started_at) < samples.START_SLACK_SECONDS
        )

    assert route_totals(said, DRAFT).keys() == ACCEPTANCE.keys()
    assert all(row.stream_tpot_us.total and row.whole_answers and row.client_errors for row in expected)
    await eventually_async("Prometheus has the same", same)


@pytest.mark.usefixtures("scaled")
async def test_both_sources_give_the_same_switch_at_most_one_block_apart(
    scraped: Scraped, source: PrometheusSource, other: PrometheusSource, client: aiohttp.ClientSession
) -> None:
    async with aiohttp.ClientSession() as session:
        reader = RouterReader(session, scraped.bed.router.read)
        renamed = Side(reader, source, scraped.renamed.url)
        raw = Side(reader, other, scraped.raw.url)
        await followed(source, other)
        direct = Side(reader)
        sides = (direct, renamed, raw)
        load = asyncio.create_task(traffic(client, scraped.bed))
        async with running(*sides):
            await eventually_async("all switch", lambda: all(side.switched for side in sides), seconds=60)
        load.cancel()
    assert [side.switched.keys() for side in sides] == [{"chat"}] * 3
    for side in (renamed, raw):
        assert round(abs(direct.switched["chat"] - side.switched["chat"]) / BLOCK_SECONDS) <= 1
        assert side.verdicts["code"].pool == "speculative"
        told, same = (one.verdicts["chat"].acceptance_percent for one in (direct, side))
        assert told is not None
        assert same is not None
        assert abs(told - same) <= 2


@pytest.mark.usefixtures("scaled")
async def test_prometheus_slow_and_away_holds_the_decision_and_it_goes_on_when_it_is_back(
    scraped: Scraped, source: PrometheusSource, client: aiohttp.ClientSession
) -> None:
    async with aiohttp.ClientSession() as session:
        side = Side(RouterReader(session, scraped.bed.router.read), source, scraped.renamed.url)
        await followed(source)
        load = asyncio.create_task(traffic(client, scraped.bed))
        async with running(side):
            await eventually_async("it is read", lambda: side.hold() is None)
            scraped.renamed.freeze()
            await eventually_async("it is held", lambda: side.hold() is Hold.METRICS_UNAVAILABLE)
            await eventually_async("it is slow", lambda: "does not answer within 2 s" in side.trouble())
            assert side.said() is Reason.PROMETHEUS_UNREACHABLE
            scraped.renamed.stop()
            await eventually_async("it is away", lambda: "refuses the connection" in side.trouble())
            assert side.said() is Reason.PROMETHEUS_UNREACHABLE
            await asyncio.sleep(2 * BLOCK_SECONDS)
            held = side.verdicts["chat"]
            assert (held.pool, held.phase, side.switched) == ("speculative", "Held", {})
            await asyncio.to_thread(scraped.renamed.start)
            await eventually_async("it is read again", lambda: side.said() is None)
            await eventually_async("it switches", lambda: "chat" in side.switched, seconds=60)
            assert side.switched.keys() == {"chat"}
        load.cancel()

"""Source Prometheus over a fake clock: each bad answer of a real server holds the decision, and then it goes on."""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Any

import aiohttp
import pytest

from specfleet.api.conditions import Reason
from specfleet.decision.reasons import Hold
from specfleet.decision.rule import RouteConfig, start, step
from specfleet.handlers.conditions import Said
from specfleet.handlers.fleet import Fleet
from specfleet.handlers.memory import Memory
from specfleet.handlers.observed import Key
from specfleet.handlers.pods import PodRecord, pod_record
from specfleet.handlers.sampling import metrics_hold, sample
from specfleet.handlers.scraped import Scraper, Scraping, scraped_said
from specfleet.metrics.direct import RouterReader
from specfleet.metrics.own import OperatorMetrics
from specfleet.metrics.promapi import Endpoint
from specfleet.metrics.prometheus import PrometheusSource, Wanted
from specfleet.routing.counters import RouterSample
from specfleet.settings import PrometheusSettings
from tests.unit.handlers.samples import owner, pod, spec_of
from tests.unit.handlers.test_decide import state
from tests.unit.metrics.answers import Answers, Send, document, plain, router, slow

START = 1_800_000_000.0
KEY: Key = ("serving", "assistant")
BLOCK = 60.0
CONFIG = RouteConfig(initial="speculative", min_acceptance_percent=40, block_seconds=BLOCK, dwell_seconds=600.0)
ROUTERS = tuple(replace(pod_record(pod(f"assistant-router-7d9c-{n}", "router", None)), ip="127.0.0.1") for n in "abcd")
FLEET: Fleet = replace(state(), routers=ROUTERS, router_pods=ROUTERS)
HTML = b"<html><body>Sign in</body></html>"
MINUTE_TOKENS, MINUTE_REQUESTS = 400, 10


def spec(**metrics: Any) -> Any:
    """One with source Prometheus."""
    return spec_of(owner(metrics={"source": "Prometheus", **metrics}))


def scrape(at: float, *, routers: tuple[PodRecord, ...] = ROUTERS, **figures: Any) -> list[dict[str, Any]]:
    """What these routers had counted at `at`: 10 poor answers a minute each since two hours before the start."""
    minutes = (at - START + 7200.0) / 60.0
    counted = {
        "decode_tokens": math.floor(minutes) * MINUTE_TOKENS,
        "accepted": math.floor(minutes) * 4,
        "drafted": math.floor(minutes) * 400,
        "measured": math.floor(minutes) * MINUTE_REQUESTS,
        **figures,
    }
    uptime = figures.get("uptime", at - START + 7200.0)
    return [one for pod in routers for one in router(at, pod.name, **{**counted, "uptime": uptime})]


class World:
    """Passes over one SpecDeployment whose routers are out of reach, at times that the test sets."""

    def __init__(self, server: Answers, reader: RouterReader, source: PrometheusSource) -> None:
        self.server = server
        self.source = source
        self.now = START
        self.memory = Memory.new("uid-1", BLOCK, START)
        self.verdict = step(start(CONFIG, START), CONFIG, None, START)[1]
        self.switches = 0
        self.spec = spec()
        self._reader = reader
        self._scraper = Scraper(source, PrometheusSettings(url=server.url).model_copy(update={"timeout_seconds": 0.3}))
        self._state = start(CONFIG, START)

    async def passes(self, seconds: float, send: Callable[[float], Send], every: float = 30.0) -> None:
        """Passes for so long; `send` makes the answer for a time."""
        end = self.now + seconds
        while self.now < end:
            self.now += every
            self.server.send = send(self.now)
            await self.once()

    async def once(self) -> None:
        """One pass, on a fresh answer."""
        endpoint = self._scraper.endpoint(self.spec)
        assert endpoint is not None
        wanted = Wanted(endpoint, 15.0, 180.0)
        self.source.want(KEY, wanted)
        await self.source.ask(endpoint, {KEY: wanted})
        known = await self._scraper.follow(KEY, self.spec, BLOCK, self.memory.scraped, self.now)
        self.memory.sourced(known, self.now)
        await sample(self.memory, FLEET, spec(), self._reader, OperatorMetrics(), self.now)
        block = self.memory.blocks.pop("chat", None)
        self._state, self.verdict = step(self._state, CONFIG, block, self.now, hold=self.hold)
        self.switches += self.verdict.switched

    @property
    def hold(self) -> Hold | None:
        """Why nothing is decided."""
        return metrics_hold(self.memory, FLEET, self.now)

    @property
    def said(self) -> Said | None:
        """Condition MetricsAvailable where it is not True."""
        assert self.memory.scraped is not None
        return scraped_said(self.memory.scraped, self.hold, self.memory.ledger.stale_seconds)

    @property
    def reason(self) -> str | None:
        """Its reason."""
        return None if self.said is None else self.said.reason


@pytest.fixture
async def world() -> AsyncIterator[World]:
    async with aiohttp.ClientSession() as session:
        with Answers(well(START)) as server:
            yield World(server, RouterReader(session, 1), PrometheusSource(lambda key, seconds: None))


def well(at: float) -> Send:
    """All routers, scraped five seconds ago."""
    return plain(document(scrape(at - 5.0)))


def never(send: Send) -> Callable[[float], Send]:
    """The same bad answer, whenever."""
    return lambda at: send


def half(at: float) -> Send:
    """One of four routers."""
    return plain(document(scrape(at - 5.0, routers=ROUTERS[:1])))


def old(at: float) -> Send:
    """What was scraped before it stopped."""
    return plain(document(scrape(START + 60.0)))


def ahead(at: float) -> Send:
    """A clock that is wrong."""
    return plain(document(scrape(at + 600.0)))


BAD: list[tuple[str, Callable[[float], Send], Reason, str]] = [
    ("401", never(plain(b"", 401)), Reason.PROMETHEUS_UNAUTHORIZED, "answers 401"),
    ("503", never(plain(b"no backend", 503)), Reason.PROMETHEUS_FAILED, "answers 503"),
    ("HTML", never(plain(HTML, 200, "text/html")), Reason.PROMETHEUS_FAILED, "found HTML"),
    ("two minutes", never(slow), Reason.PROMETHEUS_UNREACHABLE, "does not answer within 0.3 s"),
    ("empty vector", never(plain(document([]))), Reason.ROUTERS_NOT_SCRAPED, "no series of any router"),
    (
        "warnings",
        lambda at: plain(document(scrape(at - 5.0), warnings=["half of it is away"])),
        Reason.PROMETHEUS_PARTIAL,
        "half of it is away",
    ),
    ("half", half, Reason.INSUFFICIENT_COVERAGE, "fewer than half of the routers"),
    ("stale", old, Reason.SERIES_STALE, "older than 90 s"),
    ("ahead", ahead, Reason.SERIES_UNUSABLE, "from the future"),
    (
        "no uptime",
        lambda at: plain(document(one for one in scrape(at - 5.0) if "uptime" not in one["metric"]["__name__"])),
        Reason.SERIES_UNUSABLE,
        "envoy_server_uptime is dropped",
    ),
    (
        "a counter is missing",
        lambda at: plain(document(one for one in scrape(at - 5.0) if "accepted" not in one["metric"]["__name__"])),
        Reason.SERIES_UNUSABLE,
        "some of the counters",
    ),
]


async def test_poor_acceptance_switches_as_with_direct_readings(world: World) -> None:
    await world.passes(1200.0, well)

    assert (world.reason, world.hold, world.switches) == (None, None, 1)
    assert (world.verdict.pool, world.verdict.acceptance_percent) == ("baseline", 1)


@pytest.mark.parametrize(("what", "send", "reason", "words"), BAD, ids=[one[0] for one in BAD])
async def test_a_bad_answer_holds_the_decision_says_why_and_it_goes_on_afterwards(
    world: World, what: str, send: Callable[[float], Send], reason: Reason, words: str
) -> None:
    # Two blocks of poor acceptance, then ten minutes of nothing that could be counted: by then it would have switched.
    await world.passes(120.0, well)
    assert world.reason is None
    await world.passes(180.0, send, every=60.0)
    frozen = world.verdict.evidence
    await world.passes(420.0, send, every=60.0)

    assert world.said is not None
    assert (world.said.status, world.said.reason) == ("False", reason)
    assert words in world.said.message
    assert world.said.message.endswith("last decision holds.")
    assert (world.verdict.pool, world.switches) == ("speculative", 0)
    assert world.verdict.evidence == frozen

    await world.passes(30.0, well)
    assert (world.reason, world.hold, world.switches) == (None, None, 0)
    await world.passes(900.0, well, every=60.0)
    assert (world.verdict.pool, world.switches) == ("baseline", 1)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1"])
async def test_values_that_are_no_counts_are_reported_and_left_out(world: World, value: str) -> None:
    await world.passes(120.0, well)
    await world.passes(600.0, lambda at: plain(document(scrape(at - 5.0, accepted=value))), every=60.0)

    assert world.memory.implausible  # condition FiguresImplausible
    assert (world.verdict.pool, world.switches) == ("speculative", 0)

    await world.passes(1200.0, well, every=60.0)
    assert not world.memory.implausible
    assert (world.verdict.pool, world.switches) == ("baseline", 1)


async def test_what_was_counted_while_nobody_looked_is_left_out(world: World) -> None:
    await world.passes(120.0, well)
    world.memory.ledger.take(world.now)
    await world.passes(600.0, never(plain(b"", 503)), every=60.0)
    await world.passes(30.0, well)
    await world.passes(30.0, well)
    taken = world.memory.ledger.take(world.now).increments["chat"]

    assert taken.requests <= 4 * MINUTE_REQUESTS
    assert taken.tokens == taken.requests * MINUTE_TOKENS // MINUTE_REQUESTS


async def test_samples_before_the_first_look_are_only_what_is_counted_from(world: World) -> None:
    def history(at: float) -> Send:
        return plain(document(joined(scrape(START - age) for age in (150.0, 90.0, 30.0)) if at <= START else []))

    def joined(scrapes: Any) -> list[dict[str, Any]]:
        first, *rest = [list(one) for one in scrapes]
        for one in rest:
            for whole, more in zip(first, one, strict=True):
                whole["values"] += more["values"]
        return first

    world.server.send = history(START)
    await world.once()
    assert world.hold is None

    assert sum(one.requests for one in world.memory.ledger.take(START + 1).increments.values()) == 0


async def test_a_restart_of_a_router_counts_from_zero(world: World) -> None:
    await world.passes(120.0, well)
    world.memory.ledger.take(world.now)

    def young(at: float) -> Send:
        return plain(document(scrape(at - 5.0, uptime=20.0, decode_tokens=80, accepted=2, drafted=80, measured=2)))

    world.memory.next_block = math.inf
    await world.passes(30.0, young)
    taken = world.memory.ledger.take(world.now)

    assert {problem.kind for problem in taken.problems} == {"Restart"}
    assert taken.increments["chat"].requests == 2 * len(ROUTERS)


async def test_another_source_is_another_count(world: World) -> None:
    await world.passes(120.0, well)
    assert world.memory.counted.keys() == {pod.uid for pod in ROUTERS}

    world.memory.sourced(None, world.now)

    assert world.hold is Hold.METRICS_UNAVAILABLE  # until the routers are read, which is in the same pass
    assert world.memory.counted == {}


async def test_a_url_of_the_object_gets_no_credentials(tmp_path: Any) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    settings = PrometheusSettings(url="http://prometheus:9090", bearer_token_file=token)
    scraper = Scraper(PrometheusSource(lambda key, seconds: None), settings)

    own = scraper.endpoint(spec(prometheus={"url": "http://prometheus:9090"}))
    shared = scraper.endpoint(spec())

    assert own is not None
    assert own.credentials is None
    assert shared is not None
    assert shared.credentials is not None
    assert shared.credentials.bearer_token_file == token
    assert scraper.endpoint(spec_of(owner())) is None


async def test_before_the_first_answer_nothing_is_said_to_be_wrong(world: World) -> None:
    endpoint = Endpoint(world.server.url)
    said = scraped_said(Scraping(endpoint, START), Hold.METRICS_UNAVAILABLE, 90.0)

    assert said is not None
    assert (said.status, said.reason) == ("Unknown", Reason.NO_DATA_YET)


async def test_room_is_told_by_prometheus_where_a_router_does_not_answer(world: World) -> None:
    await world.passes(60.0, well)
    assert world.memory.samples == {}
    assert world.memory.loads.keys() == {pod.uid for pod in ROUTERS}
    live = RouterSample(world.now, START, (), {"ngram": 7}, {}, 0, 0)
    world.memory.samples[ROUTERS[0].uid] = live
    assert world.memory.loads[ROUTERS[0].uid] is live

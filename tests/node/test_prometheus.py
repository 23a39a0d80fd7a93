"""Source Prometheus beside Direct on the same traffic, and a Prometheus that is gone, slow or answers half."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest

from tests.node import routers
from tests.node.conftest import Fleet
from tests.node.install import apply_and_wait, remove
from tests.node.kube import Kube, condition, wait_for
from tests.node.load import Load
from tests.node.prometheus import Fault, FaultyProxy, during, scrape, server
from tests.node.stub_fleet import DRAFT, stub_fleet
from tests.node.traffic import Ask, Clients
from tests.node.twin import TwinLoad
from tests.testbed.prometheus_server import PrometheusServer

pytestmark = pytest.mark.node

BLOCK_SECONDS = 5
ROUTES: list[dict[str, Any]] = [
    {"name": "code", "match": [{"header": {"name": "x-route", "value": "code"}}]},
    {"name": "chat"},
]
POLICY = {
    "initial": "Speculative",
    "minAcceptancePercent": 30,
    "breakEven": {"source": "Fixed", "tokensPerStep": "1.50"},
    "block": f"{BLOCK_SECONDS}s",
    "dwell": "10s",
}
GOOD, BAD = "0.9", "0.02"
TEN_MINUTES = 600.0
LONGER_THAN_STALE = 150.0
"""Readings older than 90 s are stale; only then is it said that there are none."""
_NUMBERS = itertools.count(1)

Make = Callable[[str | None], Fleet]


def say(line: str) -> None:
    print(line)


@pytest.fixture(scope="module")
def prometheus(kube: Kube, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusServer]:
    """A Prometheus that runs, and is told what to scrape by `scrape`."""
    running = server(tmp_path_factory.mktemp("prometheus")).start()
    yield running
    running.stop()


@pytest.fixture
def make(kube: Kube, stub: str, namespace: str) -> Iterator[Make]:
    """Makes ready fleets of stub engines that all serve the model `twin`, read through the Prometheus at a URL."""
    made: list[str] = []

    def make(url: str | None) -> Fleet:
        manifest = stub_fleet(f"metered-{next(_NUMBERS)}", namespace, stub, routes=ROUTES, policy=POLICY)
        manifest["spec"]["target"]["servedName"] = "twin"
        if url is not None:
            manifest["spec"]["metrics"] = {"source": "Prometheus", "prometheus": {"url": url}}
        made.append(manifest["metadata"]["name"])
        return Fleet(kube, apply_and_wait(kube, manifest, say, seconds=180))

    yield make
    for name in made:
        remove(kube, name, namespace)


def traffic(chat_acceptance: str) -> list[Clients]:
    """Two clients of route code, whose drafts are always good, and four of chat."""
    return [_clients("code", 2, {"x-route": "code", "x-stub-acceptance": GOOD}), _chat(chat_acceptance)]


def _chat(acceptance: str) -> Clients:
    return _clients("chat", 4, {"x-stub-acceptance": acceptance})


def _clients(route: str, count: int, headers: dict[str, str]) -> Clients:
    def make(draw: random.Random, number: int) -> Ask:
        body: dict[str, Any] = {
            "model": "twin",
            "messages": [{"role": "user", "content": "x" * draw.randrange(10, 200)}],
            "max_tokens": 20,
            "stream": number % 2 == 0,
        }
        return Ask(route, body, headers)

    return Clients(count, make)


def switches(fleet: Fleet, route: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = fleet.route(route).get("history", [])
    return found


def first_switch(fleet: Fleet, route: str) -> dict[str, Any] | None:
    """The route's first switch; None before it."""
    return next(reversed(switches(fleet, route)), None)


def figures(fleet: Fleet, route: str) -> str | None:
    """Tokens per step as the status shows them; None before the first."""
    found: str | None = fleet.route(route).get("tokensPerStep")
    return found


def at(switch: dict[str, Any]) -> datetime:
    return datetime.fromisoformat(switch["at"])


def metrics_condition(fleet: Fleet) -> dict[str, Any]:
    found = condition(fleet.body(), "MetricsAvailable")
    assert found is not None
    return found


def enough(load: Load, count: int) -> Callable[[], bool | None]:
    wanted = load.tally.total + count
    return lambda: load.tally.total >= wanted or None


def test_both_sources_switch_within_one_block_of_each_other(
    kube: Kube, prometheus: PrometheusServer, make: Make
) -> None:
    direct, scraped = make(None), make(prometheus.url)
    scrape(prometheus, kube, [(scraped.name, scraped.namespace)])
    with TwinLoad((direct.endpoint, scraped.endpoint), traffic(GOOD)) as load:
        for one in (direct, scraped):
            wait_for(f"figures of {one.name}", partial(figures, one, "chat"), seconds=90)
        load.change(traffic(BAD))
        changed = datetime.now(UTC)
        for one in (direct, scraped):
            wait_for(f"a switch of {one.name}", partial(first_switch, one, "chat"), seconds=180)

    # Blocks of the two do not begin together: what is compared is in which block after the change each has decided.
    blocks = [
        math.ceil((at(switches(one, "chat")[0]) - changed).total_seconds() / BLOCK_SECONDS) for one in (direct, scraped)
    ]
    print(f"the switches came in blocks {blocks}")
    assert abs(blocks[0] - blocks[1]) <= 1
    for one in (direct, scraped):
        assert [switch["pool"] for switch in switches(one, "chat")] == ["baseline"]
        assert switches(one, "code") == []
    assert load.failures == []


@pytest.mark.parametrize(
    ("fault", "reason", "seconds"),
    [
        ("slow", "PrometheusUnreachable", LONGER_THAN_STALE),
        ("half the bytes", "PrometheusUnreachable", LONGER_THAN_STALE),
        ("half the series", "SeriesUnusable", LONGER_THAN_STALE),
    ],
)
def test_answers_that_cannot_be_used_move_nothing(
    kube: Kube, prometheus: PrometheusServer, make: Make, fault: Fault, reason: str, seconds: float
) -> None:
    with FaultyProxy(prometheus.url) as proxy:
        fleet = make(proxy.url)
        scrape(prometheus, kube, [(fleet.name, fleet.namespace)])

        def spoil() -> None:
            proxy.fault = fault

        def mend() -> None:
            proxy.fault = "none"

        _nothing_moves(fleet, spoil, mend, reason, seconds)


def test_a_prometheus_that_is_gone_for_ten_minutes_moves_nothing(
    kube: Kube, prometheus: PrometheusServer, make: Make
) -> None:
    fleet = make(prometheus.url)
    scrape(prometheus, kube, [(fleet.name, fleet.namespace)])

    def mend() -> None:
        prometheus.start()

    _nothing_moves(fleet, prometheus.stop, mend, "PrometheusUnreachable", TEN_MINUTES)


def _nothing_moves(
    fleet: Fleet, spoil: Callable[[], None], mend: Callable[[], None], reason: str, seconds: float
) -> None:
    """Chat goes bad while nothing can be read of it: no switch, the condition says why, and decisions resume."""
    with Load(fleet.endpoint, traffic(GOOD)) as good:
        wait_for("figures of chat", partial(figures, fleet, "chat"), seconds=90)
        wait_for("50 answers", enough(good, 50), seconds=60)
        spoil()
    with Load(fleet.endpoint, traffic(BAD)) as load:
        during(seconds, lambda: _no_switch(fleet), every=5.0)
        said = metrics_condition(fleet)
        assert (said["status"], said["reason"]) == ("False", reason), said
        mend()
        wait_for("a switch of chat", partial(first_switch, fleet, "chat"), seconds=180)
        wait_for("metrics", lambda: metrics_condition(fleet)["status"] == "True" or None, seconds=60)
    assert [switch["pool"] for switch in switches(fleet, "chat")] == ["baseline"]
    assert switches(fleet, "code") == []
    assert good.tally.failures + load.tally.failures == []


def _no_switch(fleet: Fleet) -> None:
    for route in ("chat", "code"):
        assert switches(fleet, route) == []
        assert routers.all_serve(fleet.kube, fleet.name, fleet.namespace, route, DRAFT, range(100, 101))

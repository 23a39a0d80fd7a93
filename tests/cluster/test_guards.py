"""Guards on a real API server: engines that refuse under speculation, and pools that are short of room."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.addresses import ENGINE_ADDRESS
from tests.cluster.api import Body, eventually
from tests.cluster.conftest import World
from tests.cluster.http_server import PROMETHEUS_TEXT, Answer, HttpServer
from tests.cluster.live_fleet import QUICK, Engines, LiveFleet

pytestmark = pytest.mark.cluster

ROUTES = ("code", "chat")


@pytest.fixture
def refusing(fleet: LiveFleet, engines: Engines) -> Iterator[LiveFleet]:
    """A fleet whose speculative engine answers 400 to every request."""
    engine = engines.speculative
    usual = engine.options
    engine.kill()
    engine.options = (*usual, "--answer-status", "400")
    engine.start()
    yield fleet
    engine.kill()
    engine.options = usual
    engine.start()


def test_engines_that_refuse_under_speculation_lose_their_routes_and_no_request_after_that(
    refusing: LiveFleet,
) -> None:
    fleet, world = refusing, refusing.world
    world.create(policy=QUICK)
    world.start()
    fleet.settled()
    with fleet.traffic() as requests:
        for route in ROUTES:
            fleet.serve(route, 0)
        requests.go_on(len(requests.loads) * 4)  # those that were under way
        failed = len(requests.failures)
        assert failed >= 2 * 10
        requests.go_on(100)
        assert len(requests.failures) == failed
    assert {failure.status for failure in requests.failures} == {400}
    for route in ROUTES:
        found = world.route(route)
        assert (found["pool"], found["reason"]) == ("baseline", "RequestsRefused")
        assert found["speculativePercent"]["intended"] == 0
        (switch,) = found["history"]
        assert switch["reason"] == "RequestsRefused"
        assert "with 4xx under speculation" in switch["message"]
    eventually("both are told", lambda: len(world.events("SpeculationOff")) == 2)
    assert all("4xx" in event["note"] for event in world.events("SpeculationOff"))
    metrics = world.operators[0].get("/metrics")
    labels = f'deployment="assistant",namespace="{world.namespace}",pool="baseline"'
    assert f"specfleet_operator_switches_total{{{labels}}} 2.0" in metrics


def test_an_slo_that_baseline_is_not_shown_to_keep_freezes_the_route_and_says_so(fleet: LiveFleet) -> None:
    world = fleet.world
    world.create(policy={**QUICK, "block": "3s", "slo": {"timePerOutputToken": "1ms", "percentile": 50}})
    world.start()
    fleet.settled()
    with fleet.traffic() as requests:
        eventually("the route is held", lambda: world.route("chat")["reason"] == "Overloaded")
        failures = requests.failures
    chat = world.route("chat")
    assert (chat["pool"], chat["phase"], chat["history"]) == ("ngram", "Held", [])
    assert "Time per output token at percentile 50 is " in chat["message"]
    assert "over 1 ms, and baseline is not shown to be faster with the load" in chat["message"]
    assert failures == []
    said = world.condition("Overloaded")  # of engines that cannot be read, nothing is known, and that is said
    assert (said["status"], said["reason"]) == ("Unknown", "LoadUnknown")
    assert "overload would not be seen, and guards that rest on these pages say nothing" in said["message"]


class Pages:
    """The page of the engines of both pools, which are at one address here. Close it."""

    def __init__(self) -> None:
        self.waiting = 0
        self.asked = 0
        self._server = HttpServer(ENGINE_ADDRESS, 8000, self._answer)

    def _answer(self, path: str) -> Answer:
        if path != "/metrics":
            return 404, "text/plain", b""
        self.asked += 1
        label = '{engine="0",model_name="assistant"}'
        figures = {
            "num_requests_running": 8,
            "num_requests_waiting": self.waiting,
            "kv_cache_usage_perc": 0.5,
            "num_preemptions_total": 0,
            "generation_tokens_total": 1000,
        }
        lines = [f"vllm:{name}{label} {value}" for name, value in figures.items()]
        return 200, PROMETHEUS_TEXT, "\n".join([*lines, ""]).encode()

    def close(self) -> None:
        """Answer no more."""
        self._server.close()


@pytest.fixture
def pages() -> Iterator[Pages]:
    """The engines' page."""
    one = Pages()
    yield one
    one.close()


def poor(world: World) -> None:
    """One block's worth of answers that speak against speculation on route chat."""
    for router in world.routers:
        router.count("chat", "ngram", measured=30, decode_tokens=1530, accepted=30, drafted=1200)


def test_overload_freezes_a_switch_that_is_due_and_it_falls_when_it_is_over(world: World, pages: Pages) -> None:
    world.create(policy=QUICK)
    world.start()
    world.settled()
    world.until("Overloaded", "False", "LoadBearable")
    pages.waiting = 3
    world.until("Overloaded", "True", "PoolsOverloaded")

    def held() -> Body | None:
        poor(world)
        chat = world.route("chat")
        return chat if (chat["phase"], chat["reason"]) == ("Held", "Overloaded") else None

    eventually("the route is held", held)
    until = pages.asked + 2 * 8  # eight blocks of two pods each, where five would switch it off

    def longer() -> bool:
        poor(world)
        return pages.asked >= until

    eventually("the peak lasts", longer)
    assert world.route("chat")["pool"] == "ngram"
    assert world.route("chat")["history"] == []
    world.speculation("code", "Never")  # a person's word acts all the same
    world.served("code", 0)
    pages.waiting = 0
    world.until("Overloaded", "False")

    def off() -> bool:
        poor(world)
        return bool(world.route("chat")["pool"] == "baseline")

    eventually("chat is served by baseline", off, 90.0)
    assert [one["reason"] for one in world.route("chat")["history"]] == ["BelowAcceptance"]

"""SGLang pools on a real API server: what the engine counts by route is what moves a route."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.addresses import ENGINE_ADDRESS
from tests.cluster.api import eventually
from tests.cluster.conftest import World
from tests.cluster.http_server import PROMETHEUS_TEXT, HttpServer
from tests.cluster.routers import served_of

pytestmark = pytest.mark.cluster

# Where the kubelet's double says that engine pods are, and where SGLang listens.
ADDRESS, PORT = ENGINE_ADDRESS, 30000
ENGINE = {"type": "SGLang", "version": "0.5.23"}
LABELS = 'model_name="assistant",engine_type="unified"'


class Page:
    """The metrics page of the one speculative pod. Close it."""

    def __init__(self) -> None:
        self.counts: dict[str, list[int]] = {"code": [0, 0, 0], "chat": [0, 0, 0]}
        self.verifies = True
        self._server = HttpServer(ADDRESS, PORT, lambda _: (200, PROMETHEUS_TEXT, self.text().encode()))

    def text(self) -> str:
        """As 0.5.13 and later write it; without verifications, as before."""
        lines = [f"sglang:generation_tokens_total{{{LABELS}}} 0.0"]
        for route, (tokens, requests, verified) in self.counts.items():
            labels = f'{LABELS},route="{route}"'
            lines += [
                f'sglang:generation_tokens_total{{{labels},is_streaming="false"}} {tokens}',
                f'sglang:num_requests_total{{{labels},is_streaming="false"}} {requests}',
            ]
            lines += [f"sglang:spec_verify_calls_total{{{labels}}} {verified}"] if verified and self.verifies else []
        return "\n".join([*lines, ""])

    def count(self, route: str, *, requests: int, tokens: int, verified: int) -> None:
        """So many requests have ended, with so many tokens each in so many verifications."""
        known = self.counts[route]
        self.counts[route] = [known[0] + requests * tokens, known[1] + requests, known[2] + requests * verified]

    def close(self) -> None:
        """Answer no more."""
        self._server.close()


@pytest.fixture
def page() -> Iterator[Page]:
    """The engine's page."""
    one = Page()
    yield one
    one.close()


def test_what_the_engine_counts_by_route_moves_the_poor_route_and_leaves_the_other(world: World, page: Page) -> None:
    world.create(engine=ENGINE)
    world.start()
    world.settled()
    assert world.status()["attribution"] == "Engine"

    def counted() -> bool:
        # chat: 50 decode tokens in 49 verifications; code: 50 in 16.
        page.count("chat", requests=30, tokens=51, verified=49)
        page.count("code", requests=30, tokens=51, verified=16)
        return bool(world.route("chat")["pool"] == "baseline")

    eventually("chat is served by baseline", counted, 90.0)
    chat, code = world.route("chat"), world.route("code")
    assert chat["reason"] == "BelowAcceptance"
    assert chat["acceptancePercent"] < 5
    assert (code["pool"], code["acceptancePercent"]) == ("ngram", 53)
    assert world.condition("MetricsAvailable")["reason"] == "EngineCountersRead"
    routes = world.api.get("ConfigMap", world.namespace, "assistant-routes")
    assert routes is not None
    assert served_of(routes["data"])["routes"]["code"]["ngram"] == 100
    assert '{"route":"chat"}' in routes["data"]["rds.yaml"]


def test_an_engine_that_counts_no_verifications_moves_nothing_and_says_so(world: World, page: Page) -> None:
    page.verifies = False
    world.create(engine=ENGINE | {"version": "0.5.12"})
    world.start()
    page.count("chat", requests=30, tokens=51, verified=49)
    said = world.until("MetricsAvailable", "False", "EngineCountsNothing")

    assert "from release 0.5.13 on" in said["message"]
    assert world.route("chat")["pool"] == "ngram"


def test_a_page_that_does_not_answer_is_told_with_the_pod(world: World) -> None:
    world.create(engine=ENGINE)
    world.start()
    said = world.until("MetricsAvailable", "False", "EngineMetricsUnreadable")

    assert "Pod assistant-ngram-" in said["message"]
    assert f"port {PORT}" in said["message"]

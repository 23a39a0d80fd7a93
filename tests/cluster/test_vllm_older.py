"""vLLM before 0.29 on a real API server: one count of the engine's moves every route that the policy decides about."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.addresses import ENGINE_ADDRESS
from tests.cluster.api import eventually
from tests.cluster.conftest import World
from tests.cluster.http_server import PROMETHEUS_TEXT, HttpServer
from tests.cluster.routers import served_of

pytestmark = pytest.mark.cluster

# Where the kubelet's double says that engine pods are, and where vLLM listens.
ADDRESS, PORT = ENGINE_ADDRESS, 8000
ENGINE = {"type": "vLLM", "version": "0.28.0"}
COUNTERS = (
    "generation_tokens",
    "request_success",
    "spec_decode_num_drafts",
    "spec_decode_num_draft_tokens",
    "spec_decode_num_accepted_tokens",
)


class Page:
    """The metrics page of the one speculative pod. Close it."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(COUNTERS, 0)
        self._server = HttpServer(ADDRESS, PORT, lambda _: (200, PROMETHEUS_TEXT, self.text().encode()))

    def text(self) -> str:
        """As the V1 engine of 0.8.5 to 0.33 writes it; no series knows a route."""
        labels = '{engine="0",model_name="assistant"}'
        lines = [f"vllm:{name}_total{labels} {count}.0" for name, count in self.counts.items()]
        return "\n".join(["process_start_time_seconds 1.0", *lines, ""])

    def count(self, *, requests: int, tokens: int, drafts: int, accepted: int) -> None:
        """So many requests have ended, each with so many tokens, drafts of four tokens, and accepted ones."""
        for name, each in zip(COUNTERS, (tokens, 1, drafts, 4 * drafts, accepted), strict=True):
            self.counts[name] += requests * each

    def close(self) -> None:
        """Answer no more."""
        self._server.close()


@pytest.fixture
def page() -> Iterator[Page]:
    """The engine's page."""
    one = Page()
    yield one
    one.close()


def test_one_poor_count_moves_every_route_of_the_policy_and_none_that_a_person_decided(
    world: World, page: Page
) -> None:
    routes = [
        {"name": "pinned", "match": [{"model": "pinned"}], "speculation": "Always"},
        {"name": "code", "match": [{"model": "code"}]},
        {"name": "chat"},
    ]
    world.create(engine=ENGINE, routing={"routes": routes})
    world.start()
    world.settled()
    assert world.status()["attribution"] == "Deployment"
    engine = world.api.get("Deployment", world.namespace, "assistant-ngram")
    assert engine is not None
    words = engine["spec"]["template"]["spec"]["containers"][0]["args"]
    assert [word.partition("=")[0] for word in words if "spec" in word] == ["--speculative-config"]

    def counted() -> bool:
        # 50 decode tokens in 46 steps: 4 of 184 drafted ones accepted.
        page.count(requests=30, tokens=51, drafts=46, accepted=4)
        return {world.route(name)["pool"] for name in ("code", "chat")} == {"baseline"}

    eventually("code and chat are served by baseline", counted, 90.0)
    code, chat, pinned = (world.route(name) for name in ("code", "chat", "pinned"))
    assert (code["reason"], code["acceptancePercent"]) == (chat["reason"], chat["acceptancePercent"])
    assert (chat["reason"], chat["acceptancePercent"]) == ("BelowAcceptance", 2)
    assert chat["message"].endswith("Decided for all routes together.")
    assert pinned["pool"] == "ngram"
    metrics = world.condition("MetricsAvailable")
    assert metrics["reason"] == "EngineCountersRead"
    assert metrics["message"].startswith("vLLM 0.28.0's answers carry no figures, which they do from 0.29.0 on")
    table = world.api.get("ConfigMap", world.namespace, "assistant-routes")
    assert table is not None
    assert {name: pools["ngram"] for name, pools in served_of(table["data"])["routes"].items()}["pinned"] == 100


def test_a_page_without_drafts_moves_nothing_and_says_so(world: World, page: Page) -> None:
    page.counts = {"generation_tokens": 0, "request_success": 0}
    world.create(engine=ENGINE)
    world.start()
    said = world.until("MetricsAvailable", "False", "EngineCountsNothing")

    assert "have no series vllm:spec_decode_*" in said["message"]
    assert world.route("chat")["pool"] == "ngram"

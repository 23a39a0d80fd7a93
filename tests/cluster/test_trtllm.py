"""TensorRT-LLM pools on a real API server: files and pods, one count for all routes, and its own gate."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from tests.cluster.addresses import ENGINE_ADDRESS
from tests.cluster.api import Body, eventually
from tests.cluster.conftest import World
from tests.cluster.http_server import PROMETHEUS_TEXT, Answer, HttpServer

pytestmark = pytest.mark.cluster

# Where the kubelet's double says that engine pods are, and where the engine listens.
ADDRESS, PORT = ENGINE_ADDRESS, 8000
ENGINE = {"type": "TensorRTLLM", "version": "1.4.0rc1", "config": "kv_cache_config: {free_gpu_memory_fraction: 0.8}\n"}
GATE = {"acceptance_rate_window_size": "100", "acceptance_rate_threshold": "0.3"}
LABELS = 'model_name="assistant",engine_type="trtllm"'


class Page:
    """The Prometheus page of the one speculative pod. Close it."""

    def __init__(self) -> None:
        self.tokens = self.requests = self.drafted = self.accepted = 0
        self.asked: set[str] = set()
        self._server = HttpServer(ADDRESS, PORT, self._answer)

    def _answer(self, path: str) -> Answer:
        self.asked.add(path)
        return 200, PROMETHEUS_TEXT, self.text().encode()

    def text(self) -> str:
        """Series that have had no sample are not there, as with the engine's own collectors."""
        values = {
            "trtllm_generation_tokens_total": self.tokens,
            "trtllm_spec_decode_num_draft_tokens_total": self.drafted,
            "trtllm_spec_decode_num_accepted_tokens_total": self.accepted,
        }
        lines = [f"{name}{{{LABELS}}} {value}" for name, value in values.items() if value]
        if self.requests:
            lines.append(f'trtllm_request_success_total{{{LABELS},finished_reason="stop"}} {self.requests}')
        info = f'trtllm_speculative_config_info{{{LABELS},spec_enabled="True"}} 1.0'
        return "\n".join([*lines, f"trtllm_num_requests_running{{{LABELS}}} 1", info, ""])

    def count(self, *, requests: int, tokens: int, drafted: int, accepted: int) -> None:
        """So many requests more have ended, with so many tokens, drafted and accepted ones each."""
        self.requests += requests
        self.tokens += requests * tokens
        self.drafted += requests * drafted
        self.accepted += requests * accepted

    def close(self) -> None:
        """Answer no more."""
        self._server.close()


@pytest.fixture
def page() -> Iterator[Page]:
    """The engine's page."""
    one = Page()
    yield one
    one.close()


def objects(world: World, kind: str, *names: str) -> list[Body]:
    found = [world.api.get(kind, world.namespace, name) for name in names]
    assert None not in found
    return [one for one in found if one is not None]


def test_one_count_moves_all_routes_and_pods_are_started_with_their_file(world: World, page: Page) -> None:
    world.create(engine=ENGINE)
    world.start()
    world.settled()

    assert world.status()["attribution"] == "Deployment"
    pools = ("assistant-baseline", "assistant-ngram")
    files = [
        yaml.safe_load(one["data"]["config.yaml"])
        for one in objects(world, "ConfigMap", *(f"{p}-config" for p in pools))
    ]
    drafts = files[1].pop("speculative_config")
    assert drafts == {"decoding_type": "NGram", "max_draft_len": 4, "max_matching_ngram_size": 4}
    assert files[0] == files[1]
    assert files[0]["kv_cache_config"] == {"free_gpu_memory_fraction": 0.8}
    for name, one in zip(pools, objects(world, "Deployment", *pools), strict=True):
        pod = one["spec"]["template"]["spec"]
        assert pod["containers"][0]["command"] == ["trtllm-serve"]
        assert "--host=0.0.0.0" in pod["containers"][0]["args"]
        assert {"name": f"{name}-config", "defaultMode": 420} in [v.get("configMap") for v in pod["volumes"]]

    def counted() -> bool:
        # 50 decode tokens in 49 iterations that drafted 4 each: hardly a draft is accepted.
        page.count(requests=30, tokens=51, drafted=196, accepted=1)
        return all(world.route(name)["pool"] == "baseline" for name in ("code", "chat"))

    eventually("all routes are served by baseline", counted, 90.0)
    chat = world.route("chat")
    assert chat["reason"] == "BelowAcceptance"
    assert chat["acceptancePercent"] < 5
    said = world.condition("MetricsAvailable")
    assert (said["status"], said["reason"]) == ("True", "EngineCountersRead")
    assert "all routes are decided together" in said["message"]
    assert "/metrics" not in page.asked


def test_an_engine_whose_gate_has_closed_is_said_to_be_suppressed(world: World, page: Page) -> None:
    draft = {"name": "ngram", "mode": "NGram", "tokens": 4, "args": GATE}
    world.create(
        engine=ENGINE, drafts=[draft], policy={"enforcement": "Observe", "initial": "Speculative", "block": "2s"}
    )
    world.start()
    world.settled()
    page.count(requests=10, tokens=51, drafted=60, accepted=35)
    eventually("speculation is active", lambda: world.condition("SpeculationActive")["reason"] == "Speculating")

    def drafting_no_more() -> bool:
        page.count(requests=30, tokens=51, drafted=0, accepted=0)
        return bool(world.condition("SpeculationActive")["reason"] == "EngineSuppressed")

    eventually("the gate is seen", drafting_no_more, 60.0)
    said = world.condition("SpeculationActive")
    assert said["status"] == "False"
    assert "its own gate (acceptance_rate_threshold, acceptance_rate_window_size)" in said["message"]
    assert world.condition("Ready")["status"] == "True"


def test_a_release_that_counts_nothing_says_so_and_is_not_asked(world: World, page: Page) -> None:
    world.create(engine=ENGINE | {"version": "1.2.1"})
    world.start()
    said = world.until("MetricsAvailable", "False", "EngineCountsNothing")

    assert "from 1.3.0rc13 on" in said["message"]
    assert page.asked == set()


def test_a_config_with_an_owned_key_is_said_with_the_field_to_use(world: World) -> None:
    world.create(engine=ENGINE | {"config": "speculative_config: {decoding_type: MTP}\n"})
    world.start(wait=False)
    said = world.until("Valid", "False", "OwnedFlag")

    assert "spec.engine.config[speculative_config]" in said["message"]
    assert "speculation is described by spec.drafts" in said["message"]

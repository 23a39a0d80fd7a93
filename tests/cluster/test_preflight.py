"""Preflights on a real API server: the Job is a real one, and its container runs here, on real files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from specfleet.preflight.job import run_job
from specfleet.routing.clusters import UNLIMITED
from tests.cluster.addresses import ENGINE_ADDRESS
from tests.cluster.api import Body, eventually
from tests.cluster.conftest import World
from tests.cluster.http_server import PROMETHEUS_TEXT, Answer, HttpServer
from tests.unit.preflight.models import CONFIG, tokenizer, write
from tests.unit.sizing.models import LLAMA_1B, LLAMA_8B

pytestmark = pytest.mark.cluster

NAME = "specfleet.dev/preflight"


class Containers:
    """What the kubelet says of preflight pods; engine and router pods are as ever.

    Attributes:
        ending: makes the state of an ended container from its pod; None leaves the pod waiting for a node.
    """

    def __init__(self, world: World, directory: Path) -> None:
        self._world, self._log = world, directory / "termination-log"
        self._said: dict[str, Body] = {}
        self.pods: list[Body] = []
        self.ending: Any = self.run
        self.speculative_pods = 0
        world.kubelet.trouble = self.status

    def status(self, pod: Body) -> Body | None:
        """The status of a preflight's pod; None for others."""
        labels = pod["metadata"]["labels"]
        if labels.get("specfleet.dev/pool") == "small":
            self.speculative_pods += 1
        if labels.get("app.kubernetes.io/component") != "preflight":
            return None
        uid = pod["metadata"]["uid"]
        if uid not in self._said:
            self.pods.append(pod)
            self._said[uid] = self.ending(pod)
        return self._said[uid]

    def run(self, pod: Body) -> Body:
        """Run the container: the operator's own image has this code, and volumes are where models name them."""
        container = pod["spec"]["containers"][0]
        assert [*container["command"], *container["args"]] == ["specfleet", "preflight", "--job"]
        environment = {one["name"]: one.get("value", "") for one in container["env"]}
        status = run_job(environment, self._log)
        return ended(self._log.read_text(), status)


def ended(message: str, code: int = 0, **more: Any) -> Body:
    """The status of a pod whose container has ended."""
    state = {"terminated": {"exitCode": code, "message": message, "reason": "Completed" if code == 0 else "Error"}}
    return {
        "phase": "Failed" if code else "Succeeded",
        "containerStatuses": [
            {"name": "preflight", "image": "s", "imageID": "", "ready": False, "restartCount": 0, "state": state}
        ],
        **more,
    }


def waiting(_: Body) -> Body:
    """The status of a pod that no node has room for."""
    return {
        "phase": "Pending",
        "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes are available"}
        ],
    }


@pytest.fixture
def containers(world: World, tmp_path: Path) -> Containers:
    return Containers(world, tmp_path)


@pytest.fixture
def models(tmp_path: Path) -> Path:
    directory = tmp_path / "models"
    write(directory / "target", None, tokenizer())
    write(directory / "small", CONFIG | {"hidden_size": 32}, tokenizer())
    return directory


def spec(models: Path, **draft: Any) -> Body:
    """Target and draft model from claims that are mounted at the paths of these directories."""

    def model(name: str) -> Body:
        return {"model": str(models / name), "source": {"persistentVolumeClaim": {"claimName": name}}}

    return {
        "target": model("target"),
        "drafts": [{"name": "small", "mode": "DraftModel", **model("small"), **draft}],
    }


def other_tokenizer(models: Path) -> None:
    write(models / "small", None, tokenizer(special={"<s>": 5, "</s>": 6, "<|eom_id|>": 7}))


def pool_exists(world: World) -> bool:
    return world.api.get("Deployment", world.namespace, "assistant-small") is not None


def test_a_draft_of_another_tokenizer_is_stopped_before_any_pod_and_the_tokens_are_named(
    world: World, containers: Containers, models: Path
) -> None:
    other_tokenizer(models)
    world.create(**spec(models))
    world.start()
    said = world.until("DraftCompatible", "False", "DraftIncompatible")
    assert '"<pad>" is 7 in the target, missing in the draft' in said["message"]
    assert '"<|eom_id|>" is missing in the target, 7 in the draft' in said["message"]
    assert world.until("Stalled", "True", "DraftIncompatible")
    assert world.until("Reconciling", "False", "DraftIncompatible")
    eventually("baseline serves alone", lambda: "Pool baseline serves" in world.condition("Ready")["message"])
    assert world.condition("Ready")["reason"] == "DraftIncompatible"
    assert not pool_exists(world)
    assert containers.speculative_pods == 0
    eventually("the Job is removed with its verdict", lambda: not world.api.list("Job", world.namespace))
    # The person takes another draft.
    write(models / "mended", CONFIG | {"hidden_size": 32}, tokenizer())
    drafts = spec(models)["drafts"]
    drafts[0] |= {"model": str(models / "mended")}
    world.edit({"drafts": drafts})
    world.until("DraftCompatible", "True", "DraftFits")
    world.settled()
    assert pool_exists(world)
    assert len(containers.pods) == 2


def test_a_pair_that_fits_is_compared_once_and_not_again_by_the_next_operator(
    world: World, containers: Containers, models: Path
) -> None:
    world.create(**spec(models))
    first = world.start()
    world.settled()
    said = world.until("DraftCompatible", "True", "DraftFits")
    assert said["message"] == "The draft fits the target."
    status = world.status()["preflight"]
    assert status["outcome"] == "Passed"
    pod = containers.pods[0]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert "nvidia.com/gpu" not in json.dumps(pod["containers"][0]["resources"])
    assert {one["persistentVolumeClaim"]["claimName"] for one in pod["volumes"]} == {"target", "small"}
    assert all(one["readOnly"] for one in pod["containers"][0]["volumeMounts"])
    first.stop()
    world.start()
    world.edit({"pools": {"replicas": 3}})
    world.settled()
    assert world.status()["preflight"] == status
    assert len(containers.pods) == 1
    world.edit({"drafts": spec(models, tokens=5)["drafts"]})
    eventually("another k is compared anew", lambda: world.status()["preflight"]["key"] != status["key"])
    assert len(containers.pods) == 2


def test_a_pool_that_runs_is_left_alone_by_a_draft_that_does_not_fit(
    world: World, containers: Containers, models: Path
) -> None:
    world.create(**spec(models))
    world.start()
    world.settled()
    other_tokenizer(models)
    before = world.api.get("Deployment", world.namespace, "assistant-small")
    world.edit({"drafts": spec(models, tokens=5)["drafts"]})
    world.until("Stalled", "True", "DraftIncompatible")
    after = world.api.get("Deployment", world.namespace, "assistant-small")
    assert before is not None
    assert after is not None
    assert after["spec"] == before["spec"]
    assert world.condition("Ready")["status"] == "True"


def test_warn_says_it_and_serves(world: World, containers: Containers, models: Path) -> None:
    other_tokenizer(models)
    world.create(**spec(models, preflight="Warn"))
    world.start()
    world.until("DraftCompatible", "False", "DraftIncompatible")
    world.settled()
    assert pool_exists(world)


@pytest.mark.parametrize("draft", [{"preflight": "Skip"}, None], ids=["skip", "ngram"])
def test_no_job_where_nothing_is_to_be_compared(
    world: World, containers: Containers, models: Path, draft: Body | None
) -> None:
    world.create(**(spec(models, **draft) if draft else {}))
    world.start()
    world.settled()
    assert containers.pods == []
    assert "DraftCompatible" not in {one["type"] for one in world.status()["conditions"]}


def test_a_preflight_that_gets_no_node_ends_as_a_warning_after_its_time(
    world: World, containers: Containers, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECFLEET_PREFLIGHT_SECONDS", "20")
    containers.ending = waiting
    world.create(**spec(models))
    world.start()
    said = eventually(
        "it waits and says for what",
        lambda: (
            one
            if "0/3 nodes are available" in (one := world.condition("DraftCompatible"))["message"]
            and one["reason"] == "PreflightRunning"
            else None
        ),
    )
    assert said["status"] == "Unknown"
    assert not pool_exists(world)
    said = world.until("DraftCompatible", "Unknown", "PreflightTimedOut")
    assert "within 20 s" in said["message"]
    assert "0/3 nodes are available" in said["message"]
    world.settled()
    assert pool_exists(world)


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (ended("no verdict", 0), "left a message that is no verdict"),
        (ended("Traceback", 1), "preflight Job failed (BackoffLimitExceeded)"),
        (ended("", 137, reason="Evicted"), "Job failed"),
    ],
    ids=["garbage", "crash", "evicted"],
)
def test_pods_that_leave_no_verdict_end_as_a_warning(
    world: World, containers: Containers, models: Path, state: Body, said: str
) -> None:
    containers.ending = lambda pod: state
    world.create(**spec(models))
    world.start()
    found = eventually(
        "the warning",
        lambda: one if (one := world.condition("DraftCompatible"))["reason"] == "PreflightInconclusive" else None,
        150.0,
    )
    assert said in found["message"]
    world.settled()
    assert pool_exists(world)


def test_a_model_that_is_not_there_is_tried_again(world: World, containers: Containers, models: Path) -> None:
    """The first pod finds no draft; the next one does, as when a claim is being filled."""
    small = (models / "small").rename(models / "elsewhere")

    def ending(pod: Body) -> Body:
        found = containers.run(pod)
        if len(containers.pods) == 1:
            small.rename(models / "small")
        return found

    containers.ending = ending
    world.create(**spec(models))
    world.start()
    eventually("the first pod finds nothing", lambda: len(containers.pods) >= 2, 60.0)
    world.until("DraftCompatible", "True", "DraftFits")
    world.settled()


@pytest.fixture
def blocks() -> Iterator[list[int]]:
    """KV blocks of 16 tokens that every engine pod reports, where the kubelet's double says that the pods are."""
    reported = [27_000]

    def page(_: str) -> Answer:
        text = f'vllm:cache_config_info{{block_size="16",num_gpu_blocks="{reported[0]}"}} 1.0\n'
        return 200, PROMETHEUS_TEXT, text.encode()

    server = HttpServer(ENGINE_ADDRESS, 8000, page)
    yield reported
    server.close()


def limits(world: World) -> set[int]:
    """Requests that one router lets through, of both pools."""
    routes = world.api.get("ConfigMap", world.namespace, "assistant-routes")
    assert routes is not None
    clusters = [one for text in routes["data"].values() for one in yaml.safe_load(text).get("resources", [])]
    breakers = [one["circuit_breakers"]["thresholds"] for one in clusters if "circuit_breakers" in one]
    found = {one["max_requests"] for thresholds in breakers for one in thresholds if "max_requests" in one}
    return found - {UNLIMITED}


def test_a_draft_without_room_on_the_accelerator_gets_no_pod_and_one_with_room_is_planned(
    world: World, containers: Containers, models: Path, blocks: list[int]
) -> None:
    """Llama 3.1 8B with Llama 3.2 1B before it: on an L4 the draft takes the room of the last sequence."""
    write(models / "target", LLAMA_8B, tokenizer())
    write(models / "small", LLAMA_1B, tokenizer())
    engine = {"type": "vLLM", "version": "0.32.0", "args": {"max-model-len": "12288", "gpu-memory-utilization": "0.9"}}
    world.create(engine=engine, **spec(models), pools={"replicas": 2, "accelerator": {"product": "L4"}})
    world.start()
    said = world.until("DraftCompatible", "False", "DraftIncompatible")
    assert "target with its draft does not fit an accelerator of 22.00 GiB" in said["message"]
    assert not pool_exists(world)
    assert containers.speculative_pods == 0
    assert "kvTokens" not in world.status()["plan"]
    before = limits(world)
    measured = {"policy": {"breakEven": {"source": "Measured"}}}
    world.edit({"pools": {"accelerator": {"product": "H100-80GB"}, "sequenceTokens": 2000}, **measured})
    said = world.until("DraftCompatible", "True", "DraftFits")
    assert "more than a fifth" in said["message"]
    world.settled()
    plan = world.status()["plan"]
    assert plan["kvBytesPerToken"] == 160 * 1024
    assert plan["sequences"] == {"baseline": 220, "small": 167}
    assert plan["kvTokens"] == {"baseline": 440_176, "small": 337_040}
    assert plan["secondPoolAccelerators"] == 1
    assert plan["breakEvenTokensPerStep"] == "1.66"
    lines = [route["breakEven"] for route in world.status()["routes"]]
    assert lines == [{"state": "Prior", "tokensPerStep": "1.66"}] * len(lines), "what weights let expect, till measured"
    assert before == {256}
    # The pods report 432,000 tokens: less than planned for baseline, more for the draft's pool.
    reported = {"baseline": 432_000, "small": 432_000}
    eventually("the pods' own report", lambda: world.status()["plan"].get("reportedKvTokens") == reported)
    assert (
        "Pods of small report 432000 tokens of KV cache, and 337040 were planned (-22 %)"
        in (world.condition("DraftCompatible")["message"])
    )
    assert "Pods of baseline" not in world.condition("DraftCompatible")["message"]
    eventually("the routers follow", lambda: limits(world) == {220, 167 * 432_000 // 337_040})
    world.settled()


def test_models_in_image_volumes_reach_engines_and_preflight(
    world: World, containers: Containers, models: Path
) -> None:
    def model(name: str) -> Body:
        source = {"image": {"reference": f"registry.example.com/models/{name}:1", "pullPolicy": "IfNotPresent"}}
        return {"model": str(models / name), "source": source}

    drafts = [{"name": "small", "mode": "DraftModel", **model("small")}]
    world.create(target=model("target"), drafts=drafts)
    world.start()
    world.until("DraftCompatible", "True", "DraftFits")
    world.settled()
    deployment = world.api.get("Deployment", world.namespace, "assistant-small")
    assert deployment is not None
    expected = {f"registry.example.com/models/{name}:1" for name in ("target", "small")}
    for pod in (containers.pods[0]["spec"], deployment["spec"]["template"]["spec"]):
        volumes = {one["name"]: one["image"] for one in pod["volumes"] if "image" in one}
        assert {one["reference"] for one in volumes.values()} == expected
        mounts = {one["name"]: one for one in pod["containers"][0]["volumeMounts"] if one["name"] in volumes}
        assert {one["mountPath"] for one in mounts.values()} == {str(models / "target"), str(models / "small")}
        assert all(one["readOnly"] for one in mounts.values())

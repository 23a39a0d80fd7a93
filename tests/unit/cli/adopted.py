"""Manifests that tests adopt, and one run of the command."""

from __future__ import annotations

import copy
from typing import Any

import yaml

from specfleet.engines.arguments import read_container
from tests.render.argument_lists import ArgumentList
from tests.unit.cli.test_validate_and_render import Ended, specfleet

Manifest = dict[str, Any]

SPECULATION = '{"method": "ngram", "num_speculative_tokens": 5, "prompt_lookup_max": 4, "prompt_lookup_min": 2}'


def deployment(name: str, container: Manifest, **pod: Any) -> Manifest:
    """A Deployment of one engine container."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": "serving"},
        "spec": {
            "replicas": 2,
            "selector": {"matchLabels": {"app": name}},
            "template": {
                "metadata": {"labels": {"app": name}},
                "spec": {"containers": [copy.deepcopy(container)], **pod},
            },
        },
    }


def service(name: str, app: str, port: int | str = 8000, **spec: Any) -> Manifest:
    """A headless Service for the pods of one Deployment."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "serving"},
        "spec": {"clusterIP": "None", "selector": {"app": app}, "ports": [{"port": 8000, "targetPort": port}], **spec},
    }


def engine(*words: str, image: str = "vllm/vllm-openai:v0.32.0", **fields: Any) -> Manifest:
    """A container that runs `vllm serve`."""
    return {"name": "server", "image": image, "command": ["vllm", "serve"], "args": list(words), **fields}


LLAMA = "meta-llama/Llama-3.1-8B-Instruct"
SPECULATIVE = deployment(
    "llama-ngram",
    engine(
        LLAMA, "--served-model-name=llama", "--max-num-seqs=128", "--speculative-config", SPECULATION,
        "--per-request-spec-decode-metrics=summary",
    ),
)  # fmt: skip
PLAIN = deployment("llama-plain", engine(LLAMA, "--served-model-name=llama", "--max-num-seqs=128"))
PAIR = (
    SPECULATIVE,
    PLAIN,
    service("llama-ngram-pods", "llama-ngram"),
    service("llama-plain-pods", "llama-plain"),
)


def around(one: ArgumentList) -> tuple[Manifest, ...]:
    """A Deployment of a container with these arguments, a volume for its model, and its Service."""
    pod: Manifest = {}
    container = one.container
    model = str(one.means.get("model") or "/models/qwen")
    if model.startswith("/"):
        folder = "/" + model.strip("/").rsplit("/", 1)[0]
        container["volumeMounts"] = [{"name": "weights", "mountPath": folder}]
        pod["volumes"] = [{"name": "weights", "persistentVolumeClaim": {"claimName": "weights"}}]
    container["ports"] = [{"name": "http", "containerPort": read_container(one.container).port}]
    return deployment("server", container, **pod), service("server-pods", "server", "http")


def adopt(*arguments: str, manifests: tuple[Manifest, ...] = ()) -> Ended:
    """`specfleet adopt ARGUMENTS -f -` on manifests."""
    return specfleet("adopt", *arguments, "-f", "-", stdin=yaml.safe_dump_all(manifests))


def adopted(*arguments: str, manifests: tuple[Manifest, ...]) -> Manifest:
    """The SpecDeployment that is printed."""
    ended = adopt(*arguments, manifests=manifests)
    assert ended.returncode == 0, ended.stderr
    found: Manifest = yaml.safe_load(ended.stdout)
    return found

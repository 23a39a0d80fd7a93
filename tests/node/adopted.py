"""The hand-written fleet of docs/adopt.md: two vLLM Deployments with Services that specfleet did not make."""

from __future__ import annotations

import random
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.node import prompts
from tests.node.demo import MAKERS
from tests.node.install import REPOSITORY
from tests.node.kube import Kube, Manifest
from tests.node.traffic import Ask, Clients
from tests.testbed import api

EXAMPLES = Path("manifests") / "examples" / "adopt"
NAMESPACE = "serving"
BASELINE = "assistant"
SPECULATIVE = "assistant-ngram"
MODEL = "assistant"
PLACEHOLDERS = "/var/lib/specfleet-demo"

COUNTS = {"code": 1, "json": 1, "chat": 4}
"""Clients by route: most of chat, for which there is the most to be found out."""

Identity = dict[str, Any]


def example_files(directory: Path) -> Path:
    """The example's files below `directory` as they lie below the checkout, with this machine's engine and model."""
    target = directory / EXAMPLES
    shutil.copytree(REPOSITORY / EXAMPLES, target, dirs_exist_ok=True)
    engine, _ = api.engine_mount()
    for file in target.glob("*.yaml"):
        text = file.read_text().replace(f"{PLACEHOLDERS}/vllm", str(engine))
        file.write_text(text.replace(f"{PLACEHOLDERS}/gemma-3-270m", str(api.model_dir())))
    return target


def clients(counts: Mapping[str, int] = COUNTS) -> list[Clients]:
    """The demo's clients, asking for the hand-written fleet's model."""
    return [Clients(count, _asking_for(MAKERS[route], MODEL)) for route, count in counts.items()]


def _asking_for(make: prompts.Maker, model: str) -> prompts.Maker:
    def made(draw: random.Random, number: int) -> Ask:
        request = make(draw, number)
        return replace(request, body={**request.body, "model": model})

    return made


def endpoint(kube: Kube, service: str) -> str:
    """The URL of one of their Services, or of a router's, as this machine reaches it."""
    found = kube.get("service", service, NAMESPACE)
    assert found is not None, f"no Service {service}"
    return f"http://{found['spec']['clusterIP']}:{found['spec']['ports'][0]['port']}"


def theirs(kube: Kube) -> dict[str, Identity]:
    """What must not change of the team's own objects: what they are, and that nobody wrote to or restarted them."""
    found: dict[str, Identity] = {}
    for kind in ("deployments", "services", "pods", "replicasets"):
        for one in kube.select(kind, NAMESPACE, "" if kind == "services" else "app=assistant"):
            name = one["metadata"]["name"]
            if kind != "services" or name in (BASELINE, SPECULATIVE):
                found[f"{kind}/{name}"] = _identity(one)
    return found


def _identity(manifest: Manifest) -> Identity:
    metadata = manifest["metadata"]
    containers = (manifest.get("status") or {}).get("containerStatuses", [])
    return {
        "uid": metadata["uid"],
        "resourceVersion": metadata["resourceVersion"],
        "labels": metadata.get("labels"),
        "annotations": metadata.get("annotations"),
        "ownerReferences": metadata.get("ownerReferences"),
        "restarts": [one["restartCount"] for one in containers],
    }


def inventory(kube: Kube) -> set[str]:
    """All objects of the namespace as `kind/name`, of every kind that can be listed; events are left out."""
    kinds = kube.kubectl("api-resources", "--namespaced", "--verbs=list", "-o", "name").split()
    wanted = [kind for kind in kinds if not kind.startswith("events") and ".metrics." not in kind]
    listed = kube.kubectl("get", ",".join(wanted), "-n", NAMESPACE, "-o", "name", "--ignore-not-found")
    return set(listed.split())

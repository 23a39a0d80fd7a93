"""A fleet whose engine pods are stubs at a set pace; rendering, kubelet, Service, Envoy and operator are real."""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.node.install import REPOSITORY
from tests.node.kube import Manifest
from tests.testbed import api

SOURCES = (
    REPOSITORY / "tests" / "node" / "stub_image" / "Dockerfile",
    REPOSITORY / "tests" / "node" / "stub_image" / "vllm.py",
    REPOSITORY / "tests" / "stub" / "engine.py",
)
IMAGE_NAME = "specfleet.dev/testbed/stub-engine"
DRAFT = "ngram"
DRAFT_TOKENS = 4
SEQUENCES = 64


def stub_image(operator: str) -> str:
    """The stub's image in the node; it stands on the image `operator`, which has Python and aiohttp."""
    digest = hashlib.sha256(operator.encode())
    for source in SOURCES:
        digest.update(source.read_bytes())
    tag = f"{IMAGE_NAME}:{digest.hexdigest()[:12]}"
    with tempfile.TemporaryDirectory() as scratch:
        for source in SOURCES:
            shutil.copy2(source, scratch)
        dockerfile = Path(scratch) / "Dockerfile"
        dockerfile.write_text(dockerfile.read_text().replace("${OPERATOR_IMAGE}", operator))
        api.build_image(tag, dockerfile, Path(scratch))
    return tag


def stub_fleet(
    name: str,
    namespace: str,
    image: str,
    *,
    routes: Sequence[dict[str, Any]],
    replicas: int = 2,
    step_ms: float = 20.0,
    acceptance: float = 0.6,
    policy: dict[str, Any] | None = None,
    env: dict[str, str] | None = None,
) -> Manifest:
    """A SpecDeployment with `replicas` stub pods of 64 sequences each.

    Args:
        step_ms: one decode step.
        acceptance: probability that the next draft token is accepted.
        policy: `spec.policy`; default decides by both lines with the defaults of the API.
        env: further settings of the stub, see stub_image/vllm.py.
    """
    pace = {"STUB_STEP_MS": str(step_ms), "STUB_PREFILL_MS": str(step_ms), "STUB_ACCEPTANCE": str(acceptance)}
    pace |= env or {}
    container = {
        "name": "engine",
        "resources": {"requests": {"cpu": "50m", "memory": "64Mi"}},
        # The stub is up at once: the probe that a loading model needs would only slow the tests.
        "startupProbe": {"httpGet": {"path": "/health", "port": "http"}, "periodSeconds": 1, "failureThreshold": 120},
    }
    return {
        "apiVersion": "specfleet.dev/v1alpha1",
        "kind": "SpecDeployment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "engine": {
                "type": "vLLM",
                "version": "0.32.0",
                "image": image,
                "args": {"max-num-seqs": str(SEQUENCES)},
                "env": [{"name": key, "value": value} for key, value in pace.items()],
            },
            "target": {"model": "stub/model"},
            "drafts": [{"name": DRAFT, "mode": "NGram", "tokens": DRAFT_TOKENS}],
            "pools": {
                "replicas": replicas,
                "accelerator": {"resource": ""},
                "template": {"spec": {"containers": [container]}},
            },
            "routing": {"routes": list(routes)},
            "policy": policy or {"minAcceptancePercent": 30, "breakEven": {"source": "Fixed", "tokensPerStep": "1.50"}},
        },
    }

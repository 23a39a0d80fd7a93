"""What pods are said to get has to be known, and to be what their nodes are selected by."""

from __future__ import annotations

from typing import Any

import pytest

from specfleet.render.validate import validate_document
from specfleet.settings import OperatorSettings

Body = dict[str, Any]


def said(pools: Body, source: Body | None = None, drafts: list[Body] | None = None) -> list[tuple[str, str]]:
    """Paths and messages about a SpecDeployment."""
    target: Body = {"model": "owner/name"} if source is None else {"model": "/models/target", "source": source}
    document = {
        "apiVersion": "specfleet.dev/v1alpha1",
        "kind": "SpecDeployment",
        "metadata": {"name": "assistant"},
        "spec": {
            "engine": {"type": "vLLM", "version": "0.32.0"},
            "target": target,
            "drafts": drafts or [{"name": "ngram", "mode": "NGram"}],
            "pools": {"replicas": 2, **pools},
            "policy": {"minAcceptancePercent": 50},
        },
    }
    _, found = validate_document(document, OperatorSettings())
    return [(one.path, one.message) for one in found]


def on(product: str) -> Body:
    return {"spec": {"nodeSelector": {"nvidia.com/gpu.product": product}}}


@pytest.mark.parametrize(
    "pools",
    [
        {"accelerator": {"product": "H100-80GB"}},
        {"accelerator": {"product": "NVIDIA-H200"}, "template": on("NVIDIA-H200")},
        {"accelerator": {"product": "Contoso-9000", "memory": "96Gi"}, "sequenceTokens": 3000},
        {"accelerator": {"product": "H200"}, "template": on("Contoso-9000")},
    ],
)
def test_what_is_known_is_taken(pools: Body) -> None:
    assert said(pools) == []


@pytest.mark.parametrize(
    ("pools", "message"),
    [
        ({"accelerator": {"product": "H100"}}, "did you mean H100-80GB?"),
        ({"accelerator": {"product": "H200"}, "template": on("NVIDIA-L4")}, "which is L4, and product says H200"),
        ({"accelerator": {"resource": "", "memory": "80Gi"}}, "engines on CPUs have no accelerator to plan for"),
        ({"accelerator": {"memory": "much"}}, "expected"),
        ({"sequenceTokens": 0}, "expected"),
    ],
)
def test_what_is_not_is_refused(pools: Body, message: str) -> None:
    ((path, found),) = said(pools)
    assert path.startswith("spec.pools")
    assert message in found or "should" in found


def test_a_length_that_nothing_is_counted_by_is_a_warning() -> None:
    ((path, message),) = said({"sequenceTokens": 2000})
    assert path == "spec.pools.sequenceTokens"
    assert "write pools.accelerator.product or memory" in message
    skipped = {"name": "small", "mode": "DraftModel", "model": "a/b", "preflight": "Skip"}
    ((_, message),) = said({"sequenceTokens": 2000, "accelerator": {"product": "H200"}}, drafts=[skipped])
    assert "write Warn" in message


def test_an_image_volume_needs_a_reference_that_a_runtime_takes() -> None:
    assert said({}, {"image": {"reference": "registry.example.com:5000/models/llama@sha256:" + "0" * 64}}) == []
    ((path, message),) = said({}, {"image": {"reference": "https://registry.example.com/Models"}})
    assert path == "spec.target.source.image.reference"
    assert "without a scheme" in message

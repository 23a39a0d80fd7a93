"""Whether target and draft leave room for KV cache: judged where the accelerator is written, before one is taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from specfleet.api.v1alpha1 import SpecDeployment
from specfleet.preflight.request import PreflightRequest, decode_request, preflight_request
from specfleet.preflight.verdict import Check, Level, Outcome, Verdict
from tests.unit.preflight.models import tokenizer, verdict, write
from tests.unit.sizing.models import LLAMA_1B, LLAMA_8B, LLAMA_70B, Config

Body = dict[str, Any]


def asked(product: str | None, length: str = "8192", **engine: str) -> PreflightRequest:
    """What a SpecDeployment with a draft model asks, on nodes of one product."""
    pools: Body = {"replicas": 2}
    if product is not None:
        pools["template"] = {"spec": {"nodeSelector": {"nvidia.com/gpu.product": product}}}
    document = {
        "apiVersion": "specfleet.dev/v1alpha1",
        "kind": "SpecDeployment",
        "metadata": {"name": "assistant"},
        "spec": {
            "engine": {"type": "vLLM", "version": "0.32.0", "args": {"max-model-len": length, **engine}},
            "target": {"model": "team/target"},
            "drafts": [{"name": "small", "mode": "DraftModel", "model": "team/draft"}],
            "pools": pools,
            "policy": {"minAcceptancePercent": 50},
        },
    }
    found = preflight_request(SpecDeployment.parse(document))
    assert found is not None
    return found


def of(tmp_path: Path, target: Config, request: PreflightRequest) -> Verdict:
    """The verdict about a target and Llama 3.2 1B, both with one tokenizer."""
    write(tmp_path / "team/target", target, tokenizer())
    write(tmp_path / "team/draft", LLAMA_1B, tokenizer())
    return verdict(tmp_path, request)


def test_a_pair_with_room_passes_and_its_cost_is_a_warning(tmp_path: Path) -> None:
    found = of(tmp_path, LLAMA_8B, asked("NVIDIA-H100-80GB-HBM3"))

    assert found.outcome is Outcome.PASSED
    assert [(one.check, one.level) for one in found.findings] == [(Check.MEMORY, Level.WARNING)]
    assert "more than a fifth" in found.message


def test_a_pair_without_room_is_refused_with_the_sum(tmp_path: Path) -> None:
    found = of(tmp_path, LLAMA_70B, asked("NVIDIA-H100-80GB-HBM3"))

    assert found.outcome is Outcome.FAILED
    assert found.findings[0].check is Check.MEMORY
    assert "does not fit an accelerator of 79.10 GiB: 131.42 GiB of weights" in found.message


def test_a_draft_that_takes_the_last_room_is_named(tmp_path: Path) -> None:
    found = of(tmp_path, LLAMA_8B, asked("NVIDIA-L4", "12288"))

    assert found.outcome is Outcome.FAILED
    assert "the target with its draft does not fit" in found.message


def test_without_a_known_accelerator_nothing_is_judged(tmp_path: Path) -> None:
    for product in (None, "Contoso-9000"):
        request = asked(product)
        assert request.room is None
        assert of(tmp_path, LLAMA_70B, request).findings == ()


def test_what_the_plan_cannot_tell_is_a_warning(tmp_path: Path) -> None:
    found = of(tmp_path, {**LLAMA_8B, "model_type": "frontier"}, asked("NVIDIA-H200"))

    assert found.outcome is Outcome.PASSED
    assert "the KV cache is not planned: config.json of the target: model_type 'frontier'" in found.message


def test_the_question_travels_and_only_what_counts_makes_another_one() -> None:
    h200 = asked("NVIDIA-H200")

    assert decode_request(h200.encode()) == h200
    assert h200.key != asked("NVIDIA-L4").key
    assert h200.key != asked("NVIDIA-H200", **{"kv-cache-dtype": "fp8"}).key
    assert h200.key == asked("NVIDIA-H200", **{"enable-prefix-caching": ""}).key
    assert "room" not in asked(None).encode(), "what is not judged asks for no new verdict"

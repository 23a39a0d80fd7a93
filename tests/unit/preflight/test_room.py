"""Whether target and draft leave room for KV cache: judged where the accelerator is written, before one is taken."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specfleet.api.v1alpha1 import SpecDeployment
from specfleet.preflight.request import PreflightRequest, decode_request, preflight_request
from specfleet.preflight.verdict import Check, Level, Outcome, Verdict, decode
from specfleet.sizing.figures import PlanFigures, RoomFigures
from tests.unit.preflight.models import CONFIG, tokenizer, verdict, write
from tests.unit.sizing.models import LLAMA_1B, LLAMA_8B, LLAMA_70B, Config

Body = dict[str, Any]


def document(product: str | None, length: str = "8192", drafts: Any = None, **more: Any) -> Body:
    """Target and draft model, on nodes of one product; `more` are flags of the engine and fields of pools."""
    flags = {name: value for name, value in more.items() if "-" in name}
    pools: Body = {"replicas": 2} | {name: value for name, value in more.items() if name not in flags}
    if product is not None:
        pools["template"] = {"spec": {"nodeSelector": {"nvidia.com/gpu.product": product}}}
    return {
        "apiVersion": "specfleet.dev/v1alpha1",
        "kind": "SpecDeployment",
        "metadata": {"name": "assistant"},
        "spec": {
            "engine": {"type": "vLLM", "version": "0.32.0", "args": {"max-model-len": length, **flags}},
            "target": {"model": "team/target"},
            "drafts": drafts or [{"name": "small", "mode": "DraftModel", "model": "team/draft"}],
            "pools": pools,
            "policy": {"minAcceptancePercent": 50},
        },
    }


def asked(product: str | None, length: str = "8192", **more: Any) -> PreflightRequest:
    """What such a SpecDeployment asks."""
    found = preflight_request(SpecDeployment.parse(document(product, length, **more)))
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


def test_the_accelerator_may_be_said_by_name_or_memory(tmp_path: Path) -> None:
    by_name = asked(None, accelerator={"product": "H100-80GB"})
    by_memory = asked(None, accelerator={"memory": "79.1Gi"})

    assert by_name.room is not None
    assert by_name.room == by_memory.room == asked("NVIDIA-H100-80GB-HBM3").room
    assert of(tmp_path, LLAMA_70B, by_name).outcome is Outcome.FAILED


def test_a_plan_comes_with_the_verdict_and_travels(tmp_path: Path) -> None:
    request = asked(
        None, accelerator={"product": "H100-80GB"}, sequenceTokens=2000, **{"gpu-memory-utilization": "0.9"}
    )
    found = of(tmp_path, LLAMA_8B, request)

    assert found.plan == PlanFigures(163_840, 2000, RoomFigures(220, 440_176), RoomFigures(167, 337_040), 24, 166)
    assert decode(found.encode()) == found
    assert of(tmp_path, LLAMA_70B, request).plan is None, "what does not fit has no plan"
    sent = json.loads(found.encode())

    def read(**figures: object) -> PlanFigures | None:
        verdict = decode(json.dumps({**sent, "plan": {**sent["plan"], **figures}}))
        return None if verdict is None else verdict.plan

    assert read(line=None) == replace(found.plan, break_even_percent=None), "as releases before it sent it"
    for wrong in (99, 100_000, 1.82, "182", True, -1):
        assert read(line=wrong) is None


@pytest.mark.parametrize("plan", [7, {"kv": -1}, {"kv": 1, "context": 1, "sequences": [1, "a"], "tokens": [1, 1]}])
def test_a_plan_that_is_none_leaves_the_verdict(plan: object) -> None:
    text = json.dumps({"specfleetPreflight": 1, "plan": plan, "findings": []})
    assert decode(text) == Verdict()


def test_drafts_from_the_text_are_planned_where_the_accelerator_is_said(tmp_path: Path) -> None:
    """Nothing is compared, and no tokenizer is read."""
    drafts = [{"name": "ngram", "mode": "NGram"}]
    request = asked(None, accelerator={"product": "H100-80GB"}, drafts=drafts)
    write(tmp_path / "team/target", LLAMA_8B)
    found = verdict(tmp_path, request)

    assert found.outcome is Outcome.PASSED
    assert found.plan is not None
    assert found.plan.cost_percent == 0
    assert preflight_request(SpecDeployment.parse(document("NVIDIA-H200", drafts=drafts))) is None


def test_a_modelopt_checkpoint_says_its_cache_in_a_file_of_its_own(tmp_path: Path) -> None:
    """Engines then keep eight bits an element, of the draft's cache too."""
    request = asked(None, accelerator={"product": "H100-80GB"}, sequenceTokens=2000)
    write(tmp_path / "team/draft", LLAMA_1B, tokenizer())
    plans = []
    for files in ({}, {"hf_quant_config.json": {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}}):
        write(tmp_path / "team/target", LLAMA_8B, tokenizer(), files=files)
        plans.append(verdict(tmp_path, request).plan)

    plain, quantised = plans
    assert plain is not None
    assert quantised is not None
    assert quantised.kv_bytes_per_token == plain.kv_bytes_per_token // 2


@pytest.mark.parametrize("content", [b"{", {"quantization": 7}, {}], ids=["cut off", "a number", "empty"])
def test_such_a_file_may_hold_anything(tmp_path: Path, content: Body | bytes) -> None:
    write(tmp_path / "team/target", LLAMA_8B, tokenizer(), files={"hf_quant_config.json": content})
    write(tmp_path / "team/draft", LLAMA_1B, tokenizer())
    found = verdict(tmp_path, asked(None, accelerator={"product": "H100-80GB"}))

    assert found.outcome is (Outcome.FAILED if content == b"{" else Outcome.PASSED)


WINDOWED = {
    **CONFIG,
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "num_key_value_heads": 1,
    "head_dim": 16,
    "intermediate_size": 64,
    "sliding_window": 512,
    "layer_types": ["sliding_attention", "sliding_attention", "sliding_attention", "full_attention"],
}


@pytest.mark.parametrize(
    ("release", "flags", "resource", "refused"),
    [
        ("0.14.0", {}, "nvidia.com/gpu", False),
        ("0.30.0", {}, "nvidia.com/gpu", True),
        ("0.30.0", {"disable-hybrid-kv-cache-manager": ""}, "nvidia.com/gpu", False),
        ("0.32.0", {}, "nvidia.com/gpu", False),
        ("0.32.0", {}, "", True),
    ],
)
def test_a_draft_of_several_kinds_of_layers_is_refused_where_the_engine_would_end(
    tmp_path: Path, release: str, flags: dict[str, str], resource: str, refused: bool
) -> None:
    """Seen with vLLM 0.32 on CPUs: "All drafting layers should belong to the same kv cache group"."""
    body = document(None, accelerator={"resource": resource}, **flags)
    body["spec"]["engine"]["version"] = release
    request = preflight_request(SpecDeployment.parse(body))
    assert request is not None
    assert decode_request(request.encode()) == request
    write(tmp_path / "team/target", CONFIG, tokenizer())
    write(tmp_path / "team/draft", WINDOWED, tokenizer())
    said = [one.message for one in verdict(tmp_path, request).findings if "share their KV blocks" in one.message]
    assert bool(said) == refused
    write(tmp_path / "team/draft", CONFIG, tokenizer())
    assert verdict(tmp_path, request).findings == ()


def test_a_resize_asks_for_no_new_verdict() -> None:
    assert asked("NVIDIA-H200").key == asked("NVIDIA-H200", replicas=7).key


def test_the_question_travels_and_only_what_counts_makes_another_one() -> None:
    h200 = asked("NVIDIA-H200")

    assert decode_request(h200.encode()) == h200
    assert h200.key != asked("NVIDIA-L4").key
    assert h200.key != asked("NVIDIA-H200", **{"kv-cache-dtype": "fp8"}).key
    assert h200.key == asked("NVIDIA-H200", **{"enable-prefix-caching": ""}).key
    assert "room" not in asked(None).encode(), "what is not judged asks for no new verdict"

"""TensorRT-LLM's drafts: compared as for the other engines, and nothing that its releases were not read for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specfleet.api.v1alpha1 import DraftMode, EngineType, SpecDeployment
from specfleet.preflight.request import preflight_request
from specfleet.preflight.verdict import Check, Outcome
from tests.unit.preflight.models import CONFIG, Body, request, tokenizer, verdict, write

TRTLLM = {"engine": EngineType.TENSORRTLLM, "release": "1.4.0rc1"}
HEAD = {"fc.weight": [64, 192], "midlayer.mlp.up_proj.weight": [128, 64]}


def asked(mode: DraftMode, **changes: Any) -> Any:
    return request(mode, **TRTLLM, **changes)


def test_a_matching_draft_model_passes_and_one_of_another_tokenizer_does_not(tmp_path: Path) -> None:
    write(tmp_path / "team/target", CONFIG, tokenizer())
    write(tmp_path / "team/draft", CONFIG | {"hidden_size": 32}, tokenizer())
    assert verdict(tmp_path, asked(DraftMode.DRAFT_MODEL)).outcome is Outcome.PASSED

    write(tmp_path / "team/draft", CONFIG, tokenizer(special={"<s>": 5, "</s>": 6, "<other>": 7}))
    found = verdict(tmp_path, asked(DraftMode.DRAFT_MODEL))
    assert found.outcome is Outcome.FAILED
    assert found.findings[0].check is Check.TOKENIZER


@pytest.mark.parametrize("mode", [DraftMode.EAGLE3, DraftMode.DFLASH])
def test_heads_made_for_the_target_pass(tmp_path: Path, mode: DraftMode) -> None:
    write(tmp_path / "team/target", CONFIG, tokenizer())
    write(tmp_path / "team/draft", CONFIG, None, HEAD)

    assert verdict(tmp_path, asked(mode)).findings == ()


def test_a_target_without_mtp_layers_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "team/target", CONFIG, tokenizer(), {"model.embed_tokens.weight": [8, 64]})

    assert verdict(tmp_path, asked(DraftMode.MTP, draft=None)).outcome is Outcome.FAILED


@pytest.mark.parametrize(("args", "served"), [({"max_seq_len": "4096"}, 4096), ({}, None)])
def test_the_served_length_is_the_engines_own_flag(args: dict[str, str], served: int | None) -> None:
    spec: Body = {
        "engine": {"type": "TensorRTLLM", "version": "1.4.0rc1", "args": args},
        "target": {"model": "owner/target"},
        "drafts": [{"name": "draft", "mode": "EAGLE3", "model": "owner/head"}],
        "pools": {"replicas": 2, "accelerator": {"resource": "nvidia.com/gpu", "memory": "80Gi"}},
        "policy": {"minAcceptancePercent": 40},
    }
    found = preflight_request(SpecDeployment.parse({"metadata": {"name": "assistant"}, "spec": spec}))

    assert found is not None
    assert found.served_tokens == served
    # How this engine divides its memory is not known, so nothing is refused for it.
    assert found.room is None

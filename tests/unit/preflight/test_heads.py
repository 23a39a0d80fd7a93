"""EAGLE, EAGLE-3, DFlash and Medusa heads, and MTP layers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specfleet.api.v1alpha1 import DraftMode, EngineType
from specfleet.preflight.verdict import Check, Level, Outcome
from tests.unit.preflight.models import CONFIG, MTP, Body, request, tokenizer, verdict, write

EAGLE = {"fc.weight": [64, 128], "layers.0.mlp.up_proj.weight": [128, 64]}
EAGLE3 = {"fc.weight": [64, 192], "midlayer.mlp.up_proj.weight": [128, 64]}
MEDUSA = {f"{head}.0.linear.weight": [64, 64] for head in range(4)}
TARGET = {"model.embed_tokens.weight": [8, 64], "model.layers.3.mlp.up_proj.weight": [64, 64]}


def _pair(models: Path, tensors: dict[str, list[int]] | None, draft: Body | None = None, **target: Any) -> None:
    write(models / "team/target", CONFIG | target, tokenizer())
    write(models / "team/draft", CONFIG | (draft or {}), None, tensors)


@pytest.mark.parametrize(
    ("mode", "tensors"),
    [
        (DraftMode.EAGLE, EAGLE),
        (DraftMode.EAGLE3, EAGLE3),
        (DraftMode.DFLASH, EAGLE3),
        (DraftMode.MEDUSA, MEDUSA),
    ],
)
def test_matching_heads_pass_without_a_tokenizer_of_their_own(
    tmp_path: Path, mode: DraftMode, tensors: dict[str, list[int]]
) -> None:
    _pair(tmp_path, tensors)
    assert verdict(tmp_path, request(mode)).findings == ()


@pytest.mark.parametrize(
    ("mode", "shape", "both"),
    [(DraftMode.EAGLE, [64, 256], "2 x 64 = 128"), (DraftMode.EAGLE3, [64, 100], "3 x 64 = 192")],
)
def test_a_head_of_another_width(tmp_path: Path, mode: DraftMode, shape: list[int], both: str) -> None:
    _pair(tmp_path, {"fc.weight": shape})
    found = verdict(tmp_path, request(mode))
    assert found.findings[0].check is Check.SHAPE
    assert str(shape) in found.message
    assert both in found.message


def test_without_safetensors_the_config_is_all_there_is(tmp_path: Path) -> None:
    _pair(tmp_path, None)
    found = verdict(tmp_path, request(DraftMode.EAGLE))
    assert [(one.check, one.level) for one in found.findings] == [(Check.HEADS, Level.WARNING)]
    _pair(tmp_path, None, {"hidden_size": 128})
    found = verdict(tmp_path, request(DraftMode.EAGLE))
    assert "hidden_size is 64 in the target team/target and 128 in the draft team/draft" in found.message


def test_a_whole_model_is_no_head(tmp_path: Path) -> None:
    _pair(tmp_path, TARGET)
    found = verdict(tmp_path, request(DraftMode.EAGLE3))
    assert found.outcome is Outcome.FAILED
    assert "no layer fc.weight" in found.message


@pytest.mark.parametrize(
    ("mode", "config", "write_instead"),
    [
        (DraftMode.EAGLE, {"architectures": ["LlamaForCausalLMEagle3"]}, "mode: EAGLE3"),
        (DraftMode.EAGLE3, {"model_type": "medusa"}, "mode: Medusa"),
        (DraftMode.EAGLE, {"architectures": ["DFlashDraftModel"]}, "mode: DFlash"),
    ],
)
def test_a_head_of_another_mode(tmp_path: Path, mode: DraftMode, config: Body, write_instead: str) -> None:
    _pair(tmp_path, EAGLE if mode is DraftMode.EAGLE else EAGLE3, config)
    assert write_instead in verdict(tmp_path, request(mode)).message


def test_a_head_that_takes_layers_the_target_has_not(tmp_path: Path) -> None:
    _pair(tmp_path, EAGLE3, {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 30]}})
    assert "layer 30" in verdict(tmp_path, request(DraftMode.EAGLE3)).message


def test_the_map_of_a_reduced_vocabulary_says_which_target(tmp_path: Path) -> None:
    _pair(tmp_path, {**EAGLE3, "t2d": [8]}, {"draft_vocab_size": 4})
    assert verdict(tmp_path, request(DraftMode.EAGLE3)).findings == ()
    _pair(tmp_path, {**EAGLE3, "t2d": [9]})
    found = verdict(tmp_path, request(DraftMode.EAGLE3))
    assert found.findings[0].check is Check.VOCABULARY_SIZE
    assert found.outcome is Outcome.FAILED


@pytest.mark.parametrize(
    ("engine", "release", "outcome"),
    [
        (EngineType.VLLM, "0.28.0", Outcome.FAILED),
        (EngineType.VLLM, "0.29.0", Outcome.PASSED),
        (EngineType.SGLANG, "0.5.20", Outcome.FAILED),
    ],
)
def test_short_heads_by_release(tmp_path: Path, engine: EngineType, release: str, outcome: Outcome) -> None:
    _pair(tmp_path, EAGLE, {"max_position_embeddings": 2048})
    assert verdict(tmp_path, request(DraftMode.EAGLE, engine=engine, release=release)).outcome is outcome


@pytest.mark.parametrize(
    ("release", "target", "passes"),
    [
        ("0.11.0", {"model_type": "llama"}, True),
        ("0.11.0", {"model_type": "gemma4"}, False),
        ("0.8.5", {"model_type": "qwen2"}, False),
        ("0.10.0", {"model_type": "qwen2"}, False),
        ("0.10.1", {"model_type": "qwen2"}, True),
        ("0.10.2", {"model_type": "gpt_oss"}, False),
        ("0.19.0", {"model_type": "gemma4_text"}, False),
        ("0.19.1", {"model_type": "gemma4_text"}, True),
        ("0.21.0", {"model_type": "mistral"}, False),
        ("0.32.0", {"architectures": ["LlamaForCausalLM"]}, True),
        ("0.32.0", {"architectures": ["NobodysForCausalLM"]}, False),
        ("0.99.0", {"architectures": ["NobodysForCausalLM"]}, False),
    ],
)
def test_targets_of_eagle3_by_release(tmp_path: Path, release: str, target: Body, passes: bool) -> None:
    _pair(tmp_path, EAGLE3, None, **target)
    found = verdict(tmp_path, request(DraftMode.EAGLE3, release=release))
    assert (found.outcome is Outcome.PASSED) is passes
    assert passes or found.findings[0].check is Check.ARCHITECTURE


@pytest.mark.parametrize(
    ("release", "kind", "passes"),
    [
        ("0.9.2", "deepseek_v3", True),
        ("0.9.2", "mimo", False),
        ("0.10.1", "mimo", True),
        ("0.10.1", "qwen3_next", False),
        ("0.10.2", "qwen3_next", True),
        ("0.11.0", "glm4_moe", True),
    ],
)
def test_targets_of_mtp_by_release(tmp_path: Path, release: str, kind: str, passes: bool) -> None:
    _pair(tmp_path, None, model_type=kind, num_nextn_predict_layers=1)
    asked = request(DraftMode.MTP, tokens=1, draft=None, release=release)
    found = [one.message for one in verdict(tmp_path, asked).findings]
    refused = [message for message in found if "finds MTP layers only in a target of type" in message]
    assert bool(refused) is not passes
    assert passes or "use vLLM 0.11.0 or newer" in refused[0]


def test_medusa_heads_are_counted_in_the_tensors(tmp_path: Path) -> None:
    _pair(tmp_path, MEDUSA, {"medusa_num_heads": 5})
    assert "says 5 Medusa heads, and its tensors are of 4" in verdict(tmp_path, request(DraftMode.MEDUSA)).message
    _pair(tmp_path, MEDUSA)
    assert "tokens: 4 or less" in verdict(tmp_path, request(DraftMode.MEDUSA, tokens=5)).message
    _pair(tmp_path, {"0.0.linear.weight": [32, 32]})
    assert "heads of the draft team/draft take 32" in verdict(tmp_path, request(DraftMode.MEDUSA, tokens=1)).message
    _pair(tmp_path, TARGET)
    assert "is a Medusa head" in verdict(tmp_path, request(DraftMode.MEDUSA)).message


@pytest.mark.parametrize("name", ["mtp.0.fc.weight", "model.layers.4.eh_proj.weight", "model.mtp_layers.0.x"])
def test_mtp_layers_that_are_there(tmp_path: Path, name: str) -> None:
    write(tmp_path / "team/target", CONFIG | MTP, None, {**TARGET, name: [64, 64]})
    assert verdict(tmp_path, request(DraftMode.MTP, draft=None)).findings == ()


def test_mtp_on_a_target_without(tmp_path: Path) -> None:
    write(tmp_path / "team/target", None, None, TARGET)
    assert "names no MTP layers" in verdict(tmp_path, request(DraftMode.MTP, draft=None)).message


def test_mtp_layers_that_a_quantised_repack_left_out(tmp_path: Path) -> None:
    index = {"metadata": {"total_size": 1}, "weight_map": dict.fromkeys(TARGET, "model-1-of-1.safetensors")}
    files: dict[str, Body | bytes] = {"model.safetensors.index.json": index, "model-1-of-1.safetensors": b"not read"}
    write(tmp_path / "team/target", CONFIG | MTP, None, None, files)
    message = verdict(tmp_path, request(DraftMode.MTP, draft=None)).message
    assert "says 1 MTP layer(s), and none of its 2 tensors is of one" in message


def test_mtp_tokens_are_a_multiple_of_the_layers(tmp_path: Path) -> None:
    config = CONFIG | {"num_nextn_predict_layers": 3}
    write(tmp_path / "team/target", config, None, {**TARGET, "mtp.0.fc.weight": [1]})
    assert "write tokens: 3, or 6" in verdict(tmp_path, request(DraftMode.MTP, draft=None, tokens=4)).message
    assert verdict(tmp_path, request(DraftMode.MTP, draft=None, tokens=6)).outcome is Outcome.PASSED

"""Small draft models: tokenizers, vocabulary sizes, lengths, and what the configs say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specfleet.api.v1alpha1 import EngineType
from specfleet.preflight.verdict import Check, Level, Outcome
from tests.unit.preflight.models import CONFIG, SPECIAL, VOCABULARY, Body, request, tokenizer, verdict, write


def _pair(models: Path, tokens: Body | None = None, config: Body | None = None, target: Body | None = None) -> None:
    write(models / "team/target", CONFIG | (target or {}), tokenizer())
    write(models / "team/draft", CONFIG | {"hidden_size": 32} | (config or {}), tokens or tokenizer())


def test_a_matching_pair_passes(tmp_path: Path) -> None:
    _pair(tmp_path)
    found = verdict(tmp_path, request())
    assert found.outcome is Outcome.PASSED
    assert found.findings == ()


def test_one_other_special_token_is_named_with_both_ids(tmp_path: Path) -> None:
    _pair(tmp_path, tokenizer(special={"<s>": 5, "</s>": 6, "<|fim\u202e|>": 7}))
    found = verdict(tmp_path, request())
    assert found.outcome is Outcome.FAILED
    assert found.findings[0].check is Check.TOKENIZER
    assert '"<pad>" is 7 in the target, missing in the draft' in found.message
    assert '"<|fim\\u202e|>" is missing in the target, 7 in the draft' in found.message


def test_the_first_differing_tokens_come_first_and_only_some_are_named(tmp_path: Path) -> None:
    swapped = {**VOCABULARY, "a": 1, "b": 0, "ab": 4, "bc": 3}
    _pair(tmp_path, tokenizer(vocabulary=swapped))
    message = verdict(tmp_path, request()).message
    assert "differ in 4 of 8 tokens" in message
    assert '"a" is 0 in the target, 1 in the draft; "b" is 1 in the target, 0 in the draft' in message
    assert '"bc"' not in message


def test_another_normaliser_is_refused(tmp_path: Path) -> None:
    _pair(tmp_path, tokenizer(normalizer={"type": "Lowercase"}))
    found = verdict(tmp_path, request())
    assert found.outcome is Outcome.FAILED
    assert "normalise" in found.message


def test_a_unigram_vocabulary_is_compared_by_position(tmp_path: Path) -> None:
    words = [["a", 0.0], ["b", -1.0]]
    unigram = tokenizer(model={"type": "Unigram", "vocab": words})
    write(tmp_path / "team/target", None, unigram)
    write(tmp_path / "team/draft", None, tokenizer(model={"type": "Unigram", "vocab": words[::-1]}))
    assert '"a" is 0 in the target, 1 in the draft' in verdict(tmp_path, request()).message


@pytest.mark.parametrize("name", ["tokenizer.model", "vocab.json"])
def test_files_of_other_forms_are_equal_or_unknown(tmp_path: Path, name: str) -> None:
    for role, data in (("target", b"one"), ("draft", b"one")):
        write(tmp_path / "team" / role, files={name: data})
    assert verdict(tmp_path, request()).outcome is Outcome.PASSED
    write(tmp_path / "team/draft", files={name: b"two"})
    assert verdict(tmp_path, request()).outcome is Outcome.UNKNOWN


def test_a_missing_tokenizer_is_unknown_not_a_mismatch(tmp_path: Path) -> None:
    write(tmp_path / "team/target", None, tokenizer())
    write(tmp_path / "team/draft")
    found = verdict(tmp_path, request())
    assert found.outcome is Outcome.UNKNOWN
    assert "no tokenizer file of the draft team/draft" in found.message


def test_padded_sizes_of_one_tokenizer_are_no_mismatch_but_vllm_refuses_them(tmp_path: Path) -> None:
    _pair(tmp_path, config={"vocab_size": 16})
    found = verdict(tmp_path, request())
    assert [one.check for one in found.findings] == [Check.VOCABULARY_SIZE]
    assert "8 in the target team/target and 16 in the draft team/draft" in found.message
    assert verdict(tmp_path, request(heterogeneous_vocab=True)).outcome is Outcome.PASSED
    assert verdict(tmp_path, request(release="0.9.2")).outcome is Outcome.PASSED
    assert verdict(tmp_path, request(engine=EngineType.SGLANG, release="0.5.20")).outcome is Outcome.PASSED


def test_a_draft_that_is_shorter_than_what_is_served(tmp_path: Path) -> None:
    _pair(tmp_path, config={"max_position_embeddings": 2048})
    found = verdict(tmp_path, request())
    assert found.findings[0].check is Check.CONTEXT
    assert "2048 positions" in found.message
    assert "32768" in found.message
    assert verdict(tmp_path, request(served_tokens=2048)).outcome is Outcome.PASSED
    assert verdict(tmp_path, request(served_tokens=2049)).outcome is Outcome.FAILED


def test_yarn_stretches_positions(tmp_path: Path) -> None:
    yarn = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 8192}
    _pair(tmp_path, config={"max_position_embeddings": 8192, "rope_scaling": yarn})
    assert verdict(tmp_path, request()).outcome is Outcome.PASSED


def test_the_language_part_of_a_multimodal_target_counts(tmp_path: Path) -> None:
    language = {key: CONFIG[key] for key in ("hidden_size", "vocab_size", "max_position_embeddings")}
    write(
        tmp_path / "team/target",
        {"architectures": ["Gemma3ForConditionalGeneration"], "text_config": language},
        tokenizer(),
    )
    write(tmp_path / "team/draft", CONFIG | {"vocab_size": 9}, tokenizer())
    assert "8 in the target" in verdict(tmp_path, request()).message


def test_a_speculator_as_target_names_the_verifier(tmp_path: Path) -> None:
    _pair(tmp_path, target={"speculators_config": {"verifier": {"name_or_path": "meta/llama"}}})
    message = verdict(tmp_path, request()).message
    assert 'write "meta/llama" as target.model and "team/target" as drafts[].model' in message


def test_an_unknown_number_format(tmp_path: Path) -> None:
    _pair(tmp_path, config={"torch_dtype": "float6"})
    found = verdict(tmp_path, request())
    assert found.findings[0].check is Check.NUMBER_FORMAT
    assert '"float6"' in found.message


@pytest.mark.parametrize(
    ("release", "method", "outcome"),
    [
        ("0.32.0", "fp8", Outcome.PASSED),
        ("0.32.0", "compressed_tensors", Outcome.PASSED),
        ("0.14.0", "aqlm", Outcome.FAILED),
        ("0.9.2", "aqlm", Outcome.PASSED),
        ("0.9.2", "auto-round", Outcome.PASSED),
        ("0.32.0", "auto-round", Outcome.PASSED),
        ("0.32.0", "my-own", Outcome.FAILED),
        ("0.99.0", "my-own", Outcome.FAILED),
    ],
)
def test_quantisation_by_release(tmp_path: Path, release: str, method: str, outcome: Outcome) -> None:
    _pair(tmp_path, target={"quantization_config": {"quant_method": method}})
    found = verdict(tmp_path, request(release=release))
    assert found.outcome is outcome
    assert outcome is Outcome.PASSED or f'quantised by "{method}"' in found.message


@pytest.mark.parametrize(
    ("release", "method", "outcome"),
    [
        ("0.5.4", "bitsandbytes", Outcome.PASSED),
        ("0.5.6", "bitsandbytes", Outcome.FAILED),
        ("0.5.20", "bitsandbytes", Outcome.PASSED),
        ("0.5.23", "compressed-tensors", Outcome.PASSED),
        ("0.5.23", "fbgemm_fp8", Outcome.FAILED),
        ("0.5.99", "my-own", Outcome.FAILED),
    ],
)
def test_quantisation_by_release_of_sglang(tmp_path: Path, release: str, method: str, outcome: Outcome) -> None:
    _pair(tmp_path, target={"quantization_config": {"quant_method": method}})
    found = verdict(tmp_path, request(engine=EngineType.SGLANG, release=release))
    assert found.outcome is outcome
    assert (
        outcome is Outcome.PASSED
        or f'quantised by "{method}", and SGLang {release.replace("99", "23")} knows' in found.message
    )


@pytest.mark.parametrize("engine", [{}, {"engine": EngineType.SGLANG, "release": "0.5.20"}], ids=["vllm", "sglang"])
def test_an_architecture_without_a_class_of_its_own_is_a_warning(tmp_path: Path, engine: dict[str, Any]) -> None:
    _pair(tmp_path, config={"architectures": ["NobodysForCausalLM"]})
    found = verdict(tmp_path, request(**engine))
    assert [(one.check, one.level) for one in found.findings] == [(Check.ARCHITECTURE, Level.WARNING)]
    assert '"NobodysForCausalLM" of the draft team/draft' in found.message


def test_an_architecture_of_a_later_release_is_a_warning_before_it(tmp_path: Path) -> None:
    """SGLang has ApertusForCausalLM from 0.5.3 on."""
    _pair(tmp_path, target={"architectures": ["ApertusForCausalLM"]})
    before, after = (
        verdict(tmp_path, request(engine=EngineType.SGLANG, release=release)) for release in ("0.5.2", "0.5.3")
    )
    assert "SGLang 0.5.2 has no class of its own" in before.message
    assert after.findings == ()


def test_heads_given_as_a_whole_model(tmp_path: Path) -> None:
    write(tmp_path / "team/target", None, tokenizer())
    config = {key: value for key, value in CONFIG.items() if key != "architectures"}
    write(tmp_path / "team/draft", config, tokenizer())
    assert "names no architectures" in verdict(tmp_path, request()).message


def test_min_p_by_default_is_warned_about(tmp_path: Path) -> None:
    _pair(tmp_path)
    write(tmp_path / "team/target", None, tokenizer(), files={"generation_config.json": {"min_p": 0.05}})
    found = verdict(tmp_path, request())
    assert found.outcome is Outcome.PASSED
    assert [(one.check, one.level) for one in found.findings] == [(Check.GENERATION, Level.WARNING)]


def test_roles_and_flags_of_special_tokens_are_warnings(tmp_path: Path) -> None:
    _pair(tmp_path)
    write(tmp_path / "team/target", None, tokenizer(), files={"tokenizer_config.json": {"eos_token": "</s>"}})
    write(
        tmp_path / "team/draft",
        None,
        tokenizer(added_tokens=[{"id": n, "content": t, "special": t != "<pad>"} for t, n in SPECIAL.items()]),
        files={"tokenizer_config.json": {"eos_token": {"content": "<pad>"}}},
    )
    found = verdict(tmp_path, request())
    assert found.outcome is Outcome.PASSED
    assert len(found.findings) == 2


def test_a_model_that_is_not_there_is_unknown(tmp_path: Path) -> None:
    write(tmp_path / "team/target", None, tokenizer())
    found = verdict(tmp_path, request())
    assert found.outcome is Outcome.UNKNOWN
    assert found.findings[0].check is Check.ACCESS
    assert "team/draft" in found.message

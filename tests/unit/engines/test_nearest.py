"""An unknown key of drafts[].args is answered with the nearest known one, and what to write where it is ours."""

from __future__ import annotations

import pytest

from specfleet.api.v1alpha1 import EngineType, SpecDeployment
from specfleet.engines.registry import engine_module
from tests.unit.handlers.samples import owner


def answer(engine: str, version: str, mode: str, key: str) -> str:
    draft = {"name": "draft", "mode": mode, "args": {key: "4"}}
    if mode not in ("NGram", "Suffix", "MTP"):
        draft["model"] = "owner/draft"
    body = owner(engine={"type": engine, "version": version}, drafts=[draft])
    findings = engine_module(EngineType(engine)).check(SpecDeployment.parse(body))
    (found,) = [one.message for one in findings if one.path == f"spec.drafts[0].args[{key}]"]
    return found


@pytest.mark.parametrize(
    ("engine", "version", "mode", "key", "hint"),
    [
        (
            "vLLM",
            "0.32.0",
            "NGram",
            "promt_lookup_max",
            "prompt_lookup_max, which specfleet sets? Then write drafts[].ngram.",
        ),
        (
            "vLLM",
            "0.32.0",
            "NGram",
            "num_speculativ_tokens",
            "num_speculative_tokens, which specfleet sets? Then write",
        ),
        ("vLLM", "0.32.0", "Suffix", "suffix_decoding_max_tree_dept", "did you mean suffix_decoding_max_tree_depth?"),
        (
            "SGLang",
            "0.5.20",
            "NGram",
            "speculative-num-step",
            "speculative-num-steps, which specfleet sets? Then write",
        ),
        ("SGLang", "0.5.20", "EAGLE", "eagle-topk", "did you mean speculative-eagle-topk?"),
        ("TensorRTLLM", "1.3.0rc13", "NGram", "max_draft_length", "max_draft_len, which specfleet sets? Then write"),
    ],
)
def test_the_nearest_known_key_is_named(engine: str, version: str, mode: str, key: str, hint: str) -> None:
    assert hint in answer(engine, version, mode, key)


def test_what_is_near_to_nothing_is_answered_with_all_that_there_is() -> None:
    found = answer("vLLM", "0.32.0", "Suffix", "zzz")
    assert "remove it; mode Suffix takes" in found
    assert "suffix_decoding_max_tree_depth" in found

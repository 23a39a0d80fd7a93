"""SGLang's own division of memory, by release: what is in the static share and what comes from what is left over."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from specfleet.api.findings import FindingReason
from specfleet.api.v1alpha1 import SpecDeployment
from specfleet.sizing.accelerators import GIB
from specfleet.sizing.answer import Answer, answer, question
from specfleet.sizing.reading import SizingProblem
from specfleet.sizing.shape import ModelShape
from tests.unit.sizing.models import GPT_OSS_20B, LLAMA_1B, LLAMA_8B

MEMORY = 80 * GIB
WEIGHTS_8B, WEIGHTS_1B = 2 * 8_030_261_248, 2 * 1_235_814_400
TOKEN_8B = 2 * 32 * 8 * 128 * 2
SHARE = int(0.8 * MEMORY)


def document(release: str = "0.5.23", args: Mapping[str, str] | None = None) -> dict[str, Any]:
    """A target and its draft model, 4 tokens a round, counted in sequences of 2,000 tokens."""
    given = {"mem-fraction-static": "0.8"} if args is None else dict(args)
    return {
        "apiVersion": "specfleet.dev/v1alpha1",
        "kind": "SpecDeployment",
        "metadata": {"name": "assistant"},
        "spec": {
            "engine": {"type": "SGLang", "version": release, "args": given},
            "target": {"model": "team/target"},
            "drafts": [{"name": "small", "mode": "DraftModel", "model": "team/draft", "tokens": 4}],
            "pools": {"replicas": 2, "sequenceTokens": 2000},
            "policy": {"breakEven": {"source": "Fixed", "tokensPerStep": "1.60"}},
        },
    }


def planned(
    release: str = "0.5.23", args: Mapping[str, str] | None = None, target: Any = None, draft: Any = None
) -> Answer:
    """Llama 3.1 8B with Llama 3.2 1B before it, in 0.8 of 80 GiB."""
    asked = question(SpecDeployment.parse(document(release, args)), MEMORY)
    return answer(asked, ModelShape.from_config(target or LLAMA_8B), ModelShape.from_config(draft or LLAMA_1B))


def test_from_0_5_14_on_the_draft_is_part_of_the_share_at_the_targets_width() -> None:
    plan = planned().plan

    assert plan.baseline.kv_tokens == (SHARE - WEIGHTS_8B) // TOKEN_8B
    # 16 layers of the draft are taken for as wide as the target's 32.
    assert plan.speculative.kv_tokens == (SHARE - WEIGHTS_8B - WEIGHTS_1B) // (TOKEN_8B * 3 // 2)
    assert plan.baseline.sequences == plan.baseline.kv_tokens // 2000
    assert plan.speculative.sequences == plan.speculative.kv_tokens // 2010, "two rounds of k + 1 ahead"
    assert plan.findings == (), "48 requests run in either pool"
    many = planned(args={"mem-fraction-static": "0.8", "max-running-requests": "400"}).plan
    assert [one.reason for one in many.findings] == [FindingReason.DRAFT_COSTS_SEQUENCES]


def test_before_it_the_draft_costs_no_token_and_has_to_fit_what_is_left_over() -> None:
    plan = planned("0.5.13").plan
    # The draft's cache has as many tokens as the target's: 32 KiB each, beside 2.3 GiB of weights.
    assert plan.speculative.kv_tokens == plan.baseline.kv_tokens
    assert plan.findings == ()

    tight = planned("0.5.13", {"mem-fraction-static": "0.9"}).plan
    assert [one.reason for one in tight.findings] == [FindingReason.DOES_NOT_FIT]
    assert "from the 8.00 GiB that mem-fraction-static leaves over" in tight.findings[0].message


def test_a_draft_that_is_wider_than_the_target_takes_what_the_engine_does_not_reckon_with() -> None:
    wide = {**LLAMA_1B, "num_key_value_heads": 32, "head_dim": 128}
    found = planned(draft=wide).plan.findings

    assert found[-1].reason is FindingReason.DOES_NOT_FIT
    assert "more than it reckons" in found[-1].message


def test_a_tree_takes_the_slots_of_all_its_tokens() -> None:
    document_of = document()
    document_of["spec"]["drafts"][0]["args"] = {"speculative-eagle-topk": "4", "speculative-num-draft-tokens": "16"}
    asked = question(SpecDeployment.parse(document_of), MEMORY)
    found = answer(asked, ModelShape.from_config(LLAMA_8B), ModelShape.from_config(LLAMA_1B))

    assert found.draft.slots == 32


def test_running_requests_pages_and_a_limit_of_tokens_count() -> None:
    args = {"mem-fraction-static": "0.8", "max-running-requests": "100", "page-size": "64", "max-total-tokens": "50000"}
    plan = planned(args=args).plan

    assert plan.baseline.kv_tokens == 50_000 // 64 * 64
    assert plan.baseline.sequences == plan.baseline.kv_tokens // (64 * 32)
    assert planned(args={"mem-fraction-static": "0.8"}).plan.baseline.running == 48


def test_a_sequence_of_the_longest_length_that_does_not_fit_stops_no_pod() -> None:
    """SGLang starts all the same, and refuses such a request."""
    found = planned(args={"mem-fraction-static": "0.8", "max-total-tokens": "100000"}).plan
    assert not [one for one in found.findings if one.reason is FindingReason.DOES_NOT_FIT]


@pytest.mark.parametrize(
    ("args", "target", "said"),
    [
        ({}, None, "without engine.args\\[mem-fraction-static\\] SGLang works it out"),
        ({"mem-fraction-static": "0.8", "cpu-offload-gb": "4"}, None, "changes what is kept where"),
        ({"mem-fraction-static": "1.8"}, None, "a number above 0 and up to 1, found '1.8'"),
        ({"mem-fraction-static": "0.8", "context-length": "1000"}, None, "longer than the 1000 that are served"),
        ({"mem-fraction-static": "0.8"}, GPT_OSS_20B, "pools of their own that this plan does not know"),
    ],
)
def test_what_is_not_known_is_said(args: Mapping[str, str], target: Any, said: str) -> None:
    with pytest.raises(SizingProblem, match=said):
        planned(args=args, target=target)


def test_the_question_is_about_its_engine() -> None:
    asked = question(SpecDeployment.parse(document("0.5.20")), MEMORY)
    assert (asked.engine, asked.release, asked.context) == ("SGLang", "0.5.20", 2000)
    assert replace(asked, engine="vLLM") != asked

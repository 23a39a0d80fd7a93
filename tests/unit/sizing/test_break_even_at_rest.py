"""The break-even line that weights let expect: 1 + k c, c one draft step over one target step."""

from __future__ import annotations

import pytest

from specfleet.api.v1alpha1 import DraftMode
from specfleet.sizing.drafts import draft_cost
from specfleet.sizing.parameters import read_bytes, weights
from specfleet.sizing.plan import break_even_at_rest
from specfleet.sizing.shape import ModelShape
from tests.unit.sizing.models import (
    DEEPSEEK_V3,
    EAGLE3_8B,
    GPT_OSS_20B,
    LLAMA_1B,
    LLAMA_8B,
    LLAMA_70B,
    MIXTRAL,
    QWEN3_30B_A3B,
    Config,
)

K = 5
OUTPUT_8B = 128_256 * 4096 * 2  # bytes of the output layer, and of the embedding


def line(mode: DraftMode, target: Config, draft: Config | None, *, tensor: int = 1, draft_tensor: int = 1) -> float:
    """For five tokens a round."""
    shape = ModelShape.from_config(target)
    head = None if draft is None else ModelShape.from_config(draft)
    cost = draft_cost(mode, K, K, shape, head, tensor=draft_tensor)
    return break_even_at_rest(shape, cost, tensor)


@pytest.mark.parametrize(
    ("config", "published", "bytes_each"),
    [
        (LLAMA_8B, 8.03e9 - 0.525e9, 2.0),
        (LLAMA_1B, 1.236e9, 2.0),  # the embedding is the output layer, and is read as that
        (MIXTRAL, 12.9e9 - 0.131e9, 2.0),
        (QWEN3_30B_A3B, 3.3e9 - 0.311e9, 2.0),
        (DEEPSEEK_V3, 37e9, 1.0),
    ],
)
def test_a_step_reads_what_is_active(config: Config, published: float, bytes_each: float) -> None:
    """Parameters that a token activates by the model's card, less those of the embedding, of which it reads a row."""
    shape = ModelShape.from_config(config)
    assert read_bytes(weights(shape), shape.experts) == pytest.approx(published * bytes_each, rel=0.04)


def test_experts_are_all_read_where_the_config_does_not_say_how_many() -> None:
    said = ModelShape.from_config(GPT_OSS_20B).experts
    silent = ModelShape.from_config({k: v for k, v in GPT_OSS_20B.items() if k != "num_experts_per_tok"}).experts
    old = ModelShape.from_config({**GPT_OSS_20B, "num_experts_per_tok": None, "experts_per_token": 4}).experts
    wrong = ModelShape.from_config({**GPT_OSS_20B, "num_experts_per_tok": 400}).experts
    assert [one and one.active for one in (said, silent, old, wrong)] == [4, 32, 4, 32]


def test_a_draft_model_is_read_for_each_token() -> None:
    own, target = 1.2358e9 * 2, (8.0303e9 - 0.5253e9) * 2
    assert line(DraftMode.DRAFT_MODEL, LLAMA_8B, LLAMA_1B) == pytest.approx(1 + K * own / target, rel=0.001)


def test_a_head_without_an_output_layer_reads_the_targets() -> None:
    head = {**EAGLE3_8B, "torch_dtype": "bfloat16"}
    with_own = line(DraftMode.EAGLE3, LLAMA_8B, head)
    without = line(DraftMode.EAGLE, LLAMA_8B, head)
    assert 1.2 < with_own < without < 1.6
    assert without > 1 + K * OUTPUT_8B / ((8.0303e9 - 0.5253e9) * 2)


def test_what_drafts_a_block_in_one_pass_is_read_once() -> None:
    head = {**EAGLE3_8B, "dflash_config": {"target_layer_ids": [1, 9, 17, 25, 33]}, "target_layer_ids": [1, 9]}
    shape = ModelShape.from_config(LLAMA_8B)
    cost = draft_cost(DraftMode.DFLASH, K, K, shape, ModelShape.from_config(head), tensor=1)
    assert cost.round_bytes == cost.weights.total + OUTPUT_8B


def test_layers_of_the_target_are_read_with_its_output_layer() -> None:
    found = line(DraftMode.MTP, DEEPSEEK_V3, None)
    output = 129_280 * 7168 * 2
    assert 1 + K * output / 38e9 < found < 1.5


def test_a_draft_on_each_accelerator_weighs_as_many_times() -> None:
    shared = line(DraftMode.DRAFT_MODEL, LLAMA_70B, LLAMA_8B, tensor=4, draft_tensor=4)
    whole = line(DraftMode.DRAFT_MODEL, LLAMA_70B, LLAMA_8B, tensor=4)
    assert whole - 1 == pytest.approx(4 * (shared - 1))


@pytest.mark.parametrize("mode", [DraftMode.NGRAM, DraftMode.SUFFIX])
def test_drafts_without_weights_cost_nothing(mode: DraftMode) -> None:
    assert line(mode, LLAMA_8B, None) == 1.0

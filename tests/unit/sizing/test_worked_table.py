"""The worked table of the KV budget, and what vLLM logged for Llama 3.1 8B."""

from __future__ import annotations

import pytest

from specfleet.api.v1alpha1 import DraftMode
from specfleet.sizing.accelerators import GIB, accelerator
from specfleet.sizing.cache import Blocks, held, kv_tokens
from specfleet.sizing.drafts import NO_DRAFT, DraftCost, draft_cost
from specfleet.sizing.plan import PoolRoom, Serving, kv_bytes_per_token, pool_room
from specfleet.sizing.shape import ModelShape
from tests.unit.sizing.models import (
    DEEPSEEK_V3,
    EAGLE3_8B,
    EAGLE3_70B,
    LLAMA_1B,
    LLAMA_8B,
    LLAMA_70B,
    LLAMA_70B_FP8,
    QWEN3_06B,
    QWEN3_8B,
    Config,
)

KIB = 1024
K = 5
HEADS = {4096: EAGLE3_8B, 8192: EAGLE3_70B}


def cost(kind: str, target: ModelShape, tensor: int) -> DraftCost:
    """The drafts of the table's columns, five tokens a round."""
    if kind == "none":
        return NO_DRAFT
    if kind == "EAGLE3":
        head = ModelShape.from_config(HEADS[target.hidden])
        return draft_cost(DraftMode.EAGLE3, K, K, target, head, tensor=tensor)
    one = ModelShape.from_config(LLAMA_1B)
    return draft_cost(DraftMode.DRAFT_MODEL, K, K, target, one, tensor=1 if kind == "1B everywhere" else tensor)


def room(config: Config, name: str, tensor: int, kind: str) -> PoolRoom:
    """One cell of the table."""
    target = ModelShape.from_config(config)
    serving = Serving(
        memory_bytes=accelerator(name).memory_bytes,
        utilisation=0.9,
        context=2000,
        max_sequences=1024,
        kv_bytes=2,
        tensor=tensor,
    )
    return pool_room(target, cost(kind, target, tensor), serving)


@pytest.mark.parametrize(
    ("config", "name", "tensor", "kind", "kib", "thousand_tokens", "sequences"),
    [
        (LLAMA_8B, "H100-80GB", 1, "none", 128, 440, 219),
        (LLAMA_8B, "H100-80GB", 1, "EAGLE3", 132, 420, 208),
        (LLAMA_8B, "H100-80GB", 1, "1B", 160, 337, 167),
        (LLAMA_8B, "H200", 1, "none", 128, 887, 443),
        (LLAMA_8B, "H200", 1, "EAGLE3", 132, 854, 423),
        (LLAMA_8B, "H200", 1, "1B", 160, 695, 344),
        (LLAMA_70B, "H100-80GB", 4, "none", 320, 470, 234),
        (LLAMA_70B, "H100-80GB", 4, "EAGLE3", 324, 455, 225),
        (LLAMA_70B, "H100-80GB", 4, "1B", 352, 420, 208),
        (LLAMA_70B, "H100-80GB", 4, "1B everywhere", 448, 314, 155),
        (LLAMA_70B, "H200", 2, "none", 320, 378, 188),
        (LLAMA_70B, "H200", 2, "EAGLE3", 324, 364, 180),
        (LLAMA_70B, "H200", 2, "1B", 352, 336, 166),
        (LLAMA_70B, "H200", 2, "1B everywhere", 384, 302, 149),
        (LLAMA_70B_FP8, "H100-80GB", 2, "none", 320, 228, 114),
        (LLAMA_70B_FP8, "H100-80GB", 2, "EAGLE3", 324, 217, 107),
        (LLAMA_70B_FP8, "H100-80GB", 2, "1B", 352, 201, 99),
        (LLAMA_70B_FP8, "H100-80GB", 2, "1B everywhere", 384, 178, 88),
    ],
)
def test_a_cell_of_the_table(
    config: Config, name: str, tensor: int, kind: str, kib: int, thousand_tokens: int, sequences: int
) -> None:
    found = room(config, name, tensor, kind)

    assert found.kv_bytes_per_token_held * tensor == kib * KIB
    assert found.kv_tokens == pytest.approx(thousand_tokens * 1000, rel=0.002)
    assert found.sequences in (sequences, sequences + 1), "the table rounds the weights up"


@pytest.mark.parametrize(("gib", "logged"), [(19.25, 157_648), (26.44, 216_624), (53.71, 439_984), (85.79, 702_800)])
def test_kv_tokens_are_those_that_vllm_logged_for_that_memory(gib: float, logged: int) -> None:
    layers = held(ModelShape.from_config(LLAMA_8B).layers, tensor=1, kv_bytes=2, model_bytes=2)

    assert kv_tokens(int(gib * GIB), layers, Blocks()) == pytest.approx(logged, rel=0.0005)


def test_the_whole_budget_is_within_two_percent_of_what_vllm_logged_on_an_h100() -> None:
    tokens = room(LLAMA_8B, "H100-80GB", 1, "none").kv_tokens

    assert tokens == pytest.approx(439_984, rel=0.02)
    assert tokens == pytest.approx(442_160, rel=0.02)  # vLLM issue 18322


def test_bytes_a_token() -> None:
    deepseek = ModelShape.from_config(DEEPSEEK_V3)
    mtp = draft_cost(DraftMode.MTP, 1, 1, deepseek, None, tensor=1)

    assert kv_bytes_per_token(ModelShape.from_config(LLAMA_8B), NO_DRAFT, 2) == 128 * KIB
    assert kv_bytes_per_token(deepseek, NO_DRAFT, 2) == 61 * 576 * 2
    assert round(kv_bytes_per_token(deepseek, NO_DRAFT, 2) / KIB, 1) == 68.6
    assert round((kv_bytes_per_token(deepseek, mtp, 2) - kv_bytes_per_token(deepseek, NO_DRAFT, 2)) / KIB, 1) == 1.1


def test_a_small_draft_with_wide_kv_costs_more_than_its_weights() -> None:
    target, small = ModelShape.from_config(QWEN3_8B), ModelShape.from_config(QWEN3_06B)
    draft = draft_cost(DraftMode.DRAFT_MODEL, K, K, target, small, tensor=1)

    ratio = kv_bytes_per_token(target, draft, 2) / kv_bytes_per_token(target, NO_DRAFT, 2)

    assert ratio == pytest.approx(1.77, rel=0.01)  # SpecDecode-Bench measured 1.77


def test_eagle3_heads_weigh_what_their_parameters_do() -> None:
    for config, head, gib in ((LLAMA_8B, EAGLE3_8B, 0.79), (LLAMA_70B, EAGLE3_70B, 2.6)):
        draft = draft_cost(
            DraftMode.EAGLE3, K, K, ModelShape.from_config(config), ModelShape.from_config(head), tensor=1
        )
        assert draft.weights.total / GIB == pytest.approx(gib, rel=0.01)

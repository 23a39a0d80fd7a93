"""What a config.json says of KV cache and weights, for each way that models keep what they have read."""

from __future__ import annotations

from typing import Any

import pytest

from specfleet.api.v1alpha1 import DraftMode
from specfleet.sizing.accelerators import GIB
from specfleet.sizing.cache import Blocks, Held, held, layout, token_bytes
from specfleet.sizing.drafts import NO_DRAFT, draft_cost
from specfleet.sizing.layers import Kind
from specfleet.sizing.parameters import count, weights
from specfleet.sizing.plan import kv_bytes_per_token
from specfleet.sizing.reading import SizingProblem
from specfleet.sizing.shape import ModelShape, medusa_shape
from tests.unit.sizing.models import (
    DEEPSEEK_V3,
    GEMMA3_27B,
    GPT_OSS_20B,
    LLAMA_8B,
    LLAMA_70B,
    MISTRAL_7B,
    PARAMETERS,
    QWEN3_8B,
    QWEN3_NEXT,
    Config,
)


def shape(config: Config, **changed: Any) -> ModelShape:
    """The shape of a config with some fields changed."""
    return ModelShape.from_config({**config, **changed})


def sequence_bytes(layers: list[Held], tokens: int, slots: int, drafted: int, blocks: Blocks) -> int:
    """Bytes of one sequence."""
    return layout(layers, blocks).sequence_bytes(tokens, slots, drafted)


def kinds(found: ModelShape) -> list[Kind]:
    """The kinds of its layers, in their order."""
    return [layer.kind for layer in found.layers]


@pytest.mark.parametrize("name", PARAMETERS)
def test_parameters_are_those_that_the_publisher_counts(name: str) -> None:
    config, published = PARAMETERS[name]

    assert count(ModelShape.from_config(config)).total == pytest.approx(published, rel=1e-5)


@pytest.mark.parametrize(("kv_heads", "expected"), [(32, 512), (8, 128), (1, 16), (None, 512)])
def test_bytes_a_token_go_by_key_value_heads(kv_heads: int | None, expected: int) -> None:
    found = shape(LLAMA_8B, num_key_value_heads=kv_heads)

    assert kv_bytes_per_token(found, NO_DRAFT, 2) == expected * 1024
    assert kv_bytes_per_token(found, NO_DRAFT, 1) == expected * 512


@pytest.mark.parametrize(("tensor", "share"), [(1, 1), (4, 4), (8, 8), (16, 8)])
def test_tensor_parallelism_divides_by_no_more_than_the_heads(tensor: int, share: int) -> None:
    layers = held(shape(LLAMA_70B).layers, tensor=tensor, kv_bytes=2, model_bytes=2)

    assert token_bytes(layers) == 320 * 1024 // share


def test_every_accelerator_has_the_whole_latent() -> None:
    layers = held(shape(DEEPSEEK_V3).layers, tensor=8, kv_bytes=2, model_bytes=2)

    assert token_bytes(layers) == 61 * 576 * 2


def test_layers_with_windows() -> None:
    gemma, oss = shape(GEMMA3_27B), shape(GPT_OSS_20B)

    assert kinds(gemma)[:6] == [Kind.SLIDING] * 5 + [Kind.FULL]
    assert (kinds(gemma).count(Kind.FULL), gemma.layers[0].window, gemma.vocab) == (10, 1024, 262208)
    assert kinds(oss)[:2] == [Kind.SLIDING, Kind.FULL]
    assert set(kinds(shape(MISTRAL_7B))) == {Kind.SLIDING}
    assert set(kinds(shape(MISTRAL_7B, sliding_window=None))) == {Kind.FULL}
    assert set(kinds(shape(QWEN3_8B, sliding_window=4096))) == {Kind.FULL}, "use_sliding_window is false"
    upper = shape(QWEN3_8B, sliding_window=4096, use_sliding_window=True, max_window_layers=30)
    assert kinds(upper).count(Kind.SLIDING) == 6


def test_a_window_bounds_what_a_long_sequence_takes() -> None:
    layers = held(shape(MISTRAL_7B).layers, tensor=1, kv_bytes=2, model_bytes=2)
    short = sequence_bytes(layers, 2048, 0, 0, Blocks())

    assert short == 2048 * 128 * 1024
    assert sequence_bytes(layers, 32768, 0, 0, Blocks()) == (4096 + 16) * 128 * 1024


def test_hybrid_layers_are_grouped_as_vllm_does() -> None:
    layers = held(shape(GPT_OSS_20B).layers, tensor=1, kv_bytes=2, model_bytes=2)
    page = 12 * 16 * 2 * 8 * 64 * 2

    # 12 full layers with all blocks, 12 sliding ones with the nine that 128 tokens can touch.
    assert sequence_bytes(layers, 8192, 0, 0, Blocks()) == page * (8192 // 16 + 9)
    # 10 full layers; 52 sliding ones need six groups of ten, eight places of which stay empty.
    gemma = held(shape(GEMMA3_27B).layers, tensor=1, kv_bytes=2, model_bytes=2)
    assert sequence_bytes(gemma, 8192, 0, 0, Blocks()) == 10 * 16 * 2 * 16 * 128 * 2 * (8192 // 16 + 6 * 65)


def test_states_do_not_grow_and_are_kept_once_more_for_each_drafted_token() -> None:
    found = shape(QWEN3_NEXT)
    layers = held(found.layers, tensor=1, kv_bytes=2, model_bytes=2)
    token = 12 * 2 * 2 * 256 * 2

    assert kinds(found)[:4] == [Kind.STATE] * 3 + [Kind.FULL]
    assert token_bytes(layers) == token
    grown = sequence_bytes(layers, 110_000, 0, 0, Blocks()) - sequence_bytes(layers, 10_000, 0, 0, Blocks())
    assert grown == pytest.approx(100_000 * token, rel=0.01)
    ready = sequence_bytes(layers, 10_000, 0, 3, Blocks()) - sequence_bytes(layers, 10_000, 0, 0, Blocks())
    state = max(layer.state_bytes for layer in layers)
    assert ready >= 3 * 36 * state


@pytest.mark.parametrize(
    ("quantisation", "gib"),
    [
        (None, 14.96),
        ({"quant_method": "fp8"}, 8.46),
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, 5.34),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "lm_head": False}, 5.34),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, 5.62),
        (
            {
                "quant_method": "compressed-tensors",
                "config_groups": {"group_0": {"weights": {"num_bits": 8, "type": "float", "strategy": "channel"}}},
                "ignore": ["lm_head"],
            },
            8.46,
        ),
    ],
)
def test_quantised_weights(quantisation: dict[str, Any] | None, gib: float) -> None:
    found = weights(shape(LLAMA_8B, quantization_config=quantisation))

    assert found.total / GIB == pytest.approx(gib, abs=0.05)


def test_experts_in_four_bits_leave_the_rest_as_it_is() -> None:
    assert weights(shape(GPT_OSS_20B)).total == pytest.approx(13.76e9, rel=0.01)  # its checkpoint


def test_a_known_size_wins_and_mtp_layers_are_taken_off() -> None:
    plain = ModelShape.from_config(LLAMA_8B, parameter_bytes=16_060_522_496)
    with_mtp = ModelShape.from_config(DEEPSEEK_V3, parameter_bytes=688_586_727_753)
    unknown = ModelShape.from_config({**LLAMA_8B, "quantization_config": {"quant_method": "quark"}}, parameter_bytes=9)

    assert weights(plain).total == 16_060_522_496
    assert weights(with_mtp).total == pytest.approx(688_586_727_753 - 11.6e9, rel=0.002)
    assert weights(unknown).total == pytest.approx(9, abs=2)


def test_a_quantisation_that_is_not_known_is_said_not_guessed() -> None:
    with pytest.raises(SizingProblem, match=r"quark is not known: put the checkpoint's model.safetensors.index.json"):
        weights(shape(LLAMA_8B, quantization_config={"quant_method": "quark"}))


@pytest.mark.parametrize(
    ("mode", "lookahead", "slots"), [(DraftMode.NGRAM, 0, 5), (DraftMode.EAGLE3, 5, 10), (DraftMode.DFLASH, 6, 11)]
)
def test_slots_of_a_running_sequence(mode: DraftMode, lookahead: int, slots: int) -> None:
    head = shape(LLAMA_8B, num_hidden_layers=1, dflash_config={"target_layer_ids": [1, 16, 30]})

    assert draft_cost(mode, 5, lookahead, shape(LLAMA_8B), head, tensor=1).slots == slots


def test_what_each_draft_keeps_and_weighs() -> None:
    target = shape(LLAMA_8B)
    head = shape(LLAMA_8B, num_hidden_layers=1)
    medusa = medusa_shape({"num_heads": 5, "num_layers": 1}, target)

    ngram = draft_cost(DraftMode.NGRAM, 5, 0, target, None, tensor=1)
    eagle = draft_cost(DraftMode.EAGLE, 5, 5, target, head, tensor=1)
    heads = draft_cost(DraftMode.MEDUSA, 5, 0, target, medusa, tensor=1)

    assert (ngram.layers, ngram.weights.total) == ((), 0)
    assert eagle.layers == target.layers[:1]
    assert eagle.weights.total == pytest.approx(2 * (2 * 4096 * 4096 + 218_112_000), rel=0.001)
    assert heads.layers == ()
    assert heads.weights.total == pytest.approx(2 * 5 * (4096 * 4096 + 128256 * 4096), rel=0.001)


def test_mtp_without_layers_for_it_is_refused() -> None:
    with pytest.raises(SizingProblem, match="num_nextn_predict_layers"):
        draft_cost(DraftMode.MTP, 1, 1, shape(LLAMA_8B), None, tensor=1)


def test_a_checkpoint_that_is_missing_is_said() -> None:
    with pytest.raises(SizingProblem, match=r"mode EAGLE3 drafts with a checkpoint, and its config.json is missing"):
        draft_cost(DraftMode.EAGLE3, 1, 1, shape(LLAMA_8B), None, tensor=1)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"model_type": "frontier"}, "model_type 'frontier' is not known"),
        ({"model_type": None}, "model_type '' is not known"),
        ({"model_type": 7}, "expected model_type to be a text, found 7"),
        ({"hidden_size": None}, "has no hidden_size"),
        ({"hidden_size": "4096"}, "expected hidden_size to be a whole number from 1, found '4096'"),
        ({"hidden_size": True}, "expected hidden_size to be a whole number from 1, found True"),
        ({"hidden_size": 4096.0}, "expected hidden_size to be a whole number from 1, found 4096.0"),
        ({"hidden_size": -1}, "found -1"),
        ({"hidden_size": 10**400}, "a number beyond all models"),
        ({"num_hidden_layers": 10**9}, "expected num_hidden_layers to be a whole number up to 4096"),
        ({"num_key_value_heads": 64}, "at most num_attention_heads, 32"),
        ({"layer_types": ["full_attention"]}, "layer_types has 1 entries, and the model 32 layers"),
        ({"layer_types": ["full_attention"] * 31 + ["telepathy\n"]}, r"layer type 'telepathy\\n' is not known"),
        ({"layer_types": ["sliding_attention"] * 32}, "has sliding layers and no sliding_window"),
        ({"layer_types": ["mamba"] * 32}, "this model's KV cache is not known"),
        ({"layer_types": {"a": 1}}, "expected layer_types to be a list of str, found an object with 1 entries"),
        ({"torch_dtype": "int3"}, "dtype 'int3' is not known"),
        ({"quantization_config": "fp8"}, "expected quantization_config to be an object"),
        ({"num_attention_heads": 8192}, "expected num_attention_heads to be at most hidden_size, 4096"),
        ({"quantization_config": {"quant_method": "fp8", "ignore": 5}}, "expected ignore to be a list of str, found 5"),
        ({"model_type": "nemotron_h", "hybrid_override_pattern": "-" * 32}, "no layer that keeps anything"),
        ({"text_config": ["x"]}, "expected text_config to be an object, found a list with 1 entries"),
    ],
)
def test_a_wrong_config_is_answered_with_what_is_wrong(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(SizingProblem, match=said):
        shape(LLAMA_8B, **changed)


def test_a_config_that_is_no_object_is_answered() -> None:
    with pytest.raises(SizingProblem, match="expected a JSON object, found a list with 0 entries"):
        ModelShape.from_config([])  # type: ignore[arg-type]

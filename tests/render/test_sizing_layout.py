"""KV layouts of the plan against those that vLLM 0.32's own cache manager makes of the same layers."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from specfleet.sizing.cache import Blocks, Held, held, layout
from specfleet.sizing.layers import Kind
from specfleet.sizing.shape import ModelShape
from tests.testbed.api import vllm_python
from tests.unit.sizing.models import GEMMA3_27B, GPT_OSS_20B, LLAMA_8B, MISTRAL_7B, QWEN3_NEXT, Config

pytestmark = pytest.mark.engine

SCRIPT = """
import json, sys
import torch
from vllm.model_executor.layers.mamba.mamba_utils import MambaStateShapeCalculator
from vllm.v1.core.kv_cache_utils import _get_kv_cache_groups_uniform_page_size as groups_of
from vllm.v1.kv_cache_interface import FullAttentionSpec, SlidingWindowSpec
found = {}
for name, (layers, heads, width) in json.load(sys.stdin).items():
    specs = {}
    for at, window in enumerate(layers):
        common = dict(block_size=16, num_kv_heads=heads, head_size=width, dtype=torch.bfloat16)
        kind = FullAttentionSpec(**common) if window is None else SlidingWindowSpec(sliding_window=window, **common)
        specs[str(at)] = kind
    groups = groups_of(specs)
    page = groups[0].kv_cache_spec.page_size_bytes
    most = max(len(group.layer_names) for group in groups)
    full = sum(isinstance(group.kv_cache_spec, FullAttentionSpec) for group in groups)
    found[name] = dict(block=most * page, groups=len(groups), full=full)
state = MambaStateShapeCalculator.gated_delta_net_state_shape(1, 16, 32, 128, 128, 4, 3)
found["state"] = sum(torch.empty(shape, device="meta").numel() for shape in state)
print(json.dumps(found))
"""
MODELS: dict[str, tuple[Config, list[int | None]]] = {
    "gpt-oss": (GPT_OSS_20B, []),
    "gemma": (GEMMA3_27B, []),
    "llama": (LLAMA_8B, []),
    "mistral": (MISTRAL_7B, []),
    "gpt-oss with an EAGLE head": (GPT_OSS_20B, [None]),
}


@pytest.fixture(scope="module")
def engine() -> dict[str, Any]:
    """What vLLM makes of the layers of each model."""
    asked = {}
    for name, (config, more) in MODELS.items():
        shape = ModelShape.from_config(config)
        windows = [*(layer.window for layer in shape.layers), *more]
        asked[name] = (windows, shape.layers[0].heads, shape.layers[0].width // 2)
    ended = subprocess.run(
        [str(vllm_python()), "-c", SCRIPT], input=json.dumps(asked), capture_output=True, text=True, check=True
    )
    return dict(json.loads(ended.stdout.splitlines()[-1]))


@pytest.mark.parametrize("name", MODELS)
def test_blocks_and_groups_are_those_of_the_engine(name: str, engine: dict[str, Any]) -> None:
    config, more = MODELS[name]
    layers = held(ModelShape.from_config(config).layers, tensor=1, kv_bytes=2, model_bytes=2)
    layers += [Held(Kind.FULL, layers[0].token_bytes) for _ in more]
    laid = layout(layers, Blocks(16))

    assert laid.block_bytes == engine[name]["block"]
    # Of one block's length a sequence has one block of each group with full attention, and at most two with a window.
    assert laid.sequence_bytes(1, 0, 0) == engine[name]["groups"] * engine[name]["block"]
    grown = laid.sequence_bytes(200_016, 0, 0) - laid.sequence_bytes(200_000, 0, 0)
    assert grown == engine[name]["full"] * engine[name]["block"]


def test_a_state_has_the_elements_that_the_engine_gives_it(engine: dict[str, Any]) -> None:
    layers = held(ModelShape.from_config(QWEN3_NEXT).layers, tensor=1, kv_bytes=2, model_bytes=2, tokens=3)

    assert layers[0].state_bytes == 2 * engine["state"]

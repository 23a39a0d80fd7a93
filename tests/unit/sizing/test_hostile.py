"""Whatever a config.json holds, the answer is a plan or a sentence."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from specfleet.api.v1alpha1 import DraftMode
from specfleet.sizing.accelerators import GIB
from specfleet.sizing.drafts import draft_cost
from specfleet.sizing.plan import FleetPlan, Serving, fleet_plan
from specfleet.sizing.reading import SizingProblem
from specfleet.sizing.shape import ModelShape, medusa_shape
from tests.unit.sizing.models import DEEPSEEK_V3, GEMMA3_27B, GPT_OSS_20B, LLAMA_8B, QWEN3_NEXT, Config

MODELS = [LLAMA_8B, DEEPSEEK_V3, GEMMA3_27B, GPT_OSS_20B, QWEN3_NEXT]
OTHERS = [
    "quantization_config",
    "layer_types",
    "hybrid_override_pattern",
    "attn_layer_indices",
    "mlp_only_layers",
    "use_sliding_window",
    "draft_vocab_size",
    "dflash_config",
    "num_heads",
]
METHODS = ["fp8", "awq", "gptq", "modelopt", "compressed-tensors", "mxfp4", "bitsandbytes", "quark"]
QUANTISATION = ["bits", "group_size", "ignore", "modules_to_not_convert", "config_groups", "kv_cache_scheme", "lm_head"]
JUNK = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([10**9, 10**13, 10**400, 0.5, float("nan"), float("inf")])
    | st.text(max_size=8)
    | st.sampled_from(
        ["fp8", "awq", "full_attention", "sliding_attention", "mamba", "compressed-tensors", "M*-", "llama"]
    ),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(
                ["quant_method", "bits", "ignore", "config_groups", "weights", "num_bits", "kv_cache_scheme"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=8,
)


@st.composite
def configs(draw: st.DrawFn) -> Config:
    """A model's config with some fields replaced, in the language part too."""
    config = copy.deepcopy(draw(st.sampled_from(MODELS)))
    part: dict[str, Any] = config.get("text_config", config)
    for name in draw(st.lists(st.sampled_from([*part, *OTHERS]), max_size=3)):
        part[name] = draw(JUNK)
    if draw(st.booleans()):
        members = draw(st.dictionaries(st.sampled_from(QUANTISATION), JUNK, max_size=5))
        config["quantization_config"] = {"quant_method": draw(st.sampled_from(METHODS)), **members}
    return config


def planned(target: Config, draft: Config, mode: DraftMode, serving: Serving) -> FleetPlan | str:
    """The plan, or why there is none."""
    try:
        shape = ModelShape.from_config(target)
        drafts = medusa_shape(draft, shape) if mode is DraftMode.MEDUSA else ModelShape.from_config(draft)
        cost = draft_cost(mode, 4, 4, shape, drafts, tensor=serving.tensor)
        return fleet_plan(shape, cost, serving, baseline_replicas=1, speculative_replicas=1)
    except SizingProblem as problem:
        return str(problem)


@given(configs(), configs(), st.sampled_from(list(DraftMode)), st.sampled_from([1, 3, 8]), st.sampled_from([1, 2]))
@settings(max_examples=200, deadline=None)
def test_a_plan_or_a_sentence(target: Config, draft: Config, mode: DraftMode, tensor: int, pipeline: int) -> None:
    plan = planned(target, draft, mode, Serving(80 * GIB, 0.9, 2000, 256, 2, tensor=tensor, pipeline=pipeline))

    if isinstance(plan, str):
        assert 10 < len(plan) < 600
    else:
        assert 0 <= plan.lost <= 1
        assert plan.speculative.sequences <= plan.baseline.sequences
        assert plan.baseline.running <= 256

"""Pools of a fleet: what fits, what is warned about, and what the running pod says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from specfleet.api.findings import Severity
from specfleet.api.v1alpha1 import DraftMode
from specfleet.sizing.accelerators import GIB, accelerator, accelerators
from specfleet.sizing.drafts import NO_DRAFT, DraftCost, draft_cost
from specfleet.sizing.live import compare, read_cache_config
from specfleet.sizing.plan import FleetPlan, Serving, fleet_plan, pool_room
from specfleet.sizing.quantities import bytes_of
from specfleet.sizing.reading import SizingProblem
from specfleet.sizing.shape import ModelShape
from tests.unit.sizing.models import DEEPSEEK_V3, EAGLE3_8B, GPT_OSS_20B, LLAMA_1B, LLAMA_8B, LLAMA_70B, MIXTRAL

TARGET = ModelShape.from_config(LLAMA_8B)
H100 = accelerator("H100-80GB")


def serving(**changed: Any) -> Serving:
    """Sequences of 2,000 tokens on H100s."""
    base = Serving(memory_bytes=H100.memory_bytes, utilisation=0.9, context=2000, max_sequences=1024, kv_bytes=2)
    return replace(base, **changed)


def small() -> DraftCost:
    """Llama 3.2 1B, five tokens a round."""
    return draft_cost(DraftMode.DRAFT_MODEL, 5, 5, TARGET, ModelShape.from_config(LLAMA_1B), tensor=1)


def plan(draft: DraftCost, **changed: Any) -> FleetPlan:
    """Three pods with the draft, one without."""
    return fleet_plan(TARGET, draft, serving(**changed), baseline_replicas=1, speculative_replicas=3)


def test_a_draft_that_costs_more_than_a_fifth_is_warned_about() -> None:
    head = draft_cost(DraftMode.EAGLE3, 5, 5, TARGET, ModelShape.from_config(EAGLE3_8B), tensor=1)

    (warned,) = plan(small()).findings

    assert (warned.severity, warned.reason) == (Severity.WARNING, "DraftCostsSequences")
    assert "24 % of the sequences of 2000 tokens that a pod runs (220 without, 167 with it)" in warned.message
    assert plan(head).findings == ()


def test_no_sequence_is_lost_where_the_engine_runs_fewer_anyhow() -> None:
    found = plan(small(), max_sequences=128)

    assert (found.baseline.running, found.speculative.running, found.lost) == (128, 128, 0.0)
    assert found.findings == ()


def test_few_long_sequences_are_compared_before_rounding() -> None:
    found = plan(small(), context=131_072, memory_bytes=accelerator("H200").memory_bytes)

    assert (found.baseline.sequences, found.speculative.sequences) == (6, 5)
    assert found.lost == pytest.approx(1 - 106.06 / 160 / (108.36 / 128), abs=0.002)
    assert [one.reason for one in found.findings] == ["DraftCostsSequences"]


@pytest.mark.parametrize(("memory", "path"), [(20, "spec.target"), (22, "spec.drafts[0]")])
def test_what_does_not_fit_is_refused_with_the_sum(memory: int, path: str) -> None:
    (refused,) = plan(small(), memory_bytes=memory * GIB, context=8000).findings

    assert (refused.severity, refused.reason, refused.path) == (Severity.ERROR, "DoesNotFit", path)
    assert "2.50 GiB of other needs" in refused.message
    assert "raise target.parallelism.tensor" in refused.message


def test_weights_alone_can_be_too_large() -> None:
    (refused,) = fleet_plan(
        ModelShape.from_config(LLAMA_70B), NO_DRAFT, serving(), baseline_replicas=1, speculative_replicas=1
    ).findings

    assert "131.42 GiB of weights" in refused.message
    assert "leave 0.00 GiB of 71.19 GiB" in refused.message


def test_the_second_pool_costs_the_accelerators_that_do_not_draft() -> None:
    found = fleet_plan(TARGET, NO_DRAFT, serving(tensor=2), baseline_replicas=2, speculative_replicas=6)

    assert found.second_pool_accelerators == 4


def test_data_parallel_ranks_each_have_a_cache_of_their_own() -> None:
    one, two = pool_room(TARGET, NO_DRAFT, serving()), pool_room(TARGET, NO_DRAFT, serving(data=2))

    assert (two.kv_tokens, two.sequences) == (2 * one.kv_tokens, 2 * one.sequences)


def test_experts_are_spread_over_data_parallel_ranks() -> None:
    mixtral = ModelShape.from_config(MIXTRAL)
    alone = pool_room(mixtral, NO_DRAFT, serving(tensor=2)).weight_bytes
    spread = pool_room(mixtral, NO_DRAFT, serving(tensor=2, data=4)).weight_bytes

    assert alone - spread == pytest.approx(45.1e9 * (1 / 2 - 1 / 8) * 2, rel=0.01)


def test_the_last_pipeline_stage_has_the_draft() -> None:
    without = pool_room(TARGET, NO_DRAFT, serving(pipeline=2))
    drafting = pool_room(TARGET, small(), serving(pipeline=2))

    assert without.kv_bytes_per_token == 128 * 1024
    assert without.kv_bytes_per_token_held == 64 * 1024
    assert drafting.kv_bytes_per_token_held == 96 * 1024
    assert drafting.weight_bytes - without.weight_bytes == small().weights.total


def test_deepseek_on_eight_h200() -> None:
    found = pool_room(
        ModelShape.from_config(DEEPSEEK_V3),
        NO_DRAFT,
        serving(memory_bytes=accelerator("H200").memory_bytes, tensor=8, context=4096),
    )

    assert found.kv_bytes_per_token == found.kv_bytes_per_token_held == 70_272
    assert found.weight_bytes / GIB == pytest.approx(79, abs=2)
    assert found.sequences > 100


def test_an_engine_that_is_told_its_cache() -> None:
    assert pool_room(TARGET, NO_DRAFT, serving(kv_memory_bytes=GIB)).kv_tokens == 8192
    assert pool_room(TARGET, NO_DRAFT, serving(kv_blocks=100)).kv_tokens == 1600


def test_accelerators_have_their_source_and_are_found_by_label() -> None:
    assert all(one.source for one in accelerators().values())
    assert accelerator("nvidia-h100-80gb-hbm3") is H100
    with pytest.raises(SizingProblem, match="did you mean H100-80GB"):
        accelerator("H100")


@pytest.mark.parametrize(
    ("written", "amount"), [("80Gi", 80 * GIB), ("79.5 GiB", int(79.5 * GIB)), ("80G", 80 * 10**9), ("1024", 1024)]
)
def test_amounts_of_memory(written: str, amount: int) -> None:
    assert bytes_of(written) == amount


@pytest.mark.parametrize("written", ["", "much", "80Xi", "-1Gi", "0", "1e9", "9" * 40])
def test_what_is_no_amount_of_memory(written: str) -> None:
    with pytest.raises(SizingProblem, match="expected an amount of memory such as 80Gi"):
        bytes_of(written)


PAGE = """\
# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",cache_dtype="auto",engine="0",num_gpu_blocks="%s"} 1.0
"""


def test_the_plan_against_the_running_pod() -> None:
    engines = read_cache_config(PAGE % "27499")

    close = compare(440_176, engines)
    far = compare(500_000, engines)

    assert close.agrees
    assert not far.agrees
    assert str(far) == "planned 500000 tokens in KV blocks, the engine reports 439984 (+13.6 %)"


def test_engines_of_data_parallel_ranks_are_added() -> None:
    two = PAGE % "100" + 'vllm:cache_config_info{block_size="16",engine="1",num_gpu_blocks="100"} 1.0\n'

    assert compare(3200, read_cache_config(two)).difference == 0


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("", "has no vllm:cache_config_info"),
        (PAGE % "None", "has not counted its blocks yet"),
        ("vllm:cache_config_info{", "cannot be read"),
    ],
)
def test_a_page_that_says_nothing(page: str, said: str) -> None:
    with pytest.raises(SizingProblem, match=said):
        read_cache_config(page)


def test_more_pipeline_stages_than_layers_are_refused() -> None:
    with pytest.raises(SizingProblem, match="pipeline is 64, and the target has 32 layers: lower it"):
        pool_room(TARGET, NO_DRAFT, serving(pipeline=64))


def test_blocks_of_several_sizes_cannot_be_compared() -> None:
    windows = ModelShape.from_config(GPT_OSS_20B)
    wide = draft_cost(DraftMode.DRAFT_MODEL, 5, 5, windows, ModelShape.from_config(MIXTRAL), tensor=1)
    found = pool_room(windows, wide, serving(memory_bytes=accelerator("B200").memory_bytes))

    with pytest.raises(SizingProblem, match="KV blocks of several sizes"):
        compare(found.counted_tokens, read_cache_config(PAGE % "100"))
    with pytest.raises(SizingProblem, match="remove num-gpu-blocks-override"):
        pool_room(windows, wide, serving(kv_blocks=100))


def test_blocks_of_a_hybrid_model_are_those_of_a_group() -> None:
    found = pool_room(ModelShape.from_config(GPT_OSS_20B), NO_DRAFT, serving(kv_memory_bytes=GIB))

    assert found.counted_tokens == GIB // (12 * 16 * 2 * 8 * 64 * 2) * 16


def test_drafted_tokens_take_no_more_than_the_longest_that_is_served() -> None:
    ends_there = pool_room(TARGET, small(), serving(longest=2000))
    goes_on = pool_room(TARGET, small(), serving(longest=4000))

    assert ends_there.sequences == 337_040 // 2000
    assert goes_on.sequences == 337_040 // 2016

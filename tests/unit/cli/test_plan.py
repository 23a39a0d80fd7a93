"""`specfleet plan`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from specfleet.cli.main import app
from tests.unit.sizing.models import DEEPSEEK_V3, GEMMA3_27B, LLAMA_1B, LLAMA_8B

TARGET, SMALL = "meta-llama/Llama-3.1-8B-Instruct", "meta-llama/Llama-3.2-1B"
Document = dict[str, Any]


def fleet(**changed: Any) -> Document:
    """Llama 3.1 8B with a draft model of 1B, one of four pods without it."""
    spec: Document = {
        "engine": {"type": "vLLM", "version": "0.32.0", "args": {"gpu-memory-utilization": "0.9"}},
        "target": {"model": TARGET},
        "drafts": [{"name": "small", "mode": "DraftModel", "model": SMALL, "tokens": 5}],
        "pools": {"replicas": 4, "minBaseline": 1},
        "policy": {"minAcceptancePercent": 50},
    }
    return {
        "apiVersion": "specfleet.dev/v1alpha1",
        "kind": "SpecDeployment",
        "metadata": {"name": "assistant"},
        "spec": {**spec, **changed},
    }


NGRAM = [{"name": "ngram", "mode": "NGram"}]


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder with the models' config.json."""
    for name, config in ((TARGET, LLAMA_8B), (SMALL, LLAMA_1B)):
        folder = tmp_path / "models" / name
        folder.mkdir(parents=True)
        (folder / "config.json").write_text(json.dumps(config))
    return tmp_path / "models"


def plan(document: Document, *arguments: str | Path) -> tuple[int, str, str]:
    """Exit status, output and errors of the command."""
    ended = CliRunner().invoke(app, ["plan", "-f", "-", *map(str, arguments)], input=yaml.safe_dump(document))
    assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
    return ended.exit_code, ended.stdout, ended.stderr


def as_json(document: Document, *arguments: str | Path) -> Document:
    """The plan for programs."""
    _, text, said = plan(document, "-o", "json", *arguments)
    assert not said
    (found,) = json.loads(text)
    return dict(found)


def test_the_text_has_each_pool_the_cost_of_the_second_and_the_warning(models: Path) -> None:
    status, text, _ = plan(fleet(), "--models", models, "--accelerator", "h100-80gb", "--context", "2000")

    assert status == 0
    rows = [line.split() for line in text.splitlines()]
    assert ["baseline", "1", "14.96", "GiB", "53.73", "GiB", "128.0", "440176", "220", "220", "220"] in rows
    assert ["small", "3", "17.26", "GiB", "51.43", "GiB", "160.0", "337040", "167", "167", "501"] in rows
    assert "The pool without speculation takes 1 of 4 accelerators (1 pod)." in text
    assert "speculation pays from 1.82 tokens per decode step on while batches are small." in text
    assert "warning\tDraftCostsSequences\tspec.drafts[0]\tthe draft takes 24 %" in text


def test_json_has_bytes_and_whole_numbers(models: Path) -> None:
    found = as_json(fleet(), "--models", models, "--accelerator", "H100-80GB", "--context", "2000")

    assert found["kvBytesPerToken"] == {"target": 131072, "withDraft": 163840}
    assert found["slotsPerSequence"] == 10
    assert [(pool["name"], pool["sequences"]) for pool in found["pools"]] == [("baseline", 220), ("small", 167)]
    assert found["secondPoolAccelerators"] == 1
    assert found["sequencesLostPercent"] == 24
    assert found["breakEvenTokensPerStep"] == 1.82
    assert [one["reason"] for one in found["findings"]] == ["DraftCostsSequences"]


def test_deepseek_v3_takes_68_6_kib_a_token(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(DEEPSEEK_V3))
    document = fleet(
        target={"model": "deepseek-ai/DeepSeek-V3", "parallelism": {"tensor": 8}},
        drafts=[{"name": "mtp", "mode": "MTP", "tokens": 1}],
    )

    status, text, said = plan(document, "--config", tmp_path / "config.json", "-a", "H200", "--context", "4096")

    assert (status, said) == (0, "")
    assert " 68.6 " in text
    assert " 69.8 " in text
    assert "8 x H200" in text


def test_what_does_not_fit_ends_with_1(models: Path) -> None:
    status, text, _ = plan(fleet(), "--models", models, "--memory", "20Gi")

    assert status == 1
    assert "error\tDoesNotFit\tspec.target\tthe target does not fit an accelerator of 20.00 GiB" in text


def test_the_engines_arguments_count(models: Path) -> None:
    engine = {"type": "vLLM", "version": "0.32.0", "args": {"max-model-len": "2k", "kv-cache-dtype": "fp8"}}
    found = as_json(fleet(engine=engine, drafts=NGRAM), "--models", models, "-a", "H100-80GB")

    assert found["contextTokens"] == 2000
    assert found["kvBytesPerToken"]["target"] == 65536
    # 0.92 of the memory, vLLM's own default since 0.20.
    assert found["pools"][0]["kvBytes"] == pytest.approx((0.92 * 79.1 - 2.5 - 14.96) * 2**30, rel=0.001)
    assert found["pools"][0]["running"] == 256, "max-num-seqs"
    assert found["sequencesLostPercent"] == 0


def test_the_accelerator_may_stand_in_the_template(models: Path) -> None:
    selector = {"nvidia.com/gpu.product": "NVIDIA-H200"}
    pools = {"replicas": 2, "template": {"spec": {"nodeSelector": selector}}}

    assert as_json(fleet(pools=pools), "--models", models)["accelerator"]["name"] == "H200"


def test_an_engine_on_cpus_is_planned_by_the_cache_that_it_is_told(models: Path) -> None:
    engine = {
        "type": "vLLM",
        "version": "0.32.0",
        "args": {"max-model-len": "2048"},
        "env": [{"name": "VLLM_CPU_KVCACHE_SPACE", "value": "4"}],
    }
    pools = {"replicas": 2, "accelerator": {"resource": ""}}

    found = as_json(fleet(engine=engine, pools=pools, drafts=NGRAM), "--models", models)
    _, _, said = plan(fleet(pools=pools, drafts=NGRAM), "--models", models)

    assert found["pools"][0]["kvTokens"] == 4 * 8192
    assert found["pools"][0]["sequences"] == 16
    assert "VLLM_CPU_KVCACHE_SPACE" in said


def test_the_size_in_the_index_wins(models: Path) -> None:
    index = {"metadata": {"total_size": 8 * 2**30}, "weight_map": {"lm_head.weight": "model-00001.safetensors"}}
    (models / TARGET / "model.safetensors.index.json").write_text(json.dumps(index))
    (models / TARGET / "model-00001.safetensors").write_bytes(b"")

    found = as_json(fleet(drafts=NGRAM), "--models", models, "-a", "H100-80GB")

    assert found["pools"][0]["weightBytes"] == pytest.approx(8 * 2**30, abs=4)


def test_the_running_pod_beside_the_plan(models: Path, tmp_path: Path) -> None:
    page = tmp_path / "page"
    page.write_text('vllm:cache_config_info{block_size="16",num_gpu_blocks="27499"} 1.0\n')

    arguments = ("--models", models, "-a", "H100-80GB", "--metrics", page, "--context", "2000")
    found = as_json(fleet(), *arguments)
    _, text, _ = plan(fleet(), *arguments)
    page.write_text(page.read_text() + "vllm:spec_decode_num_drafts_total 3.0\n")
    drafting = as_json(fleet(), *arguments)

    assert found["live"] == {
        "plannedTokens": 440176,
        "reportedTokens": 439984,
        "differencePercent": 0.0,
        "agrees": True,
    }
    assert "Running pod: planned 440176 tokens in KV blocks, the engine reports 439984 (+0.0 %)." in text
    assert drafting["live"]["plannedTokens"] == 337040, "a pod that drafts is compared with its own pool"


def test_what_the_plan_leaves_out_is_said(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(GEMMA3_27B))
    document = fleet(target={"model": "google/gemma-3-27b-it"}, drafts=NGRAM)

    _, text, _ = plan(document, "--config", tmp_path / "config.json", "-a", "H100-80GB", "--context", "8192")

    assert "parts for images or sound, which are not counted" in text
    assert "check vllm:cache_config_info of a running pod" in text


@pytest.mark.parametrize(
    ("changed", "arguments", "said"),
    [
        ({}, (), "give --accelerator, for instance H100-80GB, or --memory"),
        ({}, ("-a", "H100"), "did you mean H100-80GB?"),
        ({}, ("--memory", "plenty"), "expected an amount of memory such as 80Gi, found 'plenty'"),
        ({}, ("-a", "H200", "--context", "200000"), "longer than the 131072 that are served: lower --context"),
        ({"target": {"model": "owner/absent"}}, ("-a", "H200"), "give --config or --models"),
        ({"pools": {}}, (), "RuleViolated"),
        (
            {"engine": {"type": "vLLM", "version": "0.32.0", "args": {"kv-cache-dtype": "nvfp4"}}},
            ("-a", "H200"),
            "the size of KV cache dtype 'nvfp4' is not known",
        ),
        (
            {"engine": {"type": "vLLM", "version": "0.32.0", "args": {"cpu-offload-gb": "4"}}},
            ("-a", "H200"),
            "engine.args[cpu-offload-gb] changes what is kept where",
        ),
    ],
)
def test_what_cannot_be_planned_says_what_to_do(
    models: Path, changed: Document, arguments: tuple[str, ...], said: str
) -> None:
    status, text, found = plan(fleet(**changed), "--models", models, *arguments)

    assert (status, text) == (2, "")
    assert said in found


def test_the_draft_has_the_speculative_configs_own_dtype_and_copies(models: Path) -> None:
    draft = {"name": "small", "mode": "DraftModel", "model": SMALL, "tokens": 5}
    target = {"model": TARGET, "parallelism": {"tensor": 2}}

    def of_draft(args: Document) -> int:
        document = fleet(target=target, drafts=[{**draft, "args": args}])
        pools = as_json(document, "--models", models, "-a", "H100-80GB")["pools"]
        return int(pools[1]["kvBytesPerTokenHeld"]) - int(pools[0]["kvBytesPerTokenHeld"])

    assert of_draft({}) == 16 * 1024
    assert of_draft({"kv_cache_dtype": "fp8"}) == 8 * 1024


def test_arguments_that_take_memory_of_their_own_are_noted(models: Path) -> None:
    engine = {"type": "vLLM", "version": "0.32.0", "args": {"enable-lora": ""}}

    _, text, _ = plan(fleet(engine=engine, drafts=NGRAM), "--models", models, "-a", "H100-80GB")

    assert "Note: what engine.args[enable-lora] takes is not counted: raise --overhead by it." in text


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"model_type": "llama"', "is no JSON"),
        (b"[" * 100_000, "nested deeper than"),
        (b" " * 2_000_000, "larger than"),
        (b"[]", "JSON object"),
        (b'{"model_type": "frontier"}', "model_type 'frontier' is not known"),
        (b"{}", "model_type '' is not known"),
    ],
)
def test_a_hostile_config_is_answered(models: Path, content: bytes, said: str) -> None:
    (models / TARGET / "config.json").write_bytes(content)

    for arguments in (("--models", models), ("--config", models / TARGET / "config.json")):
        status, _, found = plan(fleet(drafts=NGRAM), "-a", "H200", *arguments)
        assert status == 2
        assert said in found


def test_external_pools_are_not_planned(models: Path) -> None:
    pools = {"strategy": "External", "external": {"speculative": {"service": "a"}, "baseline": {"service": "b"}}}
    document = fleet(engine={"type": "vLLM"}, pools=pools, drafts=[])

    status, _, said = plan(document, "--models", models, "-a", "H200")

    assert status == 2
    assert "External pools run already" in said


SGLANG = {"type": "SGLang", "version": "0.5.23", "args": {"mem-fraction-static": "0.85"}}
BREAK_EVEN = {"breakEven": {"source": "Fixed", "tokensPerStep": "1.60"}}


def test_sglang_is_planned_by_its_static_share(models: Path) -> None:
    status, text, _ = plan(
        fleet(engine=SGLANG, policy=BREAK_EVEN), "--models", models, "-a", "H200", "--context", "2000"
    )

    assert status == 0
    assert "SGLang 0.5.23" in text
    assert "no log stands behind these figures: compare with max_total_num_tokens" in text


def test_sglang_without_a_share_is_told_what_to_write(models: Path) -> None:
    bare = {"type": "SGLang", "version": "0.5.23"}
    status, _, said = plan(fleet(engine=bare, policy=BREAK_EVEN), "--models", models, "-a", "H200")

    assert status == 2
    assert 'write it, for instance "0.85"' in said


def test_the_object_says_accelerator_and_length_itself(models: Path) -> None:
    pools = {"replicas": 4, "minBaseline": 1, "accelerator": {"product": "H100-80GB"}, "sequenceTokens": 2000}
    found = as_json(fleet(pools=pools), "--models", models)

    assert found["contextTokens"] == 2000
    assert [pool["sequences"] for pool in found["pools"]] == [220, 167]


def test_what_is_served_has_to_fit_whatever_length_is_counted(models: Path) -> None:
    """vLLM does not start where no sequence of the longest length fits."""
    pools = {"replicas": 4, "accelerator": {"memory": "24Gi"}, "sequenceTokens": 2000}
    status, text, _ = plan(fleet(pools=pools), "--models", models)

    assert status == 1
    assert "one sequence of 131072 tokens needs" in text


def test_the_running_sglang_pod_beside_the_plan(models: Path, tmp_path: Path) -> None:
    page = tmp_path / "page"
    page.write_text(
        'sglang:max_total_num_tokens{model_name="a",tp_rank="0"} 700000.0\n'
        'sglang:max_total_num_tokens_swa{model_name="a",tp_rank="0"} 5.0\n'
    )
    found = as_json(fleet(engine=SGLANG, policy=BREAK_EVEN), "--models", models, "-a", "H200", "--metrics", page)
    assert found["live"]["reportedTokens"] == 700_000
    assert found["live"]["plannedTokens"] == found["pools"][0]["kvTokens"]


def test_ranks_have_caches_and_running_requests_of_their_own(models: Path) -> None:
    target = {"model": TARGET, "parallelism": {"data": 2}}
    one, two = (
        as_json(fleet(**changed), "--models", models, "-a", "H100-80GB", "--context", "100")["pools"][0]
        for changed in ({}, {"target": target})
    )
    assert one["running"] == 256
    assert (two["running"], two["sequences"]) == (512, 2 * one["sequences"])


def test_tensorrt_llm_is_not_planned_and_why(models: Path) -> None:
    engine = {"type": "TensorRTLLM", "version": "1.2.1"}
    drafts = [{"name": "ngram", "mode": "NGram"}]
    status, _, said = plan(fleet(engine=engine, drafts=drafts), "--models", models, "-a", "H200")

    assert status == 2
    assert "how TensorRTLLM divides its memory is not known to this plan" in said
    assert "Start a pod and read its log" in said


GEMMA3_270M: Document = {
    "architectures": ["Gemma3ForCausalLM"],
    "model_type": "gemma3_text",
    "dtype": "bfloat16",
    "head_dim": 256,
    "hidden_size": 640,
    "intermediate_size": 2048,
    "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 3,
    "max_position_embeddings": 32768,
    "num_attention_heads": 4,
    "num_hidden_layers": 18,
    "num_key_value_heads": 1,
    "sliding_window": 512,
    "tie_word_embeddings": True,
    "vocab_size": 262144,
}


def test_without_its_hybrid_manager_vllm_keeps_all_tokens_of_windows_too(models: Path) -> None:
    """Seen with vLLM 0.32 on CPUs, Gemma 3 270M drafting for itself in 1 GiB: 227 blocks of 128 tokens."""
    for name in (TARGET, SMALL):
        (models / name / "config.json").write_text(json.dumps(GEMMA3_270M))
    engine = {
        "type": "vLLM",
        "version": "0.32.0",
        "args": {"max-model-len": "1024", "disable-hybrid-kv-cache-manager": ""},
        "env": [{"name": "VLLM_CPU_KVCACHE_SPACE", "value": "1"}],
    }
    found = as_json(fleet(engine=engine, pools={"replicas": 2, "accelerator": {"resource": ""}}), "--models", models)

    assert found["pools"][1]["kvTokens"] == 227 * 128

"""What TensorRT-LLM cannot do, said with what to write instead; how its flags are read and its config is made."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import yaml
from packaging.version import Version

from specfleet.api.findings import Finding, Severity, errors
from specfleet.api.v1alpha1 import DraftMode, EngineType, SpecDeployment
from specfleet.engines.protocol import EngineFacts
from specfleet.engines.registry import engine_module
from specfleet.engines.trtllm import PENALTIES
from specfleet.engines.trtllm_tables import COUNTING_SINCE, OLDEST, OWNED_ARGS, table

Document = dict[str, Any]
NEWEST = "1.4.0rc1"
CHECKPOINTS = {"DraftModel", "EAGLE", "EAGLE3", "DFlash", "Medusa"}
RELEASES = [
    *("1.0.0", "1.0.1", "1.1.0", "1.2.0rc5", "1.2.0", "1.2.1", "1.3.0rc0", "1.3.0rc5.post1", "1.3.0rc11", "1.3.0rc13"),
    *("1.3.0rc20", "1.3.0rc24", "1.3.0rc27", "1.3.0rc29", "1.3.0", "1.4.0rc0", "1.4.0rc1", "1.4.0rc4"),
]


def fleet(
    mode: str = "EAGLE3",
    version: str | None = NEWEST,
    *,
    args: dict[str, str] | None = None,
    draft: Document | None = None,
    parallelism: dict[str, int] | None = None,
    routes: list[Document] | None = None,
    **engine: Any,
) -> SpecDeployment:
    """A SpecDeployment; `args` are engine.args, `draft` adds to the draft."""
    drafting: Document = {"name": "draft", "mode": mode, "tokens": 3} | (draft or {})
    if mode in CHECKPOINTS:
        drafting.setdefault("model", "/models/target/draft")
    whole: Document = {"type": "TensorRTLLM", "args": args or {}} | engine
    if version is not None:
        whole["version"] = version
    source = {"persistentVolumeClaim": {"claimName": "weights"}}
    spec: Document = {
        "engine": whole,
        "target": {"model": "/models/target", "source": source, "parallelism": parallelism or {}},
        "drafts": [drafting],
        "pools": {"replicas": 2},
        "policy": {"minAcceptancePercent": 40},
    }
    if routes is not None:
        spec["routing"] = {"routes": routes}
    return SpecDeployment.parse({"metadata": {"name": "assistant", "namespace": "serving"}, "spec": spec})


def findings(deployment: SpecDeployment) -> list[Finding]:
    return engine_module(EngineType.TENSORRTLLM).check(deployment)


def only_error(deployment: SpecDeployment) -> Finding:
    (found,) = errors(findings(deployment))
    return found


def facts(deployment: SpecDeployment, *, speculative: bool = True) -> EngineFacts:
    return engine_module(EngineType.TENSORRTLLM).facts(deployment, speculative=speculative)


def config(deployment: SpecDeployment, *, speculative: bool = True) -> Document:
    (file,) = facts(deployment, speculative=speculative).files
    read = yaml.safe_load(file.text)
    assert isinstance(read, dict)
    return read


def drafting(mode: str, version: str, **draft: Any) -> Document:
    """The speculative config."""
    found = config(fleet(mode, version, draft=draft))["speculative_config"]
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    ("mode", "version", "expected"),
    [
        ("NGram", "1.0.0", {"decoding_type": "NGram", "max_draft_len": 3, "max_matching_ngram_size": 4}),
        ("NGram", "1.4.0rc4", {"decoding_type": "NGram", "max_draft_len": 3, "max_matching_ngram_size": 4}),
        ("DraftModel", "1.2.1", {"decoding_type": "DraftTarget", "max_draft_len": 3, "speculative_model": "D"}),
        ("DraftModel", "1.0.0", {"decoding_type": "DraftTarget", "max_draft_len": 3, "speculative_model_dir": "D"}),
        ("DraftModel", NEWEST, {"decoding_type": "Draft_Target", "max_draft_len": 3, "speculative_model": "D"}),
        ("EAGLE3", "1.1.0", {"decoding_type": "Eagle", "max_draft_len": 3, "speculative_model_dir": "D"}),
        ("EAGLE3", "1.2.1", {"decoding_type": "Eagle", "max_draft_len": 3, "speculative_model": "D", "SAMPLES": True}),
        (
            "EAGLE3",
            "1.3.0rc11",
            {"decoding_type": "Eagle3", "max_draft_len": 3, "speculative_model": "D", "SAMPLES": True},
        ),
        ("EAGLE3", NEWEST, {"decoding_type": "Eagle3", "max_draft_len": 3, "speculative_model": "D"}),
        ("MTP", "1.2.1", {"decoding_type": "MTP", "num_nextn_predict_layers": 3, "SAMPLES": True}),
        ("MTP", "1.3.0rc24", {"decoding_type": "MTP", "num_nextn_predict_layers": 3, "SAMPLES": True}),
        ("MTP", NEWEST, {"decoding_type": "MTP", "max_draft_len": 3}),
        ("DFlash", NEWEST, {"decoding_type": "DFlash", "max_draft_len": 3, "speculative_model": "D"}),
    ],
)
def test_each_release_gets_its_own_names(mode: str, version: str, expected: Document) -> None:
    names = {"SAMPLES": "allow_advanced_sampling"}
    model = "/models/target/draft"

    assert drafting(mode, version) == {
        names.get(key, key): model if value == "D" else value for key, value in expected.items()
    }


def _grid() -> list[tuple[str, str]]:
    return list(itertools.product(RELEASES, [mode.value for mode in DraftMode]))


@pytest.mark.parametrize(("version", "mode"), _grid())
def test_every_release_and_mode_is_rendered_by_its_facts_or_refused_with_what_to_use(version: str, mode: str) -> None:
    deployment, release = fleet(mode, version), Version(version)
    wrong = errors(findings(deployment))
    if table().type_of(DraftMode(mode), release) is None:
        (found,) = wrong
        assert found.reason == "ModeUnavailable"
        assert "use" in found.message
        assert "NGram" in found.message
        return

    assert wrong == []
    found_facts, found_config = facts(deployment), drafting(mode, version)
    for key in set(found_config) - {"decoding_type"}:
        assert table().key_detail(key, DraftMode(mode), release) or (key, mode) in KEYS_OF_UNREAD_CLASSES, key
    flags = [word.split("=")[0] for word in found_facts.args if word.startswith("--")]
    assert [flag for flag in flags if table().flag(flag, release) is None] == []
    assert found_facts.args[0] == "/models/target"


# The class of MTP was read from 1.2.0 on; before, specfleet relies on a report.
KEYS_OF_UNREAD_CLASSES = {("num_nextn_predict_layers", "MTP")}


def test_a_release_between_two_that_were_read_has_what_both_have() -> None:
    assert "max_concurrency" in table().args_of(DraftMode.EAGLE3, Version("1.3.0rc20"))
    assert "acceptance_window" not in table().args_of(DraftMode.EAGLE3, Version("1.3.0rc20"))
    assert "acceptance_rate_threshold" not in table().args_of(DraftMode.EAGLE3, Version("1.3.0rc20"))
    assert table().flag("--served_model_name", Version("1.3.0rc23")) is None
    assert table().flag("--served_model_name", Version("1.3.0rc25")) == "value"
    # A patch of a final release is that release.
    assert table().type_of(DraftMode.DRAFT_MODEL, Version("1.2.9")) == "DraftTarget"


def test_what_a_rename_leaves_open_is_refused_with_the_releases_around_it() -> None:
    found = only_error(fleet("DraftModel", "1.3.0rc5"))

    assert "was renamed before or after TensorRT-LLM 1.3.0rc5" in found.message
    assert "use 1.2.0 or 1.3.0rc11" in found.message


@pytest.mark.parametrize(
    ("mode", "part"),
    [("Medusa", "has no Medusa"), ("EAGLE", "reads EAGLE-3 heads only"), ("Suffix", "are not offered")],
)
def test_modes_that_it_has_in_no_release_name_what_it_has(mode: str, part: str) -> None:
    found = only_error(fleet(mode))

    assert found.path == "spec.drafts[0].mode"
    assert part in found.message
    assert "use one of NGram, DraftModel, EAGLE3, MTP, DFlash, or vLLM" in found.message


def test_the_command_line_binds_all_interfaces_and_sizes_both_pools_alike() -> None:
    deployment = fleet(args={"max_batch_size": "96", "max_num_tokens": "8192"}, parallelism={"tensor": 4})

    assert facts(deployment).args == (
        "/models/target",
        "--host=0.0.0.0",
        "--port=8000",
        "--backend=pytorch",
        "--tp_size=4",
        "--pp_size=1",
        "--max_batch_size=96",
        "--config=/etc/specfleet/engine/config.yaml",
        "--served_model_name=assistant",
        "--max_num_tokens=8192",
    )
    assert facts(deployment, speculative=False).args == facts(deployment).args
    assert (facts(deployment).accelerators, facts(deployment).max_sequences) == (4, 96)
    assert facts(fleet()).max_sequences == 64


@pytest.mark.parametrize(
    ("version", "flag"),
    [("1.0.0", "--extra_llm_api_options"), ("1.1.0", "--extra_llm_api_options"), ("1.2.0", "--config")],
)
def test_the_file_is_given_by_the_flag_of_the_release(version: str, flag: str) -> None:
    assert f"{flag}=/etc/specfleet/engine/config.yaml" in facts(fleet("NGram", version)).args


def test_a_file_without_a_key_is_still_a_mapping() -> None:
    assert config(fleet("NGram", "1.2.1"), speculative=False) == {}


def test_counters_are_asked_for_in_both_pools_where_the_release_has_them() -> None:
    asked = {"return_perf_metrics": True, "enable_iter_perf_stats": True}

    assert config(fleet("NGram"), speculative=False) == asked
    assert config(fleet("NGram", "1.3.0rc11"), speculative=False) == {}


def test_the_targets_revision_is_in_the_file() -> None:
    deployment = fleet("NGram")
    target = deployment.spec.rendered_target.model_copy(
        update={"model": "owner/target", "revision": "abc", "source": None}
    )
    spec = deployment.spec.model_copy(update={"target": target})

    assert config(deployment.model_copy(update={"spec": spec}))["revision"] == "abc"


def test_requests_with_penalties_go_to_baseline_unless_the_engine_takes_them() -> None:
    assert facts(fleet()).refused_fields == PENALTIES
    assert facts(fleet(draft={"args": {"enable_penalty": "true"}})).refused_fields == ()
    assert facts(fleet(version="1.2.1")).refused_fields == ()


@pytest.mark.parametrize(
    "words",
    [
        ["--host", "1.2.3.4"],
        ["--port=9000"],
        ["--tp_size=2"],
        ["--tp-size=2"],
        ["--tensor_parallel_size", "2"],
        ["--pp_size", "2"],
        ["--backend=tensorrt"],
        ["--config=/x.yaml"],
        ["--extra_llm_api_options", "/x.yaml"],
        ["--set", "speculative_config.max_draft_len=9"],
        ["--hf_revision=main"],
        ["--served_model_name=x"],
        ["--grpc"],
        ["--max_batch_size=9"],
        ["--help"],
    ],
    ids=lambda words: words[0],
)
def test_owned_flags_are_refused_in_any_spelling(words: list[str]) -> None:
    assert only_error(fleet(extraArgs=words)).reason == "OwnedFlag"


@pytest.mark.parametrize("key", ["host", "tp-size", "--TP_SIZE", "config", "hf_revision"])
def test_owned_flags_are_refused_in_args(key: str) -> None:
    assert only_error(fleet(args={key: "x"})).reason == "OwnedFlag"


@pytest.mark.parametrize(
    ("args", "version", "part"),
    [
        ({"max_num_token": "8"}, NEWEST, "did you mean max_num_tokens?"),
        ({"max-num-tokens": "8"}, NEWEST, "write max_num_tokens"),
        ({"max_num_tokens": ""}, NEWEST, "needs a value"),
        ({"trust_remote_code": "true"}, NEWEST, 'is a switch: write ""'),
        ({"max_batch_size": "many"}, NEWEST, "write a whole number from 1"),
        ({"kv_cache_dtype": "fp8"}, "1.3.0rc11", "cannot tell whether TensorRT-LLM 1.3.0rc11 knows --kv_cache_dtype"),
        ({"gpu-memory-utilization": "0.8"}, NEWEST, "did you mean free_gpu_memory_fraction?"),
        ({"enforce-eager": ""}, NEWEST, "write it as a key of spec.engine.config"),
        ({"--max_num_tokens": "8"}, NEWEST, "without dashes"),
    ],
)
def test_a_flag_that_does_not_go_is_answered_with_what_to_write(args: Document, version: str, part: str) -> None:
    assert part in only_error(fleet(args=args, version=version)).message


def test_words_that_belong_to_no_flag_would_be_a_second_model() -> None:
    assert "expected a flag" in only_error(fleet(extraArgs=["--max_num_tokens", "8192", "owner/other"])).message


@pytest.mark.parametrize(
    ("args", "version", "reason", "part"),
    [
        ({"max_draft_len": "4"}, NEWEST, "OwnedDraftArg", "write drafts[].tokens"),
        ({"Speculative-Model": "x"}, NEWEST, "OwnedDraftArg", "write drafts[].model"),
        ({"decoding_type": "MTP"}, NEWEST, "OwnedDraftArg", "write drafts[].mode"),
        ({"max_concurency": "4"}, NEWEST, "UnknownDraftArg", "did you mean max_concurrency?"),
        ({"acceptance_window": "4"}, NEWEST, "UnknownDraftArg", "which 1.2.0 to 1.3.0rc11 had"),
        ({"acceptance_rate_threshold": "0.3"}, "1.2.1", "UnknownDraftArg", "which 1.3.0rc27 to 1.4.0rc4 had"),
        ({"use_dynamic_tree": "true"}, NEWEST, "UnknownDraftArg", "is not offered"),
        ({"is_keep_all": "true"}, NEWEST, "UnknownDraftArg", "belongs to mode NGram"),
        ({"max_concurrency": "many"}, NEWEST, "InvalidDraftArg", "is a whole number"),
        ({"max_concurrency": "0"}, NEWEST, "InvalidDraftArg", "from 1"),
        ({"acceptance_rate_threshold": "30"}, NEWEST, "InvalidDraftArg", "a share from 0 to 1"),
        ({"acceptance_rate_threshold": "NaN"}, NEWEST, "InvalidDraftArg", "is a number"),
        ({"enable_penalty": "yes"}, NEWEST, "InvalidDraftArg", "is true or false"),
        ({"moe_backend": "FAST"}, NEWEST, "InvalidDraftArg", "is one of AUTO"),
        ({"eagle3_layers_to_capture": "[1, true]"}, NEWEST, "InvalidDraftArg", "a list of whole numbers"),
        ({"draft_len_schedule": "{}"}, NEWEST, "InvalidDraftArg", "by batch size"),
        ({"draft_len_schedule": '{"4": 2}'}, NEWEST, "InvalidDraftArg", "drafts all 3 tokens"),
        ({"draft_len_schedule": '{"4": 3}'}, "1.2.1", "InvalidDraftArg", "begins with batch size 1"),
        ({"draft_len_schedule": '{"4": 3}', "max_concurrency": "8"}, NEWEST, "InvalidDraftArg", "not both"),
        ({"draft_len_schedule": "[" * 4000}, NEWEST, "InvalidDraftArg", "by batch size"),
    ],
)
def test_draft_args_are_checked_against_the_release(args: Document, version: str, reason: str, part: str) -> None:
    found = only_error(fleet("EAGLE3", version, draft={"args": args}))

    assert found.reason == reason
    assert part in found.message


def test_draft_args_have_the_types_of_their_keys() -> None:
    args = {"draft_len_schedule": '{"16": 0, "8": 3}', "acceptance_rate_threshold": "1", "load_format": "auto"}
    found = drafting("EAGLE3", NEWEST, args=args)

    assert found["draft_len_schedule"] == {8: 3, 16: 0}
    assert list(found["draft_len_schedule"]) == [8, 16]
    assert found["acceptance_rate_threshold"] == 1.0
    assert found["load_format"] == "auto"


@pytest.mark.parametrize(
    "args", [{"max_concurrency": "8"}, {"draft_len_schedule": '{"8": 3}'}, {"acceptance_rate_threshold": "0.3"}]
)
def test_what_the_engine_manages_itself_is_named_beside_the_policy(args: Document) -> None:
    (found,) = findings(fleet(draft={"args": args}))

    assert (found.severity, found.reason) == (Severity.WARNING, "EngineManaged")


def test_relaxed_acceptance_needs_leave() -> None:
    args = {"use_relaxed_acceptance_for_thinking": "true", "relaxed_topk": "10"}

    assert {one.reason for one in errors(findings(fleet("MTP", draft={"args": args})))} == {"LossyNotAllowed"}
    assert errors(findings(fleet("MTP", draft={"args": args, "allowLossy": True}))) == []


@pytest.mark.parametrize(
    ("deployment", "part"),
    [
        (fleet(parallelism={"pipeline": 2}), "write tensor parallelism"),
        (fleet(parallelism={"data": 2}), "enable_attention_dp: true"),
        (fleet("NGram", draft={"ngram": {"minMatch": 1, "maxMatch": 4}}), "a longest match only"),
        (fleet("MTP", draft={"model": "/models/target/mtp"}), "from the target's own checkpoint"),
        (fleet(version="0.21.0"), "use 1.0.0 or newer"),
        (fleet(version="1.2"), "write one in full"),
        (fleet(version="1.2.1", image="nvcr.io/nvidia/tensorrt-llm/release:1.3.0rc11"), "the image tag 1.3.0rc11 says"),
        (fleet(version=None, image="nvcr.io/nvidia/tensorrt-llm/release:latest"), "write engine.version"),
        (
            fleet(env=[{"name": "TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS", "value": "2"}]),
            "it makes acceptance up",
        ),
    ],
    ids=["pipeline", "data", "shortest match", "MTP model", "old", "not in full", "tag", "latest", "forced acceptance"],
)
def test_what_does_not_go_is_answered_with_the_alternative(deployment: SpecDeployment, part: str) -> None:
    assert part in only_error(deployment).message


def from_the_hub(version: str, **draft: Any) -> SpecDeployment:
    deployment = fleet("EAGLE3", version, draft={"model": "owner/head"} | draft)
    target = deployment.spec.rendered_target.model_copy(update={"model": "owner/target", "source": None})
    return deployment.model_copy(update={"spec": deployment.spec.model_copy(update={"target": target})})


def test_drafts_come_from_the_hub_where_the_release_downloads_them_and_in_no_revision() -> None:
    assert "downloads no draft" in only_error(from_the_hub("1.1.0")).message
    assert "takes the default branch" in only_error(from_the_hub(NEWEST, revision="main")).message
    assert config(from_the_hub("1.2.1"))["speculative_config"]["speculative_model"] == "owner/head"


def test_a_release_that_counts_nothing_is_warned_about_where_something_is_to_be_decided() -> None:
    warned = [one.reason for one in findings(fleet("NGram", "1.2.1"))]
    pinned = findings(fleet("NGram", "1.2.1", routes=[{"name": "all", "speculation": "Always"}]))

    assert warned == ["NothingToWatch"]
    assert pinned == []
    assert Version("1.2.1") < COUNTING_SINCE


def test_a_release_newer_than_the_table_is_rendered_like_its_newest_with_a_warning() -> None:
    (found,) = findings(fleet("EAGLE3", "1.9.0"))

    assert (found.severity, found.reason) == (Severity.WARNING, "ReleaseUntested")
    assert facts(fleet("EAGLE3", "1.9.0")).image == "nvcr.io/nvidia/tensorrt-llm/release:1.9.0"


def test_flags_of_a_newer_release_are_warned_about_only() -> None:
    found = findings(fleet("EAGLE3", "1.9.0", args={"brand_new": "1"}))

    assert [(one.severity, one.reason) for one in found] == [
        (Severity.WARNING, "ReleaseUntested"),
        (Severity.WARNING, "UnknownFlag"),
    ]


def test_the_table_and_the_facts_name_the_same_things() -> None:
    types = {fact.name for fact in table().sections["types"].facts}
    assert {name for row in table().modes for name in row.types} == types
    keys = {
        fact.name for name, section in table().sections.items() if name.startswith("keys") for fact in section.facts
    }
    offered = {name for row in table().modes for name in (*row.args, *table().common_args)}
    assert offered <= keys
    assert (table().lossy | table().gate | table().scheduling) <= offered
    # Every key that was read is offered, owned or not offered for a reason.
    assert keys - offered - set(OWNED_ARGS) - set(table().not_offered) == set()
    assert all(row.sources and row.needs for row in table().modes)
    assert table().releases[0] == OLDEST

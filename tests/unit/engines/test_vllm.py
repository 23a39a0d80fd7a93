"""What vLLM can and cannot do, by release, and what it is told."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from specfleet.api.findings import Finding, FindingReason, Severity
from specfleet.api.v1alpha1 import SpecDeployment
from specfleet.engines.registry import engine_module
from specfleet.engines.release import image_tag, tag_version

Document = dict[str, Any]
INVALID = FindingReason.INVALID_DRAFT_ARG

BASE: Document = {
    "apiVersion": "specfleet.dev/v1alpha1",
    "kind": "SpecDeployment",
    "metadata": {"name": "assistant", "namespace": "serving"},
    "spec": {
        "engine": {"type": "vLLM", "version": "0.32.0"},
        "target": {"model": "owner/model"},
        "drafts": [{"name": "ngram", "mode": "NGram"}],
        "pools": {"replicas": 2},
        "policy": {"minAcceptancePercent": 30},
    },
}


def deployment(engine: Document | None = None, draft: Document | None = None, **spec: Any) -> SpecDeployment:
    """The base with another engine, draft or part of spec."""
    document = copy.deepcopy(BASE)
    document["spec"] |= spec
    if engine is not None:
        document["spec"]["engine"] = {"type": "vLLM", **engine}
    document["spec"]["drafts"][0] |= draft or {}
    return SpecDeployment.parse(document)


def check(*args: Any, **kwargs: Any) -> list[Finding]:
    """Findings about `deployment(...)`."""
    one = deployment(*args, **kwargs)
    return engine_module(one.spec.engine.type).check(one)


def reasons(found: list[Finding]) -> list[FindingReason]:
    """Their reasons."""
    return [finding.reason for finding in found]


def arguments(one: SpecDeployment, *, speculative: bool = True) -> tuple[str, ...]:
    """The engine's arguments in one pool."""
    return engine_module(one.spec.engine.type).facts(one, speculative=speculative).args


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("vllm/vllm-openai:v0.32.0", "0.32.0"),
        ("vllm/vllm-openai:0.32.0", "0.32.0"),
        ("registry:5000/a/b:v0.32.0-cu129", "0.32.0"),
        ("a/b:v0.32.1rc2", "0.32.1rc2"),
        ("a/b:v0.32.0.post1", "0.32.0.post1"),
        ("a/b:v0.32.0@sha256:aa", "0.32.0"),
        ("a/b:v0.32", "0.32"),
        ("a/b:latest", None),
        ("a/b:nightly-0123abc", None),
        ("a/b@sha256:aa", None),
        ("registry:5000/a/b", None),
        ("a/b:cu129-nightly", None),
    ],
)
def test_the_release_is_read_from_the_image_tag(image: str, version: str | None) -> None:
    found = tag_version(image)

    assert (str(found) if found is not None else None) == version


def test_a_registry_port_is_no_tag() -> None:
    assert image_tag("registry:5000/a/b") is None


@pytest.mark.parametrize(
    ("engine", "reason", "words"),
    [
        (
            {"image": "a/vllm:latest"},
            FindingReason.RELEASE_UNKNOWN,
            "tag 'latest' names no release: write",
        ),
        ({"image": "a/vllm@sha256:aa"}, FindingReason.RELEASE_UNKNOWN, "the reference has no tag"),
        ({"image": "a/vllm:v0.32.0", "version": "0.31.0"}, FindingReason.RELEASE_MISMATCH, "0.31.0, the image tag"),
        ({"image": "a/vllm:v0.32.0", "version": "0.32.1"}, FindingReason.RELEASE_MISMATCH, "make them one release"),
        ({"version": "0.8.4"}, FindingReason.RELEASE_TOO_OLD, "use vLLM 0.8.5 or newer"),
        ({"image": "a/vllm:v0.7.2"}, FindingReason.RELEASE_TOO_OLD, "older than what specfleet renders"),
        ({"image": "a/vllm:v0.11"}, FindingReason.INVALID_VALUE, 'for instance engine.version: "0.11.2"'),
        ({"image": "a/b:tip", "version": "0.28"}, FindingReason.INVALID_VALUE, "as all did before 0.29"),
        ({"version": "0.32"}, FindingReason.INVALID_VALUE, 'write for instance "0.32.0"'),
        ({"image": "https://a.example/vllm:v0.32.0"}, FindingReason.INVALID_VALUE, "without a scheme"),
        ({"image": "Vllm/vllm-openai:v0.32.0"}, FindingReason.INVALID_VALUE, "in lower case"),
        ({"image": "a/vllm:v0.32.0/", "version": "0.32.0"}, FindingReason.INVALID_VALUE, "an image reference such as"),
    ],
)
def test_a_release_that_cannot_be_served_is_refused(engine: Document, reason: FindingReason, words: str) -> None:
    (found,) = check(engine)

    assert (found.severity, found.reason) == (Severity.ERROR, reason)
    assert words in found.message


@pytest.mark.parametrize(
    "engine",
    [
        {"version": "0.29.0"},
        {"image": "a/vllm:v0.32.0", "version": "0.32.0"},
        {"image": "a/vllm:v0.32.0-cu129", "version": "v0.32"},
        {"image": "a/vllm:nightly", "version": "0.33.0"},
        {"image": "a/own-build:7.1.0", "version": "0.32.0"},
        {"image": "localhost/vllm:v0.32.0"},
        {"image": "Registry.example:5000/team_a/my-images/vllm__x:v0.32.0-CU129"},
    ],
)
def test_a_release_that_is_known_has_no_findings(engine: Document) -> None:
    assert check(engine) == []


def test_a_release_newer_than_the_tables_is_a_warning_and_so_are_its_new_flags() -> None:
    found = check({"version": "0.40.0", "args": {"flag-of-tomorrow": "1"}})

    assert reasons(found) == [FindingReason.RELEASE_UNTESTED, FindingReason.UNKNOWN_FLAG]
    assert {finding.severity for finding in found} == {Severity.WARNING}


@pytest.mark.parametrize(
    "args",
    [
        "model", "served-model-name", "host", "port", "revision", "tensor-parallel-size", "pipeline_parallel_size",
        "data-parallel-size", "speculative-config", "speculative_config", "speculative-conf", "spec-tok",
        "speculative-config.method", "speculative_config.num_speculative_tokens", "sc", "tp", "dp", "pp",
        "per-request-spec-decode-metrics", "enable-force-include-usage", "shutdown-timeout", "api-key", "config",
        "ssl-certfile", "uds", "nnodes", "no-enable-force-include-usage", "--speculative-config", "-tp", "host=x",
    ],
)  # fmt: skip
def test_an_owned_flag_is_refused_in_any_spelling(args: str) -> None:
    found = check({"version": "0.32.0", "args": {args: "x"}})

    assert reasons(found) == [FindingReason.OWNED_FLAG]
    assert found[0].path == f"spec.engine.args[{args}]"


@pytest.mark.parametrize(
    "words",
    [
        ["--speculative-config", "{}"], ["--speculative-config={}"], ["-sc", "{}"], ["-sc={}"],
        ["--speculative_conf={}"],
        ["--speculative-config.method", "ngram"], ["--spec-tokens=4"], ["-tp=2"], ["-tp", "2"], ["-t", "2"],
        ["--hos", "x"],
        ["--seed", "1", "--port", "1"], ["--model=x"], ["--lora-modules", "a=b", "c=d", "--por=1"],
    ],
)  # fmt: skip
def test_an_owned_flag_is_refused_among_verbatim_arguments(words: list[str]) -> None:
    assert reasons(check({"version": "0.32.0", "extraArgs": words})) == [FindingReason.OWNED_FLAG]


@pytest.mark.parametrize(
    ("engine", "reason", "words"),
    [
        ({"args": {"max-modl-len": "1"}}, FindingReason.UNKNOWN_FLAG, "did you mean max-model-len?"),
        ({"args": {"max-num": "1"}}, FindingReason.AMBIGUOUS_FLAG, "--max-num-batched-tokens"),
        (
            {"args": {"enable-prefix-caching": "true"}},
            FindingReason.INVALID_FLAG_VALUE,
            "is a switch and takes",
        ),
        ({"args": {"max-model-len": ""}}, FindingReason.INVALID_FLAG_VALUE, "needs a value, found none"),
        ({"args": {"max-num-seqs": "many"}}, FindingReason.INVALID_FLAG_VALUE, "write a whole number from 1"),
        ({"args": {"max-num-seqs": "0"}}, FindingReason.INVALID_FLAG_VALUE, "write a whole number from 1"),
        (
            {"args": {"async-scheduling": ""}},
            FindingReason.CONFLICTING_FLAG,
            "refuses to start with",
        ),
        ({"args": {"override-generation-config": '{"min_p": 0.1}'}}, FindingReason.CONFLICTING_FLAG, "refuses min_p"),
        ({"args": {"override-generation-config.min_p": "0.1"}}, FindingReason.CONFLICTING_FLAG, "refuses min_p"),
        ({"args": {"q": "fp8"}}, FindingReason.AMBIGUOUS_FLAG, "--quantization"),
        ({"args": {"dcp": "2"}}, FindingReason.AMBIGUOUS_FLAG, "--dcp-comm-backend"),
        ({"args": {"--max-model-len": "1"}}, FindingReason.UNKNOWN_FLAG, "write the flag without dashes"),
        ({"args": {"max-model-len=1": ""}}, FindingReason.UNKNOWN_FLAG, "write the flag without dashes"),
        ({"extraArgs": ["stray"]}, FindingReason.UNKNOWN_FLAG, "'stray' belongs to no flag"),
        ({"extraArgs": ["--enforce-eager", "true"]}, FindingReason.UNKNOWN_FLAG, "'true' belongs to no flag"),
        ({"extraArgs": ["--max-model-len"]}, FindingReason.INVALID_FLAG_VALUE, "needs a value"),
        ({"extraArgs": ["--"]}, FindingReason.UNKNOWN_FLAG, "does not know the flag --"),
        ({"args": {"enable-hc-sp": ""}, "version": "0.31.0"}, FindingReason.UNKNOWN_FLAG, "which came with 0.32.0"),
        (
            {"args": {"logits-processors": "a.b"}, "version": "0.31.0"},
            FindingReason.CONFLICTING_FLAG,
            "0.32.0 or newer",
        ),
    ],
)
def test_a_flag_that_this_release_would_refuse_is_refused_first(
    engine: Document, reason: FindingReason, words: str
) -> None:
    (found,) = check({"version": "0.32.0", **engine})

    assert (found.severity, found.reason) == (Severity.ERROR, reason)
    assert words in found.message


@pytest.mark.parametrize(
    "engine",
    [
        {"args": {"no-async-scheduling": ""}},
        {"args": {"logits-processors": "a.b"}},
        {"args": {"async-scheduling": ""}, "version": "0.33.0"},
        {"args": {"enable-hc-sp": ""}},
        {"args": {"override-generation-config": '{"temperature": 0.1}'}},
        {"extraArgs": ["--seed", "-1", "-O3", "--compilation-config.mode", "3"]},
        {"env": [{"name": "HF_TOKEN", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
        {"env": [{"name": "VLLM_API_KEY", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]},
    ],
)
def test_what_this_release_takes_is_taken(engine: Document) -> None:
    assert check({"version": "0.32.0", **engine}) == []


@pytest.mark.parametrize(
    ("variable", "words"),
    [
        ({"name": "VLLM_HTTP_TIMEOUT_KEEP_ALIVE", "value": "5"}, "longer than the router keeps idle connections"),
        ({"name": "VLLM_API_KEY", "value": "secret"}, "write valueFrom.secretKeyRef"),
        ({"name": "VLLM_PORT", "value": "1"}, "not yours to set"),
    ],
)
def test_a_variable_that_specfleet_relies_on_is_refused(variable: Document, words: str) -> None:
    (found,) = check({"version": "0.32.0", "env": [variable]})

    assert found.reason is FindingReason.OWNED_ENV
    assert words in found.message


@pytest.mark.parametrize(
    ("draft", "reason"),
    [
        ({"args": {"method": "ngram_gpu"}}, FindingReason.OWNED_DRAFT_ARG),
        ({"args": {"prompt-lookup-max": "9"}}, FindingReason.OWNED_DRAFT_ARG),
        ({"args": {"num_speculative_tokens": "9"}}, FindingReason.OWNED_DRAFT_ARG),
        ({"args": {"no_such_key": "9"}}, FindingReason.UNKNOWN_DRAFT_ARG),
        ({"args": {"disable_by_batch_size": "9"}}, FindingReason.UNKNOWN_DRAFT_ARG),
        ({"args": {"draft_tensor_parallel_size": "1"}}, FindingReason.UNKNOWN_DRAFT_ARG),
        ({"args": {"fly_window_size": "4"}, "allowLossy": True}, FindingReason.UNKNOWN_DRAFT_ARG),
        ({"args": {"rejection_sample_method": "fly"}, "allowLossy": True}, FindingReason.INVALID_DRAFT_ARG),
        ({"args": {"rejection_sample_method": "synthetic"}}, FindingReason.LOSSY_NOT_ALLOWED),
        ({"args": {"synthetic_acceptance_length": "2.5"}}, FindingReason.LOSSY_NOT_ALLOWED),
        ({"args": {"synthetic_acceptance_rates": "0.5"}, "allowLossy": True}, FindingReason.INVALID_DRAFT_ARG),
        ({"args": {"num_speculative_tokens_per_batch_size": "[[2, 4, 1]]"}}, FindingReason.INVALID_DRAFT_ARG),
        ({"args": {"num_speculative_tokens_per_batch_size": "[[1, 4, 5]]"}}, FindingReason.INVALID_DRAFT_ARG),
        (
            {"args": {"num_speculative_tokens_per_batch_size": "[[1, 4, 2], [4, 8, 1]]"}},
            FindingReason.INVALID_DRAFT_ARG,
        ),
        ({"args": {"num_speculative_tokens_per_batch_size": "many"}}, FindingReason.INVALID_DRAFT_ARG),
    ],
)
def test_a_draft_argument_that_would_fail_or_do_nothing_is_refused(draft: Document, reason: FindingReason) -> None:
    assert reasons(check(draft=draft)) == [reason]


EAGLE = {"mode": "EAGLE", "model": "owner/head"}
SMALL = {"mode": "DraftModel", "model": "owner/small"}


@pytest.mark.parametrize(
    ("draft", "reason", "words"),
    [
        ({**EAGLE, "args": {"model": "x"}}, FindingReason.OWNED_DRAFT_ARG, "write drafts[].model"),
        ({**EAGLE, "args": {"revision": "x"}}, FindingReason.OWNED_DRAFT_ARG, "write drafts[].revision"),
        ({**EAGLE, "args": {"quantisation": "fp8"}}, FindingReason.UNKNOWN_DRAFT_ARG, "did you mean quantization?"),
        ({**EAGLE, "args": {"use_heterogeneous_vocab": "true"}}, FindingReason.UNKNOWN_DRAFT_ARG, "for mode EAGLE"),
        ({**EAGLE, "args": {"speculative_token_tree": "x"}}, FindingReason.UNKNOWN_DRAFT_ARG, "it went after 0.20.2"),
        ({**EAGLE, "args": {"draft_lm_head_quantization": "fp8"}}, FindingReason.UNKNOWN_DRAFT_ARG, "came with 0.33.0"),
        ({**EAGLE, "args": {"enable_adaptive_verification": "true"}}, FindingReason.UNKNOWN_DRAFT_ARG, "not offered"),
        ({**EAGLE, "args": {"enforce_eager": "yes"}}, INVALID, "true or false, written as JSON"),
        ({**EAGLE, "args": {"draft_load_config": "auto"}}, INVALID, "an object, written as JSON"),
        ({**EAGLE, "args": {"draft_sample_method": "beam"}}, INVALID, "one of greedy, probabilistic"),
        ({**EAGLE, "args": {"draft_tensor_parallel_size": "3"}}, INVALID, "split over 1 or 2 accelerators"),
        ({**SMALL, "args": {"draft_tensor_parallel_size": "1"}}, INVALID, "split over 2 accelerators"),
        (
            {**SMALL, "args": {"use_heterogeneous_vocab": "true", "draft_sample_method": "probabilistic"}},
            INVALID,
            "drafts greedily only",
        ),
        (
            {**SMALL, "args": {"rejection_sample_method": "synthetic"}, "allowLossy": True},
            INVALID,
            "exactly one of synthetic_acceptance_rates",
        ),
        ({**SMALL, "args": {"synthetic_acceptance_length": "2"}, "allowLossy": True}, INVALID, "without it"),
    ],
)
def test_an_argument_of_a_draft_with_files_is_held_against_its_mode_and_release(
    draft: Document, reason: FindingReason, words: str
) -> None:
    (found,) = check(draft=draft, target={"model": "owner/model", "parallelism": {"tensor": 2}})

    assert (found.severity, found.reason) == (Severity.ERROR, reason)
    assert words in found.message


def test_a_mode_that_a_release_lost_is_refused_with_what_it_has() -> None:
    (found,) = check({"version": "0.33.0"}, {"mode": "Medusa", "model": "owner/heads"})

    assert found.reason is FindingReason.MODE_UNAVAILABLE
    assert found.message == (
        "vLLM 0.33.0 has no mode Medusa: use vLLM 0.32.0 or older, or one of NGram, Suffix, DraftModel, EAGLE, EAGLE3, "
        "MTP, DFlash"
    )


def test_suffix_drafts_warn_of_the_package_that_the_image_needs() -> None:
    (found,) = check(draft={"mode": "Suffix"})

    assert (found.severity, found.reason) == (Severity.WARNING, FindingReason.PACKAGE_NEEDED)
    assert "arctic-inference==0.1.1" in found.message


@pytest.mark.parametrize(
    ("release", "flag", "draft", "refused"),
    [
        ("0.32.0", "async-scheduling", EAGLE, False),
        ("0.32.0", "async-scheduling", SMALL, False),
        ("0.32.0", "async-scheduling", {"mode": "Medusa", "model": "owner/heads"}, True),
        ("0.30.0", "logits-processors", EAGLE, True),
        ("0.31.0", "logits-processors", EAGLE, False),
        ("0.33.0", "async-scheduling", {**EAGLE, "args": {"disable_padded_drafter_batch": "true"}}, True),
    ],
)
def test_a_flag_is_refused_with_the_modes_that_it_does_not_go_with(
    release: str, flag: str, draft: Document, refused: bool
) -> None:
    value = "a.b" if flag == "logits-processors" else ""
    found = check({"version": release, "args": {flag: value}}, draft)

    assert reasons(found) == ([FindingReason.CONFLICTING_FLAG] if refused else [])


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ({"enable-lora": ""}, []),
        ({"enable-lora": "", "max-num-seqs": "1024"}, [(Severity.WARNING, FindingReason.UNTESTED_COMBINATION)]),
        (
            {"enable-lora": "", "max-num-batched-tokens": "1279"},
            [(Severity.ERROR, FindingReason.CONFLICTING_FLAG)],
        ),
        ({"enable-lora": "", "max-num-batched-tokens": "1280"}, []),
        ({"max-num-batched-tokens": "512"}, []),
        ({"no-enable-lora": "", "max-num-batched-tokens": "512"}, []),
    ],
)
def test_lora_needs_room_for_the_drafted_tokens_of_all_requests(args: Document, expected: list[Any]) -> None:
    found = check({"version": "0.32.0", "args": args}, EAGLE)

    assert [(one.severity, one.reason) for one in found] == expected


def config_of(one: SpecDeployment) -> Document:
    """The speculative config that is rendered."""
    (text,) = [word for word in arguments(one) if word.startswith("--speculative-config=")]
    found: Document = json.loads(text.partition("=")[2])
    return found


def test_heads_in_the_target_are_those_of_the_targets_revision() -> None:
    pinned = {"model": "owner/model", "revision": "v3"}

    assert config_of(deployment(draft={"mode": "MTP"}, target=pinned))["revision"] == "v3"
    assert "revision" not in config_of(deployment(draft={"mode": "MTP", "model": "owner/heads"}, target=pinned))
    assert "revision" not in config_of(deployment(draft=EAGLE, target=pinned))
    assert config_of(deployment(draft={**EAGLE, "revision": "v1"}, target=pinned))["revision"] == "v1"


HUB = {"huggingFace": {"tokenSecretRef": {"name": "hf", "key": "token"}}}
CLAIM = {"persistentVolumeClaim": {"claimName": "models"}}


@pytest.mark.parametrize(
    ("target", "draft", "baseline", "speculative"),
    [
        ({"model": "owner/model"}, {**EAGLE, "source": HUB}, set(), {"HF_TOKEN"}),
        ({"model": "owner/model", "source": HUB}, EAGLE, {"HF_TOKEN"}, {"HF_TOKEN"}),
        ({"model": "/m/t", "source": CLAIM}, {**EAGLE, "source": {"huggingFace": {}}}, {"HF_HUB_OFFLINE"}, set()),
        (
            {"model": "/m/t", "source": CLAIM},
            {"mode": "EAGLE", "model": "/m/d", "source": CLAIM},
            {"HF_HUB_OFFLINE"},
            {"HF_HUB_OFFLINE"},
        ),
        ({"model": "owner/model"}, {"mode": "EAGLE", "model": "/m/d", "source": CLAIM}, set(), set()),
        (
            {"model": "/m/t", "source": CLAIM},
            {"mode": "EAGLE", "model": "/m/t/head"},
            {"HF_HUB_OFFLINE"},
            {"HF_HUB_OFFLINE"},
        ),
    ],
)
def test_a_pool_gets_the_hub_and_its_token_only_where_its_own_files_come_from_there(
    target: Document, draft: Document, baseline: set[str], speculative: set[str]
) -> None:
    one = deployment(draft=draft, target=target)
    engine = engine_module(one.spec.engine.type)

    found = [
        {fact.name for fact in engine.facts(one, speculative=which).env if fact.name.startswith("HF_")}
        for which in (False, True)
    ]

    assert found == [baseline, speculative]


def test_only_a_volume_of_the_drafts_own_is_mounted_and_only_where_it_speculates() -> None:
    engine = engine_module(deployment().spec.engine.type)
    on_volume = {"model": "/m/t", "source": CLAIM}
    own = deployment(draft={"mode": "EAGLE", "model": "/m/d", "source": CLAIM}, target=on_volume)
    inside = deployment(draft={"mode": "EAGLE", "model": "/m/t/head"}, target=on_volume)

    assert engine.facts(own, speculative=True).draft_mount == "/m/d"
    assert engine.facts(own, speculative=False).draft_mount is None
    assert engine.facts(inside, speculative=True).draft_mount is None
    assert engine.facts(deployment(draft=EAGLE), speculative=True).draft_mount is None


def test_engine_managed_speculation_is_named() -> None:
    (found,) = check(draft={"args": {"num_speculative_tokens_per_batch_size": "[[1, 8, 4], [9, 99, 0]]"}})

    assert (found.severity, found.reason) == (Severity.WARNING, FindingReason.ENGINE_MANAGED)


def test_pipeline_parallelism_is_a_warning() -> None:
    found = check(target={"model": "owner/model", "parallelism": {"pipeline": 2}})

    assert [(one.severity, one.reason) for one in found] == [(Severity.WARNING, FindingReason.UNTESTED_COMBINATION)]


def test_only_the_speculative_pool_speculates() -> None:
    one = deployment(draft={"tokens": 6, "ngram": {"minMatch": 1, "maxMatch": 3}})

    added = arguments(one)[len(arguments(one, speculative=False)) :]

    assert arguments(one)[: -len(added)] == arguments(one, speculative=False)
    assert json.loads(added[0].removeprefix("--speculative-config=")) == {
        "method": "ngram",
        "num_speculative_tokens": 6,
        "prompt_lookup_max": 3,
        "prompt_lookup_min": 1,
    }
    assert added[1:] == ("--per-request-spec-decode-metrics=summary",)


def test_the_users_max_num_seqs_wins_and_sizes_the_router() -> None:
    engine = engine_module(deployment().spec.engine.type)
    by_args = deployment({"version": "0.32.0", "args": {"max_num_seqs": "7"}})
    by_extra = deployment({"version": "0.32.0", "extraArgs": ["--max-num-seqs", "9"]})

    assert engine.facts(deployment(), speculative=True).max_sequences == 256
    assert engine.facts(by_args, speculative=True).max_sequences == 7
    assert [word for word in arguments(by_args) if "seqs" in word] == ["--max-num-seqs=7"]
    assert engine.facts(by_extra, speculative=True).max_sequences == 9


def test_the_grace_period_covers_leaving_the_services_and_finishing() -> None:
    facts = engine_module(deployment().spec.engine.type).facts(deployment(), speculative=True)

    assert facts.pre_stop_seconds >= 45
    assert f"--shutdown-timeout={facts.shutdown_seconds}" in facts.args
    assert facts.grace_seconds > facts.pre_stop_seconds + facts.shutdown_seconds

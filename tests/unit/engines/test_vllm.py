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
        ({"version": "0.28.9"}, FindingReason.RELEASE_TOO_OLD, "use vLLM 0.29.0 or newer"),
        ({"image": "a/vllm:v0.9.2"}, FindingReason.RELEASE_TOO_OLD, "does not report acceptance per request"),
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
        ({"args": {"enable-hc-sp": ""}, "version": "0.31.0"}, FindingReason.UNKNOWN_FLAG, "vLLM 0.31 does not know"),
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

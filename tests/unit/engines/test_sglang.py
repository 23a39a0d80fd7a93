"""What SGLang cannot do, said with what to write instead; how its flags are read."""

from __future__ import annotations

from typing import Any

import pytest

from specfleet.api.findings import Finding, errors
from specfleet.api.v1alpha1 import EngineType, SpecDeployment
from specfleet.engines.protocol import EngineFacts
from specfleet.engines.registry import engine_module

Document = dict[str, Any]
CHECKPOINTS = {"DraftModel", "EAGLE", "EAGLE3", "DFlash", "Medusa"}
BREAK_EVEN: Document = {"breakEven": {"source": "Fixed", "tokensPerStep": "1.6"}}
TREE = {"speculative-eagle-topk": "4", "speculative-num-draft-tokens": "16"}


def fleet(
    mode: str = "EAGLE3",
    version: str | None = "0.5.23",
    *,
    args: dict[str, str] | None = None,
    draft: Document | None = None,
    policy: Document | None = None,
    parallelism: dict[str, int] | None = None,
    **engine: Any,
) -> SpecDeployment:
    """A SpecDeployment; `args` are engine.args, `draft` adds to the draft."""
    drafting: Document = {"name": "draft", "mode": mode, "tokens": 3} | (draft or {})
    if mode in CHECKPOINTS:
        drafting.setdefault("model", "owner/head")
    whole: Document = {"type": "SGLang", "args": args or {}} | engine
    if version is not None:
        whole["version"] = version
    return SpecDeployment.parse(
        {
            "metadata": {"name": "assistant", "namespace": "serving"},
            "spec": {
                "engine": whole,
                "target": {"model": "owner/target", "parallelism": parallelism or {}},
                "drafts": [drafting],
                "pools": {"replicas": 2},
                "policy": policy or BREAK_EVEN,
            },
        }
    )


def findings(deployment: SpecDeployment) -> list[Finding]:
    return engine_module(EngineType.SGLANG).check(deployment)


def only_error(deployment: SpecDeployment) -> Finding:
    (found,) = errors(findings(deployment))
    return found


def facts(deployment: SpecDeployment, *, speculative: bool = True) -> EngineFacts:
    return engine_module(EngineType.SGLANG).facts(deployment, speculative=speculative)


@pytest.mark.parametrize(
    "words",
    [
        ["--speculative-algorithm", "EAGLE"],
        ["--speculative-algo=EAGLE"],
        ["--speculative_algorithm=EAGLE"],
        ["--speculative-num-steps=3"],
        ["--speculative-n=3"],
        ["--speculative-ngram-m=3"],
        ["--host", "1.2.3.4"],
        ["--hos=1.2.3.4"],
        ["--model", "owner/other"],
        ["--model-path=owner/other"],
        ["--tp", "2"],
        ["--tp-size=2"],
        ["--tensor-parallel-size", "2"],
        ["--dp-size=2"],
        ["--enable-metrics"],
        ["--tokenizer-metrics-allowed-custom-labels", "tenant"],
        ["--api-key", "secret"],
        ["--help"],
        ["--config", "file.yaml"],
    ],
    ids=lambda words: words[0],
)
def test_owned_flags_are_refused_in_any_spelling(words: list[str]) -> None:
    assert only_error(fleet(extraArgs=words)).reason == "OwnedFlag"


@pytest.mark.parametrize("key", ["speculative-algorithm", "speculative_algorithm", "--host", "tp-size", "model"])
def test_owned_flags_are_refused_in_args(key: str) -> None:
    assert only_error(fleet(args={key: "x"})).reason == "OwnedFlag"


@pytest.mark.parametrize(
    ("args", "version", "part"),
    [
        ({"mem-fraction-statik": "0.8"}, "0.5.23", "did you mean mem-fraction-static?"),
        ({"mem_fraction_static": "0.8"}, "0.5.23", "write mem-fraction-static"),
        ({"max-model-len": "8192"}, "0.5.23", "SGLang 0.5.23 does not know the flag --max-model-len"),
        ({"enable-expert-distribution-metrics": ""}, "0.5.23", "which 0.4.6.post5 to 0.5.17"),
        ({"max-running-requests": "many"}, "0.5.23", "write a whole number from 1"),
        ({"enable-mixed-chunk": ""}, "0.5.23", "the pools would differ: remove the flag"),
        ({"enable-lora": ""}, "0.5.18", "or use a release newer than 0.5.18"),
    ],
)
def test_a_flag_that_does_not_go_is_answered_with_what_to_write(args: Document, version: str, part: str) -> None:
    assert part in only_error(fleet(args=args, version=version)).message


def test_lora_goes_with_heads_where_the_release_has_it() -> None:
    assert errors(findings(fleet(args={"enable-lora": ""}, version="0.5.19"))) == []


@pytest.mark.parametrize("mode", ["DraftModel", "NGram", "DFlash"])
def test_dp_attention_is_refused_where_the_mode_cannot(mode: str) -> None:
    found = only_error(fleet(mode, args={"enable-dp-attention": ""}))

    assert found.reason == "ConflictingFlag"
    assert "DP attention" in found.message


def test_pipeline_parallelism_is_refused() -> None:
    found = only_error(fleet(parallelism={"pipeline": 2}))

    assert found.path == "spec.target.parallelism.pipeline"
    assert "write tensor parallelism" in found.message


@pytest.mark.parametrize(
    ("mode", "version", "args", "part"),
    [
        ("EAGLE3", "0.5.23", {"speculative-eagle-topp": "2"}, "did you mean speculative-eagle-topk?"),
        ("EAGLE3", "0.5.23", {"eagle-topk": "1"}, "did you mean speculative-eagle-topk?"),
        ("EAGLE3", "0.5.9", {"speculative-adaptive": ""}, "it came with 0.5.11"),
        ("NGram", "0.5.23", {"speculative-ngram-branch-length": "8"}, "it went after 0.5.9"),
        ("NGram", "0.5.23", {"speculative-adaptive": ""}, "is not offered for mode NGram"),
        ("EAGLE3", "0.5.23", {"speculative-num-steps": "4"}, "write drafts[].tokens"),
        ("NGram", "0.5.23", {"speculative-num-draft-tokens": "4"}, "write drafts[].tokens, which is this less one"),
        ("DFlash", "0.5.23", {"speculative-dflash-block-size": "4"}, "which is the block size less one"),
        ("EAGLE3", "0.5.23", {"speculative-eagle-topk": "two"}, "is a whole number from 1"),
        ("EAGLE3", "0.5.23", {"speculative-adaptive": "maybe"}, "is a switch"),
        ("EAGLE3", "0.5.23", {"speculative-accept-threshold-acc": "2"}, "a number from 0 to 1"),
        ("EAGLE3", "0.5.23", {"speculative-accept-threshold-acc": "0.5"}, "allowLossy: true"),
        ("EAGLE3", "0.5.23", {"speculative-num-draft-tokens": "9"}, "a chain of 3 drafted tokens has 4"),
    ],
)  # fmt: skip
def test_a_draft_argument_that_does_not_go_is_answered(mode: str, version: str, args: Document, part: str) -> None:
    assert part in only_error(fleet(mode, version, draft={"args": args})).message


def test_lossy_acceptance_is_taken_where_it_is_allowed() -> None:
    draft = {"args": {"speculative-accept-threshold-acc": "0.5"}, "allowLossy": True}

    assert errors(findings(fleet(draft=draft))) == []


@pytest.mark.parametrize(("size", "fits"), [("3", False), ("4", True), ("37", True), ("38", False)])
def test_a_tree_holds_at_least_its_depth_and_at_most_what_its_breadth_allows(size: str, fits: bool) -> None:
    draft = {"args": TREE | {"speculative-num-draft-tokens": size}}

    assert (errors(findings(fleet(draft=draft))) == []) is fits


def test_a_tree_without_its_size_is_asked_for_it() -> None:
    found = only_error(fleet(draft={"args": {"speculative-eagle-topk": "4"}}))

    assert "write speculative-num-draft-tokens, found none" in found.message


@pytest.mark.parametrize(
    ("mode", "args"), [("EAGLE", TREE), ("NGram", {"speculative-ngram-max-bfs-breadth": "10"})], ids=["EAGLE", "NGram"]
)
def test_a_tree_takes_no_percentage(mode: str, args: Document) -> None:
    found = only_error(fleet(mode, draft={"args": args}, policy={"minAcceptancePercent": 50}))

    assert found.path == "spec.policy.minAcceptancePercent"
    assert "breakEven" in found.message


def test_a_chain_takes_one() -> None:
    assert errors(findings(fleet(policy={"minAcceptancePercent": 50}))) == []


@pytest.mark.parametrize(
    ("more", "refused"), [({}, True), ({"attention-backend": "flashinfer"}, False)], ids=["default", "flashinfer"]
)
def test_pages_and_trees_go_together_on_one_backend(more: Document, refused: bool) -> None:
    found = errors(findings(fleet(args={"page-size": "16"} | more, draft={"args": TREE})))

    assert bool(found) is refused


def test_adaptive_steps_are_told_to_be_the_engines_own() -> None:
    found = findings(fleet(draft={"args": {"speculative-adaptive": ""}}))

    assert [one.reason for one in found] == ["EngineManaged"]
    assert "--speculative-adaptive" in facts(fleet(draft={"args": {"speculative-adaptive": ""}})).args


@pytest.mark.parametrize("mode", ["Medusa", "Suffix"])
def test_a_mode_that_no_release_has_is_answered_with_those_there_are(mode: str) -> None:
    found = only_error(fleet(mode))

    assert "in no release: use one of NGram, DraftModel, EAGLE, EAGLE3, MTP, DFlash, or vLLM" in found.message


def test_a_window_of_matches_is_refused_where_the_engine_has_none() -> None:
    draft = {"ngram": {"minMatch": 1, "maxMatch": 6}}

    assert "speculative-ngram-max-trie-depth" in only_error(fleet("NGram", draft=draft)).message
    words = facts(fleet("NGram", "0.5.9", draft=draft)).args
    assert "--speculative-ngram-min-match-window-size=1" in words
    assert "--speculative-ngram-max-match-window-size=6" in words


@pytest.mark.parametrize(
    ("version", "image", "part"),
    [
        ("0.5.23", "lmsysorg/sglang:v0.5.20", "the image tag v0.5.20 says 0.5.20"),
        (None, "lmsysorg/sglang:latest", "write engine.version"),
        ("0.5", None, "write one in full"),
        ("0.4.6", None, "use 0.5.2 or newer"),
    ],
)
def test_a_release_that_cannot_be_told_is_asked_for(version: str | None, image: str | None, part: str) -> None:
    engine: Document = {"image": image} if image is not None else {}
    found = errors(findings(fleet(version=version, **engine)))

    assert part in found[0].message


def test_a_newer_release_is_rendered_like_the_newest_with_a_warning() -> None:
    newer, newest = fleet(version="0.5.99"), fleet()

    assert [one.reason for one in findings(newer)] == ["ReleaseUntested"]
    assert facts(newer).args == facts(newest).args
    assert facts(newer).image == "lmsysorg/sglang:v0.5.99"


def test_a_release_that_counts_nothing_is_said_to_decide_nothing() -> None:
    (found,) = findings(fleet(version="0.5.12"))

    assert found.reason == "NothingToWatch"
    assert "use 0.5.13 or newer" in found.message


def test_the_cap_of_running_requests_is_given_and_alike_in_both_pools() -> None:
    for deployment, cap in ((fleet(), 48), (fleet(args={"max-running-requests": "200"}), 200)):
        for speculative in (False, True):
            pool = facts(deployment, speculative=speculative)

            assert pool.max_sequences == cap
            assert pool.args.count(f"--max-running-requests={cap}") == 1


def test_a_cap_in_extra_args_counts_as_the_engine_reads_it() -> None:
    assert facts(fleet(extraArgs=["--max-running-requests", "77"])).max_sequences == 77


@pytest.mark.parametrize(("version", "path"), [("0.5.19", "/v1/models"), ("0.5.20", "/ready")])
def test_no_probe_generates_a_token(version: str, path: str) -> None:
    pool = facts(fleet(version=version))

    assert (pool.readiness.path, pool.health_path) == (path, path)
    assert {pool.startup.path, pool.readiness.path, pool.liveness.path} <= {"/ready", "/v1/models"}


@pytest.mark.parametrize(("version", "router", "engine"), [("0.5.9", 3, None), ("0.5.10", 30, "120")])
def test_routers_let_go_of_connections_before_the_engine_does(version: str, router: int, engine: str | None) -> None:
    pool = facts(fleet(version=version))

    assert pool.idle_seconds == router
    assert {fact.name: fact.value for fact in pool.env}.get("SGLANG_TIMEOUT_KEEP_ALIVE") == engine


def test_k_drafted_tokens_are_one_more_with_the_root() -> None:
    words = facts(fleet(draft={"tokens": 5})).args

    assert "--speculative-num-steps=5" in words
    assert "--speculative-num-draft-tokens=6" in words


def test_dp_attention_shares_the_accelerators_of_tensor_parallelism() -> None:
    split = {"tensor": 8, "data": 4}

    assert facts(fleet("MTP", args={"enable-dp-attention": ""}, parallelism=split)).accelerators == 8
    assert facts(fleet("MTP", parallelism=split)).accelerators == 32


@pytest.mark.parametrize("name", ["SGLANG_TIMEOUT_KEEP_ALIVE", "SGLANG_SIMULATE_ACC_LEN", "SGLANG_ENABLE_PP_SPEC"])
def test_variables_that_would_change_what_specfleet_relies_on_are_refused(name: str) -> None:
    assert only_error(fleet(env=[{"name": name, "value": "1"}])).reason == "OwnedEnv"

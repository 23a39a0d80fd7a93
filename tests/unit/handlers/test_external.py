"""What External pools come to: who counts, what is wrong, what they carry."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specfleet.api.conditions import Reason
from specfleet.api.v1alpha1 import ExternalService, SpecDeployment
from specfleet.cluster.endpoints import Endpoint, PodFacts, ServiceFacts
from specfleet.decision.reasons import Hold
from specfleet.decision.rule import Block
from specfleet.engines.arguments import read
from specfleet.handlers.decide import configs, decide, states_of
from specfleet.handlers.external import assess_pools
from specfleet.handlers.outside import Outside
from specfleet.handlers.seen import SeenPod, SeenPool, is_rolling
from specfleet.metrics.engine import parse_page
from tests.unit.metrics.test_engine import VLLM_PAGE

PLAIN = ("vllm", "serve", "owner/name", "--max-num-seqs", "8")
BARE = (*PLAIN, "--speculative-config", '{"method": "ngram", "num_speculative_tokens": 3}')
SPECULATIVE = (*BARE, "--per-request-spec-decode-metrics", "summary")
IMAGE = "vllm/vllm-openai:v0.32.0"


def spec_of(**changes: Any) -> Any:
    """A typed spec with both Services."""
    both = {"speculative": {"service": "fast"}, "baseline": {"service": "plain"}}
    spec = {
        "engine": {"type": "vLLM"},
        "pools": {"strategy": "External", "external": both},
        "routing": {"routes": [{"name": "code", "match": [{"model": "code"}]}, {"name": "chat"}]},
        "policy": {"minAcceptancePercent": 30, "initial": "Speculative", "enforcement": "Enforce"},
        **changes,
    }
    return SpecDeployment.parse({"metadata": {"name": "assistant"}, "spec": spec}).spec


def seen_pod(name: str, argv: tuple[str, ...] = PLAIN, *, image: str = IMAGE, **changes: Any) -> SeenPod:
    facts = PodFacts(name, f"uid-{name}", frozenset({"10.0.0.1"}), "ReplicaSet/x", "t", "f", None, None)
    endpoint = Endpoint("10.0.0.1", name, f"uid-{name}", ready=True, leaving=False, port=8000)
    return replace(SeenPod(endpoint, facts, read(argv, image=image), image), **changes)


def seen_pool(name: str, *pods: SeenPod, **asked: Any) -> SeenPool:
    service = "plain" if name == "baseline" else "fast"
    facts = ServiceFacts(service, True, False, {8000: "http"}, None)
    return SeenPool(name, ExternalService(service=service, **asked), facts, 8000, pods)


def pair(*fast: SeenPod, plain: tuple[SeenPod, ...] = (seen_pod("p"),)) -> dict[str, SeenPool]:
    return {"baseline": seen_pool("baseline", *plain), "speculative": seen_pool("speculative", *fast)}


def test_a_sound_pair_needs_nothing_written() -> None:
    found = assess_pools(spec_of(), pair(seen_pod("a", SPECULATIVE), seen_pod("b", SPECULATIVE)))
    assert (found.attribution, found.unfit, found.warnings, found.draft_tokens) == ("Router", None, (), 3)
    assert found.capacity == {"baseline": 8, "speculative": 16}
    assert {pool.release for pool in found.pools.values()} == {"0.32.0"}


@pytest.mark.parametrize(
    ("argv", "image", "words"),
    [
        (BARE, IMAGE, "add --per-request-spec-decode-metrics summary to the arguments of the pods of Service fast"),
        (BARE, "vllm/vllm-openai:v0.28.1", "vLLM 0.28.1 has no figures per request (0.29.0 has)"),
        (BARE, "private/engine:latest", "if their vLLM is 0.29.0 or newer"),
    ],
)
def test_why_routes_are_decided_together(argv: tuple[str, ...], image: str, words: str) -> None:
    found = assess_pools(spec_of(), pair(seen_pod("a", argv, image=image)))
    assert found.attribution == "Deployment"
    assert words in found.why
    assert "all routes are decided together" in found.why


def test_the_release_that_the_engine_tells_goes_before_its_tag() -> None:
    pool = pair(seen_pod("a", BARE, release="0.28.0"))
    assert assess_pools(spec_of(), pool).pools["speculative"].release == "0.28.0"
    unread = pair(seen_pod("a", BARE, image="private/engine:2024-10"))
    assert assess_pools(spec_of(), unread).pools["speculative"].release is None
    stated = spec_of(engine={"type": "vLLM", "version": "0.30.0"})
    assert assess_pools(stated, unread).pools["speculative"].release == "0.30.0"


def test_with_unread_arguments_figures_in_an_answer_settle_it() -> None:
    script = ("sh", "-c", "if true; then vllm serve m; fi")
    pool = pair(seen_pod("a", script))
    assert assess_pools(spec_of(), pool).attribution == "Deployment"
    assert assess_pools(spec_of(), pool, figures_seen=True).attribution == "Router"
    found = assess_pools(spec_of(), pool)
    assert found.capacity["speculative"] is None
    assert {one.path for one in found.warnings} >= {
        "spec.pools.external.speculative.service",
        "spec.pools.external.speculative.maxSequences",
    }


def test_arguments_in_a_file_leave_open_what_is_not_seen() -> None:
    pool = pair(seen_pod("a", (*PLAIN[:3], "--config", "/etc/vllm.yaml")))
    found = assess_pools(spec_of(), pool)
    facts = found.pools["speculative"]
    assert (facts.speculative, facts.figures_per_request, facts.max_sequences, found.unfit) == (None, None, None, None)
    assert assess_pools(spec_of(), pool, figures_seen=True).attribution == "Router"
    assert any("flags in a file cannot be seen" in one.message for one in found.warnings)


def test_a_tree_of_drafts_is_as_deep_as_its_steps() -> None:
    spec = spec_of(engine={"type": "SGLang"})
    argv = ("python3", "-m", "sglang.launch_server", "--model-path", "o/n", "--speculative-algorithm", "EAGLE")
    tree = (*argv, "--speculative-num-steps=3", "--speculative-eagle-topk=4", "--speculative-num-draft-tokens=16")
    found = assess_pools(spec, pair(seen_pod("a", tree, image="lmsysorg/sglang:v0.5.20")))
    assert (found.draft_tokens, found.attribution) == (3, "Deployment")
    assert "SGLang's answers carry no figures" in found.why


def test_what_a_person_wrote_of_the_limit_counts() -> None:
    pools = {"speculative": seen_pool("speculative", seen_pod("a", SPECULATIVE), max_sequences=5)}
    assert assess_pools(spec_of(), pools).capacity == {"speculative": 5}


def test_counters_go_before_arguments_on_whether_pods_speculate() -> None:
    reading = parse_page(VLLM_PAGE, 1.0, spec_of().engine.type)
    found = assess_pools(spec_of(), pair(seen_pod("a", PLAIN, reading=reading)))
    assert found.unfit is None
    baseline = assess_pools(spec_of(), pair(seen_pod("a", SPECULATIVE), plain=(seen_pod("p", reading=reading),)))
    assert baseline.unfit is not None
    assert baseline.unfit.reason is Reason.BASELINE_SPECULATES


def test_pods_of_both_kinds_are_a_rollout_where_one_deployment_has_them() -> None:
    old, new = seen_pod("a", PLAIN), seen_pod("b", SPECULATIVE)
    assert new.facts is not None
    moved = replace(new, facts=replace(new.facts, template="other"))
    during = assess_pools(spec_of(), pair(old, moved))
    assert (during.rolling, during.unfit) == (frozenset({"speculative"}), None)
    elsewhere = replace(new, facts=replace(new.facts, family="ReplicaSet/y"))
    mixed = assess_pools(spec_of(), pair(old, elsewhere))
    assert mixed.unfit is not None
    assert mixed.unfit.reason is Reason.MIXED_PODS
    assert not mixed.rolling


def test_a_pod_that_leaves_is_no_part_of_a_rollout() -> None:
    old, new = seen_pod("a"), seen_pod("b")
    assert new.facts is not None
    moved = replace(new, facts=replace(new.facts, template="other"))
    assert is_rolling(seen_pool("baseline", old, moved))
    gone = replace(old, endpoint=replace(old.endpoint, leaving=True))
    assert not is_rolling(seen_pool("baseline", gone, moved))


def test_routes_of_one_policy_are_decided_as_one_and_the_others_on_their_own() -> None:
    routes = [
        {"name": "a", "match": [{"model": "a"}]},
        {"name": "strict", "match": [{"model": "s"}], "policy": {"minAcceptancePercent": 90}},
        {"name": "fixed", "match": [{"model": "f"}], "speculation": "Always"},
        {"name": "b"},
    ]
    spec = spec_of(routing={"routes": routes}, target={"model": "o/n", "servedName": "chat"})
    now = 1000.0
    states = states_of(spec, {}, {}, now)
    block = Block(now + 60.0, tokens=5000, accepted=100, drafted=16000, requests=60, share=1.0)
    news = dict.fromkeys(("a", "strict", "b"), block)
    for minute in range(1, 40):
        at = now + 60.0 * minute
        moved = {name: replace(one, at=at) for name, one in news.items()}
        decided = decide(spec, states, moved, at, None, {}, together=True)
        states = {name: one.state for name, one in decided.items()}
        assert states["a"] == states["b"]
        if decided["a"].verdict.switched:
            break
    assert (decided["a"].verdict.pool, decided["b"].verdict.pool) == ("baseline", "baseline")
    assert decided["b"].verdict.switched
    assert decided["fixed"].verdict.pool == "speculative"


def test_one_pool_alone_has_every_route_and_no_override() -> None:
    only = {"strategy": "External", "external": {"speculative": {"service": "fast"}}}
    routes = [{"name": "off", "match": [{"model": "x"}], "speculation": "Never"}, {"name": "chat"}]
    spec = spec_of(
        pools=only,
        routing={"routes": routes},
        target={"model": "o/n", "servedName": "chat"},
        policy={"minAcceptancePercent": 30, "initial": "Baseline", "enforcement": "Observe"},
    )
    decided = decide(spec, states_of(spec, {}, {}, 1.0), {}, 1.0, None, {})
    assert {one.verdict.pool for one in decided.values()} == {"speculative"}
    assert {one.verdict.speculative_percent for one in decided.values()} == {100}


@pytest.mark.parametrize(("pools", "calibrated"), [(("baseline", "speculative"), True), (("speculative",), False)])
def test_one_pool_alone_has_nothing_to_measure_in_another(pools: tuple[str, ...], calibrated: bool) -> None:
    calibration = {"window": {"start": "00:00", "duration": "24h"}}
    spec = spec_of(
        pools={"strategy": "External", "external": {pool: {"service": pool} for pool in pools}},
        target={"model": "o/n", "servedName": "chat"},
        policy={"breakEven": {"source": "Measured", "calibration": calibration}},
    )
    assert all((config.calibration is not None) is calibrated for config in configs(spec).values())


def counted(outside: Outside, *pages: str, at: float) -> None:
    pods = tuple(
        seen_pod(f"p{index}", SPECULATIVE, reading=parse_page(page, at, spec_of().engine.type))
        for index, page in enumerate(pages)
    )
    outside.looked += 1
    outside.count(seen_pool("speculative", *pods), 3)


def page(generated: int, rounds: int, accepted: int) -> str:
    return (
        f"vllm:generation_tokens_total {generated}\nvllm:spec_decode_num_drafts_total {rounds}\n"
        f"vllm:spec_decode_num_draft_tokens_total {3 * rounds}\nvllm:spec_decode_num_accepted_tokens_total {accepted}\n"
    )


def test_engines_without_a_start_time_are_counted_on_after_a_restart() -> None:
    outside = Outside.new((), 60.0, 1000.0)
    counted(outside, page(1000, 500, 400), page(100, 50, 40), at=1030.0)
    assert outside.hold(seen_pool("speculative", seen_pod("p0"), seen_pod("p1")), 1031.0) is None
    counted(outside, page(1300, 650, 500), page(20, 10, 5), at=1060.0)
    increment, problems = outside.take(1060.0)
    assert increment is not None
    assert (increment.tokens, increment.accepted, increment.drafted) == (320, 105, 480)
    assert [problem.kind for problem in problems] == ["Restart"]


def test_engines_that_are_not_read_hold_the_decision() -> None:
    outside = Outside.new((), 60.0, 1000.0)
    counted(outside, page(1000, 500, 400), at=1030.0)
    three = seen_pool("speculative", seen_pod("p0"), seen_pod("p1"), seen_pod("p2"))
    assert outside.hold(three, 1031.0) is Hold.INSUFFICIENT_COVERAGE
    assert outside.hold(three, 2000.0) is Hold.METRICS_UNAVAILABLE


def test_counters_of_the_first_vllm_engine_are_not_decided_by() -> None:
    page = (Path(__file__).parents[1] / "metrics" / "pages" / "vllm-0.9.2-v0.txt").read_text()
    reading = parse_page(page, 1.0, spec_of().engine.type)
    found = assess_pools(spec_of(), pair(seen_pod("a", BARE, image="vllm/vllm-openai:v0.9.2", reading=reading)))

    assert found.attribution == "Deployment"
    assert found.counters is not None
    assert found.counters.reason is Reason.ENGINE_COUNTS_NOTHING
    assert "adds its totals up anew with each look: use V1. The last decision holds" in found.counters.message

"""From External pools as they were seen to what routers are to do, and what is said where pods and object differ."""

from __future__ import annotations

from typing import Any

import pytest

from specfleet.api.findings import Finding, FindingReason, Severity
from specfleet.api.v1alpha1 import SpecDeployment
from specfleet.engines.external import ExternalPod, ExternalPool
from specfleet.render.external_findings import external_findings
from specfleet.render.objects import render_all
from specfleet.render.plan import external_limit, initial_weights, router_plan
from specfleet.render.validate import validate
from specfleet.routing.clusters import UNLIMITED
from specfleet.settings import OperatorSettings

Document = dict[str, Any]
BOTH: Document = {"speculative": {"service": "llama-eagle"}, "baseline": {"service": "llama", "port": 80}}


def deployment(external: Document | None = None, **spec: Any) -> SpecDeployment:
    """A SpecDeployment of External pools with other parts of spec."""
    document = {
        "apiVersion": "specfleet.dev/v1alpha1",
        "kind": "SpecDeployment",
        "metadata": {"name": "assistant", "namespace": "serving"},
        "spec": {
            "engine": {"type": "vLLM"},
            "pools": {"strategy": "External", "external": BOTH if external is None else external},
            "policy": {"minAcceptancePercent": 40},
            **spec,
        },
    }
    return SpecDeployment.parse(document)


def pool(name: str, service: str, pods: int = 1, **facts: Any) -> ExternalPool:
    """A pool with so many ready pods."""
    seen = [ExternalPod(f"{name}-{n}", f"10.0.0.{n}", True, (), "", f"{name}{n}") for n in range(pods)]
    return ExternalPool(
        **{"name": name, "service": service, "headless": True, "port": 8000, "pods": tuple(seen), **facts}
    )


def seen(*pools: ExternalPool) -> dict[str, ExternalPool]:
    """By name."""
    return {one.name: one for one in pools}


def test_what_was_seen_of_the_pools_is_what_routers_dial() -> None:
    plan = router_plan(
        deployment(target={"model": "owner/model", "revision": "abc"}),
        {"default": 30},
        seen(
            pool("speculative", "llama-eagle", port=9000, release="0.16.0"),
            pool("baseline", "llama", headless=False, port=80, release="0.32.0"),
        ),
    )

    assert (plan.baseline.name, plan.baseline.host, plan.baseline.port) == ("baseline", "llama", 80)
    assert (plan.speculative.name, plan.speculative.host, plan.speculative.port) == ("speculative", "llama-eagle", 9000)
    assert (plan.baseline.one_address, plan.speculative.one_address) == (True, False)
    assert plan.speculative.revision == "abc"
    assert plan.routes[0].speculative_percent == 30
    assert plan.served_name == ""
    assert plan.refused_fields == ("min_tokens", "min_p", "logit_bias")


def test_without_the_cluster_the_object_is_what_is_known() -> None:
    plan = router_plan(deployment(drafts=[{"name": "eagle", "mode": "EAGLE3"}], target={"model": "a/b"}), {})

    assert (plan.speculative.name, plan.speculative.host, plan.speculative.port) == ("eagle", "llama-eagle", 8000)
    assert (plan.baseline.host, plan.baseline.port) == ("llama", 80)
    assert plan.baseline.max_requests == UNLIMITED
    assert router_plan(deployment(), {}).version == router_plan(deployment(), {"default": 0}, {}).version


@pytest.mark.parametrize(("side", "percent"), [("speculative", 100), ("baseline", 0)])
def test_one_side_has_everything_whatever_the_weights_and_overrides(side: str, percent: int) -> None:
    routes = [
        {"name": "a", "match": [{"tools": True}], "speculation": "Never"},
        {"name": "b", "match": [{"tools": False}], "speculation": "Always"},
        {"name": "rest"},
    ]
    one = deployment({side: {"service": "llama"}}, policy={"enforcement": "Observe"}, routing={"routes": routes})

    plan = router_plan(one, {"a": 50, "rest": 50})

    assert initial_weights(one) == dict.fromkeys(("a", "b", "rest"), percent)
    assert [(route.speculative_percent, route.never_speculative) for route in plan.routes] == [(percent, False)] * 3
    assert plan.only is not None
    assert (plan.only.name, plan.only.host) == (side, "llama")


@pytest.mark.parametrize(
    ("pools", "limit"),
    [
        ([pool("a", "a", 3, max_sequences=64), pool("b", "b", 2, max_sequences=128)], 512),
        ([pool("a", "a", 4, max_sequences=64), pool("b", "b", 2, max_sequences=128)], 512),
        ([pool("a", "a", 4, max_sequences=64), pool("b", "b", 3, max_sequences=128)], 1024),
        ([pool("a", "a", 1, max_sequences=1)], 1),
        ([pool("a", "a", 2, max_sequences=64)], 128),
        ([pool("a", "a", 3, max_sequences=64), pool("b", "b", 2)], UNLIMITED),
        ([pool("a", "a", 0, max_sequences=64)], UNLIMITED),
        ([pool("a", "a", 9000, max_sequences=1_000_000)], UNLIMITED),
    ],
    ids=[
        "two pools",
        "a pod more",
        "one more",
        "one sequence",
        "one pool",
        "one is not known",
        "no pods",
        "more than a router can count",
    ],
)
def test_a_router_lets_through_what_all_pods_run_at_once_rounded_up(pools: list[ExternalPool], limit: int) -> None:
    assert external_limit(pools) == limit


def test_routers_refuse_by_the_oldest_of_the_release_and_the_object() -> None:
    old = deployment(engine={"type": "vLLM", "version": "0.13.0"})

    assert router_plan(old, {}, seen(pool("speculative", "llama-eagle"))).refused_fields == ()
    assert router_plan(old, {}, seen(pool("speculative", "llama-eagle", release="0.30.0"))).refused_fields == (
        "min_p",
        "logit_bias",
    )


def test_a_pool_monitor_is_rendered_for_the_router_of_external_pools_too() -> None:
    kinds = [item["kind"] for item in render_all(deployment(), OperatorSettings(), with_pod_monitor=True)]

    router = ["ServiceAccount", "ConfigMap", "ConfigMap", "Service", "PodDisruptionBudget", "Deployment"]
    assert kinds == [*router, "PodMonitor"]


# --- findings


def told(findings: list[Finding]) -> list[tuple[Severity, FindingReason, str]]:
    """All but the sentences."""
    return [(one.severity, one.reason, one.path) for one in findings]


def test_pools_that_serve_no_name_in_common_are_an_error() -> None:
    (found,) = external_findings(
        deployment(),
        seen(
            pool("speculative", "llama-eagle", served_names=("llama-spec",)),
            pool("baseline", "llama", served_names=("llama",)),
        ),
    )

    assert told([found]) == [(Severity.ERROR, FindingReason.SERVED_NAME_MISMATCH, "spec.pools.external")]
    assert "a request for llama or llama-spec is answered 404" in found.message
    assert "--served-model-name" in found.message


def test_a_name_that_one_pool_has_more_is_a_warning() -> None:
    (found,) = external_findings(
        deployment(),
        seen(
            pool("speculative", "llama-eagle", served_names=("llama", "llama-fast")),
            pool("baseline", "llama", served_names=("llama",)),
        ),
    )

    assert told([found]) == [(Severity.WARNING, FindingReason.SERVED_NAME_MISMATCH, "spec.pools.external")]
    assert "a request for llama-fast is answered 404 by the other pool" in found.message


@pytest.mark.parametrize(("aliases", "severity"), [(True, Severity.ERROR), (False, Severity.WARNING)])
def test_a_served_name_that_no_pod_serves_is_an_error_where_aliases_become_it(
    aliases: bool, severity: Severity
) -> None:
    routes = [{"name": "code", "match": [{"model": "code"}]}, {"name": "rest"}] if aliases else [{"name": "rest"}]
    one = deployment(target={"model": "a/b", "servedName": "llama"}, routing={"routes": routes})
    pools = seen(
        pool("speculative", "llama-eagle", served_names=("a/b",)), pool("baseline", "llama", served_names=("a/b",))
    )

    found = external_findings(one, pools)

    assert told(found) == [(severity, FindingReason.SERVED_NAME_MISMATCH, "spec.target.servedName")] * 2
    assert "serve a/b, not llama" in found[0].message


def test_pools_that_load_different_models_are_a_warning_but_paths_are_not_compared() -> None:
    one = deployment(target={"model": "a/b"})
    other = seen(pool("speculative", "llama-eagle", model="a/c"), pool("baseline", "llama", model="a/b"))
    path = seen(pool("speculative", "llama-eagle", model="/models/b"), pool("baseline", "llama", model="a/b"))

    found = external_findings(one, other)

    assert told(found) == [
        (Severity.WARNING, FindingReason.MODEL_MISMATCH, "spec.pools.external"),
        (Severity.WARNING, FindingReason.MODEL_MISMATCH, "spec.target.model"),
    ]
    assert "load a/b, those of Service llama-eagle a/c" in found[0].message
    assert external_findings(one, path) == []


def test_what_the_object_says_otherwise_than_the_pods_is_a_warning_with_the_line_to_write() -> None:
    one = deployment(
        engine={"type": "vLLM", "version": "0.31"}, drafts=[{"name": "eagle", "mode": "EAGLE3", "tokens": 4}]
    )
    pools = seen(
        pool("eagle", "llama-eagle", release="0.32.0", draft_tokens=3, draft_mode="MTP", forced_usage=True),
        pool("baseline", "llama", release="0.31.2"),
    )

    found = external_findings(one, pools)

    assert told(found) == [
        (Severity.WARNING, FindingReason.RELEASE_MISMATCH, "spec.engine.version"),
        (Severity.WARNING, FindingReason.DRAFT_MISMATCH, "spec.drafts[0].tokens"),
        (Severity.WARNING, FindingReason.DRAFT_MISMATCH, "spec.drafts[0].mode"),
        (Severity.WARNING, FindingReason.ENGINE_FORCES_USAGE, "spec.pools.external.speculative.service"),
    ]
    assert "write tokens: 3" in found[1].message
    assert "write mode: MTP" in found[2].message
    assert "--enable-force-include-usage" in found[3].message


def test_engines_that_speak_tls_are_an_error() -> None:
    pods = (ExternalPod("a", "10.0.0.1", True, ("--port=8000", "--ssl-certfile=/certs/tls.crt"), "", "1"),)

    (found,) = external_findings(
        deployment(), seen(ExternalPool("speculative", "llama-eagle", True, 8000, pods), pool("baseline", "llama"))
    )

    assert told([found]) == [
        (Severity.ERROR, FindingReason.ENGINE_SPEAKS_TLS, "spec.pools.external.speculative.service")
    ]
    assert "plain HTTP" in found.message


def test_nothing_is_said_of_what_is_not_known() -> None:
    one = deployment(
        engine={"type": "vLLM", "version": "0.31.0"},
        target={"model": "a/b", "servedName": "llama"},
        drafts=[{"name": "eagle", "mode": "EAGLE3"}],
    )

    assert external_findings(one, seen(pool("eagle", "llama-eagle"), pool("baseline", "llama"))) == []
    assert external_findings(one, {}) == []


def test_two_sound_pools_have_no_finding() -> None:
    assert validate(deployment(), OperatorSettings()) == []
    names = ("llama",)
    pools = seen(
        pool("speculative", "llama-eagle", served_names=names, draft_tokens=3),
        pool("baseline", "llama", served_names=names),
    )
    assert external_findings(deployment(target={"model": "a/b", "servedName": "llama"}), pools) == []


def test_what_one_side_alone_cannot_show_or_do_is_a_warning() -> None:
    observe = {"enforcement": "Observe"}
    pinned = {"routes": [{"name": "a", "match": [{"tools": True}], "speculation": "Never"}, {"name": "rest"}]}

    only_baseline = validate(deployment({"baseline": {"service": "llama"}}, policy=observe), OperatorSettings())
    overridden = validate(
        deployment({"speculative": {"service": "llama"}}, policy=observe, routing=pinned), OperatorSettings()
    )
    sound = validate(deployment({"speculative": {"service": "llama"}}, policy=observe), OperatorSettings())

    assert told(only_baseline) == [(Severity.WARNING, FindingReason.NOTHING_TO_WATCH, "spec.pools.external")]
    assert told(overridden) == [
        (Severity.WARNING, FindingReason.UNUSED_FIELD, "spec.routing.routes[0].speculation"),
    ]
    assert sound == []


def test_observe_that_starts_in_baseline_has_nothing_to_watch_in_two_pools() -> None:
    found = validate(deployment(policy={"enforcement": "Observe"}), OperatorSettings())

    assert [one.reason for one in found] == [FindingReason.NOTHING_TO_WATCH]

"""From a SpecDeployment and weights to what the routers are to do, and what validation says about routes."""

from __future__ import annotations

from typing import Any

import pytest

from specfleet.api.findings import FindingReason, Severity
from specfleet.api.v1alpha1 import SpecDeployment
from specfleet.render.plan import initial_weights, requests_per_router, router_plan
from specfleet.render.validate import validate
from specfleet.settings import OperatorSettings
from tests.unit.engines.test_vllm import BASE

Document = dict[str, Any]
HEADER = {"header": {"name": "X-Route", "value": "code"}}


def deployment(**spec: Any) -> SpecDeployment:
    """The base with other parts of spec."""
    return SpecDeployment.parse({**BASE, "spec": {**BASE["spec"], **spec}})


def routed(*routes: Document, **policy: Any) -> SpecDeployment:
    """The base with these routes before a last one named rest."""
    return deployment(routing={"routes": [*routes, {"name": "rest"}]}, policy={"minAcceptancePercent": 30, **policy})


def test_routes_start_where_a_person_or_the_policy_says() -> None:
    always = {"name": "always", "match": [HEADER], "speculation": "Always"}
    never = {"name": "never", "match": [{"model": "x"}], "speculation": "Never"}

    assert initial_weights(routed(always, never)) == {"always": 100, "never": 0, "rest": 0}
    assert initial_weights(routed(always, never, initial="Speculative")) == {"always": 100, "never": 0, "rest": 100}


@pytest.mark.parametrize(("sequences", "replicas", "limit"), [(256, 4, 512), (4, 2, 4), (5, 3, 8), (1, 2, 1)])
def test_a_router_lets_through_its_part_of_the_fleets_sequences_rounded_up(
    sequences: int, replicas: int, limit: int
) -> None:
    assert requests_per_router(sequences, replicas) == limit


def test_ranks_of_data_parallelism_count_each() -> None:
    spread = deployment(target={"model": "owner/model", "parallelism": {"data": 4}}, pools={"replicas": 2})

    assert router_plan(spread, {}).baseline.max_requests == 4 * router_plan(deployment(), {}).baseline.max_requests


def test_planned_sequences_lower_a_limit_and_never_raise_it() -> None:
    one = deployment(pools={"replicas": 2})
    draft = one.spec.draft.name
    plan = router_plan(one, {}, sequences={draft: 31, "baseline": 100_000})

    assert (plan.baseline.max_requests, plan.speculative.max_requests) == (256, 31)
    assert plan.version != router_plan(one, {}).version


def test_the_plan_has_pools_routes_and_limits() -> None:
    one = deployment(
        engine={"type": "vLLM", "version": "0.32.0", "args": {"max-num-seqs": "64"}},
        target={"model": "owner/model", "revision": "abc", "servedName": "large"},
        pools={"replicas": 6, "minBaseline": 1},
        routing={
            "maxRequestBytes": "1Mi",
            "tenantHeader": "x-tenant",
            "affinity": {"header": "X-Session"},
            "routes": [
                {"name": "code", "match": [HEADER, {"model": "alias", "tools": False}]},
                {"name": "json", "match": [{"responseFormat": ["json_object"]}], "speculation": "Never"},
                {"name": "rest"},
            ],
        },
    )

    plan = router_plan(one, {"code": 70})

    assert (plan.deployment, plan.namespace, plan.served_name) == ("assistant", "serving", "large")
    assert (plan.baseline.name, plan.baseline.host, plan.baseline.port) == ("baseline", "assistant-baseline", 8000)
    assert (plan.speculative.name, plan.speculative.host) == ("ngram", "assistant-ngram")
    assert plan.baseline.max_requests == plan.speculative.max_requests == 192
    assert plan.speculative.revision == "abc"
    assert (plan.max_request_bytes, plan.tenant_header) == (1024 * 1024, "x-tenant")
    assert plan.affinity_header == "X-Session"
    assert plan.refused_fields == ("min_p", "logit_bias")
    code, json_route, rest = plan.routes
    assert (code.speculative_percent, code.never_speculative) == (70, False)
    assert code.matches[0].header == ("x-route", "code")
    assert (code.matches[1].model, code.matches[1].tools) == ("alias", False)
    assert (json_route.speculative_percent, json_route.never_speculative) == (0, True)
    assert (rest.matches, rest.speculative_percent) == ((), 0)


def test_a_route_that_waits_to_leave_speculation_keeps_its_share_until_it_has_left() -> None:
    one = routed({"name": "chat", "match": [HEADER], "speculation": "Never"})
    waiting, gone = router_plan(one, {"chat": 100}).routes[0], router_plan(one, {"chat": 0}).routes[0]
    assert (waiting.speculative_percent, waiting.never_speculative) == (100, False)
    assert (gone.speculative_percent, gone.never_speculative) == (0, True)


def test_the_version_tells_tables_apart() -> None:
    one = routed({"name": "code", "match": [HEADER]})

    same, other = router_plan(one, {"code": 100}), router_plan(one, {"code": 99})

    assert router_plan(one, {"code": 100}).version == same.version
    assert other.version != same.version
    assert len(same.version) <= 63


@pytest.mark.parametrize(
    ("routes", "reached"),
    [
        ([{"name": "a", "match": [HEADER]}, {"name": "b", "match": [HEADER]}], False),
        ([{"name": "a", "match": [HEADER]}, {"name": "b", "match": [{**HEADER, "tools": True}]}], False),
        ([{"name": "a", "match": [{**HEADER, "tools": True}]}, {"name": "b", "match": [HEADER]}], True),
        ([{"name": "a", "match": [HEADER]}, {"name": "b", "match": [HEADER, {"model": "x"}]}], True),
        (
            [
                {"name": "a", "match": [{"responseFormat": ["json_object", "json_schema"]}]},
                {"name": "b", "match": [{"responseFormat": ["json_schema"], "model": "x"}]},
            ],
            False,
        ),
        (
            [
                {"name": "a", "match": [{"responseFormat": ["json_schema"]}]},
                {"name": "b", "match": [{"responseFormat": ["json_object", "json_schema"]}]},
            ],
            True,
        ),
        (
            [
                {"name": "a", "match": [{"header": {"name": "x-route", "value": "code"}}]},
                {"name": "b", "match": [HEADER]},
            ],
            False,
        ),
    ],
)
def test_a_route_that_no_request_reaches_is_a_warning(routes: list[Document], reached: bool) -> None:
    found = validate(routed(*routes), OperatorSettings())

    assert [(one.severity, one.reason) for one in found] == (
        [] if reached else [(Severity.WARNING, FindingReason.UNREACHABLE_ROUTE)]
    )


def test_a_policy_beside_an_override_is_a_warning() -> None:
    found = validate(
        routed({"name": "a", "match": [HEADER], "speculation": "Always", "policy": {"minAcceptancePercent": 3}}),
        OperatorSettings(),
    )

    assert [one.reason for one in found] == [FindingReason.UNUSED_FIELD]


@pytest.mark.parametrize("model", ["/", "/etc/models", "/dev/shm", "/usr/lib/x", "/proc/1"])
def test_a_volume_over_the_systems_directories_is_refused(model: str) -> None:
    target = {"model": model, "source": {"persistentVolumeClaim": {"claimName": "c"}}}

    (found,) = validate(deployment(target=target), OperatorSettings())

    assert found.reason is FindingReason.INVALID_VALUE
    assert "write a directory of its own" in found.message

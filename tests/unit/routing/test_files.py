"""The files of a router as data: what is constant, what a plan changes, and what no text in a plan can change."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from specfleet.routing import process
from specfleet.routing.files import bootstrap_files, routes_files
from specfleet.routing.plan import Match, PoolPlan, RoutePlan, RouterPlan

BASELINE = PoolPlan("baseline", "assistant-baseline.serving.svc.cluster.local", 8000, "/health", 64)
EAGLE = PoolPlan("eagle", "assistant-eagle.serving.svc.cluster.local", 8000, "/health", 192, revision="0e9e39f")
CODE = RoutePlan("code", (Match(header=("X-Route", "code")), Match(model="assistant-code")), 70)
CHAT = RoutePlan("chat", (), 0)
ALL = RoutePlan("chat", (), 100)
NONE = replace(BASELINE, host=None)


def plan(**changes: Any) -> RouterPlan:
    """A plan of two routes."""
    values: dict[str, Any] = {
        "deployment": "assistant",
        "namespace": "serving",
        "version": "7-abc",
        "baseline": BASELINE,
        "speculative": EAGLE,
        "routes": (CODE, CHAT),
        "served_name": "assistant",
        "refused_fields": ("min_p",),
    }
    return RouterPlan(**{**values, **changes})


def loaded(made: RouterPlan) -> tuple[list[Any], Any]:
    """Clusters and virtual host."""
    found = {name: yaml.safe_load(text) for name, text in routes_files(made).items()}
    assert {name: document["version_info"] for name, document in found.items()} == dict.fromkeys(found, made.version)
    return found["cds.yaml"]["resources"], found["rds.yaml"]["resources"][0]["virtual_hosts"][0]


def test_the_bootstrap_knows_nothing_of_a_deployment() -> None:
    text = "".join(bootstrap_files().values())
    assert bootstrap_files() == bootstrap_files()
    for word in ("assistant", "eagle", "serving", "min_p"):
        assert word not in text


def test_the_admin_interface_is_on_loopback_and_the_ports_are_those_of_the_pod() -> None:
    document = yaml.safe_load(bootstrap_files()["bootstrap.yaml"])
    assert document["admin"]["address"]["socket_address"] == {"address": "127.0.0.1", "port_value": process.ADMIN_PORT}
    listeners = {one["name"]: one["address"]["socket_address"] for one in document["static_resources"]["listeners"]}
    assert (listeners["data"]["port_value"], listeners["read"]["port_value"]) == (process.DATA_PORT, process.READ_PORT)
    assert listeners["table"]["address"] == "127.0.0.1"


def test_a_change_of_shares_changes_the_routes_and_no_cluster() -> None:
    before, after = routes_files(plan()), routes_files(plan(routes=(replace(CODE, speculative_percent=0), CHAT)))
    assert before["cds.yaml"] == after["cds.yaml"]
    assert before["rds.yaml"] != after["rds.yaml"]


def test_clusters_are_named_by_role_so_that_no_table_names_one_that_is_still_to_come() -> None:
    clusters, host = loaded(plan())
    renamed, _ = loaded(plan(speculative=replace(EAGLE, name="other")))
    names = [cluster["name"] for cluster in clusters]
    assert names == [cluster["name"] for cluster in renamed]
    used = set()
    for route in host["routes"]:
        action = route.get("route", {})
        used |= {action["cluster"]} if "cluster" in action else set()
        used |= {one["name"] for one in action.get("weighted_clusters", {}).get("clusters", [])}
    assert used <= set(names)


def test_weights_and_labels_of_a_route() -> None:
    _, host = loaded(plan())
    routes = {route["name"]: route for route in host["routes"]}
    ineligible, code = routes["code/ineligible"], routes["code"]
    assert code["route"]["weighted_clusters"]["clusters"] == [
        {"name": "baseline-first", "weight": 30},
        {"name": "speculative-first", "weight": 70},
    ]
    assert code["metadata"]["filter_metadata"]["specfleet"]["route"] == "code"
    assert ineligible["route"]["cluster"] == "baseline-only"
    assert ineligible["metadata"]["filter_metadata"]["specfleet"] == {
        "route": "ineligible",
        "user_route": "code",
        "version": "7-abc",
    }


def test_with_one_pool_every_cluster_is_there_and_nothing_aims_at_the_missing_one() -> None:
    both, _ = loaded(plan())
    clusters, host = loaded(plan(baseline=NONE, routes=(replace(CODE, speculative_percent=100), ALL)))

    assert [cluster["name"] for cluster in clusters] == [cluster["name"] for cluster in both]
    assert "endpoints" not in clusters[0]["load_assignment"]
    aimed = {route["route"]["cluster"] for route in host["routes"] if "route" in route}
    assert aimed == {"speculative-first"}
    assert not [route for route in host["routes"] if "ineligible" in route["name"]]


def test_one_address_is_dialled_anew_each_time_and_never_ejected() -> None:
    clusters, _ = loaded(plan(speculative=replace(EAGLE, one_address=True, idle_seconds=3, also_healthy=(401,))))
    baseline, eagle = clusters[:2]

    def common(cluster: Any) -> Any:
        (options,) = cluster["typed_extension_protocol_options"].values()
        return options["common_http_protocol_options"]

    assert common(baseline) == {"idle_timeout": "30s"}
    assert common(eagle) == {"idle_timeout": "3s", "max_requests_per_connection": 1}
    assert "outlier_detection" in baseline
    assert "outlier_detection" not in eagle
    (check,) = eagle["health_checks"]
    assert check["reuse_connection"] is False
    assert check["http_health_check"]["expected_statuses"] == [{"start": 200, "end": 201}, {"start": 401, "end": 402}]
    assert "expected_statuses" not in baseline["health_checks"][0]["http_health_check"]


def test_without_refused_fields_there_is_no_ineligible_route() -> None:
    _, host = loaded(plan(refused_fields=()))
    assert not [route for route in host["routes"] if "ineligible" in route["name"]]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"routes": ()}, "the last route must have no match"),
        ({"routes": (CODE,)}, "the last route must have no match"),
        ({"routes": (CHAT, replace(CHAT, name="rest"))}, "no request reaches those below"),
        ({"routes": (CODE, replace(CHAT, name="code"))}, "stands twice"),
        ({"routes": (replace(CHAT, name="ineligible"),)}, "taken by the router"),
        ({"routes": (replace(CHAT, speculative_percent=101),)}, "expected 0..100"),
        ({"routes": (RoutePlan("chat", (), 5, never_speculative=True),)}, "must never speculate"),
        ({"max_request_bytes": 0}, "expected 1.."),
        ({"baseline": NONE, "speculative": replace(EAGLE, host=None)}, "needs at least one pool"),
        ({"baseline": NONE, "routes": (CHAT,)}, "only pool 'eagle', which takes everything: expected 100"),
        ({"speculative": replace(EAGLE, host=None), "routes": (ALL,)}, "only pool 'baseline', .*: expected 0"),
        (
            {"speculative": replace(EAGLE, host=None), "routes": (replace(CHAT, never_speculative=True),)},
            "0 % of speculation at most, but there is only pool",
        ),
    ],
)
def test_a_plan_that_would_be_served_otherwise_than_written_is_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        plan(**changes)


def shape(value: Any) -> Any:
    """A document's structure without its texts."""
    if isinstance(value, dict):
        return {key: shape(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shape(item) for item in value]
    return "text" if isinstance(value, str) else value


TEXT = st.text(alphabet=st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=30) | st.sampled_from(
    ["a: b\n- c", "{{ x }}", "%REQ(authorization)%", "*anchor", "&a", "!!python/object:x", "null", "1e3", "- x", "'\""]
)


@settings(deadline=None)
@given(TEXT, TEXT, TEXT, TEXT)
def test_no_text_in_a_plan_changes_the_structure_of_the_files(
    model: str, value: str, served: str, revision: str
) -> None:
    def filled(model: str, value: str, served: str, revision: str) -> RouterPlan:
        route = RoutePlan("code", (Match(header=("x-route", value)), Match(model=f"m{model}")), 50)
        return plan(
            routes=(route, CHAT), served_name=served, speculative=replace(EAGLE, revision=revision), tenant_header="x-t"
        )

    hostile, plain = loaded(filled(model, value, served, revision)), loaded(filled("a", "b", "c", "d"))
    fleet = hostile[1]["metadata"]["filter_metadata"]["envoy.filters.http.lua"]["specfleet"]
    assert (fleet["served"], fleet["aliases"]) == (served, {f"m{model}": True} if f"m{model}" != served else {})
    for _, host in (hostile, plain):
        host["metadata"]["filter_metadata"]["envoy.filters.http.lua"]["specfleet"]["aliases"] = {}
    assert shape(json.loads(json.dumps(hostile))) == shape(json.loads(json.dumps(plain)))


def test_envoy_is_started_so_that_it_needs_no_shared_memory_and_no_file() -> None:
    arguments = process.envoy_args(2)
    assert arguments[arguments.index("--concurrency") + 1] == "2"
    assert "--disable-hot-restart" in arguments
    with pytest.raises(ValueError, match="at least 1 worker"):
        process.envoy_args(0)

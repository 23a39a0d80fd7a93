"""Services, EndpointSlices and pods as the API server has them."""

from __future__ import annotations

from typing import Any

from specfleet.cluster.endpoints import endpoints, engine_container, pod_facts, service_facts

Body = dict[str, Any]


def entry(name: str, address: str, **conditions: bool) -> Body:
    target = {"kind": "Pod", "name": name, "uid": f"uid-of-{name}"}
    return {"addresses": [address], "conditions": conditions, "targetRef": target}


def slice_of(*entries: Body, port: int = 8000, name: str = "http", family: str = "IPv4") -> Body:
    return {
        "addressType": family,
        "ports": [{"name": name, "port": port, "protocol": "TCP"}],
        "endpoints": list(entries),
    }


def test_a_pod_of_two_address_families_is_one_endpoint_by_ipv4() -> None:
    four = slice_of(entry("a", "10.0.0.1", ready=True))
    six = slice_of(entry("a", "fd00::1", ready=True), family="IPv6")
    for order in ([four, six], [six, four]):
        assert [(one.pod, one.address) for one in endpoints(order, "http")] == [("a", "10.0.0.1")]


def test_conditions_that_are_missing_mean_ready() -> None:
    found = endpoints([slice_of(entry("a", "10.0.0.1"), entry("b", "10.0.0.2", ready=False, terminating=True))], "http")
    assert [(one.pod, one.ready, one.leaving) for one in found] == [("a", True, False), ("b", False, True)]


def test_the_port_is_that_of_the_services_port_name() -> None:
    body = slice_of(entry("a", "10.0.0.1"), port=30000)
    body["ports"].append({"name": "metrics", "port": 9400})
    assert [one.port for one in endpoints([body], "metrics")] == [9400]
    assert [one.port for one in endpoints([body], "")] == [None]


def test_an_address_without_a_pod_has_no_name() -> None:
    body = slice_of({"addresses": ["10.0.0.9"], "targetRef": {"kind": "Node", "name": "n", "uid": "u"}})
    assert [(one.pod, one.uid, one.address) for one in endpoints([body], "http")] == [("", "", "10.0.0.9")]


def test_a_service_tells_its_ports_and_whether_it_is_ours() -> None:
    spec = {"clusterIP": "None", "ports": [{"port": 80, "name": "http"}, {"port": 53, "protocol": "UDP"}, {"port": 9}]}
    found = service_facts({"metadata": {"name": "x"}, "spec": spec})
    assert (found.headless, dict(found.ports), found.of_router) == (True, {80: "http", 9: ""}, None)
    labels = {
        "app.kubernetes.io/managed-by": "specfleet",
        "app.kubernetes.io/component": "router",
        "app.kubernetes.io/instance": "assistant",
    }
    ours = service_facts({"metadata": {"name": "assistant", "labels": labels}, "spec": {"clusterIP": "10.1.1.1"}})
    assert (ours.headless, ours.of_router) == (False, "assistant")


def pod(**spec: Any) -> Body:
    return {
        "metadata": {
            "name": "fast-6d-x",
            "uid": "u",
            "labels": {"pod-template-hash": "6d"},
            "ownerReferences": [{"kind": "ReplicaSet", "name": "fast-6d", "controller": True}],
            "annotations": {"prometheus.io/port": "9400", "prometheus.io/path": "/internal/metrics"},
        },
        "spec": {"containers": [{"name": "vllm", "image": "i", "args": ["m"]}], **spec},
        "status": {"podIP": "10.0.0.1", "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]},
    }


def test_pods_of_a_deployment_are_one_family_whatever_their_template() -> None:
    old = pod()
    new = pod()
    new["metadata"]["labels"] = {"pod-template-hash": "7c"}
    new["metadata"]["ownerReferences"][0]["name"] = "fast-7c"
    one, other = pod_facts(old), pod_facts(new)
    assert one.family == other.family == "ReplicaSet/fast"
    assert one.template != other.template
    assert one.addresses == {"10.0.0.1", "fd00::1"}
    assert (one.scrape_port, one.scrape_path) == (9400, "/internal/metrics")


def test_annotations_that_are_no_port_and_no_path_are_passed_over() -> None:
    body = pod()
    body["metadata"]["annotations"] = {"prometheus.io/port": "99999", "prometheus.io/path": "http://elsewhere/"}
    found = pod_facts(body)
    assert (found.scrape_port, found.scrape_path) == (None, None)


def test_an_image_that_was_changed_in_a_running_pod_shows() -> None:
    other = pod(containers=[{"name": "vllm", "image": "j", "args": ["m"]}])
    assert pod_facts(pod()).fingerprint != pod_facts(other).fingerprint


def test_the_engine_is_the_container_with_the_port_or_the_one_that_looks_so() -> None:
    proxy = {"name": "istio-proxy", "image": "istio/proxyv2", "ports": [{"containerPort": 15090}]}
    engine = {"name": "main", "image": "registry.example/vllm-openai:v0.32.0"}
    found = engine_container(pod(containers=[proxy, engine]), 8000)
    assert found is not None
    assert found["name"] == "main"
    declared = {"name": "server", "image": "x", "ports": [{"containerPort": 8000}]}
    found = engine_container(pod(containers=[proxy, engine, declared]), 8000)
    assert found is not None
    assert found["name"] == "server"
    assert engine_container(pod(containers=[proxy, {"name": "main", "image": "x"}]), 8000) is None

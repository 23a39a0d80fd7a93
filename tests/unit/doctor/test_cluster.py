"""Checks of the cluster, on what an API server of a test cannot be made to say."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from specfleet.doctor.checks import api_server, network, pod_security
from specfleet.doctor.corefile import Kept, kept
from specfleet.doctor.facts import Get, Listing, Query
from specfleet.doctor.findings import Finding, NotChecked, Severity
from specfleet.doctor.sample import first_fleet
from specfleet.doctor.selectors import matches
from tests.unit.doctor.asking import FLEETS, say


@pytest.mark.parametrize(
    ("version", "severity"),
    [
        ("v1.29.9", Severity.ERROR),
        ("v1.30.0", None),
        ("v1.31.4-gke.1183000", None),
        ("v1.33+", None),
        ("v1.36.3", None),
        ("v1.37.0", Severity.INFO),
        ("v2.0.0", Severity.INFO),
    ],
)
def test_versions_of_the_api_server(version: str, severity: Severity | None) -> None:
    (said,) = say(api_server.version, {Get("/version"): {"gitVersion": version}})

    assert (said.severity if isinstance(said, Finding) else None) == severity


def test_a_version_that_cannot_be_read_is_not_checked() -> None:
    (said,) = say(api_server.version, {Get("/version"): {"gitVersion": "fork"}})

    assert isinstance(said, NotChecked)


def test_an_api_server_without_admission_policies() -> None:
    served = Get("/apis/admissionregistration.k8s.io/v1")
    (said,) = say(api_server.admission_policies, {served: {"resources": [{"name": "validatingwebhookconfigurations"}]}})

    assert isinstance(said, Finding)
    assert "podPatch.enabled=false" in said.action


STOCK = """.:53 {
    errors
    kubernetes cluster.local in-addr.arpa ip6.arpa {
       pods insecure
       ttl 30
    }
    hosts {
       ttl 600
    }
    forward . /etc/resolv.conf
    cache 30
}
"""


@pytest.mark.parametrize(
    ("corefile", "expected"),
    [
        (STOCK, Kept(30, 30, stale=False)),
        (STOCK.replace("cache 30", "# cache 30"), Kept(0, 0, stale=False)),
        (STOCK.replace("cache 30", "cache"), Kept(30, 30, stale=False)),
        (STOCK.replace("       ttl 30\n", ""), Kept(5, 5, stale=False)),
        (STOCK.replace("ttl 30", "ttl 3600").replace("cache 30", "cache 900"), Kept(900, 900, stale=False)),
        (
            STOCK.replace("ttl 30", "ttl 120").replace("cache 30", "cache 90 {\n success 9984 60\n denial 99 5\n}"),
            Kept(60, 5, stale=False),
        ),
        (STOCK.replace("cache 30", "cache 30 {\n serve_stale 1h\n}"), Kept(30, 30, stale=True)),
        ("cluster.local:53 {\n cache {\n serve_stale\n }\n forward . 10.0.0.10\n}\n", Kept(0, 0, stale=True)),
        ("example.org:53 {\n cache 600\n forward . 10.0.0.1\n}\n" + STOCK, Kept(30, 30, stale=False)),
        ("", None),
        (". {\n forward . 1.1.1.1\n}\n", None),
    ],
)
def test_how_long_dns_keeps_answers(corefile: str, expected: Kept | None) -> None:
    assert kept(corefile) == expected


@pytest.mark.parametrize(
    ("selector", "labels", "expected"),
    [
        (None, {}, True),
        ({}, {"a": "b"}, True),
        ({"matchLabels": {"a": "b"}}, {"a": "b", "c": "d"}, True),
        ({"matchLabels": {"a": "b"}}, {"a": "c"}, False),
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}, {"a": "b"}, True),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]}, {}, True),
        ({"matchExpressions": [{"key": "a", "operator": "Exists"}]}, {}, False),
        ({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, {"a": ""}, False),
    ],
)
def test_label_selectors(selector: dict[str, Any] | None, labels: dict[str, str], expected: bool) -> None:
    assert matches(selector, labels) is expected


ROUTER = {"matchLabels": {"app.kubernetes.io/component": "router"}}


@pytest.mark.parametrize(
    ("policies", "closed"),
    [
        ([], set()),
        ([{"podSelector": {"matchLabels": {"app": "other"}}, "policyTypes": ["Ingress"]}], set()),
        ([{"podSelector": ROUTER, "ingress": [{}]}], set()),
        ([{"podSelector": ROUTER, "ingress": [{"ports": [{"port": 8080}, {"port": "read"}]}]}], set()),
        ([{"podSelector": ROUTER, "ingress": [{"ports": [{"port": 8000, "endPort": 9999}]}]}], set()),
        ([{"podSelector": ROUTER, "ingress": [{"ports": [{"port": 8080}]}]}], {"9902"}),
        ([{"podSelector": ROUTER, "ingress": [{"ports": [{"port": 8080, "protocol": "UDP"}]}]}], {"8080", "9902"}),
        (
            [{"podSelector": ROUTER}, {"podSelector": {}, "ingress": [{"ports": [{"port": 8080}, {"port": 9902}]}]}],
            {"8000"},
        ),
        ([{"podSelector": ROUTER, "policyTypes": ["Egress"], "egress": [{"ports": [{"port": 8000}]}]}], {"53"}),
    ],
)
def test_ports_that_network_policies_close(policies: list[dict[str, Any]], closed: set[str]) -> None:
    bodies = tuple({"metadata": {"name": f"p{index}"}, "spec": spec} for index, spec in enumerate(policies))
    listing = Listing("/apis/networking.k8s.io/v1/namespaces/default/networkpolicies")

    found = [one for one in say(network.policies, {FLEETS: (), listing: bodies}) if isinstance(one, Finding)]

    assert {one.found.partition(" port ")[2].partition(" ")[0] for one in found} == closed


@pytest.mark.parametrize(("name", "key"), [("kube-proxy", "config.conf"), ("kube-proxy-config", "config")])
@pytest.mark.parametrize("mode", ["", "iptables", "nftables", "ipvs"])
def test_the_mode_of_kube_proxy(mode: str, name: str, key: str) -> None:
    text = yaml.safe_dump({"kind": "KubeProxyConfiguration", "mode": mode})
    maps = "/api/v1/namespaces/kube-system/configmaps"
    body = {"metadata": {"name": name}, "data": {key: text}}
    answers: dict[Query, Any] = {
        Get(f"{maps}/kube-proxy"): None,
        Get(f"{maps}/kube-proxy-config"): None,
        Get(f"{maps}/{name}"): body,
    }

    (said,) = say(network.proxy, answers)

    assert isinstance(said, Finding) == (mode == "ipvs")


def test_what_is_rendered_meets_the_levels_that_the_manual_says() -> None:
    pods = {template.component: template.pod_spec for template in first_fleet()}

    assert list(pod_security.violations(pods["router"], "restricted")) == []
    assert list(pod_security.violations(pods["engine"], "baseline")) == []
    assert list(pod_security.violations(pods["engine"], "restricted")) == ["container engine: runAsNonRoot is not true"]


@pytest.mark.parametrize(
    ("change", "level", "missed"),
    [
        ({"hostNetwork": True}, "baseline", "hostNetwork is set"),
        ({"volumes": [{"name": "m", "hostPath": {"path": "/m"}}]}, "baseline", "volume m is a hostPath"),
        (
            {"containers": [{"name": "c", "securityContext": {"privileged": True}}]},
            "baseline",
            "container c is privileged",
        ),
        (
            {"containers": [{"name": "c", "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}]},
            "baseline",
            "container c adds the capabilities SYS_ADMIN",
        ),
        ({"volumes": [{"name": "m", "nfs": {}}]}, "restricted", "volume m is a nfs"),
        ({"hostNetwork": True}, "privileged", None),
    ],
)
def test_what_pods_miss_of_a_level(change: dict[str, Any], level: str, missed: str | None) -> None:
    assert list(pod_security.violations(change, level))[:1] == ([missed] if missed else [])

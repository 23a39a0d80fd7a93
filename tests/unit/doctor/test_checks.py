"""Checks on what an API server of a test cannot be made to say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
import yaml

from specfleet.api.conditions import REASONS, ConditionType, Reason
from specfleet.doctor.actions import ACTIONS, action_for
from specfleet.doctor.checks import api_server, definition, network, operators, pod_security, prometheus
from specfleet.doctor.corefile import Kept, kept
from specfleet.doctor.facts import Facts, Get, Listing, Log, Page, PageAnswer, Query, Scope, Unread
from specfleet.doctor.findings import Finding, Item, NotChecked, Seen, Severity
from specfleet.doctor.rights import OPERATOR, PATCH_PODS
from specfleet.doctor.sample import first_fleet
from specfleet.doctor.selectors import endpoint_slices, matches
from specfleet.doctor.settings_text import given
from tests.unit.chart.helm import rendered, rules_of

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
SCOPE = Scope(None, "default", "specfleet-system", "0.1.0")
FLEETS = Listing("/apis/specfleet.dev/v1alpha1/specdeployments")
OPERATORS = Listing("/apis/apps/v1/deployments", "app.kubernetes.io/component=operator")


def say(check: Callable[[Facts], Iterator[Item]], answers: Mapping[Query, Any]) -> list[Item]:
    return list(check(Facts(SCOPE, NOW, answers)))


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


def test_the_rights_asked_about_are_those_that_the_chart_grants() -> None:
    granted = {
        (resource.partition("/")[0], resource.partition("/")[2], verb)
        for kind, _, resources, verbs in rules_of(rendered({"rbac": {"aggregate": False}}))
        for resource in resources
        for verb in verbs
        if kind == "ClusterRole"
    }
    asked = {(group, resource, verb) for group, resource, verbs in (*OPERATOR, PATCH_PODS) for verb in verbs}

    assert asked == granted


def test_a_difference_between_schemas_is_named_and_descriptions_are_none() -> None:
    one = {
        "properties": {
            "a": {"type": "string", "description": "x", "enum": ["p", "q"]},
            "description": {"type": "string"},
        }
    }
    same = {
        "properties": {
            "a": {"type": "string", "description": "y", "enum": ["p", "q"]},
            "description": {"type": "string"},
        }
    }
    other = {"properties": {"a": {"type": "string", "enum": ["p"]}, "description": {"type": "string"}}}
    less = {"properties": {"a": {"type": "string", "enum": ["p", "q"]}}}

    assert definition.difference(one, same) is None
    assert definition.difference(one, other) == ".a.enum"
    assert definition.difference(one, less) == ".description"


def test_settings_as_the_operator_would_read_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECFLEET_WATCH_NAMESPACES", '["mine"]')

    good = given("watchNamespaces: [serving]\nprometheus: {timeoutSeconds: 3}\n")

    assert (good.problem, good.watch_namespaces) == (None, ("serving",))
    assert given("").watch_namespaces == ()
    assert given("watchNamespaces: [serving]\nrouterImag: x\n").watch_namespaces == ("serving",)
    assert "allow_hostpath is no setting" in str(given("allowHostpath: true\n").problem)
    assert "no YAML" in str(given("a: [").problem)
    assert "expected names and values" in str(given("- a\n").problem)


def test_every_reason_of_a_problem_has_an_action_that_can_be_filled_in() -> None:
    for reason in ACTIONS:
        assert "{" not in action_for(reason, "serving", "assistant")
    assert action_for("Unheard", "serving", "assistant") == "kubectl describe specdeployment assistant -n serving"
    stalled = [reason for reason, entry in REASONS.items() if ConditionType.STALLED in entry.conditions]
    assert Reason.NAME_TAKEN in stalled


def operator(**status: Any) -> dict[str, Any]:
    """A Deployment of the operator with one pod wanted."""
    labels = {"app.kubernetes.io/name": "specfleet", "app.kubernetes.io/component": "operator"}
    container = {"name": "operator", "image": "i"}
    return {
        "metadata": {"name": "specfleet", "namespace": "specfleet-system", "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"spec": {"containers": [container]}},
        },
        "status": status,
    }


PODS = Listing("/api/v1/namespaces/specfleet-system/pods", "a=b")


def crashing(message: str | None) -> dict[str, Any]:
    """A pod of it that ends again and again."""
    ended: dict[str, Any] = {"exitCode": 2, "finishedAt": "2026-11-29T11:59:00Z"}
    if message is not None:
        ended["message"] = message
    state = {"waiting": {"reason": "CrashLoopBackOff"}}
    container = {"name": "operator", "restartCount": 3, "state": state, "lastState": {"terminated": ended}}
    return {
        "metadata": {"name": "specfleet-a", "namespace": "specfleet-system", "uid": "u"},
        "status": {"containerStatuses": [container]},
    }


LOG = Log("specfleet-system", "specfleet-a", "operator", previous=True)


@pytest.mark.parametrize(
    ("message", "log", "words", "action"),
    [
        ("specfleet run: no such file", None, "and says: specfleet run: no such file", "mend what it says"),
        (
            None,
            "starting\nspecfleet run: token=abcdefgh1234 refused\n",
            "says: specfleet run: token=*** refused",
            "mend",
        ),
        (None, Unread("pods/log is forbidden"), "exit code 2 (restarted 3 times)", "--previous"),
    ],
)
def test_an_operator_that_ends_speaks_for_itself(message: str | None, log: Any, words: str, action: str) -> None:
    answers: dict[Query, Any] = {OPERATORS: (operator(),), PODS: (crashing(message),), LOG: log}

    (said,) = say(operators.check, answers)

    assert isinstance(said, Finding)
    assert words in said.found
    assert action in said.action


def test_an_operator_that_was_killed_for_want_of_memory() -> None:
    pod = crashing(None)
    pod["status"]["containerStatuses"][0]["lastState"]["terminated"] = {"exitCode": 137, "reason": "OOMKilled"}

    (said,) = say(operators.check, {OPERATORS: (operator(),), PODS: (pod,)})

    assert isinstance(said, Finding)
    assert "resources.limits.memory" in said.action


def test_an_operator_whose_pods_are_refused() -> None:
    failure = {"type": "ReplicaFailure", "status": "True", "message": 'pods "x" is forbidden: violates PodSecurity'}

    (said,) = say(operators.check, {OPERATORS: (operator(conditions=[failure]),)})

    assert isinstance(said, Finding)
    assert "violates PodSecurity" in said.found


def prometheus_says(answer: PageAnswer, **settings: Any) -> list[Item]:
    """What is said of a Prometheus in the cluster whose Service has an endpoint."""
    one = operator(readyReplicas=1)
    one["spec"]["template"]["spec"]["volumes"] = [{"name": "settings", "configMap": {"name": "s"}}]
    text = yaml.safe_dump({"prometheus": {"url": "http://prometheus.monitoring.svc:9090/base/", **settings}})
    service = "/api/v1/namespaces/monitoring/services"
    through = f"{service}/http:prometheus:9090/proxy/base/api/v1/query?query=vector(1)"
    return say(
        prometheus.check,
        {
            Get("/apis/monitoring.coreos.com/v1"): None,
            OPERATORS: (one,),
            Get("/api/v1/namespaces/specfleet-system/configmaps/s"): {"data": {"settings.yaml": text}},
            FLEETS: (),
            Get(f"{service}/prometheus"): {"metadata": {}},
            endpoint_slices("monitoring", "prometheus"): ({"endpoints": [{"conditions": {"ready": True}}]},),
            Page(through): answer,
        },
    )


ANSWER = '{"status":"success","data":{"resultType":"vector","result":[]}}'


@pytest.mark.parametrize(
    ("answer", "settings", "words"),
    [
        (PageAnswer(200, "application/json", ANSWER), {}, None),
        (PageAnswer(401, "text/plain", ""), {}, "asks for credentials (401)"),
        (PageAnswer(401, "text/plain", ""), {"bearerTokenFile": "/t"}, None),
        (PageAnswer(200, "text/html", "<html>"), {}, "answers 200 with text/html"),
        (PageAnswer(503, "application/json", '{"kind":"Status","apiVersion":"v1","message":"no endpoints"}'), {},
         "does not answer: no endpoints"),
        (PageAnswer(0, "", "no answer within 5 s"), {}, "no answer within 5 s"),
    ],
)  # fmt: skip
def test_what_a_prometheus_answers(answer: PageAnswer, settings: dict[str, Any], words: str | None) -> None:
    found = [one for one in prometheus_says(answer, **settings) if isinstance(one, Finding)]

    assert len(found) == (0 if words is None else 1)
    if words is not None:
        assert words in found[0].found
        assert found[0].severity is Severity.WARNING


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("http://169.254.169.254/latest", Seen),
        ("https://prometheus.example.com", Seen),
        ("http://prometheus.monitoring.svc/../../../secrets", NotChecked),
        ("http://prometheus.monitoring.svc//x", NotChecked),
    ],
)
def test_a_url_that_a_fleets_author_writes_sends_this_machine_nowhere(url: str, kind: type[Item]) -> None:
    """No page is among the answers: asking for one would end in `NotYet`."""
    metrics = {"source": "Prometheus", "prometheus": {"url": url}}
    fleet = {"metadata": {"name": "a", "namespace": "serving"}, "spec": {"metrics": metrics}}

    said = say(prometheus.check, {Get("/apis/monitoring.coreos.com/v1"): None, OPERATORS: (), FLEETS: (fleet,)})

    assert [type(one) for one in said] == [kind, Seen]


def test_a_proxy_that_the_caller_may_not_use_is_not_checked() -> None:
    refused = '{"kind":"Status","apiVersion":"v1","message":"services is forbidden"}'

    said = prometheus_says(PageAnswer(403, "application/json", refused))

    assert [type(one) for one in said] == [NotChecked, Seen]

"""`specfleet doctor` on a real API server: nothing on a sound set-up, and each of the broken ones by what is broken."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from specfleet.doctor.checks import fleets
from tests.cluster.api import Api, Body
from tests.cluster.chart.client import CRD, NAMESPACE
from tests.cluster.doctor_bed import (
    FLEETS,
    IMAGE,
    OPERATOR,
    Bed,
    condition,
    endpoints,
    fleet_status,
    install,
    make_cluster,
    make_fleet,
    namespace,
    path_of,
    pod,
    pod_status,
    rolled_out,
    service,
)
from tests.testbed.api import ensure_control_plane

pytestmark = pytest.mark.cluster
ASSISTANT = path_of("SpecDeployment", "assistant", FLEETS)
ROUTER = path_of("Deployment", "assistant-router", FLEETS)
SETTINGS = path_of("ConfigMap", "specfleet-settings", NAMESPACE)
DEPLOYMENT = path_of("Deployment", OPERATOR, NAMESPACE)


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """A cluster with the operator and a fleet, all well."""
    plane = ensure_control_plane(tmp_path_factory.mktemp("doctor") / "state")
    bed = Bed(Api(plane.kubeconfig), plane.kubeconfig)
    make_cluster(bed)
    install(bed)
    make_fleet(bed)
    yield bed
    plane.stop()


@pytest.fixture
def bed(sound: Bed) -> Iterator[Bed]:
    """The sound cluster, to be broken by one test."""
    one = Bed(sound.api, sound.kubeconfig)
    one.lease()
    yield one
    one.repair()


def only(bed: Bed, check: str, *options: str) -> Body:
    """The one finding there is, which must be of this check."""
    result = bed.doctor(*options)
    found = result.report["findings"]
    assert [(one["check"], one["found"]) for one in found if one["check"] != check] == []
    assert len(found) == 1, found
    assert result.code == (1 if found[0]["severity"] == "error" else 0)
    assert found[0]["expected"]
    assert found[0]["action"]
    finding: Body = found[0]
    return finding


def test_on_a_sound_set_up_one_line_says_that_all_is_well(bed: Bed) -> None:
    result = bed.doctor(output="text")

    assert result.code == 0
    assert result.error == ""
    assert result.out.startswith("All is well: ")
    assert result.out.count("\n") == 1


def test_what_was_checked_is_shown_on_request(bed: Bed) -> None:
    lines = bed.doctor("-v", output="text").out.splitlines()

    assert "seen  leader: specfleet-a leads in specfleet-system" in lines
    assert "seen  accelerators: 8 nvidia.com/gpu on 1 node(s)" in lines
    assert lines[-1].startswith("All is well: ")


def test_it_writes_nothing(bed: Bed) -> None:
    def versions() -> list[str]:
        kinds = ("configmaps", "services", "pods", "events", "secrets", "serviceaccounts")
        paths = [f"/api/v1/{kind}" for kind in kinds] + [
            "/apis/apps/v1/deployments",
            "/apis/specfleet.dev/v1alpha1/specdeployments",
        ]
        return [
            f"{one['metadata']['namespace']}/{one['metadata']['name']}@{one['metadata']['resourceVersion']}"
            for path in paths
            for one in bed.api.request("GET", path)["items"]
        ]

    before = versions()
    bed.doctor()

    assert versions() == before


# --- the cluster


def test_no_node_offers_accelerators(bed: Bed) -> None:
    bed.change(path_of("Node", "gpu-1"), {"status": {"allocatable": {"nvidia.com/gpu": None}}}, "status")

    finding = only(bed, "accelerators")

    assert finding["severity"] == "warning"
    assert "no node of 1 offers nvidia.com/gpu" in finding["found"]
    assert "device plugin" in finding["action"]


def test_the_only_node_with_accelerators_is_cordoned(bed: Bed) -> None:
    bed.change(path_of("Node", "gpu-1"), {"spec": {"unschedulable": True}})

    finding = only(bed, "accelerators")

    assert finding["about"] == "Node gpu-1"
    assert "kubectl uncordon gpu-1" in finding["action"]


def test_another_vendors_accelerators(bed: Bed) -> None:
    bed.change(
        path_of("Node", "gpu-1"), {"status": {"allocatable": {"nvidia.com/gpu": None, "amd.com/gpu": "8"}}}, "status"
    )

    assert "pools.accelerator.resource: amd.com/gpu" in only(bed, "accelerators")["action"]


def test_a_kubelet_that_knows_no_sleeping_hook(bed: Bed) -> None:
    bed.change(path_of("Node", "gpu-1"), {"status": {"nodeInfo": {"kubeletVersion": "v1.28.4-eks-1"}}}, "status")

    assert only(bed, "kubelets")["about"] == "Node gpu-1"


def test_dns_without_a_ready_pod(bed: Bed) -> None:
    slices = path_of("EndpointSlice", "kube-dns-1", "kube-system")
    bed.change(slices, {"endpoints": [{"addresses": ["10.1.2.3"], "conditions": {"ready": False}}]})

    assert only(bed, "dns")["found"] == "the cluster's DNS has no ready pod"


def test_dns_that_keeps_answers_longer_than_engines_drain(bed: Bed) -> None:
    corefile = ".:53 {\n  kubernetes cluster.local {\n    ttl 300\n  }\n  cache 300 {\n    denial 100 30\n  }\n}\n"
    bed.change(path_of("ConfigMap", "coredns", "kube-system"), {"data": {"Corefile": corefile}})

    finding = only(bed, "dns")

    assert "up to 300 s" in finding["found"]
    assert "serves for 45 s more" in finding["expected"]


def test_a_network_policy_that_admits_nothing(bed: Bed) -> None:
    bed.make(
        {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": {"name": "default-deny", "namespace": FLEETS},
            "spec": {"podSelector": {}, "policyTypes": ["Ingress"]},
        }
    )

    found = bed.doctor().of("network-policies")

    assert [one["about"] for one in found] == [f"NetworkPolicy {FLEETS}/default-deny"] * 3
    assert [one["found"].split("port ")[1].split(" ")[0] for one in found] == ["8080", "9902", "8000"]


def test_a_namespace_whose_pod_security_refuses_engines(bed: Bed) -> None:
    bed.change(
        path_of("Namespace", FLEETS), {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    )

    found = bed.doctor().of("pod-security")

    assert [one["about"] for one in found] == [
        f"Deployment {FLEETS}/assistant-{pool}" for pool in ("baseline", "ngram")
    ]
    assert all("runAsNonRoot is not true" in one["found"] for one in found)


def test_a_quota_that_wants_values_which_pods_do_not_set(bed: Bed) -> None:
    bed.make(
        {
            "apiVersion": "v1",
            "kind": "ResourceQuota",
            "metadata": {"name": "team", "namespace": FLEETS},
            "spec": {"hard": {"limits.cpu": "100", "pods": "50"}},
        }
    )

    finding = only(bed, "quota")

    assert finding["about"] == f"ResourceQuota {FLEETS}/team"
    assert "every container must set limits.cpu" in finding["found"]
    assert "container engine" in finding["found"]


def test_a_quota_without_room_for_a_first_fleet(bed: Bed) -> None:
    bed.make(namespace("small"))
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "team", "namespace": "small"},
        "spec": {"hard": {"requests.nvidia.com/gpu": "1", "pods": "3"}},
    }
    bed.make(quota)

    finding = only(bed, "quota", "-n", "small")

    assert "pods: 4 needed, 3 of 3 free" in finding["found"]
    assert "requests.nvidia.com/gpu: 2 needed, 1 of 1 free" in finding["found"]


def test_a_limit_range_below_what_routers_ask_for(bed: Bed) -> None:
    limits = [{"type": "Container", "max": {"memory": "1Gi"}}]
    bed.make(
        {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": {"name": "team", "namespace": FLEETS},
            "spec": {"limits": limits},
        }
    )

    found = bed.doctor().of("limit-range")

    assert [(one["severity"], one["about"]) for one in found] == [
        ("error", f"LimitRange {FLEETS}/team"),
        ("warning", f"LimitRange {FLEETS}/team"),
    ]
    assert "container envoy of router pods has a limit of 2Gi" in found[0]["found"]
    assert "get 1Gi" in found[1]["found"]


def webhook(**other: Any) -> Body:
    """A configuration that must admit every pod."""
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "gone"},
        "webhooks": [
            {
                "name": "pods.gone.example.com",
                "admissionReviewVersions": ["v1"],
                "sideEffects": "None",
                "failurePolicy": "Fail",
                "clientConfig": {"service": {"namespace": "gone", "name": "gone"}},
                "rules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]},
                ],
                **other,
            }
        ],
    }


def test_a_webhook_that_must_answer_and_cannot(bed: Bed) -> None:
    bed.make(webhook())

    finding = only(bed, "admission-webhooks")

    assert finding["about"] == "ValidatingWebhookConfiguration gone"
    assert "its Service gone/gone has no ready endpoint" in finding["found"]


@pytest.mark.parametrize(
    "harmless",
    [
        {"failurePolicy": "Ignore"},
        {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "elsewhere"}}},
        {"objectSelector": {"matchExpressions": [{"key": "injected", "operator": "Exists"}]}},
    ],
)
def test_a_webhook_that_lets_fleets_pass_is_no_finding(bed: Bed, harmless: Body) -> None:
    bed.make(webhook(**harmless))

    assert bed.doctor().report["findings"] == []


# --- what is installed


def test_a_definition_of_another_release(bed: Bed) -> None:
    bed.change(
        path_of("CustomResourceDefinition", CRD), {"metadata": {"labels": {"app.kubernetes.io/version": "0.0.9"}}}
    )

    assert "it is of release 0.0.9" in only(bed, "definition")["found"]


def test_a_definition_that_lacks_a_field(bed: Bed) -> None:
    path = path_of("CustomResourceDefinition", CRD)
    versions = bed.api.request("GET", path)["spec"]["versions"]
    spec = versions[0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    del spec["properties"]["target"]["properties"]["revision"]
    bed.change(path, {"spec": {"versions": versions}})

    assert "it differs at .spec.target.revision" in only(bed, "definition")["found"]


def test_a_helm_release_that_is_stuck(bed: Bed) -> None:
    labels = {"owner": "helm", "name": OPERATOR, "status": "pending-upgrade", "version": "2"}
    bed.make(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "helm.sh/release.v1",
            "metadata": {"name": "sh.helm.release.v1.specfleet.v2", "namespace": NAMESPACE, "labels": labels},
            "data": {"release": base64.b64encode(b"not read").decode()},
        }
    )

    finding = only(bed, "release")

    assert "pending-upgrade" in finding["found"]
    assert "helm rollback specfleet -n specfleet-system" in finding["action"]


# --- the operator


def operator_pod(bed: Bed, ready: int, **state: Any) -> None:
    """One pod of the operator is in this state."""
    bed.change(DEPLOYMENT, {"status": rolled_out(2, ready)}, "status")
    bed.change(path_of("Pod", "specfleet-b", NAMESPACE), {"status": pod_status(ready=False, **state)}, "status")


def test_an_operator_image_that_cannot_be_pulled(bed: Bed) -> None:
    operator_pod(bed, 1, state={"waiting": {"reason": "ImagePullBackOff", "message": "Back-off pulling image"}})

    finding = only(bed, "operator")

    assert finding["severity"] == "warning"
    assert f"image {IMAGE} cannot be pulled (ImagePullBackOff)" in finding["found"]
    assert "image.repository" in finding["action"]


def test_an_operator_that_ends_says_why_in_its_own_words(bed: Bed) -> None:
    said = "specfleet run: settings (/etc/specfleet/settings.yaml): routerimage is no setting"
    ended = {"exitCode": 2, "reason": "Error", "message": said, "finishedAt": "2026-11-29T09:00:00Z"}
    operator_pod(
        bed, 0, state={"waiting": {"reason": "CrashLoopBackOff"}}, lastState={"terminated": ended}, restartCount=7
    )

    finding = bed.doctor().of("operator")[0]

    assert finding["severity"] == "error"
    assert "0 of 2 replicas are ready" in finding["found"]
    assert "exit code 2 (restarted 7 times), and says: " + said in finding["found"]


def test_an_operator_that_is_scaled_to_nothing(bed: Bed) -> None:
    bed.change(DEPLOYMENT, {"spec": {"replicas": 0}})
    bed.change(DEPLOYMENT, {"status": rolled_out(0)}, "status")

    assert "--replicas=2" in only(bed, "operator")["action"]


def test_settings_that_the_operator_would_refuse(bed: Bed) -> None:
    bed.change(SETTINGS, {"data": {"settings.yaml": "routerImag: envoy\n"}})

    finding = only(bed, "settings")

    assert "router_imag is no setting" in finding["found"]
    assert "its next start fails" in finding["expected"]


def test_settings_that_are_gone(bed: Bed) -> None:
    bed.remove(SETTINGS)

    assert "are not there" in only(bed, "settings")["found"]


def test_no_lease(bed: Bed) -> None:
    bed.remove(path_of("Lease", "specfleet", NAMESPACE))

    assert "there is none" in only(bed, "leader")["found"]


def test_a_lease_that_nobody_renews(bed: Bed) -> None:
    bed.lease(age=timedelta(minutes=5))

    finding = only(bed, "leader")

    told = re.fullmatch(r"no replica leads: it was renewed last (\d+) s ago by specfleet-a_0001", finding["found"])
    assert told is not None
    assert 295 < int(told.group(1)) < 310


def test_a_lease_that_somebody_else_holds(bed: Bed) -> None:
    bed.lease(holder="laptop_0042")

    assert "laptop_0042, which is no pod of" in only(bed, "leader")["found"]


def test_a_leader_of_an_older_image(bed: Bed) -> None:
    labels = bed.api.request("GET", DEPLOYMENT)["spec"]["selector"]["matchLabels"]
    bed.make(pod("specfleet-old", labels, image="ghcr.io/specfleet/specfleet:0.0.9"), pod_status(ready=True))
    bed.lease(holder="specfleet-old_0001")

    assert "runs ghcr.io/specfleet/specfleet:0.0.9" in only(bed, "leader")["found"]


def test_rights_that_were_taken_away(bed: Bed) -> None:
    name = f"{NAMESPACE}-specfleet"
    rules = bed.api.request("GET", path_of("ClusterRole", name))["rules"]
    kept = [rule for rule in rules if "deployments" not in rule["resources"]]
    bed.change(path_of("ClusterRole", name), {"rules": kept})

    finding = only(bed, "operator-rights")

    assert "get, list, watch, create, patch, delete deployments.apps" in finding["found"]
    assert "helm upgrade" in finding["action"]


def test_rights_that_were_added(bed: Bed) -> None:
    bed.make(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "too-much"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"},
            "subjects": [{"kind": "ServiceAccount", "name": OPERATOR, "namespace": NAMESPACE}],
        }
    )
    bed.change(
        path_of("ClusterRole", "edit"), {"rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}]}
    )

    finding = only(bed, "operator-rights")

    assert (finding["severity"], "may list secrets" in finding["found"]) == ("warning", True)


def test_a_right_on_pods_that_nothing_narrows(bed: Bed) -> None:
    bed.remove(path_of("ValidatingAdmissionPolicyBinding", f"{NAMESPACE}-specfleet-pod-patch"))

    assert "no binding makes it deny" in only(bed, "pod-patch-policy")["found"]


def test_a_second_operator(bed: Bed) -> None:
    other = json.loads(json.dumps(bed.api.request("GET", DEPLOYMENT)))
    other["metadata"] = {
        "name": "specfleet",
        "namespace": FLEETS,
        "labels": {"app.kubernetes.io/name": "specfleet", "app.kubernetes.io/component": "operator"},
    }
    other["spec"]["replicas"] = 0
    other["spec"]["template"]["spec"].pop("volumes")
    other["spec"]["template"]["spec"]["containers"][0].pop("volumeMounts")
    bed.make({**other, "kind": "Deployment", "apiVersion": "apps/v1"})

    assert any("two operators watch all namespaces" in one["found"] for one in bed.doctor().of("operator"))


# --- fleets


@pytest.mark.parametrize(
    ("said", "severity", "words", "action"),
    [
        (
            condition("Stalled", "True", "SpecInvalid", "spec.engine.args: no such flag"),
            "error",
            "Stalled=True (SpecInvalid): spec.engine.args: no such flag",
            "specfleet validate",
        ),
        (
            condition("Ready", "False", "Unschedulable", "ngram: 0/1 nodes are available"),
            "error",
            "Ready=False (Unschedulable)",
            "free accelerators",
        ),
        (
            condition("Ready", "False", "PodsNotReady", "ngram 0 of 1"),
            "info",
            "it waits: Ready=False (PodsNotReady)",
            "kubectl wait specdeployment/assistant -n serving",
        ),
        (
            condition("MetricsAvailable", "False", "RoutersUnreachable", "no router answers"),
            "warning",
            "MetricsAvailable=False (RoutersUnreachable)",
            "port 9902",
        ),
        (
            condition("CapacitySufficient", "False", "NoRoomToMove", "a switch of chat waits"),
            "warning",
            "CapacitySufficient=False (NoRoomToMove)",
            "minBaseline",
        ),
        (
            condition("Moving", "False", "RoutesRejected", "a router refused"),
            "error",
            "Moving=False (RoutesRejected)",
            "kubectl logs -n serving deployment/assistant-router -c envoy",
        ),
    ],
    ids=lambda value: value["reason"] if isinstance(value, dict) else "",
)
def test_the_next_problem_of_a_fleet(bed: Bed, said: Body, severity: str, words: str, action: str) -> None:
    bed.change(ASSISTANT, {"status": fleet_status(said)}, "status")

    finding = only(bed, "fleets")

    assert finding["about"] == "SpecDeployment serving/assistant"
    assert finding["severity"] == severity
    assert words in finding["found"]
    assert action in finding["action"]


def test_a_change_that_the_operator_has_not_looked_at(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleets, "UNSEEN", timedelta(seconds=-60))
    bed.change(ASSISTANT, {"spec": {"policy": {"minAcceptancePercent": 31}}})

    assert "has not been looked at" in only(bed, "fleets")["found"]


def test_a_fleet_without_a_router(bed: Bed) -> None:
    bed.change(ROUTER, {"status": rolled_out(2, 0)}, "status")
    labels = bed.api.request("GET", ROUTER)["spec"]["template"]["metadata"]["labels"]
    router = pod("assistant-router-1", labels, container="envoy")
    router["metadata"]["namespace"] = FLEETS
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "not found"}}
    bed.make(router, pod_status(ready=False, container="envoy", state=waiting))

    finding = only(bed, "routers")

    assert finding["about"] == f"Deployment {FLEETS}/assistant-router"
    assert "0 of 2 router pods are ready; image" in finding["found"]
    assert finding["expected"].endswith("nothing is served")


def test_objects_that_a_deleted_fleet_left(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fleets, "SETTLING", timedelta(seconds=-60))
    left = json.loads(json.dumps(bed.api.request("GET", path_of("ConfigMap", "assistant-routes", FLEETS))))
    labels = {**left["metadata"]["labels"], "specfleet.dev/deployment": "gone"}
    bed.make(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "gone-routes", "namespace": FLEETS, "labels": labels},
            "data": {},
        }
    )

    finding = only(bed, "left-behind")

    assert finding["about"] == f"ConfigMap {FLEETS}/gone-routes"
    assert "SpecDeployment serving/gone does not exist" in finding["found"]
    assert "kubectl delete configmap gone-routes -n serving" in finding["action"]


def test_a_fleet_in_a_namespace_that_nobody_watches(bed: Bed) -> None:
    bed.make(namespace("elsewhere"))
    settings = yaml.safe_load(bed.api.request("GET", SETTINGS)["data"]["settings.yaml"])
    settings["watchNamespaces"] = ["elsewhere"]
    bed.change(SETTINGS, {"data": {"settings.yaml": yaml.safe_dump(settings)}})

    finding = only(bed, "watched-namespaces")

    assert finding["about"] == "SpecDeployment serving/assistant"
    assert "no operator watches namespace serving; watched: elsewhere" in finding["found"]


def test_a_watched_namespace_that_does_not_exist(bed: Bed) -> None:
    settings = yaml.safe_load(bed.api.request("GET", SETTINGS)["data"]["settings.yaml"])
    settings["watchNamespaces"] = [FLEETS, "nowhere"]
    bed.change(SETTINGS, {"data": {"settings.yaml": yaml.safe_dump(settings)}})

    assert "namespace nowhere, which does not exist" in only(bed, "watched-namespaces")["found"]


def test_claims_that_do_not_fit(bed: Bed) -> None:
    bed.change(ASSISTANT, {"spec": {"pools": {"storage": {"cache": {"persistentVolumeClaim": "hub"}}}}})
    bed.status(
        ASSISTANT, {**fleet_status(), "observedGeneration": bed.api.request("GET", ASSISTANT)["metadata"]["generation"]}
    )
    missing = only(bed, "storage")
    bed.make(
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "hub", "namespace": FLEETS},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": {"storage": "100Gi"}},
                "storageClassName": "nowhere",
            },
        }
    )
    bed.lease()
    found = bed.doctor().of("storage")

    assert "names a claim that does not exist" in missing["found"]
    assert [(one["severity"], one["about"]) for one in found] == [
        ("error", f"PersistentVolumeClaim {FLEETS}/hub"),
        ("warning", f"PersistentVolumeClaim {FLEETS}/hub"),
    ]
    assert "its storage class nowhere does not exist" in found[0]["found"]
    assert "ReadWriteOnce, and 2 engine pods" in found[1]["found"]


# --- External pools and Prometheus


def external(bed: Bed, **pools: Body) -> None:
    """A SpecDeployment with External pools, not looked at yet."""
    bed.make(
        {
            "apiVersion": "specfleet.dev/v1alpha1",
            "kind": "SpecDeployment",
            "metadata": {"name": "adopted", "namespace": FLEETS},
            "spec": {
                "engine": {"type": "vLLM"},
                "pools": {"strategy": "External", "external": pools},
                "policy": {"enforcement": "Observe", "minAcceptancePercent": 30},
            },
        }
    )


def test_external_services_that_lead_nowhere(bed: Bed) -> None:
    bed.make(service("plain", FLEETS, 8000))
    bed.make(endpoints("plain", FLEETS, ready=False))
    external(bed, speculative={"service": "fast"}, baseline={"service": "plain"})

    found = bed.doctor().of("external-services")

    assert [(one["about"], one["severity"]) for one in found] == [
        (f"Service {FLEETS}/fast", "error"),
        (f"Service {FLEETS}/plain", "error"),
    ]
    assert "does not exist" in found[0]["found"]
    assert "no ready endpoint" in found[1]["found"]


def test_an_external_service_without_that_port(bed: Bed) -> None:
    bed.make(service("plain", FLEETS, 80))
    bed.make(endpoints("plain", FLEETS))
    external(bed, baseline={"service": "plain", "port": 8000})

    assert "names port 8000; the Service has 80" in only(bed, "external-services")["found"]


def test_a_prometheus_that_does_not_answer(bed: Bed) -> None:
    settings = yaml.safe_load(bed.api.request("GET", SETTINGS)["data"]["settings.yaml"])
    settings["prometheus"] = {"url": "http://127.0.0.1:1"}
    bed.change(SETTINGS, {"data": {"settings.yaml": yaml.safe_dump(settings)}})
    away = only(bed, "prometheus")
    settings["prometheus"] = {"url": "http://prometheus.serving.svc:9090"}
    bed.change(SETTINGS, {"data": {"settings.yaml": yaml.safe_dump(settings)}})
    bed.lease()
    missing = only(bed, "prometheus")

    assert "http://127.0.0.1:1 does not answer from here" in away["found"]
    assert "there is no Service serving/prometheus" in missing["found"]


# --- who asks


def viewer(bed: Bed, tmp_path: Path, rules: list[Body]) -> Path:
    """A kubeconfig of a service account of the fleets' namespace with these rights there."""
    bed.make({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader", "namespace": FLEETS}})
    group = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    bed.make({**group, "kind": "Role", "metadata": {"name": "reader", "namespace": FLEETS}, "rules": rules})
    bed.make(
        {
            **group,
            "kind": "RoleBinding",
            "metadata": {"name": "reader", "namespace": FLEETS},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
            "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": FLEETS}],
        }
    )
    token = bed.api.request(
        "POST",
        path_of("ServiceAccount", "reader/token", FLEETS),
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}},
    )["status"]["token"]
    config = yaml.safe_load(bed.kubeconfig.read_text())
    for user in config["users"]:
        user["user"] = {"token": token}
    for context in config["contexts"]:
        context["context"]["namespace"] = FLEETS
    target = tmp_path / "kubeconfig"
    target.write_text(yaml.safe_dump(config))
    return target


def test_what_may_not_be_read_is_not_checked_and_breaks_nothing(bed: Bed, tmp_path: Path) -> None:
    rules = [{"apiGroups": ["specfleet.dev"], "resources": ["specdeployments"], "verbs": ["list"]}]
    kubeconfig = viewer(bed, tmp_path, rules)
    bed.change(
        ASSISTANT,
        {"status": fleet_status(condition("Stalled", "True", "NameTaken", "It exists"))},
        "status",
    )

    result = bed.doctor("-n", FLEETS, kubeconfig=kubeconfig)
    shown = bed.doctor("-n", FLEETS, kubeconfig=kubeconfig, output="text").out

    assert result.code == 1
    assert [one["check"] for one in result.report["findings"]] == ["fleets"]
    skipped = {one["check"] for one in result.report["notChecked"]}
    assert {"accelerators", "kubelets", "dns", "operator", "leader", "definition", "left-behind"} <= skipped
    assert "not checked  kubelets, accelerators: nodes is forbidden" in shown
    assert "could not be made" in shown.splitlines()[-1]


def test_nothing_wrong_and_not_everything_checked_is_not_called_well(bed: Bed, tmp_path: Path) -> None:
    rules = [{"apiGroups": ["specfleet.dev"], "resources": ["specdeployments"], "verbs": ["list"]}]

    result = bed.doctor("-n", FLEETS, kubeconfig=viewer(bed, tmp_path, rules), output="text")

    assert result.code == 0
    assert "All is well" not in result.out
    assert result.out.splitlines()[-1].startswith("Nothing wrong was found in ")


def test_who_sees_one_namespace_is_told_that_others_were_not_looked_at(bed: Bed, tmp_path: Path) -> None:
    rules = [{"apiGroups": ["specfleet.dev"], "resources": ["specdeployments"], "verbs": ["list"]}]
    bed.change(ASSISTANT, {"status": fleet_status(condition("Stalled", "True", "NameTaken", "It exists"))}, "status")

    report = bed.doctor(kubeconfig=viewer(bed, tmp_path, rules)).report

    assert [one["check"] for one in report["findings"]] == ["fleets"]
    skipped = [one["why"] for one in report["notChecked"] if one["check"] == "fleets"]
    assert [why.partition(":")[0] for why in skipped] == [f"other namespaces than {FLEETS}"]


def test_a_cluster_that_does_not_answer(bed: Bed, tmp_path: Path) -> None:
    config = yaml.safe_load(bed.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    elsewhere = tmp_path / "kubeconfig"
    elsewhere.write_text(yaml.safe_dump(config))

    result = bed.doctor(kubeconfig=elsewhere)

    assert (result.code, result.out) == (2, "")
    assert "expected an answer of the API server https://127.0.0.1:1" in result.error


def test_credentials_that_are_refused(bed: Bed, tmp_path: Path) -> None:
    config = yaml.safe_load(bed.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": "expired"}
    stale = tmp_path / "kubeconfig"
    stale.write_text(yaml.safe_dump(config))

    result = bed.doctor(kubeconfig=stale)

    assert result.code == 2
    assert "does not accept the credentials (401)" in result.error


def test_a_context_is_chosen_by_name(bed: Bed, tmp_path: Path) -> None:
    config = yaml.safe_load(bed.kubeconfig.read_text())
    broken = {"name": "broken", "cluster": {**config["clusters"][0]["cluster"], "server": "https://127.0.0.1:1"}}
    config["clusters"].append(broken)
    user = config["users"][0]["name"]
    config["contexts"] += [
        {"name": "broken", "context": {"cluster": "broken", "user": user}},
        {"name": "good", "context": {"cluster": config["clusters"][0]["name"], "user": user}},
    ]
    config["current-context"] = "broken"
    several = tmp_path / "kubeconfig"
    several.write_text(yaml.safe_dump(config))

    assert bed.doctor("--context", "good", kubeconfig=several).code == 0
    unknown = bed.doctor("--context", "other", kubeconfig=several)
    assert unknown.code == 2
    assert "name one of them with --context" in unknown.error

"""A cluster on an API server alone that looks as if everything ran: nodes, DNS, operator, a fleet.

There are no controllers, so what is written here stays as it is, the status of nodes, pods and Deployments included.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from typer.testing import CliRunner

from specfleet.api.v1alpha1 import SpecDeployment
from specfleet.cli.main import app
from specfleet.render.meta import OwnerRef
from specfleet.render.objects import render_all
from specfleet.settings import OperatorSettings
from tests.cluster.api import Api, Body, Refused, eventually
from tests.cluster.chart.client import CHART, NAMESPACE, Cluster

FLEETS = "serving"
OPERATOR = "specfleet"
IMAGE = "ghcr.io/specfleet/specfleet:0.1.0"
TEMPLATES = Path(__file__).resolve().parents[2] / "testbed" / "templates"
COREFILE: Body = next(
    one
    for one in yaml.safe_load_all((TEMPLATES / "coredns.yaml").read_text().replace("$", ""))
    if one["kind"] == "ConfigMap"
)

PLURALS = {
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "CustomResourceDefinition": "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "EndpointSlice": "/apis/discovery.k8s.io/v1/namespaces/{}/endpointslices",
    "Lease": "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
    "LimitRange": "/api/v1/namespaces/{}/limitranges",
    "Namespace": "/api/v1/namespaces",
    "NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/{}/networkpolicies",
    "Node": "/api/v1/nodes",
    "PersistentVolumeClaim": "/api/v1/namespaces/{}/persistentvolumeclaims",
    "Pod": "/api/v1/namespaces/{}/pods",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "ResourceQuota": "/api/v1/namespaces/{}/resourcequotas",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/rolebindings",
    "Secret": "/api/v1/namespaces/{}/secrets",
    "Service": "/api/v1/namespaces/{}/services",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "SpecDeployment": "/apis/specfleet.dev/v1alpha1/namespaces/{}/specdeployments",
    "StorageClass": "/apis/storage.k8s.io/v1/storageclasses",
    "ValidatingAdmissionPolicyBinding": "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
    "ValidatingWebhookConfiguration": "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations",
}
FLEET: Body = {
    "apiVersion": "specfleet.dev/v1alpha1",
    "kind": "SpecDeployment",
    "metadata": {"name": "assistant", "namespace": FLEETS},
    "spec": {
        "engine": {"type": "vLLM", "version": "0.32.0"},
        "target": {"model": "owner/name"},
        "drafts": [{"name": "ngram", "mode": "NGram"}],
        "pools": {"replicas": 2},
        "policy": {"minAcceptancePercent": 30},
    },
}
_WELL = (
    ("Ready", "True", "Available"),
    ("Reconciling", "False", "UpToDate"),
    ("Stalled", "False", "NotStalled"),
    ("Valid", "True", "SpecValid"),
    ("MetricsAvailable", "True", "RoutersRead"),
    ("SpeculationActive", "True", "Speculating"),
    ("CapacitySufficient", "True", "RoomToMove"),
    ("Moving", "False", "Settled"),
)


@dataclass
class Result:
    """What one run of the command printed."""

    code: int
    out: str
    error: str

    @property
    def report(self) -> Body:
        """The JSON."""
        parsed: Body = json.loads(self.out)
        return parsed

    def of(self, check: str) -> list[Body]:
        """Findings of one check."""
        return [one for one in self.report["findings"] if one["check"] == check]


@dataclass
class Bed:
    """The cluster, and what has to be done to mend it after a test."""

    api: Api
    kubeconfig: Path
    repairs: list[Callable[[], object]] = field(default_factory=list)

    def make(self, body: Body, status: Body | None = None) -> Body:
        """A new object, gone again after the test."""
        path = _collection(body)
        made = self.api.request("POST", path, body)
        name = made["metadata"]["name"]
        self.repairs.append(lambda: self._gone(f"{path}/{name}"))
        if status is not None:
            made = self.status(f"{path}/{name}", status)
        return made

    def change(self, path: str, patch: Body, subresource: str = "") -> None:
        """A merge patch, put back after the test."""
        before = self.api.request("GET", path)
        self.repairs.append(lambda: self._put(path, before, subresource))
        self._patch(path + (f"/{subresource}" if subresource else ""), patch)

    def remove(self, path: str) -> None:
        """An object is deleted, and made again after the test."""
        before = self.api.request("GET", path)
        self.api.request("DELETE", path)
        self.repairs.append(lambda: self._again(path, before))

    def status(self, path: str, status: Body) -> Body:
        """Write a status, as a controller or a kubelet would."""
        return self._patch(f"{path}/status", {"status": status})

    def repair(self) -> None:
        """Undo what was done, the last first."""
        while self.repairs:
            self.repairs.pop()()

    def lease(self, *, age: timedelta = timedelta(0), holder: str = "specfleet-a_0001") -> None:
        """The leader renewed its lease that long ago."""
        renewed = (datetime.now(UTC) - age).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 10}
        self._patch(path_of("Lease", "specfleet", NAMESPACE), {"spec": spec})

    def doctor(self, *options: str, output: str = "json", kubeconfig: Path | None = None) -> Result:
        """Run `specfleet doctor`."""
        arguments = ["doctor", "--kubeconfig", str(kubeconfig or self.kubeconfig), "-o", output, *options]
        ended = CliRunner().invoke(app, arguments, catch_exceptions=False)
        return Result(ended.exit_code, ended.stdout, ended.stderr)

    def _patch(self, path: str, patch: Body) -> Body:
        return self.api.request("PATCH", path, patch, "application/merge-patch+json")

    def _gone(self, path: str) -> None:
        try:
            self.api.request("DELETE", f"{path}?gracePeriodSeconds=0")
        except Refused as refused:
            if refused.status != 404:
                raise

    def _put(self, path: str, before: Body, subresource: str) -> None:
        body = json.loads(json.dumps(before))
        body["metadata"]["resourceVersion"] = self.api.request("GET", path)["metadata"]["resourceVersion"]
        self.api.request("PUT", path + (f"/{subresource}" if subresource else ""), body)

    def _again(self, path: str, before: Body) -> None:
        body = json.loads(json.dumps(before))
        for key in ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"):
            body["metadata"].pop(key, None)
        self.api.request("POST", path.rpartition("/")[0], body)
        if "status" in before:
            self.status(path, before["status"])


def only(bed: Bed, check: str, *options: str) -> Body:
    """The one finding there is, which must be of this check; and the exit status fits it."""
    result = bed.doctor(*options)
    found = result.report["findings"]
    assert [(one["check"], one["found"]) for one in found if one["check"] != check] == []
    assert len(found) == 1, found
    assert result.code == (1 if found[0]["severity"] == "error" else 0)
    assert found[0]["expected"]
    assert found[0]["action"]
    finding: Body = found[0]
    return finding


def path_of(kind: str, name: str, namespace: str = "") -> str:
    """Path of an object."""
    return f"{PLURALS[kind].format(namespace)}/{name}"


ASSISTANT = path_of("SpecDeployment", "assistant", FLEETS)
ROUTER = path_of("Deployment", "assistant-router", FLEETS)
SETTINGS = path_of("ConfigMap", "specfleet-settings", NAMESPACE)
DEPLOYMENT = path_of("Deployment", OPERATOR, NAMESPACE)


def condition(kind: str, status: str, reason: str, message: str = "As it should be.") -> Body:
    """One condition of a SpecDeployment."""
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": "2026-11-29T09:00:00Z",
        "observedGeneration": 1,
    }


def fleet_status(*other: Body) -> Body:
    """The status of a fleet that is well, but for the conditions that are given."""
    changed = {one["type"]: one for one in other}
    return {
        "observedGeneration": 1,
        "endpoint": "http://assistant.serving.svc",
        "conditions": [changed.get(kind) or condition(kind, *said) for kind, *said in _WELL],
    }


def pod(name: str, labels: dict[str, str], image: str = IMAGE, container: str = "operator") -> Body:
    """A pod of the operator or of a fleet."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
        "spec": {
            "automountServiceAccountToken": False,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [
                {
                    "name": container,
                    "image": image,
                    "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
                }
            ],
        },
    }


def pod_status(*, ready: bool, container: str = "operator", **state: Any) -> Body:
    """What a kubelet would say of it."""
    said = "True" if ready else "False"
    return {
        "phase": "Running" if ready else "Pending",
        "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": said}],
        "containerStatuses": [
            {
                "name": container,
                "image": IMAGE,
                "imageID": "",
                "ready": ready,
                "restartCount": 0,
                "state": {"running": {"startedAt": "2026-11-29T09:00:00Z"}} if ready else {},
                **state,
            }
        ],
    }


def rolled_out(replicas: int, ready: int | None = None) -> Body:
    """The status of a Deployment."""
    return {"replicas": replicas, "updatedReplicas": replicas, "readyReplicas": replicas if ready is None else ready}


def endpoints(service: str, namespace: str, *, ready: bool = True) -> Body:
    """An EndpointSlice with one address."""
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": f"{service}-1",
            "namespace": namespace,
            "labels": {"kubernetes.io/service-name": service},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["10.1.2.3"], "conditions": {"ready": ready}}],
    }


def service(name: str, namespace: str, port: int, **labels: str) -> Body:
    """A Service with an address."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": {"selector": {"app": name}, "ports": [{"port": port}]},
    }


def namespace(name: str, **labels: str) -> Body:
    """A Namespace."""
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}


def make_cluster(bed: Bed) -> None:
    """A node with eight GPUs, DNS with stock times, kube-proxy, and two namespaces."""
    bed.make(namespace(FLEETS))
    restricted = namespace(NAMESPACE)
    restricted["metadata"]["labels"] = {"pod-security.kubernetes.io/enforce": "restricted"}
    bed.make(restricted)
    bed.make(
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "gpu-1"}},
        {
            "allocatable": {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "8"},
            "capacity": {"cpu": "64", "memory": "512Gi", "nvidia.com/gpu": "8"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready"}],
            "nodeInfo": {"kubeletVersion": "v1.36.3"},
        },
    )
    bed.make(json.loads(json.dumps(COREFILE)))
    dns = service("kube-dns", "kube-system", 53)
    dns["metadata"]["labels"] = {"k8s-app": "kube-dns"}
    bed.make(dns)
    bed.make(endpoints("kube-dns", "kube-system"))
    proxy = {"config.conf": "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nmode: iptables\n"}
    bed.make(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "kube-proxy", "namespace": "kube-system"},
            "data": proxy,
        }
    )


def install(bed: Bed) -> None:
    """The chart, by Helm, and what its controllers and kubelets would have written."""
    cluster = Cluster(bed.kubeconfig)
    cluster.helm("install", OPERATOR, str(CHART))
    cluster.eventually_established()
    deployment = bed.api.request("GET", path_of("Deployment", OPERATOR, NAMESPACE))
    bed.status(path_of("Deployment", OPERATOR, NAMESPACE), rolled_out(2))
    for name in ("specfleet-a", "specfleet-b"):
        bed.make(pod(name, deployment["spec"]["selector"]["matchLabels"]), pod_status(ready=True))
    bed.make(
        {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "specfleet", "namespace": NAMESPACE},
        }
    )
    bed.lease()


def make_fleet(bed: Bed) -> None:
    """A SpecDeployment that is well, and all that it owns."""
    made = eventually("the kind is served", lambda: bed.make(FLEET, fleet_status()))
    owner = OwnerRef(made["metadata"]["name"], made["metadata"]["uid"])
    deployment = SpecDeployment.parse(made)
    for manifest in render_all(deployment, OperatorSettings.model_construct(), {}, owner):
        bed.make(manifest, rolled_out(manifest["spec"]["replicas"]) if manifest["kind"] == "Deployment" else None)


def _collection(body: Body) -> str:
    return PLURALS[body["kind"]].format(body["metadata"].get("namespace", ""))

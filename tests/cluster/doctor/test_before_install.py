"""`specfleet doctor` on a real API server before anything is installed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.cluster.api import Api
from tests.cluster.chart.client import CRD, NAMESPACE, Cluster
from tests.cluster.doctor.bed import FLEETS, Bed, make_cluster, path_of, pod
from tests.testbed.api import ensure_control_plane

pytestmark = pytest.mark.cluster
ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """A sound cluster without an operator."""
    plane = ensure_control_plane(tmp_path_factory.mktemp("doctor-before") / "state")
    bed = Bed(Api(plane.kubeconfig), plane.kubeconfig)
    make_cluster(bed)
    yield bed
    plane.stop()


@pytest.fixture
def bed(empty: Bed) -> Iterator[Bed]:
    """The sound cluster, to be broken by one test."""
    one = Bed(empty.api, empty.kubeconfig)
    yield one
    one.repair()


def test_a_cluster_that_is_fit_for_it(bed: Bed) -> None:
    result = bed.doctor(output="text")

    assert (result.code, result.out.count("\n")) == (0, 1)
    assert result.out.startswith("All is well: ")


def test_all_accelerators_are_taken(bed: Bed) -> None:
    busy = pod("busy", {}, container="main")
    busy["metadata"]["namespace"] = FLEETS
    busy["spec"]["nodeName"] = "gpu-1"
    amount = {"nvidia.com/gpu": "8"}
    busy["spec"]["containers"][0]["resources"] = {"limits": amount, "requests": amount}
    bed.make(busy)

    finding = bed.doctor().of("accelerators")[0]

    assert finding["found"] == "all 8 nvidia.com/gpu are taken by running pods"
    assert "strategy External" in finding["action"]


def test_a_taint_on_every_node_with_accelerators(bed: Bed) -> None:
    taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
    bed.change(path_of("Node", "gpu-1"), {"spec": {"taints": [taint]}})

    finding = bed.doctor().of("accelerators")[0]

    assert finding["severity"] == "info"
    assert "nvidia.com/gpu:NoSchedule" in finding["found"]


def test_a_restricted_namespace_warns_before_a_fleet_is_made_there(bed: Bed) -> None:
    bed.change(
        path_of("Namespace", FLEETS), {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "restricted"}}}
    )

    found = bed.doctor("-n", FLEETS).of("pod-security")

    assert {one["severity"] for one in found} == {"warning"}
    assert all("engine pods miss: container engine: runAsNonRoot is not true" in one["found"] for one in found)


def test_a_definition_that_an_earlier_release_left(bed: Bed) -> None:
    crd = yaml.safe_load((ROOT / "crds" / "specfleet.dev_specdeployments.yaml").read_text())
    crd["metadata"]["annotations"] = {
        "meta.helm.sh/release-name": "fleet",
        "meta.helm.sh/release-namespace": "platform",
    }
    bed.api.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    bed.repairs.append(lambda: bed.api.request("DELETE", path_of("CustomResourceDefinition", CRD)))

    Cluster(bed.kubeconfig).eventually_established()

    finding = bed.doctor().of("definition")[0]

    assert "by the Helm release platform/fleet" in finding["found"]
    assert "--take-ownership" in finding["action"]


def test_a_release_whose_operator_is_gone(bed: Bed) -> None:
    labels = {"owner": "helm", "name": "specfleet", "status": "deployed", "version": "1"}
    bed.make(
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "type": "helm.sh/release.v1",
            "metadata": {"name": "sh.helm.release.v1.specfleet.v1", "namespace": NAMESPACE, "labels": labels},
        }
    )

    assert "its operator Deployment is not there" in bed.doctor().of("release")[0]["found"]


def as_account(bed: Bed, target: Path, role: str) -> Path:
    """A kubeconfig of a service account that a cluster role is bound to in the whole cluster."""
    name = f"installer-{role}"
    bed.make({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": FLEETS}})
    bed.make(
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": FLEETS}],
        }
    )
    token = bed.api.request(
        "POST",
        path_of("ServiceAccount", f"{name}/token", FLEETS),
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}},
    )["status"]["token"]
    config = yaml.safe_load(bed.kubeconfig.read_text())
    config["users"] = [{**user, "user": {"token": token}} for user in config["users"]]
    target.write_text(json.dumps(config))
    return target


def test_who_may_not_install_is_told_what_to_leave_out(bed: Bed, tmp_path: Path) -> None:
    rules = [
        {"apiGroups": ["", "apps", "policy"], "resources": ["*"], "verbs": ["*"]},
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles", "rolebindings"], "verbs": ["*"]},
    ]
    group = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    bed.make({**group, "kind": "ClusterRole", "metadata": {"name": "team-admin"}, "rules": rules})

    found = bed.doctor(kubeconfig=as_account(bed, tmp_path / "kubeconfig", "team-admin")).of("installer-rights")

    assert {one["severity"] for one in found} == {"error"}
    assert [one["found"].partition(" create ")[2].partition(".")[0] for one in found] == [
        "customresourcedefinitions",
        "clusterroles",
        "validatingadmissionpolicies",
    ]
    told = " ".join(one["action"] for one in found)
    assert all(
        option in told
        for option in ("crds.enabled=false", "watchNamespaces", "rbac.aggregate=false", "podPatch.enabled=false")
    )


def test_a_right_that_cannot_be_granted_by_who_has_it_not(bed: Bed, tmp_path: Path) -> None:
    groups = ["", "apps", "policy", "apiextensions.k8s.io", "admissionregistration.k8s.io", "rbac.authorization.k8s.io"]
    rules = [
        {"apiGroups": groups, "resources": ["*"], "verbs": ["get", "list", "watch", "create", "patch", "delete"]},
    ]
    group = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    bed.make({**group, "kind": "ClusterRole", "metadata": {"name": "nearly"}, "rules": rules})

    found = bed.doctor(kubeconfig=as_account(bed, tmp_path / "kubeconfig", "nearly")).of("installer-rights")

    assert len(found) == 1
    assert "not grant what you may not do yourself: get specdeployments.specfleet.dev" in found[0]["found"]

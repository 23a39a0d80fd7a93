"""What is wrong with what is installed and with the operator, found by `specfleet doctor`."""

from __future__ import annotations

import base64
import json
import re
from datetime import timedelta
from typing import Any

import pytest

from tests.cluster.chart.client import CRD, NAMESPACE
from tests.cluster.doctor.bed import (
    DEPLOYMENT,
    FLEETS,
    IMAGE,
    OPERATOR,
    SETTINGS,
    Bed,
    only,
    path_of,
    pod,
    pod_status,
    rolled_out,
)

pytestmark = pytest.mark.cluster


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

"""What is wrong with fleets, found by `specfleet doctor`."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
import yaml

from specfleet.doctor.checks import fleets
from tests.cluster.api import Body
from tests.cluster.doctor.bed import (
    ASSISTANT,
    FLEETS,
    ROUTER,
    SETTINGS,
    Bed,
    condition,
    fleet_status,
    namespace,
    only,
    path_of,
    pod,
    pod_status,
    rolled_out,
)

pytestmark = pytest.mark.cluster


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

"""The operator's one verb on running pods reaches router pods and one annotation, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.cluster.chart.client import OPERATOR, Cluster
from tests.cluster.chart.pods import ANNOTATION, patch

pytestmark = pytest.mark.cluster


def test_the_operator_may_set_the_one_annotation_of_a_router_pod(installed: Cluster) -> None:
    installed.must(*patch("router", {"metadata": {"annotations": {ANNOTATION: "0a1b2c"}}}))

    annotations = json.loads(installed.must("get", "pod", "router", "--namespace", "serving", "-o", "json"))["metadata"]
    assert annotations["annotations"] == {"example.com/kept": "yes", ANNOTATION: "0a1b2c"}


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("engine", {"metadata": {"annotations": {ANNOTATION: "v2"}}}, "router pods only"),
    ("foreign", {"metadata": {"annotations": {ANNOTATION: "v2"}}}, "router pods only"),
    ("router", {"metadata": {"annotations": {"example.com/new": "x"}}}, "specfleet.dev/routes-version only"),
    (
        "router",
        {"metadata": {"annotations": {"example.com/kept": "no"}}},
        "specfleet.dev/routes-version only",
    ),
    (
        "router",
        {"metadata": {"annotations": {"example.com/kept": None}}},
        "specfleet.dev/routes-version only",
    ),
    ("router", {"metadata": {"annotations": {ANNOTATION: "two words"}}}, "at most 64 letters"),
    ("router", {"metadata": {"annotations": {ANNOTATION: "x" * 65}}}, "at most 64 letters"),
    ("router", {"metadata": {"labels": {"specfleet.dev/deployment": "other"}}}, "labels, finalizers or owners"),
    ("router", {"metadata": {"labels": {"new": "label"}}}, "labels, finalizers or owners"),
    ("router", {"metadata": {"finalizers": ["example.com/hang"]}}, "labels, finalizers or owners"),
    ("router", {"spec": {"activeDeadlineSeconds": 1}}, "a router pod's spec"),
]


@pytest.mark.parametrize(("name", "change", "message"), REFUSED)
def test_the_operator_may_change_nothing_else_of_a_pod(
    installed: Cluster, name: str, change: dict[str, Any], message: str
) -> None:
    before = installed.must("get", "pod", name, "--namespace", "serving", "-o", "jsonpath={.metadata.resourceVersion}")

    ended = installed.kubectl(*patch(name, change))

    after = installed.must("get", "pod", name, "--namespace", "serving", "-o", "jsonpath={.metadata.resourceVersion}")
    assert ended.returncode != 0
    assert message in ended.stderr
    assert after == before


def test_an_image_cannot_be_swapped_either(installed: Cluster) -> None:
    containers = [{"name": "main", "image": "example/other"}]
    change = json.dumps({"spec": {"containers": containers}})

    ended = installed.kubectl(
        *("patch", "pod", "router", "--namespace", "serving", "--as", OPERATOR, "--patch", change, "--type=strategic")
    )

    assert ended.returncode != 0
    assert "a router pod's spec" in ended.stderr


def test_the_policy_binds_the_operator_only(installed: Cluster) -> None:
    installed.must("annotate", "pod", "engine", "--namespace", "serving", "example.com/by=admin")


def test_the_api_server_finds_no_fault_in_the_policys_expressions(installed: Cluster) -> None:
    name = "specfleet-system-specfleet-pod-patch"
    installed.eventually("get", "validatingadmissionpolicy", name, "-o", "yaml", contains="typeChecking")

    policy = json.loads(installed.must("get", "validatingadmissionpolicy", name, "-o", "json"))

    assert policy["status"]["typeChecking"] == {}

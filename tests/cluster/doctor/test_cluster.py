"""What is wrong with the cluster, found by `specfleet doctor`."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.api import Body
from tests.cluster.doctor.bed import (
    FLEETS,
    Bed,
    namespace,
    only,
    path_of,
)

pytestmark = pytest.mark.cluster


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

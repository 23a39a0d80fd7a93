"""Claims that pods on several nodes are to share: refused, warned about, or left alone."""

from __future__ import annotations

from typing import Any

import pytest

from specfleet.api.findings import Severity
from specfleet.render.claims import ClaimModes, claim_findings
from tests.unit.handlers.samples import owner, spec_of

HOSTNAME = "kubernetes.io/hostname"
RWX, RWO, RWOP, ROX = ("ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod", "ReadOnlyMany")


def claim(*modes: str, provisioner: str = "ebs.csi.aws.com") -> ClaimModes:
    notes = {"volume.kubernetes.io/storage-provisioner": provisioner}
    return ClaimModes.of({"metadata": {"annotations": notes}, "spec": {"accessModes": list(modes)}})


def found(known: dict[str, ClaimModes], *, running: bool = False, **pod: Any) -> list[tuple[Severity, str, str]]:
    spec = spec_of(
        owner(
            target={"model": "/models/a", "source": {"persistentVolumeClaim": {"claimName": "weights"}}},
            pools={
                "replicas": 3,
                "storage": {"cache": {"persistentVolumeClaim": "cache"}},
                "template": {"spec": pod} if pod else {},
            },
        )
    )
    return [(one.severity, one.path, one.message) for one in claim_findings(spec, known, running=running)]


def test_claims_that_can_be_shared_and_those_that_nobody_knows_are_no_finding() -> None:
    assert found({"cache": claim(RWX), "weights": claim(RWO, ROX)}) == []
    assert found({}) == []


def test_a_claim_for_one_node_is_refused_with_the_alternatives() -> None:
    ((severity, path, message), (_, other, _)) = found({"cache": claim(RWO), "weights": claim(RWO)})
    assert severity is Severity.ERROR
    assert path == "spec.pools.storage.cache.persistentVolumeClaim"
    assert other == "spec.target.source.persistentVolumeClaim.claimName"
    assert message == (
        "the claim cache is ReadWriteOnce, and 3 pods that share it may be put on several nodes: name a claim with "
        "accessModes [ReadWriteMany], leave the cache out, so that each pod downloads the model, or keep all pods on "
        "one node with pools.template.spec.nodeSelector {kubernetes.io/hostname: NODE}"
    )


def test_where_pods_run_already_it_is_a_warning() -> None:
    ((severity, _, _),) = found({"cache": claim(RWO)}, running=True)
    assert severity is Severity.WARNING


@pytest.mark.parametrize(
    "pod",
    [
        {"nodeSelector": {HOSTNAME: "a"}},
        {"nodeName": "a"},
        {
            "affinity": {
                "nodeAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": {
                        "nodeSelectorTerms": [
                            {"matchExpressions": [{"key": HOSTNAME, "operator": "In", "values": ["a"]}]}
                        ]
                    }
                }
            }
        },
    ],
    ids=["selector", "name", "affinity"],
)
def test_pods_that_are_kept_on_one_node_can_share_it(pod: dict[str, Any]) -> None:
    assert found({"cache": claim(RWO)}, **pod) == []


@pytest.mark.parametrize(
    "pod",
    [{"nodeSelector": {"zone": "a"}}, {"affinity": {"nodeAffinity": "?"}}, {"affinity": None}, {"nodeSelector": []}],
)
def test_other_constraints_keep_them_on_no_one_node(pod: dict[str, Any]) -> None:
    assert found({"cache": claim(RWO)}, **pod) != []


def test_a_directory_of_one_node_brings_all_pods_there() -> None:
    assert found({"cache": claim(RWO, provisioner="rancher.io/local-path")}) == []


def test_a_claim_for_one_pod_is_refused_on_one_node_too_and_where_pods_run() -> None:
    ((severity, _, message),) = found({"cache": claim(RWOP)}, running=True, nodeName="a")
    assert severity is Severity.ERROR
    assert "is ReadWriteOncePod, and 3 pods are to share it" in message


def test_a_cache_has_to_be_writable_and_weights_have_not() -> None:
    ((severity, path, message),) = found({"cache": claim(ROX), "weights": claim(ROX)})
    assert (severity, path) == (Severity.ERROR, "spec.pools.storage.cache.persistentVolumeClaim")
    assert "can only be read, and engines write to their cache" in message

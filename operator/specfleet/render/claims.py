"""Volume claims that the engine pods of a SpecDeployment share, and whether pods on several nodes can. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from specfleet.api.findings import Finding, FindingReason, error, warning
from specfleet.api.v1alpha1 import SpecDeploymentSpec

HOSTNAME = "kubernetes.io/hostname"
_SHARED = frozenset({"ReadWriteMany", "ReadOnlyMany"})
_WRITTEN = frozenset({"ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"})
# Provisioners whose volumes are directories of one node: the scheduler brings all pods to it.
_NODE_LOCAL = ("local-path", "hostpath", "topolvm", "openebs.io/local", "no-provisioner")


@dataclass(frozen=True)
class ClaimUse:
    """A claim, the field that names it, and the pods that share it. `written`: they write to it."""

    name: str
    path: str
    pods: int
    written: bool


@dataclass(frozen=True)
class ClaimModes:
    """What a claim offers: its access modes, and whether its volume is a directory of one node."""

    modes: frozenset[str]
    node_local: bool = False

    @classmethod
    def of(cls, body: Mapping[str, Any]) -> ClaimModes:
        """From a live PersistentVolumeClaim."""
        notes = body["metadata"].get("annotations") or {}
        provisioner = str(notes.get("volume.kubernetes.io/storage-provisioner") or "")
        modes = (body.get("spec") or {}).get("accessModes") or ()
        return cls(frozenset(str(mode) for mode in modes), any(part in provisioner for part in _NODE_LOCAL))

    @property
    def one_node(self) -> bool:
        """Whether only pods of one node can have it at a time."""
        return not self.modes & _SHARED


def claims_of(spec: SpecDeploymentSpec) -> list[ClaimUse]:
    """The claims that the pools' pods mount; none with External pools."""
    if spec.external is not None:
        return []
    found: list[ClaimUse] = []
    cache = spec.pools.storage.cache
    if cache is not None:
        path = "spec.pools.storage.cache.persistentVolumeClaim"
        found.append(ClaimUse(cache.persistent_volume_claim, path, spec.pools.size, written=True))
    sources = (
        ("spec.target.source", spec.rendered_target.source, spec.pools.size),
        ("spec.drafts[0].source", spec.draft.source, spec.pools.speculative_replicas),
    )
    for path, source, pods in sources:
        if source is not None and source.persistent_volume_claim is not None:
            name = source.persistent_volume_claim.claim_name
            found.append(ClaimUse(name, f"{path}.persistentVolumeClaim.claimName", pods, written=False))
    return found


def claim_findings(spec: SpecDeploymentSpec, known: Mapping[str, ClaimModes], *, running: bool) -> Iterator[Finding]:
    """What is wrong with the claims, as far as they are `known`, by name.

    Where pods are `running` already, a claim for one node is only warned about: it may be that all are on one.
    """
    for use in claims_of(spec):
        claim = known.get(use.name)
        if claim is None:
            continue
        if use.written and not claim.modes & _WRITTEN:
            yield _finding(use, "can only be read, and engines write to their cache", refused=True)
        elif use.pods > 1 and claim.modes == {"ReadWriteOncePod"}:
            yield _finding(use, f"is ReadWriteOncePod, and {use.pods} pods are to share it", refused=True)
        elif use.pods > 1 and claim.one_node and not claim.node_local and not on_one_node(spec):
            text = f"is ReadWriteOnce, and {use.pods} pods that share it may be put on several nodes"
            yield _finding(use, text, refused=not running)


def alternatives(use: ClaimUse) -> str:
    """What to take instead of a claim for one node."""
    other = (
        "leave the cache out, so that each pod downloads the model"
        if use.written
        else "take source.image or source.hostPath"
    )
    return (
        f"name a claim with accessModes [ReadWriteMany], {other}, or keep all pods on one node with "
        f"pools.template.spec.nodeSelector {{{HOSTNAME}: NODE}}"
    )


def on_one_node(spec: SpecDeploymentSpec) -> bool:
    """Whether pools.template lets pods run on one node only."""
    pod = spec.pools.template.get("spec")
    if not isinstance(pod, dict):
        return False
    selector = pod.get("nodeSelector")
    if pod.get("nodeName") or (isinstance(selector, dict) and selector.get(HOSTNAME)):
        return True
    return _requires_one_node(pod.get("affinity"))


def _requires_one_node(affinity: Any) -> bool:
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    try:
        terms = affinity["nodeAffinity"][required]["nodeSelectorTerms"]
        return len(terms) == 1 and any(
            (one["key"], one["operator"], len(one["values"])) == (HOSTNAME, "In", 1)
            for one in terms[0]["matchExpressions"]
        )
    except (KeyError, TypeError, IndexError):
        return False


def _finding(use: ClaimUse, text: str, *, refused: bool) -> Finding:
    message = f"the claim {use.name} {text}: {alternatives(use)}"
    return (error if refused else warning)(FindingReason.CLAIM_NOT_SHARED, use.path, message)

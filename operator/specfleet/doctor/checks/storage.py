"""Volume claims that fleets name: are they there, bound, and fit for pods on several nodes?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from specfleet.doctor.facts import CannotTell, Facts, Get, Manifest
from specfleet.doctor.findings import Item, NotChecked, Seen, error, info, warning
from specfleet.doctor.installed import fleets, key

_CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
_DEFAULT = "storageclass.kubernetes.io/is-default-class"
# Provisioners of block devices: a volume of theirs is attached to one node at a time.
_ONE_NODE = ("ebs", "pd.csi", "disk.csi", "gce-pd", "azure-disk", "cinder", "local-path", "hostpath", "no-provisioner")


@dataclass(frozen=True)
class Claim:
    """A claim as a fleet uses it. `written`: its pods write to it."""

    namespace: str
    name: str
    field: str
    written: bool
    fleet: str
    pods: int

    @property
    def path(self) -> str:
        """Of the claim in the API."""
        return f"/api/v1/namespaces/{self.namespace}/persistentvolumeclaims/{self.name}"

    @property
    def about(self) -> str:
        """For findings."""
        return f"PersistentVolumeClaim {self.namespace}/{self.name}"


def check(facts: Facts) -> Iterator[Item]:
    """Claims of the fleets; before the first fleet, what the cluster's storage classes are good for."""
    specs = fleets(facts)
    claims = [claim for one in specs for claim in _claims(one)]
    if not specs:
        yield from _classes(facts)
        return
    facts.prepare(*(Get(claim.path) for claim in claims))
    for claim in claims:
        try:
            problems = list(_claim(facts, claim))
        except CannotTell as why:
            problems = [NotChecked(str(why))]
        yield from problems or [Seen(f"{claim.about} fits fleet {claim.fleet}")]
    if not claims:
        yield Seen("no fleet names a volume claim")


def _claim(facts: Facts, claim: Claim) -> Iterator[Item]:
    body = facts.get(claim.path)
    if body is None:
        yield error(
            claim.about,
            f"{claim.field} of SpecDeployment {claim.namespace}/{claim.fleet} names a claim that does not exist",
            "that claim: without it no engine pod starts",
            f"make it, with accessModes [ReadWriteMany], or write another name in {claim.field}",
        )
        return
    modes = set(body["spec"].get("accessModes") or ())
    yield from _modes(claim, modes)
    if (body.get("status") or {}).get("phase") in (None, "Pending"):
        yield from _pending(facts, claim, body)


def _modes(claim: Claim, modes: set[str]) -> Iterator[Item]:
    shared = f"{claim.pods} engine pods of SpecDeployment {claim.fleet} share it"
    if claim.written and not modes & {"ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"}:
        yield error(claim.about, "the claim can only be read, and engines write to their cache",
                    "ReadWriteMany", f"name a claim that can be written in {claim.field}")  # fmt: skip
    elif claim.pods > 1 and modes == {"ReadWriteOncePod"}:
        yield error(claim.about, f"the claim is ReadWriteOncePod, and {shared}", "ReadWriteMany: only one pod starts",
                    "make a claim with accessModes [ReadWriteMany] and name it")  # fmt: skip
    elif claim.pods > 1 and not modes & {"ReadWriteMany", "ReadOnlyMany"}:
        yield warning(
            claim.about,
            f"the claim is ReadWriteOnce, and {shared}",
            "ReadWriteMany, or all of them on one node: on another one a pod waits for the volume for ever",
            "make a claim with accessModes [ReadWriteMany] of a shared file system and name it, or bind the fleet to "
            "one node in pools.template",
        )


def _pending(facts: Facts, claim: Claim, body: Manifest) -> Iterator[Item]:
    name = body["spec"].get("storageClassName")
    known = {str(one["metadata"]["name"]): one for one in facts.listed(_CLASSES)}
    if name and name not in known:
        yield error(
            claim.about,
            f"the claim is not bound, and its storage class {name} does not exist",
            f"a storage class that exists: {', '.join(sorted(known)) or 'there is none'}",
            "make the claim anew with such a class",
        )
        return
    if name and known[name].get("volumeBindingMode") == "WaitForFirstConsumer":
        return
    yield warning(
        claim.about,
        "the claim is not bound to a volume",
        "phase Bound: engine pods wait for it",
        f"kubectl describe pvc {claim.name} -n {claim.namespace} says what it waits for",
    )


def _classes(facts: Facts) -> Iterator[Item]:
    classes = facts.listed(_CLASSES)
    shown = ", ".join(sorted(f"{one['metadata']['name']} ({one.get('provisioner')})" for one in classes)) or "none"
    if classes and all(_one_node(one) for one in classes):
        yield info(
            "",
            f"no storage class is known to give volumes that several nodes share: {shown}",
            "ReadWriteMany for pools.storage.cache where a fleet's pods are on several nodes",
            "leave pools.storage.cache out (each pod downloads the model), or add a shared file system",
        )
        return
    marked = [one["metadata"]["name"] for one in classes if _annotation(one, _DEFAULT) == "true"]
    yield Seen(f"storage classes: {shown}; default: {', '.join(marked) or 'none'}")


def _one_node(one: Manifest) -> bool:
    return any(part in str(one.get("provisioner")) for part in _ONE_NODE)


def _annotation(one: Manifest, name: str) -> str:
    return str((one["metadata"].get("annotations") or {}).get(name) or "")


def _claims(fleet: Manifest) -> Iterator[Claim]:
    namespace, name = key(fleet)
    spec: dict[str, Any] = fleet.get("spec") or {}
    pools = spec.get("pools") or {}
    pods = int(pools.get("replicas") or 0)
    cache = ((pools.get("storage") or {}).get("cache") or {}).get("persistentVolumeClaim")
    if cache:
        yield Claim(namespace, str(cache), "pools.storage.cache.persistentVolumeClaim", True, name, pods)
    source = ((spec.get("target") or {}).get("source") or {}).get("persistentVolumeClaim") or {}
    if source.get("claimName"):
        field = "target.source.persistentVolumeClaim.claimName"
        yield Claim(namespace, str(source["claimName"]), field, False, name, pods)

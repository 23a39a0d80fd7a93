"""What has to be written, and nothing else: from rendered objects and what was observed to named actions. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from specfleet.cluster.applied import ANNOTATION_APPLIED, differences, stamped, unpacked
from specfleet.cluster.kinds import CONFIG_MAP, DEPLOYMENT, JOB, OWNED, Kind, kind_of
from specfleet.handlers.observed import OwnedRecord

Manifest = dict[str, Any]
ObjectId = tuple[Kind, str]
_WITH_TEMPLATE = (DEPLOYMENT, CONFIG_MAP)  # of a pool: its pods, and files that they mount
Verified = Mapping[ObjectId, tuple[str, str]]  # digest applied and live hash that were found to agree


@dataclass(frozen=True)
class Apply:
    """Write one object.

    Attributes:
        why: it does not exist as far as known, the manifest is new, or somebody edited a field of ours (`fields`).
        uid: of the live object, so that no other one of that name is written.
    """

    kind: Kind
    manifest: Manifest
    why: Literal["Create", "Change", "Drift"]
    uid: str | None = None
    fields: tuple[str, ...] = ()

    @property
    def id(self) -> ObjectId:
        """Kind and name."""
        return self.kind, str(self.manifest["metadata"]["name"])


@dataclass(frozen=True)
class Scale:
    """Another number of replicas for a Deployment that keeps everything else for now."""

    kind: Kind
    name: str
    uid: str
    replicas: int


@dataclass(frozen=True)
class Delete:
    """Remove an object that this SpecDeployment owns and no longer wants."""

    kind: Kind
    name: str
    uid: str


@dataclass(frozen=True)
class Taken:
    """An object of that name exists and is another's: it is left alone."""

    kind: Kind
    name: str

    def __str__(self) -> str:
        return f"{self.kind.kind} {self.name}"


@dataclass(frozen=True)
class Plan:
    """All actions of one pass. `wanted`: all objects that are to exist. `agree`: those found so, and their hashes."""

    applies: tuple[Apply, ...] = ()
    scales: tuple[Scale, ...] = ()
    deletes: tuple[Delete, ...] = ()
    taken: tuple[Taken, ...] = ()
    agree: tuple[tuple[OwnedRecord, str], ...] = ()
    wanted: frozenset[ObjectId] = frozenset()

    @property
    def workloads_pending(self) -> bool:
        """Whether a Deployment is to be created or changed."""
        return any(apply.kind == DEPLOYMENT and apply.why != "Drift" for apply in self.applies)


def owner_reference(body: Mapping[str, Any]) -> Manifest:
    """The controller reference that owned objects carry."""
    meta = body["metadata"]
    return {
        "apiVersion": body["apiVersion"],
        "kind": body["kind"],
        "name": meta["name"],
        "uid": meta["uid"],
        "controller": True,
    }


def owned_manifest(manifest: Mapping[str, Any], owner: Mapping[str, Any]) -> Manifest:
    """A rendered object as it is applied: in the owner's namespace, with owner reference and digest."""
    meta = {
        **manifest["metadata"],
        "namespace": owner["metadata"]["namespace"],
        "ownerReferences": [owner_reference(owner)],
    }
    return stamped({**manifest, "metadata": meta})


def plan(
    owner: Mapping[str, Any],
    wanted: Iterable[Mapping[str, Any]],
    observed: Mapping[ObjectId, OwnedRecord],
    verified: Verified,
    kept: frozenset[ObjectId] = frozenset(),
    waiting: Mapping[str, int] = MappingProxyType({}),
) -> Plan:
    """Compare what is wanted with what was observed.

    Args:
        owner: the SpecDeployment's body.
        wanted: rendered objects, without owner references.
        verified: pairs of hashes that were compared before.
        kept: objects that stay as they are if they exist, whatever is wanted.
        waiting: pools that keep their pods' template for now, and how many replicas they are to have.
    """
    owner_uid = owner["metadata"]["uid"]
    applies: list[Apply] = []
    taken: list[Taken] = []
    agree: list[tuple[OwnedRecord, str]] = []
    names: set[ObjectId] = set()
    scales: list[Scale] = []

    def keep(record: OwnedRecord) -> None:
        if record.template is not None or record.kind != DEPLOYMENT:
            agree.append((record, record.applied or ""))  # else its body has still to be compared with
        replicas = waiting.get(record.pool or "")
        if record.workload is not None and replicas is not None and record.workload.desired != replicas:
            scales.append(Scale(record.kind, record.name, record.uid, replicas))

    for rendered in wanted:
        kind = kind_of(dict(rendered))
        manifest = owned_manifest(rendered, owner)
        name = str(manifest["metadata"]["name"])
        names.add((kind, name))
        record = observed.get((kind, name))
        if record is None:
            applies.append(Apply(kind, manifest, "Create"))
        elif record.owner_uid != owner_uid:
            taken.append(Taken(kind, name))
        elif kind == JOB:
            # The API server takes no change of a Job's template, and what it is for does not change with it.
            agree.append((record, record.applied or ""))
        elif kind in _WITH_TEMPLATE and record.pool in waiting:
            keep(record)
        elif not record.deleting:
            action = _compared(kind, manifest, record, verified.get((kind, name)))
            if action is not None:
                applies.append(action)
            else:
                agree.append((record, manifest["metadata"]["annotations"][ANNOTATION_APPLIED]))
    for id_ in kept & observed.keys():
        if observed[id_].owner_uid == owner_uid:
            names.add(id_)
            keep(observed[id_])
    deletes = [
        Delete(record.kind, record.name, record.uid)
        for key, record in sorted(observed.items(), key=lambda item: (item[1].kind.kind, item[1].name))
        if key not in names and record.owner_uid == owner_uid and not record.deleting and record.kind in OWNED
    ]
    applies.sort(key=lambda action: OWNED.index(action.kind))
    return Plan(tuple(applies), tuple(scales), tuple(deletes), tuple(taken), tuple(agree), frozenset(names))


def _compared(kind: Kind, manifest: Manifest, record: OwnedRecord, known: tuple[str, str] | None) -> Apply | None:
    wanted = manifest["metadata"]["annotations"][ANNOTATION_APPLIED]
    if record.applied is not None and record.applied != wanted:
        return Apply(kind, manifest, "Change", record.uid)
    if known == (wanted, record.live):
        return None
    if record.body is None:
        # The body was compared before and has been dropped; only a write tells whether a field of ours differs.
        return Apply(kind, manifest, "Drift", record.uid)
    fields = tuple(differences(manifest, unpacked(record.body)))
    return Apply(kind, manifest, "Drift", record.uid, fields) if fields else None

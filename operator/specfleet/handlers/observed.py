"""What the watches have seen, in few bytes: the SpecDeployments, the objects they own, and their pods.

Filled by the watch handlers, read by the reconcile. Of an owned object only identity and hashes are kept; its body
stays, packed, until it has been compared once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from specfleet.api.by_hand import ANNOTATION_BY_HAND
from specfleet.api.names import ANNOTATION_RUNS, ANNOTATION_START, ANNOTATION_TEMPLATE, LABEL_DEPLOYMENT, LABEL_POOL
from specfleet.cluster.applied import ANNOTATION_APPLIED, digest, packed, projection
from specfleet.cluster.kinds import DEPLOYMENT, JOB, POD, SPEC_DEPLOYMENT, Kind
from specfleet.handlers.pods import PodRecord, Problem, failed_create, pod_record

TOMBSTONES = 4096
Key = tuple[str, str]  # namespace and name of a SpecDeployment
Body = dict[str, Any]


@dataclass(frozen=True)
class Workload:
    """The rollout of a Deployment. `rolling`: some pods carry an older template. `problem`: what hinders new pods."""

    desired: int
    updated: int
    ready: int
    rolling: bool
    settled: bool
    available: bool
    overdue: bool
    problem: Problem | None


@dataclass(frozen=True)
class OwnedRecord:
    """One object that carries the label of a SpecDeployment. `live` is the hash of its projection.

    Of a Job, `created` is when, RFC 3339, and `ended` is `Complete` or the reason of its failure. Of a pool's objects,
    `pool` is its name; of its Deployment, `template` is the hash of the pod template that was applied, and `runs` what
    its pods are made from, as JSON; `start_seconds` is what they get to start, 0 for the engine's usual time.
    """

    kind: Kind
    name: str
    uid: str
    resource_version: str
    owner_uid: str | None
    applied: str | None
    live: str
    body: bytes | None
    deleting: bool
    workload: Workload | None
    created: str | None = None
    ended: str | None = None
    pool: str | None = None
    template: str | None = None
    runs: str | None = None
    start_seconds: int = 0


def newer(one: str, other: str) -> bool:
    """Whether resourceVersion `one` is later than `other`; they compare as numbers from Kubernetes 1.35 on."""
    if one.isdigit() and other.isdigit():
        return int(one) > int(other)
    return one != other


def controller_uid(meta: Mapping[str, Any]) -> str | None:
    """uid of the controller in the owner references."""
    for reference in meta.get("ownerReferences") or ():
        if reference.get("controller"):
            return str(reference.get("uid"))
    return None


def owned_record(kind: Kind, body: Mapping[str, Any]) -> OwnedRecord:
    """The record of a live object."""
    meta = body["metadata"]
    annotations = meta.get("annotations") or {}
    seen = projection(body)
    return OwnedRecord(
        kind=kind,
        name=str(meta["name"]),
        uid=str(meta["uid"]),
        resource_version=str(meta["resourceVersion"]),
        owner_uid=controller_uid(meta),
        applied=annotations.get(ANNOTATION_APPLIED),
        live=digest(seen),
        body=packed(seen),
        deleting=meta.get("deletionTimestamp") is not None,
        workload=_workload(body) if kind == DEPLOYMENT else None,
        created=str(meta.get("creationTimestamp") or "") if kind == JOB else None,
        ended=_ended(body) if kind == JOB else None,
        pool=(meta.get("labels") or {}).get(LABEL_POOL),
        template=annotations.get(ANNOTATION_TEMPLATE),
        runs=annotations.get(ANNOTATION_RUNS),
        start_seconds=_count(annotations.get(ANNOTATION_START)),
    )


def _count(text: str | None) -> int:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 9 else 0


def _ended(body: Mapping[str, Any]) -> str | None:
    for condition in (body.get("status") or {}).get("conditions") or ():
        if condition.get("status") == "True" and condition.get("type") in ("Complete", "Failed"):
            return "Complete" if condition["type"] == "Complete" else str(condition.get("reason") or "Failed")
    return None


def _workload(body: Mapping[str, Any]) -> Workload:
    spec, status = body.get("spec") or {}, body.get("status") or {}
    conditions = {c.get("type"): c for c in status.get("conditions") or ()}
    desired = int(spec["replicas"] if spec.get("replicas") is not None else 1)
    updated = int(status.get("updatedReplicas") or 0)
    observed = status.get("observedGeneration") == body["metadata"].get("generation")
    failure, progress = conditions.get("ReplicaFailure") or {}, conditions.get("Progressing") or {}
    problem = failed_create(str(failure.get("message") or "")) if failure.get("status") == "True" else None
    return Workload(
        desired=desired,
        updated=updated,
        ready=int(status.get("readyReplicas") or 0),
        rolling=not observed or int(status.get("replicas") or 0) != updated,
        settled=observed and updated == desired and int(status.get("replicas") or 0) == desired,
        available=observed and (conditions.get("Available") or {}).get("status") == "True",
        overdue=progress.get("status") == "False" and progress.get("reason") == "ProgressDeadlineExceeded",
        problem=problem,
    )


class Observed:
    """The store. The `put` methods answer whether a reconcile could care, and ignore what is older than known."""

    def __init__(self) -> None:
        self._deployments: dict[Key, Body] = {}
        self._owned: dict[Key, dict[tuple[Kind, str], OwnedRecord]] = {}
        self._pods: dict[Key, dict[str, PodRecord]] = {}
        self._where: dict[str, Key] = {}
        self._gone: dict[str, str] = {}

    def deployments(self) -> list[Key]:
        """All SpecDeployments that exist."""
        return list(self._deployments)

    def deployment(self, key: Key) -> Body | None:
        """The newest body that is known, as watched or as answered to a write."""
        return self._deployments.get(key)

    def owned(self, key: Key) -> dict[tuple[Kind, str], OwnedRecord]:
        """Objects that carry the SpecDeployment's label, whoever controls them."""
        return self._owned.get(key) or {}

    def pods(self, key: Key) -> list[PodRecord]:
        """Pods that carry the SpecDeployment's label."""
        return list((self._pods.get(key) or {}).values())

    def put_deployment(self, body: Body) -> Key | None:
        """A SpecDeployment was seen or written. Its key if spec or metadata may be new, or its status is not known."""
        meta = body["metadata"]
        key = (str(meta["namespace"]), str(meta["name"]))
        known = self._deployments.get(key)
        if known is not None and known["metadata"]["uid"] == meta["uid"]:
            if not newer(str(meta["resourceVersion"]), str(known["metadata"]["resourceVersion"])):
                return None
            if _deployment_essence(known) == _deployment_essence(body):
                self._deployments[key] = body
                return None
        self._deployments[key] = body
        return key

    def put_owned(self, kind: Kind, body: Mapping[str, Any]) -> Key | None:
        """An owned object was seen or written. One that has lost its label is as good as gone, and is looked for."""
        key = _label_key(body)
        if key is None:
            return self.remove(kind, body)
        record = owned_record(kind, body)
        if self._outdated(record.uid, record.resource_version):
            return None
        records = self._owned.setdefault(key, {})
        known = records.get((kind, record.name))
        if known is not None and known.uid == record.uid:
            if not newer(record.resource_version, known.resource_version):
                return None
            if known.live == record.live and known.body is None:
                record = replace(record, body=None)
        records[kind, record.name] = record
        self._where[record.uid] = key
        return None if known is not None and _owned_essence(known) == _owned_essence(record) else key

    def put_pod(self, body: Mapping[str, Any]) -> Key | None:
        """A pod was seen."""
        key = _label_key(body)
        if key is None:
            return self.remove(POD, body)
        record = pod_record(body)
        if self._outdated(record.uid, record.resource_version):
            return None
        pods = self._pods.setdefault(key, {})
        known = pods.get(record.name)
        if known is not None and known.uid == record.uid and not newer(record.resource_version, known.resource_version):
            return None
        pods[record.name] = record
        self._where[record.uid] = key
        return None if record.same(known) else key

    def compared(self, key: Key, record: OwnedRecord) -> None:
        """The record's body has been compared and need not be kept."""
        records = self._owned.get(key) or {}
        if records.get((record.kind, record.name)) == record:
            records[record.kind, record.name] = replace(record, body=None)

    def remove(self, kind: Kind, body: Mapping[str, Any]) -> Key | None:
        """An object is gone (or lost the label that it is watched by). The key to look at, if any."""
        meta = body["metadata"]
        if kind == SPEC_DEPLOYMENT:
            key = (str(meta["namespace"]), str(meta["name"]))
            known = self._deployments.get(key)
            if known is None or known["metadata"]["uid"] != meta["uid"]:
                return None
            del self._deployments[key]
            return key
        # An event of deletion may come without the label, so the object is looked for by its uid.
        uid = str(meta["uid"])
        owner = self._where.pop(uid, None)
        if meta.get("resourceVersion"):
            self._gone[uid] = str(meta["resourceVersion"])
            if len(self._gone) > TOMBSTONES:
                del self._gone[next(iter(self._gone))]
        if owner is not None:
            self._drop(kind, owner, str(meta["name"]), uid)
        return owner

    def relisted(self, kind: Kind, alive: Iterable[tuple[str, str, str]]) -> list[Key]:
        """A kind was listed anew; `alive` are namespace, name and uid of all that exist. Drops the rest."""
        exist = set(alive)
        gone = [entry for entry in self._entries(kind) if entry[1:] not in exist]
        for _, namespace, name, uid in gone:
            self.remove(kind, {"metadata": {"namespace": namespace, "name": name, "uid": uid}})
        return [key for key, *_ in gone]

    def _entries(self, kind: Kind) -> list[tuple[Key, str, str, str]]:
        if kind == SPEC_DEPLOYMENT:
            return [(key, *key, str(body["metadata"]["uid"])) for key, body in self._deployments.items()]
        if kind == POD:
            return [(key, key[0], pod.name, pod.uid) for key, pods in self._pods.items() for pod in pods.values()]
        return [
            (key, key[0], record.name, record.uid)
            for key, records in self._owned.items()
            for record in records.values()
            if record.kind == kind
        ]

    def _outdated(self, uid: str, resource_version: str) -> bool:
        """Whether a body is older than the object's end: the answer to a write may come after the event of deletion."""
        return uid in self._gone and not newer(resource_version, self._gone[uid])

    def _drop(self, kind: Kind, key: Key, name: str, uid: str) -> None:
        if kind == POD:
            pods = self._pods.get(key) or {}
            if name in pods and pods[name].uid == uid:
                del pods[name]
            if not pods:
                self._pods.pop(key, None)
            return
        records = self._owned.get(key) or {}
        if (kind, name) in records and records[kind, name].uid == uid:
            del records[kind, name]
        if not records:
            self._owned.pop(key, None)


def _label_key(body: Mapping[str, Any]) -> Key | None:
    meta = body["metadata"]
    name = (meta.get("labels") or {}).get(LABEL_DEPLOYMENT)
    return (str(meta["namespace"]), str(name)) if name else None


def _deployment_essence(body: Body) -> tuple[Any, ...]:
    meta = body["metadata"]
    by_hand = (meta.get("annotations") or {}).get(ANNOTATION_BY_HAND)
    return meta["uid"], meta.get("generation"), meta.get("deletionTimestamp"), by_hand, body.get("status")


def _owned_essence(record: OwnedRecord) -> tuple[Any, ...]:
    return record.uid, record.owner_uid, record.applied, record.live, record.deleting, record.workload, record.ended

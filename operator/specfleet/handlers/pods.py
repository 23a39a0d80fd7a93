"""Pods as the operator remembers them, and what keeps one from serving, in a sentence. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from specfleet.api.conditions import Reason
from specfleet.api.names import ANNOTATION_ROUTES_VERSION, LABEL_POOL, LABEL_PREFLIGHT
from specfleet.api.times import epoch
from specfleet.handlers.masking import last_line, masked

_IMAGE = frozenset({"ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull", "ErrImageInspect"})
_CONFIG = frozenset({"CreateContainerConfigError"})
_START = frozenset({"CreateContainerError", "RunContainerError", "PreCreateHookError", "PostStartHookError"})
_CRASH = "CrashLoopBackOff"
_MOST_LEFT = 4200  # the kubelet keeps 4,096 bytes

# What engines say when they give up, and our words for it. The first that is found wins.
_KNOWN_OUTPUT: tuple[tuple[str, Reason, str], ...] = (
    ("No available memory for the cache blocks", Reason.OUT_OF_MEMORY, "no accelerator memory is left for the KV "
     "cache: lower max-model-len or raise gpu-memory-utilization in engine.args"),
    ("CUDA out of memory", Reason.OUT_OF_MEMORY, "the accelerator's memory does not hold the model: use more "
     "accelerators a pod (target.parallelism) or a smaller model"),
    ("CUDA error: out of memory", Reason.OUT_OF_MEMORY, "the accelerator's memory does not hold the model: use more "
     "accelerators a pod (target.parallelism) or a smaller model"),
    ("GatedRepoError", Reason.ENGINE_CRASHES, "the Hub refuses the model: accept its licence and name a token in "
     "target.source.huggingFace.tokenSecretRef"),
    ("401 Client Error", Reason.ENGINE_CRASHES, "the Hub refuses the model (401): name a valid token in "
     "target.source.huggingFace.tokenSecretRef"),
    ("RepositoryNotFoundError", Reason.ENGINE_CRASHES, "the Hub has no such model, or it needs a token: check "
     "target.model and target.source"),
    ("RevisionNotFoundError", Reason.ENGINE_CRASHES, "the Hub has no such revision: check target.revision"),
    ("LocalEntryNotFoundError", Reason.ENGINE_CRASHES, "the model's files are not there and the Hub cannot be reached: "
     "check target.source and the network"),
    ("unrecognized arguments", Reason.ENGINE_CRASHES, "the engine does not know one of its arguments: check "
     "engine.args, engine.extraArgs and engine.version"),
    ("is not a valid model", Reason.ENGINE_CRASHES, "the engine finds no model of that name: check target.model"),
    ("Failed to infer device type", Reason.ENGINE_CRASHES, "the engine finds no accelerator: check "
     "pools.accelerator.resource"),
    ("No CUDA GPUs are available", Reason.ENGINE_CRASHES, "the engine finds no accelerator: check "
     "pools.accelerator.resource"),
)  # fmt: skip


@dataclass(frozen=True)
class Problem:
    """Why a pod, or the making of pods, does not succeed."""

    reason: Reason
    message: str


@dataclass(frozen=True)
class PodRecord:
    """What matters of one pod.

    `preparing`: it has a node, and its volumes and network are not there yet. `created` is in epoch seconds.
    Of a preflight's pod, `preflight` is the key of what it compares, and `left` what its container left when it ended.
    """

    uid: str
    name: str
    namespace: str
    resource_version: str
    component: str
    pool: str | None
    ip: str | None
    ready: bool
    deleting: bool
    routes_version: str | None
    problem: Problem | None
    preflight: str | None = None
    left: str | None = None
    node: str | None = None
    preparing: bool = False
    created: float | None = None

    def same(self, other: PodRecord | None) -> bool:
        """Whether nothing but the resourceVersion differs."""
        return other is not None and _essence(self) == _essence(other)


def pod_record(body: Mapping[str, Any]) -> PodRecord:
    """The record of a live pod."""
    meta, status = body["metadata"], body.get("status") or {}
    labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    conditions = {c.get("type"): c for c in status.get("conditions") or ()}
    deleting = meta.get("deletionTimestamp") is not None
    ready = not deleting and (conditions.get("Ready") or {}).get("status") == "True"
    return PodRecord(
        uid=str(meta["uid"]),
        name=str(meta["name"]),
        namespace=str(meta["namespace"]),
        resource_version=str(meta.get("resourceVersion") or ""),
        component=str(labels.get("app.kubernetes.io/component") or ""),
        pool=labels.get(LABEL_POOL),
        ip=status.get("podIP") or None,
        ready=ready,
        deleting=deleting,
        routes_version=annotations.get(ANNOTATION_ROUTES_VERSION),
        problem=None if ready or deleting else _problem(status, conditions),
        preflight=labels.get(LABEL_PREFLIGHT),
        left=_left(status) if LABEL_PREFLIGHT in labels else None,
        node=(body.get("spec") or {}).get("nodeName") or None,
        preparing=not deleting and (conditions.get("PodReadyToStartContainers") or {}).get("status") == "False",
        created=_epoch(meta.get("creationTimestamp")),
    )


def _epoch(text: object) -> float | None:
    try:
        return epoch(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _left(status: Mapping[str, Any]) -> str | None:
    """The termination message of the only container, cut where no message can be longer; None while it runs."""
    for container in status.get("containerStatuses") or ():
        ended = (container.get("state") or {}).get("terminated")
        if ended:
            return str(ended.get("message") or "")[:_MOST_LEFT]
    return None


def failed_create(message: str) -> Problem:
    """The problem behind a ReplicaSet that cannot make pods, from the API server's own words."""
    said = masked(message, 240)
    if "exceeded quota" in message:
        return Problem(Reason.QUOTA_EXCEEDED, f"a resource quota keeps pods from being made: {said}")
    return Problem(Reason.ADMISSION_DENIED, f"the API server refuses the pods: {said}")


def worst(problems: Iterable[Problem | None]) -> Problem | None:
    """The problem that says most: one that a person must mend goes before one that may pass."""
    found = [problem for problem in problems if problem is not None]
    return min(found, key=lambda p: _ORDER.get(p.reason, len(_ORDER))) if found else None


_ORDER = {
    reason: rank
    for rank, reason in enumerate(
        (
            Reason.QUOTA_EXCEEDED,
            Reason.ADMISSION_DENIED,
            Reason.IMAGE_NOT_AVAILABLE,
            Reason.CONFIG_NOT_AVAILABLE,
            Reason.VOLUME_NOT_AVAILABLE,
            Reason.OUT_OF_MEMORY,
            Reason.ENGINE_CRASHES,
            Reason.ENGINE_NOT_STARTING,
            Reason.UNSCHEDULABLE,
        )
    )
}


def _essence(record: PodRecord) -> tuple[object, ...]:
    return tuple(value for name, value in vars(record).items() if name != "resource_version")


def _problem(status: Mapping[str, Any], conditions: Mapping[str, Mapping[str, Any]]) -> Problem | None:
    scheduled = conditions.get("PodScheduled") or {}
    if scheduled.get("status") == "False" and scheduled.get("reason") == "Unschedulable":
        said = masked(str(scheduled.get("message") or "no node fits"), 240)
        return Problem(Reason.UNSCHEDULABLE, f"a pod cannot be scheduled: {said}")
    containers = [*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())]
    return worst(_container_problem(container) for container in containers)


def _container_problem(container: Mapping[str, Any]) -> Problem | None:
    waiting = (container.get("state") or {}).get("waiting") or {}
    ended = (container.get("state") or {}).get("terminated") or (container.get("lastState") or {}).get("terminated")
    reason, said = str(waiting.get("reason") or ""), masked(str(waiting.get("message") or ""))
    name = container.get("name")
    if reason in _IMAGE:
        image = masked(str(container.get("image") or ""))
        why = f": {said}" if said else ""
        return Problem(Reason.IMAGE_NOT_AVAILABLE, f"image {image} cannot be pulled ({reason}){why}")
    if reason in _CONFIG:
        return Problem(Reason.CONFIG_NOT_AVAILABLE, f"container {name} cannot be started: {said or reason}")
    if reason in _START:
        return Problem(Reason.ENGINE_NOT_STARTING, f"container {name} cannot be started ({reason}): {said}")
    if ended and (reason == _CRASH or ended.get("exitCode") or ended.get("reason") == "OOMKilled"):
        return _ended(str(name), ended)
    return None


def _ended(name: str, ended: Mapping[str, Any]) -> Problem:
    if ended.get("reason") == "OOMKilled":
        return Problem(
            Reason.OUT_OF_MEMORY,
            f"container {name} was killed for want of memory: raise its memory limit in pools.template",
        )
    output = str(ended.get("message") or "")
    for needle, reason, sentence in _KNOWN_OUTPUT:
        if needle in output:
            return Problem(reason, sentence)
    said = masked(last_line(output))
    tail = f": {said}" if said else "; see kubectl logs --previous"
    return Problem(Reason.ENGINE_CRASHES, f"container {name} ends with exit code {ended.get('exitCode')}{tail}")

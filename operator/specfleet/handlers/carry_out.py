"""Carries a plan out: writes objects, deletes what is no longer wanted, annotates router pods."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from specfleet.api.names import ANNOTATION_ROUTES_VERSION
from specfleet.cluster.applied import ANNOTATION_APPLIED, differences, digest, projection
from specfleet.cluster.client import ApiClient
from specfleet.cluster.errors import ApiError
from specfleet.cluster.kinds import OWNED, POD
from specfleet.handlers.masking import masked
from specfleet.handlers.memory import Memory
from specfleet.handlers.observed import Key, Observed, controller_uid
from specfleet.handlers.plan import Apply, ObjectId, Plan, Scale
from specfleet.handlers.pods import PodRecord
from specfleet.metrics.own import OperatorMetrics

logger = logging.getLogger(__name__)
Body = Mapping[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class Outcome:
    """What a pass has written: how many objects, and which edits of others it put back."""

    written: int
    corrected: tuple[Corrected, ...]


@dataclass(frozen=True)
class Corrected:
    """An edit of somebody else that was put back."""

    what: str
    fields: tuple[str, ...]
    version: str


class Executor:
    """The writing half of a reconcile. One kind after the other, the objects of one kind at once."""

    def __init__(self, client: ApiClient, observed: Observed, metrics: OperatorMetrics) -> None:
        self._client = client
        self._observed = observed
        self._metrics = metrics

    async def carry_out(self, key: Key, owner: Body, plan: Plan, memory: Memory) -> Outcome:
        """Carry `plan` out. What is refused is noted in `memory.refused` and `memory.taken`, and tried again later.

        Raises:
            ClusterError: the API server does not answer, or the lease is lost.
        """
        memory.taken = {(taken.kind, taken.name): 0.0 for taken in plan.taken}
        memory.refused = {}
        for record, wanted in plan.agree:
            memory.verified[record.kind, record.name] = (wanted, record.live)
            self._observed.compared(key, record)
        found = await self._looked_for(key, owner, plan, memory)
        corrected: list[Corrected] = []
        written = 0
        for kind in OWNED:
            # Half a fleet would take accelerators and serve nobody: with a name taken nothing new is made.
            actions = [
                found.get(one.id, one) for one in plan.applies if one.kind == kind and (one.uid or not memory.taken)
            ]
            done = await _all(self._apply(key, one, memory) for one in actions)
            written += sum(ok for ok, _ in done)
            corrected += [one for _, one in done if one is not None]
        await _all(self._scale(key, one, memory) for one in plan.scales)
        if not memory.taken:
            await _all(self._client.delete(one.kind, key[0], one.name, one.uid) for one in plan.deletes)
        return Outcome(written, tuple(corrected))

    async def _looked_for(self, key: Key, owner: Body, plan: Plan, memory: Memory) -> dict[ObjectId, Apply]:
        """What to do about objects that the watches do not show and that exist all the same.

        One of ours has lost a label that it is watched by, and is mended; another's name is taken.
        """
        unseen = [action for action in plan.applies if action.uid is None]
        lives = await _all(self._client.get(one.kind, key[0], one.id[1]) for one in unseen)
        found: dict[ObjectId, Apply] = {}
        for action, live in zip(unseen, lives, strict=True):
            if live is None:
                continue
            if controller_uid(live["metadata"]) == owner["metadata"]["uid"]:
                fields = tuple(differences(action.manifest, live))
                found[action.id] = replace(action, why="Drift", uid=str(live["metadata"]["uid"]), fields=fields)
            else:
                memory.taken[action.id] = time.time()
        return found

    async def _apply(self, key: Key, action: Apply, memory: Memory) -> tuple[bool, Corrected | None]:
        kind, name = action.id
        uid = action.uid
        manifest = action.manifest
        if uid is not None:
            # With the uid in it the server refuses the write if the object was replaced by another of its name.
            manifest = {**manifest, "metadata": {**manifest["metadata"], "uid": uid}}
        # Looked at before the write: the watch may show its result before its answer is here.
        before = self._observed.owned(key).get(action.id)
        try:
            answer = await self._client.apply(kind, manifest, force=uid is not None)
        except ApiError as error:
            self._refused(action, error, memory)
            return False, None
        self._observed.put_owned(kind, answer)
        applied = manifest["metadata"]["annotations"][ANNOTATION_APPLIED]
        live = digest(projection(answer))
        memory.verified[action.id] = (applied, live)
        changed = bool(action.fields) if before is None else before.live != live
        if action.why != "Drift" or not changed:
            return True, None
        self._metrics.drift.labels(kind.kind).inc()
        return True, Corrected(f"{kind.kind} {name}", action.fields, str(answer["metadata"]["resourceVersion"]))

    async def _scale(self, key: Key, action: Scale, memory: Memory) -> None:
        try:
            answer = await self._client.scale(action.kind, key[0], action.name, action.uid, action.replicas)
        except ApiError as error:
            if error.conflict:
                raise
            memory.refused[action.kind, action.name] = f"{action.kind.kind} {action.name}: {masked(error.message, 240)}"
            return
        self._observed.put_owned(action.kind, answer)

    def _refused(self, action: Apply, error: ApiError, memory: Memory) -> None:
        kind, name = action.id
        if error.conflict:
            # Created, replaced or deleted by somebody in this very moment: the next pass looks anew.
            raise error
        memory.refused[action.id] = f"{kind.kind} {name}: {masked(error.message, 240)}"
        logger.warning("%s %s/%s is refused: %s", kind.kind, action.manifest["metadata"]["namespace"], name, error)

    async def annotate(self, pods: Iterable[PodRecord], version: str, memory: Memory) -> None:
        """Tell the kubelets of these router pods to sync their volumes. A refusal is remembered, not raised."""
        await _all(self._annotate(pod, version, memory) for pod in pods)

    async def _annotate(self, pod: PodRecord, version: str, memory: Memory) -> None:
        try:
            answer = await self._client.annotate_pod(pod.namespace, pod.name, ANNOTATION_ROUTES_VERSION, version)
        except ApiError as error:
            if error.status in (403, 422):
                memory.pods_denied = True
            if error.not_found or error.status in (403, 409, 422):
                logger.info("%s %s/%s is not annotated: %s", POD.kind, pod.namespace, pod.name, error)
                return
            raise
        memory.pods_denied = False
        self._observed.put_pod(answer)


async def _all(requests: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """The answers of requests that go at once. Raises the first error, when all have ended: none outlives the pass."""
    answers = await asyncio.gather(*requests, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return [answer for answer in answers if not isinstance(answer, BaseException)]

"""The operator's Deployment, its pods and its settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from specfleet.api.conditions import Reason
from specfleet.doctor.facts import CannotTell, Facts, Manifest
from specfleet.doctor.findings import Item, NotChecked, Seen, error, warning
from specfleet.doctor.installed import CONTAINER, Installed, elsewhere, enumerated, fleets, key, operators, settings_of
from specfleet.handlers.masking import last_line, masked
from specfleet.handlers.pods import failed_create, pod_record

RECENT = timedelta(hours=1)
SENTENCE_LENGTH = 300


def check(facts: Facts) -> Iterator[Item]:
    """Is it there, are its pods ready, and if not, what do they say?"""
    found = operators(facts)
    hidden = elsewhere(facts)
    if hidden is not None:
        yield hidden
    if not found:
        yield from _none(facts)
        return
    for one in found:
        yield from _deployment(facts, one)
    yield from _overlapping(facts, found)


def settings(facts: Facts) -> Iterator[Item]:
    """Would the operator take the settings that it is given?"""
    for one in operators(facts):
        about = f"ConfigMap {one.namespace}/{one.settings_map}"
        given = settings_of(facts, one)
        if given is None:
            yield error(
                about,
                "the settings that the operator mounts are not there",
                "a ConfigMap with the key settings.yaml: without it no new operator pod starts",
                "helm upgrade makes it again",
            )
        elif given.problem is not None:
            yield error(
                about,
                f"settings.yaml cannot be used: {masked(given.problem, SENTENCE_LENGTH)}",
                "settings that the operator knows: with these its next start fails",
                f"mend the values and run helm upgrade, or kubectl edit configmap {one.settings_map} -n "
                f"{one.namespace}; then kubectl rollout restart deployment/{one.name} -n {one.namespace}",
            )
        else:
            yield from _images(one, about, str(given.values.get("operator_image") or ""))


def _images(one: Installed, about: str, named: str) -> Iterator[Item]:
    if named and one.image and named != one.image:
        yield warning(
            about,
            f"operatorImage is {named}, the operator itself runs {one.image}",
            "one image: router pods run their shutdown helper from it",
            f"write operatorImage: {one.image}, then kubectl rollout restart deployment/{one.name} -n {one.namespace}",
        )
        return
    yield Seen(f"the settings of {one.namespace}/{one.name} can be used")


def _none(facts: Facts) -> Iterator[Item]:
    waiting = fleets(facts)
    if not waiting:
        yield Seen("no operator is installed, and there is no SpecDeployment")
        return
    yield error(
        f"SpecDeployment {enumerated('/'.join(key(one)) for one in waiting)}",
        "there are SpecDeployments, and no operator can be seen",
        "an operator: what runs goes on, and nothing is decided or repaired",
        f"helm install specfleet charts/specfleet -n {facts.scope.operator_namespace}",
    )


def _deployment(facts: Facts, one: Installed) -> Iterator[Item]:
    if one.replicas == 0:
        yield error(
            one.about,
            "it is scaled to no replica",
            "two: nothing is decided or repaired",
            f"kubectl scale deployment/{one.name} -n {one.namespace} --replicas=2",
        )
        return
    conditions = {c.get("type"): c for c in (one.body.get("status") or {}).get("conditions") or ()}
    failure = conditions.get("ReplicaFailure") or {}
    if failure.get("status") == "True":
        yield error(
            one.about,
            f"its pods cannot be made: {failed_create(str(failure.get('message') or '')).message}",
            f"{one.replicas} pods",
            f"kubectl describe replicaset -n {one.namespace}",
        )
        return
    pods = facts.listed(one.pods.path, one.pods.labels)
    sick = [problem for pod in pods if (problem := _pod(facts, one, pod)) is not None]
    if one.ready >= one.replicas and not sick:
        yield Seen(f"{one.about} has {one.ready} of {one.replicas} replicas ready")
        return
    said = f"{one.ready} of {one.replicas} replicas are ready"
    what, action = sick[0] if sick else ("its pods do not say why", f"kubectl describe pods -n {one.namespace}")
    kind = warning if one.ready else error
    effect = "" if one.ready else ": nothing is decided or repaired, requests go on"
    yield kind(one.about, f"{said}; {what}", f"{one.replicas} that are ready{effect}", action)


def _pod(facts: Facts, one: Installed, pod: Manifest) -> tuple[str, str] | None:
    """What is wrong with a pod, and what to do; None where nothing is."""
    name = str(pod["metadata"]["name"])
    record = pod_record(pod)
    if record.deleting:
        return None
    container = _container(pod)
    ended = _ended(container)
    problem = record.problem
    if ended is not None and (problem is None or problem.reason is Reason.ENGINE_CRASHES):
        recent = facts.now - _at(ended.get("finishedAt"), facts.now) < RECENT
        if record.ready and not recent:
            return None
        return _crash(facts, one, name, ended, restarts=int(container.get("restartCount") or 0))
    if record.ready:
        return None
    if problem is None:
        return f"pod {name} is not ready yet", (
            f"kubectl logs {name} -n {one.namespace}; a pod that waits for a lease or the definition says so there"
        )
    if problem.reason is Reason.OUT_OF_MEMORY:
        return f"pod {name} was killed for want of memory", "helm upgrade with a higher resources.limits.memory"
    action = f"kubectl describe pod {name} -n {one.namespace}"
    if problem.reason is Reason.IMAGE_NOT_AVAILABLE:
        action = "helm upgrade with an image.repository and image.tag that the nodes can pull, and imagePullSecrets"
    return f"pod {name}: {problem.message}", action


def _crash(facts: Facts, one: Installed, name: str, ended: Mapping[str, Any], restarts: int) -> tuple[str, str]:
    said = last_line(str(ended.get("message") or ""))
    if not said:
        try:
            said = last_line(facts.log(one.namespace, name, CONTAINER, previous=True))
        except CannotTell:
            said = ""
    told = f", and says: {masked(said, SENTENCE_LENGTH)}" if said else ""
    return (
        f"pod {name} ends with exit code {ended.get('exitCode')} (restarted {_times(restarts)}){told}",
        f"mend what it says, then: kubectl rollout restart deployment/{one.name} -n {one.namespace}"
        if said
        else f"kubectl logs {name} -n {one.namespace} --previous",
    )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"


def _container(pod: Manifest) -> Mapping[str, Any]:
    statuses: list[Mapping[str, Any]] = (pod.get("status") or {}).get("containerStatuses") or []
    return next((one for one in statuses if one.get("name") == CONTAINER), {})


def _ended(container: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """How the container ended last, if that was a failure and not for want of memory."""
    state = container.get("state") or {}
    ended = state.get("terminated") or (container.get("lastState") or {}).get("terminated")
    if not ended or not ended.get("exitCode") or ended.get("reason") == "OOMKilled":
        return None
    found: Mapping[str, Any] = ended
    return found


def _at(text: object, otherwise: datetime) -> datetime:
    try:
        return datetime.fromisoformat(str(text))
    except ValueError:
        return otherwise


def _overlapping(facts: Facts, found: list[Installed]) -> Iterator[Item]:
    """Two operators that watch one namespace write over each other."""
    scopes = []
    for one in found:
        try:
            given = settings_of(facts, one)
        except CannotTell as why:
            yield NotChecked(str(why))
            return
        scopes.append((one, given.watch_namespaces if given is not None else ()))
    for index, (one, namespaces) in enumerate(scopes):
        for other, others in scopes[index + 1 :]:
            both = sorted(set(namespaces) & set(others)) if namespaces and others else list(namespaces or others)
            if both or not (namespaces and others):
                where = ", ".join(both) or "all namespaces"
                yield error(
                    f"{one.about} and {other.namespace}/{other.name}",
                    f"two operators watch {where}",
                    "one: they undo each other's work",
                    "uninstall one of them, or give each its own watchNamespaces",
                )

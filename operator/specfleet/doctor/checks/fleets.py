"""SpecDeployments: the next problem of each, its routers, what deleted ones left, and those that nobody watches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from specfleet.api.conditions import ConditionType, Reason
from specfleet.api.names import router_object
from specfleet.cluster.kinds import DEPLOYMENT, OWNED, POD_MONITOR
from specfleet.decision.reasons import Reason as DecisionReason
from specfleet.doctor.actions import action_for
from specfleet.doctor.facts import CannotTell, Facts, Listing, Manifest
from specfleet.doctor.findings import Item, NotChecked, Seen, Severity, error, info, warning
from specfleet.doctor.installed import (
    FLEETS,
    fleets,
    key,
    operators,
    owned,
    owned_query,
    owner_key,
    unseen,
    watched_namespaces,
)
from specfleet.handlers.pods import pod_record, worst

UNSEEN = timedelta(seconds=60)
SETTLING = timedelta(minutes=2)
STUCK = timedelta(minutes=5)
CONNECTING = timedelta(minutes=5)
UNMEASURED = timedelta(hours=1)

_STARTING = (Reason.PODS_NOT_READY, Reason.ROUTERS_CONNECTING, Reason.NOT_YET_OBSERVED, Reason.ROLLING_OUT)
# Of the conditions that are not about being ready: the status that is a problem, and how bad it is.
_BESIDE: dict[str, tuple[str, Severity]] = {
    ConditionType.METRICS_AVAILABLE: ("False", Severity.WARNING),
    ConditionType.CAPACITY_SUFFICIENT: ("False", Severity.WARNING),
    ConditionType.OVERLOADED: ("True", Severity.WARNING),
}


def watched(facts: Facts) -> Iterator[Item]:
    """SpecDeployments in namespaces that no operator watches, and watched namespaces that do not exist."""
    running = operators(facts)
    if not running:
        return
    scopes = [watched_namespaces(facts, one) for one in running]
    for one, names in zip(running, scopes, strict=True):
        for name in names:
            if _exists(facts, name) is False:
                yield error(
                    one.about,
                    f"it is to watch namespace {name}, which does not exist",
                    "namespaces that exist: the operator is not ready until it can watch all of them",
                    f"kubectl create namespace {name}, or take it out of watchNamespaces",
                )
    if not all(scopes):
        yield Seen("an operator watches all namespaces")
        return
    seen = {name for names in scopes for name in names}
    unwatched = [one for one in fleets(facts) if key(one)[0] not in seen]
    for body in unwatched:
        namespace, name = key(body)
        yield error(
            f"SpecDeployment {namespace}/{name}",
            f"no operator watches namespace {namespace}; watched: {', '.join(sorted(seen))}",
            "a namespace that is watched: nothing happens to it",
            f"add {namespace} to watchNamespaces and run helm upgrade, or move it",
        )
    if not unwatched:
        yield Seen(f"watched are {', '.join(sorted(seen))}; no SpecDeployment is elsewhere")


def conditions(facts: Facts) -> Iterator[Item]:
    """The next problem of each SpecDeployment, from its conditions."""
    found = fleets(facts)
    hidden = unseen(facts, FLEETS)
    if hidden is not None:
        yield hidden
    try:
        scopes = [watched_namespaces(facts, one) for one in operators(facts) if one.ready]
    except CannotTell:
        scopes = []  # whether somebody looks after them is not known; what they say of themselves is
    for body in found:
        looked_after = any(not names or key(body)[0] in names for names in scopes)
        problems = list(_problems(facts, body, looked_after=looked_after))
        yield from problems or [Seen(f"SpecDeployment {'/'.join(key(body))} is as it should be")]
    if not found:
        yield Seen("there is no SpecDeployment" if hidden is None else "none can be seen")


def routers(facts: Facts) -> Iterator[Item]:
    """Each SpecDeployment's router pods: without one nothing is served."""
    found = fleets(facts)
    deployments = {key(one): one for one in owned(facts, DEPLOYMENT.all_path)} if found else {}
    served = [key(one) for one in found if (one.get("status") or {}).get("endpoint")]
    seen = {(namespace, name): deployments.get((namespace, router_object(name))) for namespace, name in served}
    facts.prepare(
        *(_router_pods(*fleet) for fleet, one in seen.items() if one is not None and _ready(one) < _wanted(one))
    )
    for (namespace, name), deployment in seen.items():
        yield _router(facts, namespace, name, deployment)


def left_behind(facts: Facts) -> Iterator[Item]:
    """Objects that carry a SpecDeployment's label and have no SpecDeployment: a garbage collector takes its time."""
    monitors = facts.get(POD_MONITOR.prefix) is not None
    kinds = [kind for kind in OWNED if monitors or kind != POD_MONITOR]
    facts.prepare(*(owned_query(facts, kind.all_path, names_only=True) for kind in kinds))
    alive = {key(one): str(one["metadata"].get("uid")) for one in fleets(facts)}
    readable = _readable_namespace(facts)
    clean = True
    for kind in kinds:
        try:
            objects = owned(facts, kind.all_path, names_only=True)
        except CannotTell as why:
            clean = False
            yield NotChecked(str(why))
            continue
        for one in objects:
            if readable is not None and one["metadata"].get("namespace") != readable:
                continue
            problem = _left(facts, kind.kind, one, alive)
            if problem is not None:
                clean = False
                yield problem
    if clean:
        yield Seen("every object that carries a SpecDeployment's label has its SpecDeployment")


def _problems(facts: Facts, body: Manifest, *, looked_after: bool) -> Iterator[Item]:
    namespace, name = key(body)
    about, meta, status = f"SpecDeployment {namespace}/{name}", body["metadata"], body.get("status") or {}
    given = {str(one.get("type")): one for one in status.get("conditions") or ()}
    if meta.get("deletionTimestamp"):
        if facts.now - _time(meta["deletionTimestamp"], facts.now) > STUCK:
            held = ", ".join(meta.get("finalizers") or ()) or "nothing that is named"
            yield warning(about, f"it has been on its way out for more than 5 min, held by {held}",
                          "specfleet puts no finalizer on it", "ask whoever put the finalizer there")  # fmt: skip
        return
    if not given or status.get("observedGeneration") != meta.get("generation"):
        if looked_after and facts.now - _changed(body, facts.now) > UNSEEN:
            yield warning(about, "its last change has not been looked at for more than a minute",
                          "a status of that generation within seconds",
                          f"the operator's log: kubectl logs -n {facts.scope.operator_namespace} -l "
                          "app.kubernetes.io/component=operator --tail=50")  # fmt: skip
            return
        if not given:
            return
    yield from _readiness(facts.now, about, namespace, name, given)
    reported = str((given.get(ConditionType.READY) or {}).get("reason"))
    for kind, (bad, severity) in _BESIDE.items():
        one = given.get(kind) or {}
        if one.get("status") == bad and one.get("reason") != reported:
            make = error if severity is Severity.ERROR else warning
            good = "False" if bad == "True" else "True"
            yield make(about, _said(kind, one), f"{kind}={good}", _action(one, namespace, name))
    moving = given.get(ConditionType.MOVING) or {}
    if moving.get("reason") == Reason.ROUTES_REJECTED:
        yield error(about, _said(ConditionType.MOVING, moving), "routers that take their routes",
                    _action(moving, namespace, name))  # fmt: skip
    yield from _unmeasured(facts.now, about, status)


def _unmeasured(now: datetime, about: str, status: Manifest) -> Iterator[Item]:
    """Routes that would be decided by a measured break-even line alone, and for which nothing was measured."""
    names = [
        str(route.get("name"))
        for route in status.get("routes") or ()
        if route.get("reason") == DecisionReason.BREAK_EVEN_UNKNOWN
        and now - _time(route.get("since"), now) > UNMEASURED
    ]
    if names:
        yield info(
            about,
            f"the break-even line of route {', '.join(names)} has not been measured for more than an hour",
            "both pools serve streams, at least 200 of each: until then nothing switches these routes",
            "let both pools serve: policy.initial: Baseline with exploration.maxPercent above 0, or another route "
            "with speculation: Never, or breakEven.calibration; or write breakEven {source: Fixed} or "
            "minAcceptancePercent",
        )


def _readiness(
    now: datetime, about: str, namespace: str, name: str, given: Mapping[str, Mapping[str, Any]]
) -> Iterator[Item]:
    """Stalled before Ready: what only a person can mend goes first, and both would say the same."""
    stalled, ready = given.get(ConditionType.STALLED) or {}, given.get(ConditionType.READY) or {}
    if stalled.get("status") == "True":
        yield error(about, _said(ConditionType.STALLED, stalled), "Stalled=False", _action(stalled, namespace, name))
        return
    if ready.get("status") == "True":
        return
    reason = ready.get("reason")
    if reason == Reason.ROUTER_NOT_READY:
        return  # said by the check of routers, with the pods' own reason
    slow = reason == Reason.ROUTERS_CONNECTING and now - _time(ready.get("lastTransitionTime"), now) > CONNECTING
    if reason in _STARTING and not slow:
        wait = f"kubectl wait specdeployment/{name} -n {namespace} --for=condition=Ready --timeout=30m"
        yield info(about, f"it waits: {_said(ConditionType.READY, ready)}", "Ready=True after a while", wait)
        return
    yield error(about, _said(ConditionType.READY, ready), "Ready=True", _action(ready, namespace, name))


def _router(facts: Facts, namespace: str, name: str, deployment: Manifest | None) -> Item:
    about = f"Deployment {namespace}/{router_object(name)}"
    if deployment is None:
        return error(about, "the router is not there", f"the router of SpecDeployment {namespace}/{name}",
                     "start the operator: it makes the router again")  # fmt: skip
    ready, wanted, pods = _ready(deployment), _wanted(deployment), _router_pods(namespace, name)
    if ready >= wanted:
        return Seen(f"{about} has {ready} of {wanted} pods ready")
    try:
        problem = worst(pod_record(pod).problem for pod in facts.listed(pods.path, pods.labels))
    except CannotTell:
        problem = None
    why = f"; {problem.message}" if problem is not None else ""
    make = warning if ready else error
    effect = "" if ready else ": nothing is served"
    return make(about, f"{ready} of {wanted} router pods are ready{why}", f"{wanted} that are ready{effect}",
                f"kubectl describe pods -n {namespace} -l {pods.labels}")  # fmt: skip


def _router_pods(namespace: str, name: str) -> Listing:
    labels = f"specfleet.dev/deployment={name},app.kubernetes.io/component=router"
    return Listing(f"/api/v1/namespaces/{namespace}/pods", labels)


def _ready(deployment: Manifest) -> int:
    return int((deployment.get("status") or {}).get("readyReplicas") or 0)


def _wanted(deployment: Manifest) -> int:
    replicas = deployment["spec"].get("replicas")
    return 1 if replicas is None else int(replicas)


def _left(facts: Facts, kind: str, one: Manifest, alive: Mapping[tuple[str, str], str]) -> Item | None:
    meta, owner = one["metadata"], owner_key(one)
    if owner is None or meta.get("deletionTimestamp"):
        return None
    if facts.now - _time(meta.get("creationTimestamp"), facts.now) < SETTLING:
        return None
    controller = next((ref for ref in meta.get("ownerReferences") or () if ref.get("controller")), None)
    uid = str(controller.get("uid")) if controller else None
    if owner in alive and uid in (None, alive[owner]):
        return None
    namespace, name = key(one)
    plural = kind.lower()
    whose = f"SpecDeployment {owner[0]}/{owner[1]}"
    gone = f"{whose} is another one now" if owner in alive else f"{whose} does not exist"
    return warning(
        f"{kind} {namespace}/{name}",
        f"it is labelled as part of {whose}, and {gone}",
        "nothing of a deleted SpecDeployment: Kubernetes' garbage collector removes it within minutes",
        f"kubectl delete {plural} {name} -n {namespace}, unless it was applied by hand (specfleet render)",
    )


def _readable_namespace(facts: Facts) -> str | None:
    """The one namespace whose SpecDeployments are known; None where all are."""
    if facts.scope.namespace is not None:
        return facts.scope.namespace
    return None if unseen(facts, FLEETS) is None else facts.scope.default_namespace


def _exists(facts: Facts, namespace: str) -> bool | None:
    try:
        return facts.get(f"/api/v1/namespaces/{namespace}") is not None
    except CannotTell:
        return None


def _changed(body: Manifest, otherwise: datetime) -> datetime:
    """When the spec was written last; the status' own writes are not asked."""
    times = [
        _time(entry.get("time"), otherwise)
        for entry in body["metadata"].get("managedFields") or ()
        if not entry.get("subresource")
    ]
    return max(times) if times else _time(body["metadata"].get("creationTimestamp"), otherwise)


def _said(kind: str, one: Mapping[str, Any]) -> str:
    return f"{kind}={one.get('status')} ({one.get('reason')}): {one.get('message')}"


def _action(one: Mapping[str, Any], namespace: str, name: str) -> str:
    return action_for(str(one.get("reason")), namespace, name)


def _time(text: object, otherwise: datetime) -> datetime:
    try:
        return datetime.fromisoformat(str(text))
    except ValueError:
        return otherwise

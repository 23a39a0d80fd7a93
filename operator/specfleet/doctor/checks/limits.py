"""ResourceQuota and LimitRange: what keeps a fleet's pods from being made, before they are asked for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from decimal import Decimal
from typing import Any

from kubernetes.utils.quantity import parse_quantity

from specfleet.doctor.facts import Facts, Listing, Manifest
from specfleet.doctor.findings import Item, Seen, error, warning
from specfleet.doctor.installed import containers, fleet_namespaces, fleets, key
from specfleet.doctor.sample import Template, first_fleet, smallest_objects, templates

# Named by a quota, these must be set by every container, or no pod is made.
_MUST_BE_SET = {
    "cpu": ("requests", "cpu"),
    "memory": ("requests", "memory"),
    "requests.cpu": ("requests", "cpu"),
    "requests.memory": ("requests", "memory"),
    "limits.cpu": ("limits", "cpu"),
    "limits.memory": ("limits", "memory"),
}
_COUNTED = {"Service": "services", "ConfigMap": "configmaps", "Deployment": "deployments.apps"}
# An engine needs the model's size in memory, and more than that; a default below it kills every engine.
LEAST_ENGINE_MEMORY = Decimal(4 * 1024**3)


def quota(facts: Facts) -> Iterator[Item]:
    """Each namespace of fleets. Room is judged where there is no fleet yet: later the fleet's own condition says it."""
    namespaces = fleet_namespaces(facts)
    facts.prepare(*(query for namespace in namespaces for query in _queries(namespace)))
    for namespace in namespaces:
        quotas = facts.listed(f"/api/v1/namespaces/{namespace}/resourcequotas")
        ranges = facts.listed(f"/api/v1/namespaces/{namespace}/limitranges")
        pods = templates(facts, namespace)
        first = not any(key(one)[0] == namespace for one in fleets(facts))
        sound = True
        for one in quotas:
            if one["spec"].get("scopes") or one["spec"].get("scopeSelector"):
                continue
            problems = [*_unset(namespace, one, pods, ranges), *(_room(namespace, one, ranges) if first else ())]
            sound = sound and not problems
            yield from problems
        if sound:
            yield Seen(f"namespace {namespace}: {len(quotas)} ResourceQuota(s), none in the way of a fleet")


def limit_range(facts: Facts) -> Iterator[Item]:
    """Each namespace of fleets: least, most and default of a container."""
    for namespace in fleet_namespaces(facts):
        ranges = facts.listed(f"/api/v1/namespaces/{namespace}/limitranges")
        problems = [
            problem
            for one in ranges
            for item in one["spec"].get("limits") or ()
            if item.get("type") == "Container"
            for template in templates(facts, namespace)
            for problem in _outside(f"LimitRange {namespace}/{one['metadata']['name']}", item, template)
        ]
        yield from dict.fromkeys(problems)
        if not problems:
            yield Seen(f"namespace {namespace}: {len(ranges)} LimitRange(s), none in the way of a fleet")


def _queries(namespace: str) -> tuple[Listing, ...]:
    return tuple(Listing(f"/api/v1/namespaces/{namespace}/{plural}") for plural in ("resourcequotas", "limitranges"))


def _unset(namespace: str, one: Manifest, pods: list[Template], ranges: list[Manifest]) -> Iterator[Item]:
    hard = one["spec"].get("hard") or {}
    missing: dict[str, set[str]] = defaultdict(set)
    for name in hard:
        if name not in _MUST_BE_SET:
            continue
        part, resource = _MUST_BE_SET[name]
        for template in pods:
            for container in containers(template.pod_spec):
                if _amount(container, part, resource, ranges) is None:
                    missing[name].add(f"{template.component} pods (container {container.get('name')})")
    if missing:
        names, who = sorted(missing), sorted({one for several in missing.values() for one in several})
        yield error(
            f"ResourceQuota {namespace}/{one['metadata']['name']}",
            f"every container must set {', '.join(names)}, and {', '.join(who)} do not: none of these pods can be made",
            "a value in every container, or a default for it",
            "set resources of container engine in pools.template, and for routers make a LimitRange in "
            f"{namespace} with default and defaultRequest",
        )


def _room(namespace: str, one: Manifest, ranges: list[Manifest]) -> Iterator[Item]:
    hard = one["spec"].get("hard") or {}
    used = (one.get("status") or {}).get("used") or {}
    need = _needed(ranges)
    short = []
    for name in sorted(set(hard) & set(need)):
        free = _parsed(hard[name]) - _parsed(used.get(name, "0"))
        if need[name] > free:
            short.append(f"{name}: {_shown(need[name])} needed, {_shown(free)} of {hard[name]} free")
    if short:
        yield error(
            f"ResourceQuota {namespace}/{one['metadata']['name']}",
            f"the smallest fleet does not fit: {'; '.join(short)}",
            "room for two engine pods, two router pods and what belongs to them",
            f"raise the quota (kubectl edit resourcequota {one['metadata']['name']} -n {namespace}), or use another "
            "namespace",
        )


def _needed(ranges: list[Manifest]) -> dict[str, Decimal]:
    """What the smallest fleet takes, by the names that quotas have for it."""
    need: dict[str, Decimal] = defaultdict(Decimal)
    for template in first_fleet():
        need["pods"] += template.replicas
        need["count/pods"] += template.replicas
        for container in containers(template.pod_spec):
            for name, (part, resource) in _MUST_BE_SET.items():
                need[name] += template.replicas * (_amount(container, part, resource, ranges) or Decimal(0))
            for resource, text in ((container.get("resources") or {}).get("limits") or {}).items():
                if "/" in resource:
                    need[f"requests.{resource}"] += template.replicas * _parsed(text)
    for one in smallest_objects():
        plural = _COUNTED.get(one["kind"])
        if plural:
            need[f"count/{plural}"] += 1
            need[plural] += 1
    return need


def _amount(container: Mapping[str, Any], part: str, resource: str, ranges: Iterable[Manifest]) -> Decimal | None:
    """A container's request or limit: its own, the limit where only that is set, else a LimitRange's default."""
    resources = container.get("resources") or {}
    own = (resources.get(part) or {}).get(resource)
    if own is None and part == "requests":
        own = (resources.get("limits") or {}).get(resource)
    if own is not None:
        return _parsed(own)
    names = ("default",) if part == "limits" else ("defaultRequest", "default")
    for one in ranges:
        for item in one["spec"].get("limits") or ():
            if item.get("type") == "Container":
                for name in names:
                    if resource in (item.get(name) or {}):
                        return _parsed(item[name][resource])
    return None


def _outside(about: str, item: Mapping[str, Any], template: Template) -> Iterator[Item]:
    namespace = about.partition(" ")[2].partition("/")[0]
    edit = f"kubectl edit limitrange {about.partition('/')[2]} -n {namespace}"
    for container in containers(template.pod_spec):
        who = f"container {container.get('name')} of {template.component} pods"
        resources = container.get("resources") or {}
        for resource, text in (item.get("max") or {}).items():
            limit = (resources.get("limits") or {}).get(resource)
            if limit is not None and _parsed(limit) > _parsed(text):
                yield error(about, f"at most {text} {resource} are allowed, {who} has a limit of {limit}",
                            f"a maximum of {limit} or more: the pods are refused", edit)  # fmt: skip
        for resource, text in (item.get("min") or {}).items():
            request = (resources.get("requests") or {}).get(resource)
            if request is not None and _parsed(request) < _parsed(text):
                yield error(about, f"at least {text} {resource} must be asked for, {who} asks for {request}",
                            f"a minimum of {request} or less: the pods are refused", edit)  # fmt: skip
        default = (item.get("default") or {}).get("memory")
        unset = "memory" not in (resources.get("limits") or {})
        if container.get("name") != "engine" or default is None or not unset:
            continue
        if _parsed(default) < LEAST_ENGINE_MEMORY:
            yield warning(about, f"containers without a memory limit get {default}, and {who} sets none",
                          "a limit that holds the engine and its model: with this one it is killed at start",
                          "set resources.limits.memory of container engine in pools.template")  # fmt: skip


def _parsed(text: object) -> Decimal:
    return Decimal(parse_quantity(text))  # type: ignore[no-untyped-call]


def _shown(amount: Decimal) -> str:
    return format(amount.normalize(), "f")

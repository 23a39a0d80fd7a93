"""Admission webhooks that must answer and cannot: with `failurePolicy: Fail` nothing gets past them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from specfleet.api.names import BASELINE_POOL, labels
from specfleet.doctor.facts import CannotTell, Facts, Get, Manifest
from specfleet.doctor.findings import Item, NotChecked, Seen, error
from specfleet.doctor.installed import fleet_namespaces
from specfleet.doctor.selectors import matches, ready_endpoints

_CONFIGURATIONS = ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")
# What a fleet is made of, the pods first: group and resource.
_MADE = (("", "pods"), ("apps", "deployments"), ("", "services"), ("", "configmaps"))


def check(facts: Facts) -> Iterator[Item]:
    """Webhooks that catch what a fleet is made of, and whose Service has no ready endpoint."""
    spaces = _spaces(facts)
    catching, silent = 0, False
    for kind in _CONFIGURATIONS:
        for configuration in facts.listed(f"/apis/admissionregistration.k8s.io/v1/{kind.lower()}s"):
            for webhook in configuration.get("webhooks") or ():
                caught = _caught(webhook, spaces)
                if caught is None:
                    continue
                catching += 1
                about = f"{kind} {configuration['metadata']['name']}"
                for item in _answers(facts, about, webhook, caught):
                    silent = True
                    yield item
    if not silent:
        yield Seen(f"{catching} webhook(s) must answer before a fleet's objects are made, and can")


def _spaces(facts: Facts) -> dict[str, Mapping[str, str]]:
    """The namespaces where something will be made, with their labels."""
    found: dict[str, Mapping[str, str]] = {}
    names = sorted({*fleet_namespaces(facts), facts.scope.operator_namespace})
    facts.prepare(*(Get(f"/api/v1/namespaces/{name}") for name in names))
    for name in names:
        try:
            body = facts.get(f"/api/v1/namespaces/{name}") or {"metadata": {}}
        except CannotTell:
            body = {"metadata": {}}
        found[name] = {"kubernetes.io/metadata.name": name, **(body["metadata"].get("labels") or {})}
    return found


def _caught(webhook: Manifest, spaces: Mapping[str, Mapping[str, str]]) -> tuple[str, str] | None:
    """The resource and the namespace that a webhook catches, pods before others; None where it lets all pass."""
    if (webhook.get("failurePolicy") or "Fail") != "Fail":
        return None
    for group, resource in _MADE:
        made = labels("any", "engine", BASELINE_POOL)
        if not any(_rule(rule, group, resource) for rule in webhook.get("rules") or ()):
            continue
        if not matches(webhook.get("objectSelector"), made):
            continue
        for name in sorted(spaces):
            if matches(webhook.get("namespaceSelector"), spaces[name]):
                return resource, name
    return None


def _rule(rule: Mapping[str, Any], group: str, resource: str) -> bool:
    return (
        any(one in ("*", "CREATE") for one in rule.get("operations") or ())
        and any(one in ("*", group) for one in rule.get("apiGroups") or ())
        and any(one in ("*", "*/*", resource) for one in rule.get("resources") or ())
    )


def _answers(facts: Facts, about: str, webhook: Manifest, caught: tuple[str, str]) -> Iterator[Item]:
    service = (webhook.get("clientConfig") or {}).get("service")
    if not service:
        return
    namespace, name = str(service.get("namespace")), str(service.get("name"))
    try:
        if ready_endpoints(facts, namespace, name):
            return
    except CannotTell as why:
        yield NotChecked(f"webhook {webhook.get('name')}: {why}")
        return
    resource, space = caught
    unless = ", unless its matchConditions let it pass" if webhook.get("matchConditions") else ""
    yield error(
        about,
        f"webhook {webhook.get('name')} must admit {resource} in namespace {space}, and its Service {namespace}/{name} "
        "has no ready endpoint",
        f"a webhook that answers: nothing of that kind can be made until it does{unless}",
        f"kubectl get pods,endpointslices -n {namespace}; if what it belongs to is gone, delete the configuration",
    )

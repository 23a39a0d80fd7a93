"""Label selectors and what Services select, as the API defines them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specfleet.doctor.facts import Facts, Listing


def matches(selector: Mapping[str, Any] | None, labels: Mapping[str, str]) -> bool:
    """Whether a metav1.LabelSelector selects these labels; an empty one selects everything, none (null) too."""
    chosen = selector or {}
    if any(labels.get(key) != value for key, value in (chosen.get("matchLabels") or {}).items()):
        return False
    return all(_expression(one, labels) for one in chosen.get("matchExpressions") or ())


def endpoint_slices(namespace: str, service: str) -> Listing:
    """The query for a Service's EndpointSlices."""
    path = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    return Listing(path, f"kubernetes.io/service-name={service}")


def ready_endpoints(facts: Facts, namespace: str, service: str) -> int:
    """How many ready endpoints a Service has."""
    query = endpoint_slices(namespace, service)
    found = facts.listed(query.path, query.labels)
    return sum(
        (endpoint.get("conditions") or {}).get("ready") is not False
        for one in found
        for endpoint in one.get("endpoints") or ()
    )


def _expression(one: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    key, values = str(one.get("key")), one.get("values") or ()
    match one.get("operator"):
        case "In":
            return labels.get(key) in values
        case "NotIn":
            return labels.get(key) not in values
        case "Exists":
            return key in labels
        case "DoesNotExist":
            return key not in labels
    return False

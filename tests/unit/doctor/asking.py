"""Asks one check, with the answers that a cluster would give."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from specfleet.doctor.facts import Facts, Listing, Query, Scope
from specfleet.doctor.findings import Item

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=UTC)
SCOPE = Scope(None, "default", "specfleet-system", "0.1.0")
FLEETS = Listing("/apis/specfleet.dev/v1alpha1/specdeployments")
OPERATORS = Listing("/apis/apps/v1/deployments", "app.kubernetes.io/component=operator")


def say(check: Callable[[Facts], Iterator[Item]], answers: Mapping[Query, Any]) -> list[Item]:
    """What a check says, given these answers."""
    return list(check(Facts(SCOPE, NOW, answers)))


def operator(**status: Any) -> dict[str, Any]:
    """A Deployment of the operator with one pod wanted."""
    labels = {"app.kubernetes.io/name": "specfleet", "app.kubernetes.io/component": "operator"}
    container = {"name": "operator", "image": "i"}
    return {
        "metadata": {"name": "specfleet", "namespace": "specfleet-system", "labels": labels},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"spec": {"containers": [container]}},
        },
        "status": status,
    }

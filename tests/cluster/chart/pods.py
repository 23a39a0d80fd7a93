"""Pods as the operator meets them, and how it would change them."""

from __future__ import annotations

import json
from typing import Any

import yaml

from tests.cluster.chart.client import OPERATOR

ANNOTATION = "specfleet.dev/routes-version"


def pod(name: str, component: str, owner: str = "specfleet") -> str:
    """A pod that fits the strictest pod security standard."""
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "labels": {
                    "app.kubernetes.io/name": owner,
                    "app.kubernetes.io/component": component,
                    "specfleet.dev/deployment": "assistant",
                },
                "annotations": {"example.com/kept": "yes", ANNOTATION: "v1"},
            },
            "spec": {"automountServiceAccountToken": False, "containers": [{"name": "main", "image": "example/image"}]},
        }
    )


def patch(name: str, change: dict[str, Any]) -> tuple[str, ...]:
    """kubectl's arguments for a merge patch of a pod by the operator's account."""
    as_operator = ("--namespace", "serving", "--as", OPERATOR)
    return ("patch", "pod", name, *as_operator, "--type=merge", "--patch", json.dumps(change))

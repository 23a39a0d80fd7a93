"""Metadata that every rendered object has."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from specfleet.api.names import labels
from specfleet.api.v1alpha1 import API_VERSION, KIND, SpecDeployment

Manifest = dict[str, Any]

DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
"""Annotation: the container that `kubectl logs` shows, whatever side cars a template adds."""


@dataclass(frozen=True)
class OwnerRef:
    """The SpecDeployment that owns what is rendered."""

    name: str
    uid: str

    def as_reference(self) -> Manifest:
        """The entry of `metadata.ownerReferences`."""
        return {"apiVersion": API_VERSION, "kind": KIND, "name": self.name, "uid": self.uid, "controller": True}


def metadata(
    deployment: SpecDeployment, name: str, component: str, owner: OwnerRef | None, pool: str | None = None
) -> Manifest:
    """Name, namespace, labels and, where there is an owner, the controller reference."""
    result: Manifest = {
        "name": name,
        "namespace": deployment.namespace,
        "labels": labels(deployment.name, component, pool),
    }
    if owner is not None:
        result["ownerReferences"] = [owner.as_reference()]
    return result


def content_hash(*texts: str) -> str:
    """A short hash of texts, fit for a label or a version."""
    digest = hashlib.sha256()
    for text in texts:
        digest.update(text.encode())
        digest.update(b"\0")
    return digest.hexdigest()[:12]


def soft_spread(match_labels: dict[str, str]) -> list[Manifest]:
    """Spread over nodes where there is room for it."""
    return [
        {
            "maxSkew": 1,
            "topologyKey": "kubernetes.io/hostname",
            "whenUnsatisfiable": "ScheduleAnyway",
            "labelSelector": {"matchLabels": match_labels},
            "matchLabelKeys": ["pod-template-hash"],
        }
    ]

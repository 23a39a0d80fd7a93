"""Bodies that tests of the handlers start from."""

from __future__ import annotations

import itertools
from typing import Any

from specfleet.api import names
from specfleet.api.v1alpha1 import SpecDeployment

Body = dict[str, Any]
_VERSIONS = itertools.count(100)
UID = "uid-1"


def owner(**spec: Any) -> Body:
    """A SpecDeployment as the API server has it."""
    return {
        "apiVersion": "specfleet.dev/v1alpha1",
        "kind": "SpecDeployment",
        "metadata": {
            "name": "assistant",
            "namespace": "serving",
            "uid": UID,
            "generation": 1,
            "resourceVersion": str(next(_VERSIONS)),
        },
        "spec": {
            "engine": {"type": "vLLM", "version": "0.32.0"},
            "target": {"model": "owner/name"},
            "drafts": [{"name": "ngram", "mode": "NGram"}],
            "pools": {"replicas": 2},
            "routing": {
                "routes": [
                    {"name": "code", "match": [{"header": {"name": "x-route", "value": "code"}}]},
                    {"name": "chat"},
                ]
            },
            "policy": {"minAcceptancePercent": 30, "initial": "Speculative"},
            **spec,
        },
        "status": {"observedGeneration": -1},
    }


def spec_of(body: Body) -> Any:
    """Its typed spec."""
    return SpecDeployment.parse(body).spec


def live(manifest: Body, *, uid: str = "", **changes: Any) -> Body:
    """A manifest as it comes back from the API server."""
    meta = {
        "namespace": "serving",
        **manifest["metadata"],
        "uid": uid or f"uid-of-{manifest['kind']}-{manifest['metadata']['name']}",
        "resourceVersion": str(next(_VERSIONS)),
        "generation": 1,
        "managedFields": [{"manager": "specfleet"}],
        "creationTimestamp": "2026-11-29T09:00:00Z",
    }
    return {**manifest, **changes, "metadata": meta}


def deployment(name: str, component: str, pool: str | None, *, replicas: int = 1, **status: Any) -> Body:
    """A live Deployment of ours; status parts override those of a finished rollout."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {
            "name": name,
            "namespace": "serving",
            "uid": f"uid-of-{name}",
            "resourceVersion": str(next(_VERSIONS)),
            "generation": 1,
            "labels": names.labels("assistant", component, pool),
            "ownerReferences": [{"uid": UID, "controller": True, "name": "assistant", "kind": "SpecDeployment"}],
        },
        "spec": {"replicas": replicas},
        "status": {
            "observedGeneration": 1,
            "replicas": replicas,
            "updatedReplicas": replicas,
            "readyReplicas": replicas,
            "conditions": [{"type": "Available", "status": "True"}],
            **status,
        },
    }


def pod(name: str, component: str, pool: str | None, *, ready: bool = True, **status: Any) -> Body:
    """A live pod."""
    said = "True" if ready else "False"
    return {
        "metadata": {
            "name": name,
            "namespace": "serving",
            "uid": f"uid-of-{name}",
            "resourceVersion": str(next(_VERSIONS)),
            "labels": names.labels("assistant", component, pool),
        },
        "status": {"podIP": "10.0.0.1", "conditions": [{"type": "Ready", "status": said}], **status},
    }

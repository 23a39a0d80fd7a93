"""Events on a SpecDeployment, with names that make a repetition harmless."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from typing import Any, Literal

from specfleet.api.names import FIELD_MANAGER
from specfleet.api.v1alpha1 import API_VERSION, KIND

NOTE_LIMIT = 1000


def event(
    *,
    namespace: str,
    name: str,
    uid: str,
    reason: str,
    note: str,
    action: str,
    at: float,
    instance: str,
    once: str,
    kind: Literal["Normal", "Warning"] = "Normal",
) -> dict[str, Any]:
    """An events.k8s.io/v1 Event about one SpecDeployment. `at` in epoch seconds.

    `once` identifies the happening: the same one told twice, by a restarted operator for instance, has the same name
    and so exists once.
    """
    identity = hashlib.sha256(f"{uid}/{reason}/{once}".encode()).hexdigest()[:16]
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{name}.{identity}", "namespace": namespace},
        "eventTime": datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "reportingController": "specfleet.dev/operator",
        "reportingInstance": (instance or FIELD_MANAGER)[:128],
        "action": action,
        "reason": reason,
        "regarding": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "namespace": namespace,
            "name": name,
            "uid": uid,
        },
        "note": note if len(note) <= NOTE_LIMIT else note[: NOTE_LIMIT - 1] + "…",
        "type": kind,
    }

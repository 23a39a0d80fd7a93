"""kubectl against a bed, for what the bed itself has to do in it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.testbed.commands import output_of, succeeds
from tests.testbed.programs import KUBECTL
from tests.testbed.tools import ensure_program


def kubectl(kubeconfig: Path, *words: str, stdin: str = "") -> str:
    """Run kubectl; returns what it prints.

    Raises:
        TestbedError: it failed.
    """
    return output_of([ensure_program(KUBECTL), "--kubeconfig", kubeconfig, *words], stdin=stdin)


def holds(kubeconfig: Path, *words: str) -> bool:
    """Whether a kubectl command succeeds."""
    return succeeds([ensure_program(KUBECTL), "--kubeconfig", kubeconfig, "--request-timeout=5s", *words])


def get(kubeconfig: Path, *words: str) -> dict[str, Any]:
    """The object that `kubectl get WORDS` names."""
    found: dict[str, Any] = json.loads(kubectl(kubeconfig, "get", *words, "--output=json"))
    return found


def condition(kubeconfig: Path, kind: str, name: str, condition_type: str, namespace: str = "default") -> bool:
    """Whether that condition of that object is True now; False where the object is not there."""
    path = f'jsonpath={{.status.conditions[?(@.type=="{condition_type}")].status}}'
    words = ["get", kind, name, "--namespace", namespace, "--ignore-not-found", "--request-timeout=5s"]
    return kubectl(kubeconfig, *words, "--output", path).strip() == "True"

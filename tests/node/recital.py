"""A fleet of real vLLM that serves the reciting target of `tests/node/reciters.py`, with any draft beside it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.node import reciters
from tests.node.conftest import Fleet
from tests.node.demo import example
from tests.node.install import cluster_ip, pods_of, remove
from tests.node.kube import Kube, Manifest, condition, wait_for
from tests.node.load import Load
from tests.node.reciters import DIGITS, LETTERS
from tests.node.traffic import Ask, Clients

TOKENS = 4
POOL = "drafted"
TARGET = "/models/target"
DRAFT = "/models/draft"
ANSWER_TOKENS = 48
PROMPTS = {"letters": LETTERS + "abc", "digits": DIGITS + "012"}
"""By route. Each has gone round once, so that a look-up finds what follows."""
ROUTES: list[dict[str, Any]] = [
    {"name": "digits", "match": [{"header": {"name": "x-route", "value": "digits"}}]},
    {"name": "letters"},
]
OBSERVE = {"enforcement": "Observe", "initial": "Speculative", "block": "5s"}
ENFORCE = {
    "enforcement": "Enforce",
    "initial": "Speculative",
    "minAcceptancePercent": 30,
    "breakEven": {"source": "Fixed", "tokensPerStep": "1.50"},
    "block": "5s",
    "dwell": "30s",
}


def draft(mode: str, directory: Path | None = None, **more: Any) -> dict[str, Any]:
    """One entry of `spec.drafts`; its checkpoint is a directory of the node."""
    made: dict[str, Any] = {"name": POOL, "mode": mode, "tokens": TOKENS, **more}
    if directory is not None:
        made |= {"model": DRAFT, "source": {"hostPath": {"path": str(directory)}}}
    return made


def manifest(name: str, namespace: str, target: Path, drafted: dict[str, Any], policy: dict[str, Any]) -> Manifest:
    """A SpecDeployment of one pod a pool: the demo's engine and volumes with another model."""
    made = example()
    made["metadata"] = {"name": name, "namespace": namespace}
    spec = made["spec"]
    spec["target"] = {"model": TARGET, "source": {"hostPath": {"path": str(target)}}, "servedName": name}
    spec["drafts"] = [drafted]
    spec["engine"]["args"]["max-num-seqs"] = "8"
    spec["routing"] = {"routes": ROUTES}
    spec["policy"] = policy
    return made


def clients(name: str, counts: dict[str, int]) -> list[Clients]:
    """Clients by route; streams and whole answers by turns."""
    return [_clients(name, route, count) for route, count in counts.items()]


def _clients(name: str, route: str, count: int) -> Clients:
    def make(_: random.Random, number: int) -> Ask:
        return asking(name, route, stream=number % 2 == 0)

    return Clients(count, make)


def asking(name: str, route: str, *, stream: bool = False) -> Ask:
    """One request of a route."""
    body = {
        "model": name,
        "messages": [{"role": "user", "content": PROMPTS[route]}],
        "max_tokens": ANSWER_TOKENS,
        "temperature": 0.0,
        "stream": stream,
    }
    return Ask(route, body, {"x-route": route})


def all_right(load: Load) -> None:
    """Every answer was complete, and said what the target recites."""
    assert not load.tally.failures, load.tally.failures[:3]
    for route, answers in load.tally.recent.items():
        expected = reciters.recited(PROMPTS[route], ANSWER_TOKENS)
        found = {one.content.text for one in answers if one.content is not None}
        assert found == {expected}, f"expected {expected!r} on route {route}, found {found}"


@contextmanager
def applied(kube: Kube, wanted: Manifest) -> Iterator[Fleet]:
    """A SpecDeployment that need not become ready; gone at the end, its pods too."""
    metadata = wanted["metadata"]
    kube.apply(wanted)
    try:
        yield Fleet(kube, wanted)
    finally:
        remove(kube, metadata["name"], metadata["namespace"])


def said(fleet: Fleet, kind: str) -> dict[str, Any]:
    """A condition of the object's present generation; empty where there is none."""
    body = fleet.body()
    found = condition(body, kind)
    current = (body.get("status") or {}).get("observedGeneration") == body["metadata"]["generation"]
    return found if found is not None and current else {}


def until(fleet: Fleet, kind: str, status: str, reason: str | None = None, *, seconds: float = 300.0) -> dict[str, Any]:
    """Wait for a condition, and return it."""

    def look() -> dict[str, Any] | None:
        found = said(fleet, kind)
        fits = found.get("status") == status and (reason is None or found["reason"] == reason)
        return found if fits else None

    return wait_for(f"{kind}={status} {reason or ''} of {fleet.name}", look, seconds=seconds, say=_progress(fleet))


def _progress(fleet: Fleet) -> Any:
    def say(gone: float) -> None:
        lines = [
            f"{one['type']}={one['status']} {one['reason']}"
            for one in (fleet.body().get("status") or {}).get("conditions", [])
        ]
        print(f"  after {gone:.0f} s: {', '.join(lines)}", flush=True)

    return say


def speculative_pods(fleet: Fleet) -> list[str]:
    """Names of pods of the pool that drafts, ended ones included."""
    return [
        pod["metadata"]["name"]
        for pod in pods_of(fleet.kube, fleet.name, fleet.namespace)
        if pod["metadata"]["labels"].get("specfleet.dev/pool") == POOL
    ]


def endpoint(fleet: Fleet) -> str:
    """The URL of the router's Service."""
    return cluster_ip(fleet.kube, fleet.name, fleet.namespace)

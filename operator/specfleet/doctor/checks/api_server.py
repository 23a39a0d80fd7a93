"""The API server and the kubelets: are they new enough, and do they serve what the operator builds on?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from specfleet.doctor.facts import Facts
from specfleet.doctor.findings import Item, NotChecked, Seen, error, info, warning

OLDEST = (1, 30)
NEWEST_TRIED = (1, 36)
WHY = (
    "Kubernetes 1.30 or later: ValidatingAdmissionPolicy v1, CEL rules of definitions with optional fields, and "
    "preStop hooks that sleep are on from there"
)
_NUMBERS = re.compile(r"v?(\d+)\.(\d+)")


def version(facts: Facts) -> Iterator[Item]:
    """The API server's version against the range that is supported."""
    answer = facts.get("/version") or {}
    named = str(answer.get("gitVersion") or "")
    found = _numbers(named)
    if found is None:
        yield NotChecked(f"the API server names no version that can be read ({named or 'none'})")
    elif found < OLDEST:
        yield error("", f"the API server is {named}", WHY, "upgrade the cluster's control plane, then its nodes")
    elif found > NEWEST_TRIED:
        tried = ".".join(str(part) for part in NEWEST_TRIED)
        yield info(
            "",
            f"the API server is {named}, newer than what this release was tried with",
            f"{WHY}; tried up to {tried}",
            "look at the changelog for a newer release of specfleet before you report a fault",
        )
    else:
        yield Seen(f"the API server is {named}")


def kubelets(facts: Facts) -> Iterator[Item]:
    """Kubelets may be older than the API server: one that knows no sleeping hook cuts requests when a pod ends."""
    nodes = facts.listed("/api/v1/nodes")
    old = sorted(_name(node) for node in nodes if (_numbers(_kubelet(node)) or OLDEST) < OLDEST)
    if old:
        yield warning(
            f"Node {', '.join(old[:3])}" + (f" and {len(old) - 3} more" if len(old) > 3 else ""),
            "the kubelet is older than 1.30",
            "1.30 or later: an older one knows no preStop hook that sleeps, and ends engine pods that still get "
            "requests",
            "upgrade these nodes, or keep engine pods away from them by a node selector in pools.template",
        )
    elif nodes:
        yield Seen(f"kubelets of {len(nodes)} node(s): {', '.join(sorted({_kubelet(node) for node in nodes}))}")


def admission_policies(facts: Facts) -> Iterator[Item]:
    """Whether the kind is served by which the chart bounds the operator's verb on pods."""
    served = facts.get("/apis/admissionregistration.k8s.io/v1") or {}
    if any(one.get("name") == "validatingadmissionpolicies" for one in served.get("resources") or ()):
        yield Seen("ValidatingAdmissionPolicy v1 is served")
        return
    yield error(
        "",
        "the API server does not serve ValidatingAdmissionPolicy v1",
        "that kind: the chart bounds the operator's verb on router pods by it",
        "upgrade to Kubernetes 1.30 or later, or install with --set podPatch.enabled=false (switches take up to 90 s)",
    )


def _numbers(version: str) -> tuple[int, int] | None:
    match = _NUMBERS.match(version)
    return (int(match.group(1)), int(match.group(2))) if match else None


def _kubelet(node: dict[str, Any]) -> str:
    return str(((node.get("status") or {}).get("nodeInfo") or {}).get("kubeletVersion") or "")


def _name(node: dict[str, Any]) -> str:
    return str(node["metadata"]["name"])

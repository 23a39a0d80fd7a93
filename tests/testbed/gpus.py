"""Accelerators that are not there: the node says it has them, and the scheduler counts them."""

from __future__ import annotations

import json
from pathlib import Path

from tests.testbed.cluster_client import get, kubectl

RESOURCE = "nvidia.com/gpu"


def set_gpus(kubeconfig: Path, node: str, count: int) -> None:
    """Let `node` have `count` GPUs, unless it has just that many."""
    status = get(kubeconfig, "node", node)["status"]
    if status["capacity"].get(RESOURCE) == status["allocatable"].get(RESOURCE) == str(count):
        return
    amount = {RESOURCE: str(count)}
    patch = json.dumps({"status": {"capacity": amount, "allocatable": amount}})
    kubectl(kubeconfig, "patch", "node", node, "--subresource=status", "--type=merge", "--patch", patch)

"""The ServiceAccount of engine and router pods: it has no token and no rights."""

from __future__ import annotations

from specfleet.api.names import service_account_object
from specfleet.api.v1alpha1 import SpecDeployment
from specfleet.render.meta import Manifest, OwnerRef, metadata


def service_account(deployment: SpecDeployment, owner: OwnerRef | None) -> Manifest:
    """One for all pods of a SpecDeployment."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": metadata(deployment, service_account_object(deployment.name), "pods", owner),
        "automountServiceAccountToken": False,
    }

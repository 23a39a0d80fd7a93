"""PodDisruptionBudgets: at most one pod of a pool, and one router, leaves at a time."""

from __future__ import annotations

from specfleet.api.names import pool_object, router_object, selector
from specfleet.api.v1alpha1 import SpecDeployment
from specfleet.render.meta import Manifest, OwnerRef, metadata


def pool_budget(deployment: SpecDeployment, pool: str, owner: OwnerRef | None) -> Manifest:
    """For the engine pods of one pool."""
    meta = metadata(deployment, pool_object(deployment.name, pool), "engine", owner, pool)
    return _budget(meta, selector(deployment.name, "engine", pool))


def router_budget(deployment: SpecDeployment, owner: OwnerRef | None) -> Manifest:
    """For the router pods."""
    meta = metadata(deployment, router_object(deployment.name), "router", owner)
    return _budget(meta, selector(deployment.name, "router"))


def _budget(meta: Manifest, match_labels: dict[str, str]) -> Manifest:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": meta,
        "spec": {
            "maxUnavailable": 1,
            "selector": {"matchLabels": match_labels},
            # Else a pool whose model does not start would hold up the drain of its node for ever.
            "unhealthyPodEvictionPolicy": "AlwaysAllow",
        },
    }

"""Services: a headless one per pool, so that the router sees pods, and the endpoint."""

from __future__ import annotations

from specfleet.api.names import pool_object, selector
from specfleet.api.v1alpha1 import SpecDeployment
from specfleet.engines.protocol import EngineFacts
from specfleet.render.meta import Manifest, OwnerRef, metadata


def pool_service(deployment: SpecDeployment, pool: str, facts: EngineFacts, owner: OwnerRef | None) -> Manifest:
    """Endpoints of one pool for the router."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(deployment, pool_object(deployment.name, pool), "engine", owner, pool),
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "publishNotReadyAddresses": False,
            "selector": selector(deployment.name, "engine", pool),
            "ports": [{"name": "http", "port": facts.port, "targetPort": "http", "protocol": "TCP"}],
        },
    }


def endpoint_service(deployment: SpecDeployment, owner: OwnerRef | None) -> Manifest:
    """What clients, and a Gateway's routes, talk to."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(deployment, deployment.name, "router", owner),
        "spec": {
            "type": "ClusterIP",
            "selector": selector(deployment.name, "router"),
            "ports": [{"name": "http", "port": 80, "targetPort": "http", "protocol": "TCP", "appProtocol": "http"}],
        },
    }

"""PodMonitor of the routers, for clusters where the Prometheus operator is installed."""

from __future__ import annotations

from specfleet.api.names import LABEL_DEPLOYMENT, router_object, selector
from specfleet.api.v1alpha1 import SpecDeployment
from specfleet.render.meta import Manifest, OwnerRef, metadata


def pod_monitor(deployment: SpecDeployment, owner: OwnerRef | None) -> Manifest:
    """Scrapes the routers' read-only port; counters get the names `specfleet_*`."""
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        "metadata": metadata(deployment, router_object(deployment.name), "router", owner),
        "spec": {
            "selector": {"matchLabels": selector(deployment.name, "router")},
            "podTargetLabels": [LABEL_DEPLOYMENT],
            "podMetricsEndpoints": [
                {
                    "port": "read",
                    "path": "/stats/prometheus",
                    "interval": "30s",
                    "metricRelabelings": [
                        {
                            "sourceLabels": ["__name__"],
                            "regex": "envoy_(specfleet_.*)",
                            "targetLabel": "__name__",
                            "replacement": "$1",
                            "action": "replace",
                        }
                    ],
                }
            ],
        },
    }

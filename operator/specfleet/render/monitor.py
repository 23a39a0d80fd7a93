"""PodMonitor of the routers, for clusters where the Prometheus operator is installed."""

from __future__ import annotations

from specfleet.api.base import duration
from specfleet.api.names import LABEL_DEPLOYMENT, router_object, selector
from specfleet.api.v1alpha1 import MetricsSource, SpecDeployment
from specfleet.render.meta import Manifest, OwnerRef, metadata
from specfleet.routing.counters import SCRAPE_FILTER, SCRAPE_PATH
from specfleet.routing.series import PREFIX, RAW_UPTIME, UPTIME
from specfleet.settings import OperatorSettings

RELABELLED = (
    (f"envoy_({PREFIX}.+)", "$1"),
    (RAW_UPTIME, UPTIME),
)
"""Names as Envoy writes them (a regular expression), and as they are kept."""


def pod_monitor(deployment: SpecDeployment, settings: OperatorSettings, owner: OwnerRef | None) -> Manifest:
    """Scrapes the routers' read-only port; counters get the names `specfleet_*`."""
    meta = metadata(deployment, router_object(deployment.name), "router", owner)
    return {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PodMonitor",
        # What Prometheus selects by never replaces a label that the operator goes by.
        "metadata": {**meta, "labels": {**settings.pod_monitor.labels, **meta["labels"]}},
        "spec": {
            "selector": {"matchLabels": selector(deployment.name, "router")},
            "podTargetLabels": [LABEL_DEPLOYMENT],
            "podMetricsEndpoints": [
                {
                    "port": "read",
                    "path": SCRAPE_PATH,
                    "params": {"filter": [SCRAPE_FILTER]},
                    "interval": f"{_interval_seconds(deployment, settings)}s",
                    "metricRelabelings": [
                        {
                            "sourceLabels": ["__name__"],
                            "regex": regex,
                            "targetLabel": "__name__",
                            "replacement": replacement,
                            "action": "replace",
                        }
                        for regex, replacement in RELABELLED
                    ],
                }
            ],
        },
    }


def _interval_seconds(deployment: SpecDeployment, settings: OperatorSettings) -> int:
    """The settings' interval, or half a block where decisions rest on what is scraped."""
    interval = settings.pod_monitor.interval_seconds
    if deployment.spec.metrics.source is not MetricsSource.PROMETHEUS:
        return interval
    return max(1, min(interval, int(duration(deployment.spec.policy.block).total_seconds() / 2)))

"""Names, labels and annotations of what one SpecDeployment owns. Pure."""

from __future__ import annotations

from specfleet.api.v1alpha1 import GROUP

FIELD_MANAGER = "specfleet"
BASELINE_POOL = "baseline"
LABEL_DEPLOYMENT = f"{GROUP}/deployment"
LABEL_POOL = f"{GROUP}/pool"
LABEL_PREFLIGHT = f"{GROUP}/preflight"
ANNOTATION_BOOTSTRAP = f"{GROUP}/bootstrap"
ANNOTATION_ENGINE_FILES = f"{GROUP}/engine-files"
ANNOTATION_SCRAPE = "prometheus.io"
ANNOTATION_ROUTES_VERSION = f"{GROUP}/routes-version"
ANNOTATION_TEMPLATE = f"{GROUP}/template"
ANNOTATION_START = f"{GROUP}/start-seconds"
ANNOTATION_RUNS = f"{GROUP}/runs"


def pool_object(deployment: str, pool: str) -> str:
    """Name of the Deployment and the headless Service of one pool."""
    return f"{deployment}-{pool}"


def files_object(deployment: str, pool: str) -> str:
    """Name of the ConfigMap with the files that one pool's engines are started with."""
    return f"{pool_object(deployment, pool)}-config"


def router_object(deployment: str) -> str:
    """Name of the router's Deployment and of the ConfigMap with its bootstrap."""
    return f"{deployment}-router"


def routes_object(deployment: str) -> str:
    """Name of the ConfigMap with clusters, routes and weights."""
    return f"{deployment}-routes"


def preflight_object(deployment: str, key: str) -> str:
    """Name of the Job that compares target and draft; pods carry it in a label, which has 63 characters."""
    return f"{deployment}-preflight-{key[: 63 - len(deployment) - len('-preflight-')]}"


def service_account_object(deployment: str) -> str:
    """Name of the ServiceAccount of engine and router pods."""
    return f"{deployment}-pods"


def endpoint(deployment: str, namespace: str) -> str:
    """The URL that clients use inside the cluster."""
    return f"http://{deployment}.{namespace}.svc"


def selector(deployment: str, component: str, pool: str | None = None) -> dict[str, str]:
    """Labels that select the pods of one workload."""
    labels = {
        "app.kubernetes.io/name": "specfleet",
        "app.kubernetes.io/instance": deployment,
        "app.kubernetes.io/component": component,
    }
    if pool is not None:
        labels[LABEL_POOL] = pool
    return labels


def labels(deployment: str, component: str, pool: str | None = None) -> dict[str, str]:
    """Labels of an owned object."""
    return selector(deployment, component, pool) | {
        "app.kubernetes.io/managed-by": "specfleet",
        LABEL_DEPLOYMENT: deployment,
    }

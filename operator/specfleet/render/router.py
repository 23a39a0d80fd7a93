"""The router: its ConfigMaps and its Deployment (Envoy and the shutdown helper)."""

from __future__ import annotations

from functools import lru_cache

from specfleet.api.names import (
    ANNOTATION_BOOTSTRAP,
    ANNOTATION_SCRAPE,
    labels,
    router_object,
    routes_object,
    selector,
    service_account_object,
)
from specfleet.api.v1alpha1 import SpecDeployment
from specfleet.render.meta import DEFAULT_CONTAINER, Manifest, OwnerRef, content_hash, metadata, soft_spread
from specfleet.routing import process
from specfleet.routing.counters import SCRAPE_FILTER, SCRAPE_PATH
from specfleet.routing.files import bootstrap_files, routes_files
from specfleet.routing.plan import RouterPlan
from specfleet.settings import OperatorSettings

WORKERS = 2
UNPRIVILEGED_USER = 65532
_LOCKED_DOWN: Manifest = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


@lru_cache(maxsize=1)
def _bootstrap() -> dict[str, str]:
    """The same for every SpecDeployment, and not cheap to write."""
    return bootstrap_files()


@lru_cache(maxsize=1)
def _bootstrap_hash() -> str:
    files = _bootstrap()
    return content_hash(*(files[name] for name in sorted(files)))


def bootstrap_config_map(deployment: SpecDeployment, owner: OwnerRef | None) -> Manifest:
    """Bootstrap and filter: the same for every SpecDeployment, whatever its routes."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(deployment, router_object(deployment.name), "router", owner),
        "data": dict(_bootstrap()),
    }


def routes_config_map(deployment: SpecDeployment, plan: RouterPlan, owner: OwnerRef | None) -> Manifest:
    """Clusters, routes and weights: the only object that a switch changes."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(deployment, routes_object(deployment.name), "routes", owner),
        "data": routes_files(plan),
    }


def router_deployment(deployment: SpecDeployment, settings: OperatorSettings, owner: OwnerRef | None) -> Manifest:
    """The router pods; none leaves before its successor is ready and its requests have ended."""
    match_labels = selector(deployment.name, "router")
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(deployment, router_object(deployment.name), "router", owner),
        "spec": {
            "replicas": settings.router.replicas,
            "revisionHistoryLimit": 3,
            "progressDeadlineSeconds": 600,
            "selector": {"matchLabels": match_labels},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}},
            "template": {
                "metadata": {
                    "labels": labels(deployment.name, "router"),
                    # Envoy reads its bootstrap once: another one has to roll the pods.
                    "annotations": {
                        ANNOTATION_BOOTSTRAP: _bootstrap_hash(),
                        DEFAULT_CONTAINER: "envoy",
                        **scrape_annotations(),
                    },
                },
                "spec": {
                    "serviceAccountName": service_account_object(deployment.name),
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    "terminationGracePeriodSeconds": process.GRACE_SECONDS,
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": UNPRIVILEGED_USER,
                        "runAsGroup": UNPRIVILEGED_USER,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "topologySpreadConstraints": soft_spread(match_labels),
                    "containers": [_envoy(deployment, settings), _helper(settings)],
                    "volumes": [
                        {"name": "bootstrap", "configMap": {"name": router_object(deployment.name)}},
                        {"name": "routes", "configMap": {"name": routes_object(deployment.name)}},
                        *_prompt_key(deployment),
                    ],
                },
            },
        },
    }


def scrape_annotations() -> dict[str, str]:
    """What a Prometheus that goes by annotations reads of a pod; docs/operations/prometheus.md has its relabelling."""
    return {
        f"{ANNOTATION_SCRAPE}/scrape": "true",
        f"{ANNOTATION_SCRAPE}/port": str(process.READ_PORT),
        f"{ANNOTATION_SCRAPE}/path": SCRAPE_PATH,
        f"{ANNOTATION_SCRAPE}/param_filter": SCRAPE_FILTER,
    }


def _prompt_key(deployment: SpecDeployment) -> list[Manifest]:
    """The volume with the key of prompt hashes; optional, for a Secret that is missing must not keep a router down."""
    wanted = deployment.spec.routing.prompt_hash
    if wanted is None:
        return []
    ref = wanted.key_secret_ref
    items = [{"key": ref.key, "path": process.PROMPT_KEY_FILE}]
    return [{"name": "prompt-key", "secret": {"secretName": ref.name, "items": items, "optional": True}}]


def _envoy(deployment: SpecDeployment, settings: OperatorSettings) -> Manifest:
    def get(path: str, period: int, failures: int) -> Manifest:
        return {
            "httpGet": {"path": path, "port": "read"},
            "periodSeconds": period,
            "timeoutSeconds": 5,
            "failureThreshold": failures,
        }

    return {
        "name": "envoy",
        "image": settings.router_image,
        "args": process.envoy_args(WORKERS),
        "ports": [
            {"name": "http", "containerPort": process.DATA_PORT, "protocol": "TCP"},
            {"name": "read", "containerPort": process.READ_PORT, "protocol": "TCP"},
        ],
        "resources": settings.router.resources.manifest(),
        "startupProbe": get(process.READY_PATH, 1, 120),
        "readinessProbe": get(process.READY_PATH, 2, 2),
        "livenessProbe": get(process.LIVE_PATH, 10, 6),
        "lifecycle": {"preStop": {"httpGet": {"path": process.DRAINED_PATH, "port": process.DRAIN_PORT}}},
        "securityContext": _LOCKED_DOWN,
        "volumeMounts": [
            {"name": "bootstrap", "mountPath": process.BOOTSTRAP_DIR, "readOnly": True},
            {"name": "routes", "mountPath": process.ROUTES_DIR, "readOnly": True},
            *(
                {"name": volume["name"], "mountPath": process.PROMPT_KEY_DIR, "readOnly": True}
                for volume in _prompt_key(deployment)
            ),
        ],
    }


def _helper(settings: OperatorSettings) -> Manifest:
    return {
        "name": "drain",
        "image": settings.operator_image,
        "command": ["specfleet"],
        "args": process.drain_args(),
        "ports": [{"name": "drain", "containerPort": process.DRAIN_PORT, "protocol": "TCP"}],
        "resources": {"requests": {"cpu": "10m", "memory": "64Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": _LOCKED_DOWN,
    }

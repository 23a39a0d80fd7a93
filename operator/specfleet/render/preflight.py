"""The Job that compares target and draft: the operator's own image, no accelerator, no token, no rights."""

from __future__ import annotations

from typing import Any

from specfleet.api.names import LABEL_PREFLIGHT, preflight_object, service_account_object
from specfleet.api.v1alpha1 import SpecDeployment
from specfleet.engines.protocol import EngineFacts
from specfleet.preflight.request import CACHE_VARIABLE, REQUEST_VARIABLE, PreflightRequest
from specfleet.render.engine import env_manifests, model_volumes
from specfleet.render.meta import DEFAULT_CONTAINER, Manifest, OwnerRef, metadata
from specfleet.render.router import UNPRIVILEGED_USER
from specfleet.settings import OperatorSettings

COMPONENT = "preflight"
CONTAINER = "preflight"
TRIES = 4
MARGIN_SECONDS = 60
_HUB_VARIABLES = (
    *("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_ENDPOINT", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY"),
    *("https_proxy", "http_proxy", "no_proxy", "REQUESTS_CA_BUNDLE"),
)
_PLACING = ("nodeSelector", "tolerations", "affinity", "imagePullSecrets")


def preflight_job(
    deployment: SpecDeployment,
    request: PreflightRequest,
    facts: EngineFacts,
    settings: OperatorSettings,
    owner: OwnerRef | None,
) -> Manifest:
    """Reads what the engine pods of the speculative pool would read, from the same volumes.

    Args:
        facts: of the speculative pool.
    """
    meta = metadata(deployment, preflight_object(deployment.name, request.key), COMPONENT, owner)
    labels = {**meta["labels"], LABEL_PREFLIGHT: request.key}
    volumes, mounts = model_volumes(deployment, facts)
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": meta,
        "spec": {
            "backoffLimit": TRIES - 1,
            # The operator gives up first, while there is a pod that says why.
            "activeDeadlineSeconds": settings.preflight_seconds + MARGIN_SECONDS,
            "template": {
                "metadata": {"labels": labels, "annotations": {DEFAULT_CONTAINER: CONTAINER}},
                "spec": {
                    **_placing(deployment),
                    "restartPolicy": "Never",
                    "serviceAccountName": service_account_object(deployment.name),
                    "automountServiceAccountToken": False,
                    "enableServiceLinks": False,
                    "terminationGracePeriodSeconds": 1,
                    "securityContext": {
                        "runAsNonRoot": True,
                        "runAsUser": UNPRIVILEGED_USER,
                        "runAsGroup": UNPRIVILEGED_USER,
                        "seccompProfile": {"type": "RuntimeDefault"},
                    },
                    "containers": [_container(deployment, request, facts, settings, mounts)],
                    "volumes": volumes,
                },
            },
        },
    }


def _container(
    deployment: SpecDeployment,
    request: PreflightRequest,
    facts: EngineFacts,
    settings: OperatorSettings,
    mounts: list[Manifest],
) -> Manifest:
    known = [one for one in env_manifests(deployment, facts) if one["name"] in _HUB_VARIABLES]
    own = [{"name": REQUEST_VARIABLE, "value": request.encode()}]
    if any(mount["mountPath"] == facts.cache_mount for mount in mounts):
        own.append({"name": CACHE_VARIABLE, "value": facts.cache_mount})
    return {
        "name": CONTAINER,
        "image": settings.operator_image,
        "command": ["specfleet"],
        "args": ["preflight", "--job"],
        "env": known + own,
        # A tokenizer of 262,144 tokens takes 270 MiB while it is parsed.
        "resources": {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": mounts,
    }


def _placing(deployment: SpecDeployment) -> dict[str, Any]:
    """Where engine pods go: a volume may be there alone."""
    template = deployment.spec.pools.template or {}
    spec = template.get("spec") if isinstance(template, dict) else None
    return {key: spec[key] for key in _PLACING if key in spec} if isinstance(spec, dict) else {}

"""The operator as a service account with rights of its own, instead of the administrator."""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.cluster.api import Api, Body

SIX = ["get", "list", "watch", "create", "patch", "delete"]
RULES: list[Body] = [
    {"apiGroups": ["specfleet.dev"], "resources": ["specdeployments"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": ["specfleet.dev"], "resources": ["specdeployments/status"], "verbs": ["patch"]},
    {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": SIX},
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": SIX},
    {"apiGroups": [""], "resources": ["services", "configmaps", "serviceaccounts"], "verbs": SIX},
    {"apiGroups": ["policy"], "resources": ["poddisruptionbudgets"], "verbs": SIX},
    {
        "apiGroups": ["monitoring.coreos.com"],
        "resources": ["podmonitors"],
        "verbs": ["get", "list", "create", "patch", "delete"],
    },
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["persistentvolumeclaims"], "verbs": ["get"]},
    {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list"]},
    {"apiGroups": ["events.k8s.io"], "resources": ["events"], "verbs": ["create"]},
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]},
]
PATCH_PODS: Body = {"apiGroups": [""], "resources": ["pods"], "verbs": ["patch"]}


def grant(api: Api, namespace: str, rules: list[Body]) -> None:
    """Give the service account `operator` these rights in its namespace, and no others."""
    path = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{namespace}"
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "operator"},
        "rules": rules,
    }
    api.request("POST", f"{path}/roles", role)
    api.request(
        "POST",
        f"{path}/rolebindings",
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "operator"},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "operator"},
            "subjects": [{"kind": "ServiceAccount", "name": "operator", "namespace": namespace}],
        },
    )


def kubeconfig_of_service_account(api: Api, administrator: Path, namespace: str, target: Path) -> Path:
    """A kubeconfig with a token of the service account `operator`."""
    api.create("ServiceAccount", namespace, {"metadata": {"name": "operator"}})
    answer = api.request(
        "POST",
        f"/api/v1/namespaces/{namespace}/serviceaccounts/operator/token",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}},
    )
    config = yaml.safe_load(administrator.read_text())
    for user in config["users"]:
        user["user"] = {"token": answer["status"]["token"]}
    target.write_text(yaml.safe_dump(config))
    return target

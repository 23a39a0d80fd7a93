"""Who may do what once the chart is installed: the API server's own answers."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.chart.client import CHART, CRD, NAMESPACE, OPERATOR, Cluster
from tests.cluster.chart.operator_process import operator_as

pytestmark = pytest.mark.cluster

ALLOWED = [
    ("list", "specdeployments.specfleet.dev", ""),
    ("watch", "specdeployments.specfleet.dev", ""),
    ("patch", "specdeployments.specfleet.dev:status", "serving"),
    ("create", "deployments.apps", "serving"),
    ("patch", "deployments.apps", "serving"),
    ("delete", "deployments.apps", "serving"),
    ("patch", "services", "serving"),
    ("patch", "configmaps", "serving"),
    ("patch", "serviceaccounts", "serving"),
    ("patch", "poddisruptionbudgets.policy", "serving"),
    ("patch", "jobs.batch", "serving"),
    ("patch", "pods", "serving"),
    ("get", "services", "serving"),
    ("get", "pods", "serving"),
    ("list", "endpointslices.discovery.k8s.io", "serving"),
    ("get", "persistentvolumeclaims", "serving"),
    ("create", "events.events.k8s.io", "serving"),
    ("create", "leases.coordination.k8s.io", NAMESPACE),
    ("update", "leases.coordination.k8s.io/specfleet", NAMESPACE),
]
FORBIDDEN = [
    ("get", "secrets", "serving"),
    ("list", "secrets", NAMESPACE),
    ("patch", "specdeployments.specfleet.dev", "serving"),
    ("update", "specdeployments.specfleet.dev:finalizers", "serving"),
    ("delete", "specdeployments.specfleet.dev", "serving"),
    ("create", "pods", "serving"),
    ("delete", "pods", "serving"),
    ("create", "pods:exec", "serving"),
    ("patch", "pods:status", "serving"),
    ("patch", "pods:ephemeralcontainers", "serving"),
    ("create", "serviceaccounts:token", "serving"),
    ("get", "leases.coordination.k8s.io/specfleet", "serving"),
    ("update", "leases.coordination.k8s.io/another", NAMESPACE),
    ("create", "clusterroles.rbac.authorization.k8s.io", ""),
    ("create", "rolebindings.rbac.authorization.k8s.io", "serving"),
    ("patch", "customresourcedefinitions.apiextensions.k8s.io", ""),
    ("watch", "endpointslices.discovery.k8s.io", "serving"),
    ("list", "persistentvolumeclaims", "serving"),
    ("patch", "persistentvolumeclaims", "serving"),
    ("patch", "endpointslices.discovery.k8s.io", "serving"),
    ("patch", "nodes", ""),
    ("patch", "namespaces", ""),
]


@pytest.mark.parametrize(("verb", "resource", "place"), ALLOWED)
def test_the_operator_may_do_its_work(installed: Cluster, verb: str, resource: str, place: str) -> None:
    assert installed.can(OPERATOR, verb, resource, place)


@pytest.mark.parametrize(("verb", "resource", "place"), FORBIDDEN)
def test_the_operator_may_do_nothing_else(installed: Cluster, verb: str, resource: str, place: str) -> None:
    assert not installed.can(OPERATOR, verb, resource, place)


def test_roles_of_the_cluster_learn_the_kind(installed: Cluster) -> None:
    for role in ("admin", "edit", "view"):
        installed.must(
            "create", "rolebinding", role, f"--clusterrole={role}", f"--user={role}", "--namespace", "serving"
        )
    installed.eventually("get", "clusterrole", "admin", "view", "-o", "yaml", contains="specdeployments")

    def verbs(user: str) -> set[str]:
        asked = ("get", "create", "patch", "delete")
        return {verb for verb in asked if installed.can(user, verb, CRD, "serving")}

    assert verbs("admin") == {"get", "create", "patch", "delete"}
    assert verbs("edit") == {"get"}
    assert verbs("view") == {"get"}


def test_a_release_for_named_namespaces_reaches_no_other(installed: Cluster, tmp_path: Path) -> None:
    chosen = ("--set", "watchNamespaces={serving}", "--set", "crds.enabled=false", "--set", "podPatch.enabled=false")
    installed.helm("install", "scoped", str(CHART), *chosen, namespace="other")
    account = "system:serviceaccount:other:scoped-specfleet"

    try:
        assert installed.can(account, "list", CRD, "serving")
        assert installed.can(account, "patch", "deployments.apps", "serving")
        assert not installed.can(account, "list", CRD, "")
        assert not installed.can(account, "patch", "deployments.apps", "other")
        assert not installed.can(account, "patch", "pods", "serving")
        with operator_as(installed, "scoped-specfleet", "other", tmp_path) as operator:
            operator.await_ready()
            assert "forbidden" not in operator.log.read_text().lower()
    finally:
        installed.helm("uninstall", "scoped", namespace="other")

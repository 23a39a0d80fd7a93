"""One API server with the chart installed, for all tests of this folder."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from tests.cluster.chart.client import NAMESPACE, Cluster
from tests.cluster.chart.pods import pod
from tests.cluster.chart.release import install
from tests.testbed.api import ensure_control_plane


def namespace(name: str, **labels: str) -> str:
    """A Namespace with labels."""
    return yaml.safe_dump({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """An API server with controllers, the namespaces and three pods in them."""
    plane = ensure_control_plane(tmp_path_factory.mktemp("chart") / "state", controllers=True)
    cluster = Cluster(plane.kubeconfig)
    restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
    cluster.must("apply", "-f", "-", stdin=namespace(NAMESPACE, **restricted))
    for name in ("serving", "other"):
        cluster.must("apply", "-f", "-", stdin=namespace(name))
        cluster.eventually("get", "serviceaccount", "default", "--namespace", name, contains="default")
    for manifest in (pod("router", "router"), pod("engine", "engine"), pod("foreign", "router", owner="nginx")):
        cluster.must("create", "--namespace", "serving", "-f", "-", stdin=manifest)
    yield cluster
    plane.stop()


@pytest.fixture(scope="package")
def installed(cluster: Cluster) -> Cluster:
    """The cluster with the chart installed, its definitions established and its policy in force."""
    install(cluster)
    return cluster

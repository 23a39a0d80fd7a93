"""`helm install --wait` returns when what it installed serves, and does not where it cannot."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.node.install import CHART, RELEASE, SYSTEM_NAMESPACE, chart_values, install_operator
from tests.node.kube import Kube, KubeError, Manifest, is_true
from tests.node.stub_fleet import stub_fleet

pytestmark = pytest.mark.node

NAME = "released"
FLEET_RELEASE = "fleet"
LONG = "180s"
SHORT = "40s"


def chart_with(directory: Path, manifest: Manifest) -> Path:
    """A chart that holds one SpecDeployment."""
    (directory / "templates").mkdir(parents=True)
    (directory / "Chart.yaml").write_text("apiVersion: v2\nname: fleet\nversion: 0.1.0\n")
    (directory / "templates" / "fleet.yaml").write_text(json.dumps(manifest))
    return directory


def install(kube: Kube, chart: Path, namespace: str, timeout: str) -> None:
    kube.helm("install", FLEET_RELEASE, str(chart), "-n", namespace, "--wait", "--timeout", timeout)


@pytest.fixture
def fleet_release(kube: Kube, namespace: str) -> Iterator[None]:
    yield
    kube.helm("uninstall", FLEET_RELEASE, "-n", namespace, "--ignore-not-found", "--wait", "--timeout", "180s")


@pytest.fixture
def operator_as_before(kube: Kube, operator: str) -> Iterator[None]:
    yield
    install_operator(kube, operator)
    kube.kubectl("scale", "deployment", RELEASE, "-n", SYSTEM_NAMESPACE, "--replicas=1")
    kube.kubectl("rollout", "status", f"deployment/{RELEASE}", "-n", SYSTEM_NAMESPACE, "--timeout=180s", seconds=190)


@pytest.mark.usefixtures("fleet_release")
def test_a_release_with_a_specdeployment_is_waited_for(kube: Kube, stub: str, namespace: str, tmp_path: Path) -> None:
    chart = chart_with(tmp_path / "fleet", stub_fleet(NAME, namespace, stub, routes=[{"name": "all"}]))
    install(kube, chart, namespace, LONG)
    assert is_true(kube.get("specdeployment", NAME, namespace))


@pytest.mark.usefixtures("fleet_release")
def test_a_broken_engine_image_is_not_taken_for_ready(
    kube: Kube, operator: str, namespace: str, tmp_path: Path
) -> None:
    assert operator
    broken = stub_fleet(NAME, namespace, "specfleet.dev/testbed/no-such-image:1", routes=[{"name": "all"}])
    chart = chart_with(tmp_path / "fleet", broken)
    with pytest.raises(KubeError, match=rf"(?i)specdeployment/{namespace}/{NAME} not ready"):
        install(kube, chart, namespace, SHORT)
    found = kube.get("specdeployment", NAME, namespace)
    assert not is_true(found)


@pytest.mark.usefixtures("fleet_release", "operator_as_before")
def test_without_an_operator_nothing_is_taken_for_ready(kube: Kube, stub: str, namespace: str, tmp_path: Path) -> None:
    kube.kubectl("scale", "deployment", RELEASE, "-n", SYSTEM_NAMESPACE, "--replicas=0")
    chart = chart_with(tmp_path / "fleet", stub_fleet(NAME, namespace, stub, routes=[{"name": "all"}]))
    with pytest.raises(KubeError, match=rf"(?i)specdeployment/{namespace}/{NAME} not ready"):
        install(kube, chart, namespace, SHORT)


@pytest.mark.usefixtures("operator_as_before")
def test_a_chart_with_a_broken_operator_image_is_not_taken_for_ready(kube: Kube) -> None:
    values = chart_values("specfleet.dev/testbed/no-such-image:1")
    with pytest.raises(KubeError, match=r"(?i)not ready"):
        kube.helm("upgrade", RELEASE, str(CHART), "-n", SYSTEM_NAMESPACE, "--wait", "--timeout", SHORT, *values)

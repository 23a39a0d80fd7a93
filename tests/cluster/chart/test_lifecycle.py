"""Helm's view: what `--wait` waits for, what an upgrade brings and what an uninstall keeps."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.cluster.chart.client import CHART, DEADLINE_SECONDS, Cluster
from tests.cluster.chart.release import install
from tests.testbed.api import helm_binary
from tests.unit.chart.pages import examples

pytestmark = pytest.mark.cluster


@pytest.fixture
def fleet_chart(tmp_path: Path) -> Path:
    """A chart of a user's own that holds the SpecDeployment of the README."""
    chart = tmp_path / "fleet"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: fleet\nversion: 1.0.0\n")
    example = next(example for page, example in examples() if page == "README.md")
    (chart / "templates" / "fleet.yaml").write_text(yaml.safe_dump(example))
    return chart


def test_helm_waits_for_a_specdeployment_until_its_status_says_ready(installed: Cluster, fleet_chart: Path) -> None:
    wait = ("install", "fleet", str(fleet_chart), "--namespace", "serving", "--wait", "--timeout")
    too_early = installed.run(str(helm_binary()), *wait, "3s")
    assert too_early.returncode != 0
    assert "SpecDeployment/serving/assistant" in too_early.stderr
    installed.helm("uninstall", "fleet", namespace="serving")

    environment = {**os.environ, "KUBECONFIG": str(installed.kubeconfig)}
    waiting = subprocess.Popen([str(helm_binary()), *wait, "60s"], env=environment)
    try:
        installed.eventually("get", "specdeployment", "assistant", "--namespace", "serving", contains="assistant")
        assert waiting.poll() is None
        ready = {
            "observedGeneration": 1,
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "Serving",
                    "message": "both pools and the router serve",
                    "lastTransitionTime": "2026-11-29T09:12:04Z",
                    "observedGeneration": 1,
                }
            ],
        }
        status = ("patch", "specdeployment", "assistant", "--namespace", "serving", "--subresource=status")
        installed.must(*status, "--type=merge", "--patch", json.dumps({"status": ready}))
        assert waiting.wait(DEADLINE_SECONDS) == 0
    finally:
        waiting.kill()
        waiting.wait()
        installed.helm("uninstall", "fleet", namespace="serving")


def test_helm_does_not_call_an_operator_installed_whose_pods_do_not_start(installed: Cluster) -> None:
    chosen = ("--set", "crds.enabled=false", "--set", "podPatch.enabled=false", "--set", "rbac.aggregate=false")
    command = ("install", "broken", str(CHART), "--namespace", "other", *chosen, "--wait", "--timeout", "3s")

    ended = installed.run(str(helm_binary()), *command)

    installed.helm("uninstall", "broken", namespace="other")
    assert ended.returncode != 0
    assert "Deployment/other/broken-specfleet" in ended.stderr


def test_an_upgrade_brings_the_fields_of_the_new_version(installed: Cluster, tmp_path: Path) -> None:
    newer = tmp_path / "specfleet"
    shutil.copytree(CHART, newer)
    (definition,) = (newer / "files" / "crds").glob("*.yaml")
    document = yaml.safe_load(definition.read_text())
    schema = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["laterField"] = {"type": "string", "description": "Of a later release."}
    definition.write_text(yaml.safe_dump(document, sort_keys=False))
    assert "does not exist" in installed.kubectl("explain", "specdeployments.spec.laterField").stderr

    installed.helm("upgrade", "specfleet", str(newer), "--reset-then-reuse-values")
    installed.eventually("explain", "specdeployments.spec.laterField", contains="Of a later release.")

    installed.helm("rollback", "specfleet")
    installed.eventually_refused("explain", "specdeployments.spec.laterField", contains="does not exist")


def test_an_uninstall_keeps_what_users_wrote_and_another_release_can_take_over(installed: Cluster) -> None:
    example = next(example for page, example in examples() if page == "README.md")
    installed.must("apply", "-f", "-", stdin=yaml.safe_dump(example))

    installed.helm("uninstall", "specfleet")

    kept = installed.must("get", "specdeployments", "--namespace", "serving", "-o", "name")
    assert kept.strip() == "specdeployment.specfleet.dev/assistant"
    for kind in ("deployment", "validatingadmissionpolicy", "clusterrole"):
        left = installed.must("get", kind, "--all-namespaces", "-l", "helm.sh/chart", "-o", "name")
        assert left == ""

    install_other = ("install", "other", str(CHART), "--namespace", "other")
    assert "cannot be imported" in installed.run(str(helm_binary()), *install_other).stderr
    assert installed.run(str(helm_binary()), *install_other, "--take-ownership").returncode == 0
    installed.helm("uninstall", "other", namespace="other")

    install(installed, "--take-ownership")
    assert "assistant" in installed.must("get", "specdeployments", "--namespace", "serving")
    installed.must("delete", "specdeployment", "assistant", "--namespace", "serving")

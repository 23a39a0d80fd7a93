"""The kustomize install is the chart's default rendering, and kustomize can build it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import yaml

from manifests.render_install import NAMESPACE, TARGET, install_manifest
from manifests.render_values import README, readme_with_table
from specfleet.settings import load_settings
from tests.testbed.api import kubectl_binary
from tests.unit.chart.helm import REPOSITORY, Object, rendered, the


def built(folder: Path) -> list[Object]:
    command = [str(kubectl_binary()), "kustomize", str(folder)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return list(yaml.safe_load_all(output))


def test_the_manifest_is_what_the_chart_renders() -> None:
    assert TARGET.read_text() == install_manifest(), "run: make crds"


def test_kustomize_builds_the_namespace_and_every_object_of_the_chart() -> None:
    def names(objects: list[Object]) -> set[tuple[str, str]]:
        return {(one["kind"], one["metadata"]["name"]) for one in objects}

    assert names(built(TARGET.parent)) == names(rendered({}, "--skip-tests")) | {("Namespace", NAMESPACE)}


def test_nothing_in_it_speaks_of_helm() -> None:
    assert "helm" not in TARGET.read_text().lower()


def test_the_charts_readme_lists_every_value_with_its_default() -> None:
    text = README.read_text()

    assert text == readme_with_table(text), "run: make crds"
    assert "| `podPatch.enabled` |" in text


def test_the_kustomization_of_the_manual_sets_the_image_in_both_places(tmp_path: Path) -> None:
    page = (REPOSITORY / "docs" / "operations" / "install.md").read_text()
    (block,) = re.findall(r"^```yaml\n(apiVersion: kustomize.*?)^```$", page, flags=re.MULTILINE | re.DOTALL)
    relative = os.path.relpath(TARGET.parent, tmp_path)
    (tmp_path / "kustomization.yaml").write_text(block.replace("../specfleet/manifests/install", relative))

    objects = built(tmp_path)

    image = "registry.example.com/specfleet:0.1.0"
    assert the(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]["image"] == image
    settings = tmp_path / "settings.yaml"
    settings.write_text(the(objects, "ConfigMap")["data"]["settings.yaml"])
    assert load_settings(settings).operator_image == image

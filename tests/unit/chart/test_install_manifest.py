"""The kustomize install is the chart's default rendering, and kustomize can build it."""

from __future__ import annotations

import subprocess

import yaml

from manifests.render_install import NAMESPACE, TARGET, install_manifest
from manifests.render_values import README, readme_with_table
from tests.testbed.api import kubectl_binary
from tests.unit.chart.helm import Object, rendered


def built() -> list[Object]:
    command = [str(kubectl_binary()), "kustomize", str(TARGET.parent)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return list(yaml.safe_load_all(output))


def test_the_manifest_is_what_the_chart_renders() -> None:
    assert TARGET.read_text() == install_manifest(), "run: make crds"


def test_kustomize_builds_the_namespace_and_every_object_of_the_chart() -> None:
    def names(objects: list[Object]) -> set[tuple[str, str]]:
        return {(one["kind"], one["metadata"]["name"]) for one in objects}

    assert names(built()) == names(rendered({}, "--skip-tests")) | {("Namespace", NAMESPACE)}


def test_nothing_in_it_speaks_of_helm() -> None:
    assert "helm" not in TARGET.read_text().lower()


def test_the_charts_readme_lists_every_value_with_its_default() -> None:
    text = README.read_text()

    assert text == readme_with_table(text), "run: make crds"
    assert "| `podPatch.enabled` |" in text

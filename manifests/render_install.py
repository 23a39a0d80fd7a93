"""Renders `manifests/install/specfleet.yaml` from the chart: `python -m manifests.render_install` (in `make crds`)."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.testbed.api import helm_binary

REPOSITORY = Path(__file__).resolve().parents[1]
CHART = REPOSITORY / "charts" / "specfleet"
TARGET = REPOSITORY / "manifests" / "install" / "specfleet.yaml"
NAMESPACE = "specfleet-system"
HEADER = "# Rendered from charts/specfleet by `make crds`. Do not edit; patch it in a kustomization of your own.\n"
# What only Helm reads.
_HELM_LABELS = ("helm.sh/chart", "app.kubernetes.io/managed-by")
_HELM_ANNOTATIONS = ("helm.sh/resource-policy",)


def install_manifest() -> str:
    """Text of the install manifest: the chart's objects with default values, without what only Helm reads.

    Raises:
        subprocess.CalledProcessError: the chart does not render.
    """
    rendered = subprocess.run(  # noqa: S603 - Helm of the test bed, fixed arguments
        [
            *(str(helm_binary()), "template", "specfleet", str(CHART)),
            *("--namespace", NAMESPACE, "--skip-tests", "--kube-version", "1.30.0"),
        ],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    documents = [document for document in yaml.safe_load_all(rendered) if document]
    documents.sort(key=lambda document: document["kind"] != "CustomResourceDefinition")
    body = yaml.safe_dump_all(
        [_without_helm(document) for document in documents], sort_keys=False, width=120, allow_unicode=True
    )
    return HEADER + body


def _without_helm(document: dict[str, Any]) -> dict[str, Any]:
    metadata = document["metadata"]
    template = document.get("spec", {}).get("template", {}).get("metadata", {})
    for place in (metadata, template):
        for label in _HELM_LABELS:
            place.get("labels", {}).pop(label, None)
    for annotation in _HELM_ANNOTATIONS:
        metadata.get("annotations", {}).pop(annotation, None)
    if not metadata.get("annotations", True):
        del metadata["annotations"]
    return document


if __name__ == "__main__":
    TARGET.write_text(install_manifest())
    print(f"wrote {TARGET.relative_to(REPOSITORY)}")

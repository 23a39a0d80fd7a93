"""What is rendered, judged by a real API server: every field is known, and pods meet their security profile."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from specfleet.render.meta import OwnerRef
from specfleet.render.objects import render_all
from specfleet.render.template import merge_keys
from tests.render.cases import FIXTURES, SETTINGS, case_folders, case_name, read_deployment
from tests.render.read_merge_keys import merge_key_table
from tests.testbed.api import ensure_control_plane, kubectl_binary

pytestmark = pytest.mark.cluster

Document = dict[str, Any]


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    plane = ensure_control_plane(tmp_path_factory.mktemp("rendered"))
    for level in ("restricted", "baseline"):
        kubectl(plane.kubeconfig, "create", "namespace", level)
        kubectl(plane.kubeconfig, "label", "namespace", level, f"pod-security.kubernetes.io/enforce={level}")
    kubectl(plane.kubeconfig, "create", "namespace", "serving")
    yield plane.kubeconfig
    plane.stop()


def kubectl(kubeconfig: Path, *arguments: str, documents: list[Document] | None = None) -> str:
    """The output of a kubectl command that has to succeed."""
    ended = subprocess.run(
        [str(kubectl_binary()), *arguments],
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        input=yaml.safe_dump_all(documents or []),
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, f"kubectl {' '.join(arguments)}: {ended.stderr}"
    return ended.stdout


@pytest.mark.parametrize("folder", case_folders(), ids=case_name)
def test_the_server_knows_every_field_and_applying_again_changes_nothing(kubeconfig: Path, folder: Path) -> None:
    objects = render_all(
        read_deployment(folder), SETTINGS, {}, OwnerRef("owner", "0d9bd5ba-54ab-4f0a-a6b5-6a8f0b2a8a3f")
    )
    apply = ("apply", "--server-side", "--validate=strict", "--field-manager=specfleet", "-f", "-")

    first = kubectl(kubeconfig, *apply, "-o", "json", documents=objects)
    second = kubectl(kubeconfig, *apply, "-o", "json", documents=objects)

    def versions(text: str) -> list[str]:
        return [item["metadata"]["resourceVersion"] for item in json.loads(text)["items"]]

    assert versions(second) == versions(first)
    kubectl(kubeconfig, "delete", "--wait=false", "-f", "-", documents=objects)


def pods(folder: Path) -> dict[str, Document]:
    """The pod templates of a fixture as pods of no namespace, without the account, which is not looked at."""
    found = {}
    for item in render_all(read_deployment(folder), SETTINGS):
        if item["kind"] == "Deployment":
            template = item["spec"]["template"]
            name = item["metadata"]["name"]
            spec = {key: value for key, value in template["spec"].items() if key != "topologySpreadConstraints"}
            found[name] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}
    return found


def test_router_pods_meet_the_restricted_profile_and_engine_pods_the_baseline_one(kubeconfig: Path) -> None:
    made = pods(FIXTURES / "vllm/0.32/ngram-claim")
    create = ("create", "--dry-run=server", "-f", "-")

    assert "created" in kubectl(kubeconfig, *create, "-n", "restricted", documents=[made["coder-router"]])
    assert "created" in kubectl(kubeconfig, *create, "-n", "baseline", documents=[made["coder-lookup"]])


def test_two_lines_of_the_manual_make_engine_pods_restricted(kubeconfig: Path) -> None:
    engine = pods(FIXTURES / "vllm/0.32/ngram-claim")["coder-lookup"]
    engine["spec"]["securityContext"] |= {"runAsNonRoot": True, "runAsUser": 2000}

    made = kubectl(kubeconfig, "create", "--dry-run=server", "-f", "-", "-n", "restricted", documents=[engine])

    assert "created" in made


def test_the_table_of_merge_keys_is_the_servers(kubeconfig: Path) -> None:
    document = json.loads(kubectl(kubeconfig, "get", "--raw", "/openapi/v2"))

    assert merge_key_table(document) == merge_keys()

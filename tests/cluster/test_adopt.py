"""`specfleet adopt` on a real API server, by the installed programs: read, print, apply, and missing rights."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.cluster.api import Body
from tests.cluster.conftest import World
from tests.cluster.rights import grant, kubeconfig_of_service_account
from tests.testbed.api import kubectl_binary
from tests.unit.cli.adopted import PAIR

pytestmark = pytest.mark.cluster

PAIR_WORDS = ("deployment/llama-ngram", "--baseline", "deployment/llama-plain")
READ_ONLY: list[Body] = [
    {"apiGroups": ["apps"], "resources": ["deployments"], "verbs": ["get", "list"]},
    {"apiGroups": [""], "resources": ["services"], "verbs": ["get", "list"]},
]


def adopt(world: World, *arguments: str, kubeconfig: Path | None = None) -> subprocess.CompletedProcess[str]:
    """One run of the installed program."""
    return subprocess.run(
        [str(Path(sys.executable).with_name("specfleet")), "adopt", *arguments, "-n", world.namespace],
        env={**os.environ, "KUBECONFIG": str(kubeconfig or world.kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
    )


def apply(world: World, text: str) -> str:
    """What `kubectl apply -f -` says."""
    ended = subprocess.run(
        [str(kubectl_binary()), "apply", "-f", "-"],
        env={**os.environ, "KUBECONFIG": str(world.kubeconfig)},
        input=text,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture
def running(world: World) -> World:
    """The pair and its Services, as a team has them."""
    for manifest in copy.deepcopy(PAIR):
        manifest["metadata"]["namespace"] = world.namespace
        world.api.create(manifest["kind"], world.namespace, manifest)
    return world


def test_a_pair_is_adopted_by_what_is_printed_and_nothing_of_it_is_touched(running: World) -> None:
    before = {one["metadata"]["name"]: one["spec"] for one in running.api.list("Deployment", running.namespace)}
    ended = adopt(running, *PAIR_WORDS)
    assert ended.returncode == 0, ended.stderr

    assert "specdeployment.specfleet.dev/llama-ngram created" in apply(running, ended.stdout)

    spec = running.body("llama-ngram")["spec"]
    assert spec["pools"]["external"] == {
        "speculative": {"service": "llama-ngram-pods", "port": 8000},
        "baseline": {"service": "llama-plain-pods", "port": 8000},
    }
    assert spec["policy"]["enforcement"] == "Observe"
    after = {one["metadata"]["name"]: one["spec"] for one in running.api.list("Deployment", running.namespace)}
    assert after == before


def test_adopting_once_more_changes_nothing(running: World) -> None:
    first = adopt(running, *PAIR_WORDS)
    apply(running, first.stdout)
    before = running.body("llama-ngram")
    second = adopt(running, *PAIR_WORDS)
    apply(running, second.stdout)

    assert second.stdout == first.stdout
    after = running.body("llama-ngram")
    assert (after["spec"], after["metadata"]["generation"]) == (before["spec"], before["metadata"]["generation"])


def test_the_cluster_and_the_manifest_say_the_same(running: World, tmp_path: Path) -> None:
    manifests = copy.deepcopy(list(PAIR))
    for one in manifests:
        one["metadata"]["namespace"] = running.namespace
    file = tmp_path / "engines.yaml"
    file.write_text(yaml.safe_dump_all(manifests))

    for words in (PAIR_WORDS, ("deployment/llama-ngram", "--split"), ("llama-plain", "--split")):
        live, written = adopt(running, *words), adopt(running, *words, "-f", str(file))
        assert live.returncode == 0, live.stderr
        assert yaml.safe_load(live.stdout) == yaml.safe_load(written.stdout)


def test_split_pools_are_taken_by_the_api_server(running: World) -> None:
    ended = adopt(running, "deployment/llama-ngram", "--split", "--name", "split")

    assert "specdeployment.specfleet.dev/split created" in apply(running, ended.stdout)
    assert running.body("split")["spec"]["target"]["servedName"] == "llama"


def test_what_is_not_there_is_answered(running: World) -> None:
    ended = adopt(running, "deployment/nope")

    assert (ended.returncode, ended.stdout) == (1, "")
    assert f"expected a Deployment nope in namespace {running.namespace}, found none" in ended.stderr
    assert "llama-ngram, llama-plain" in ended.stderr


def test_reading_deployments_and_services_is_enough(running: World, tmp_path: Path) -> None:
    grant(running.api, running.namespace, READ_ONLY)
    mine = kubeconfig_of_service_account(running.api, running.kubeconfig, running.namespace, tmp_path / "config")

    ended = adopt(running, *PAIR_WORDS, kubeconfig=mine)

    assert (ended.returncode, ended.stderr) == (0, "")


def test_missing_rights_are_named_with_what_to_ask_for(running: World, tmp_path: Path) -> None:
    grant(running.api, running.namespace, [])
    mine = kubeconfig_of_service_account(running.api, running.kubeconfig, running.namespace, tmp_path / "config")

    ended = adopt(running, *PAIR_WORDS, kubeconfig=mine)

    assert (ended.returncode, ended.stdout) == (1, "")
    assert (
        f"you may not get deployments in namespace {running.namespace}: ask for a role with get and list"
        in ended.stderr
    )
    assert "Traceback" not in ended.stderr


def test_a_kubeconfig_that_leads_nowhere_is_one_sentence(running: World, tmp_path: Path) -> None:
    ended = adopt(running, *PAIR_WORDS, kubeconfig=tmp_path / "none")

    assert (ended.returncode, ended.stdout) == (1, "")
    assert "expected a kubeconfig with a current context" in ended.stderr

"""The API-server-only bed, as a user of the command line sees it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.testbed import api
from tests.testbed.commands import output_of, succeeds
from tests.testbed.paths import REPOSITORY

pytestmark = pytest.mark.cluster


def run_testbed(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run the command line of the test bed."""
    command = [sys.executable, "-m", "tests.testbed", *(str(word) for word in words)]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)


def test_up_status_env_and_down(tmp_path: Path) -> None:
    state = tmp_path / "bed"
    try:
        started = run_testbed("up", "--control-plane-only", "--state", state)
        assert started.returncode == 0, started.stderr
        kubeconfig = Path(started.stdout.strip())
        assert run_testbed("status", "--state", state).returncode == 0
        environment = run_testbed("env", "--state", state).stdout
        assert f"export KUBECONFIG={kubeconfig}\n" in environment
        kubectl: list[str | Path] = [api.kubectl_binary(), "--kubeconfig", kubeconfig]
        assert "default" in output_of([*kubectl, "get", "namespaces", "--output=name"])
        again = run_testbed("up", "--control-plane-only", "--state", state)
        assert again.returncode == 0
        assert "[testbed]" not in again.stderr, "a bed that runs is not started again"
    finally:
        assert run_testbed("down", "--state", state).returncode == 0
    assert not state.exists()
    assert run_testbed("status", "--state", state).returncode == 1
    assert not succeeds([*kubectl, "version", "--request-timeout=2s"])


def test_a_directory_with_other_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    refused = run_testbed("up", "--control-plane-only", "--state", tmp_path)
    assert refused.returncode == 1
    assert "name another --state" in refused.stderr
    assert run_testbed("down", "--state", tmp_path).returncode == 0
    assert (tmp_path / "thesis.txt").read_text() == "mine"


def test_a_bed_whose_owner_died_is_taken_down_by_the_next(tmp_path: Path) -> None:
    code = f"""
from pathlib import Path
from tests.testbed import api
print(api.ensure_control_plane(Path({str(tmp_path / "first")!r})).kubeconfig)
"""
    owner = subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    kubeconfig = Path(owner.stdout.strip())
    assert kubeconfig.is_file()
    second = api.ensure_control_plane(tmp_path / "second")
    try:
        assert not kubeconfig.exists()
    finally:
        second.stop()

"""`specfleet preflight`: what it prints and how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from specfleet.cli.main import app
from tests.unit.preflight.models import CONFIG, tokenizer, write

DEPLOYMENT = """
apiVersion: specfleet.dev/v1alpha1
kind: SpecDeployment
metadata: {name: assistant, namespace: serving}
spec:
  engine: {type: vLLM, version: "0.32.0"}
  target: {model: team/target}
  drafts: [{name: small, mode: %s}]
  pools: {replicas: 2}
  routing: {routes: [{name: chat}]}
  policy: {minAcceptancePercent: 30}
"""


def _run(tmp_path: Path, *arguments: str, mode: str = "DraftModel, model: team/draft") -> Any:
    file = tmp_path / "assistant.yaml"
    file.write_text(DEPLOYMENT % mode)
    return CliRunner().invoke(app, ["preflight", "-f", str(file), *arguments], prog_name="specfleet")


@pytest.fixture
def models(tmp_path: Path) -> Path:
    write(tmp_path / "models/team/target", None, tokenizer())
    write(tmp_path / "models/team/draft", None, tokenizer())
    return tmp_path / "models"


def test_a_pair_that_fits(tmp_path: Path, models: Path) -> None:
    answer = _run(tmp_path, "--models", str(models))
    assert (answer.exit_code, answer.stdout) == (0, "serving/assistant\tPassed\n")


def test_a_pair_that_does_not(tmp_path: Path, models: Path) -> None:
    write(models / "team/draft", CONFIG | {"max_position_embeddings": 2048}, tokenizer())
    answer = _run(tmp_path, "--models", str(models))
    assert answer.exit_code == 1
    first, last = answer.stdout.splitlines()
    assert first.startswith("error\tContext\tthe draft team/draft has 2048 positions")
    assert last == "serving/assistant\tFailed"
    answer = _run(tmp_path, "--models", str(models), "-o", "json")
    assert answer.exit_code == 1
    document = json.loads(answer.stdout)
    assert document[0]["name"] == "serving/assistant"
    assert document[0]["outcome"] == "Failed"
    assert document[0]["findings"][0]["check"] == "Context"


def test_nothing_to_check(tmp_path: Path, models: Path) -> None:
    answer = _run(tmp_path, "--models", str(models), mode="NGram")
    assert answer.exit_code == 0
    assert "Nothing to check" in answer.stdout


def test_what_could_not_be_looked_at(tmp_path: Path, models: Path) -> None:
    answer = _run(tmp_path, "--models", str(models), mode="EAGLE, model: team/none")
    assert answer.exit_code == 3
    assert "unknown\tAccess\tthe draft team/none is not below" in answer.stdout


@pytest.mark.parametrize("arguments", [[], ["-f", "/not/there"], ["-f", "{file}", "--models", "/not/there"]])
def test_bad_input(tmp_path: Path, arguments: list[str]) -> None:
    file = tmp_path / "assistant.yaml"
    file.write_text(DEPLOYMENT % "NGram")
    given = [one.format(file=file) for one in arguments]
    answer = CliRunner().invoke(app, ["preflight", *given], prog_name="specfleet")
    assert answer.exit_code == 2
    assert answer.stderr.startswith("specfleet preflight: ")


def test_an_invalid_object_is_not_checked(tmp_path: Path, models: Path) -> None:
    answer = _run(tmp_path, "--models", str(models), mode="EAGLE3")
    assert answer.exit_code == 2
    assert "needs a draft checkpoint" in answer.stderr or "need a draft checkpoint" in answer.stderr


def test_the_hub_tools_cache_is_read(tmp_path: Path) -> None:
    commit = "0123456789abcdef0123456789abcdef01234567"
    for name in ("target", "draft"):
        root = tmp_path / f"hub/models--team--{name}"
        write(root / "snapshots" / commit, None, tokenizer())
        (root / "refs").mkdir()
        (root / "refs/main").write_text(commit)
    assert _run(tmp_path, "--models", str(tmp_path)).exit_code == 0


def test_the_jobs_entry_point_imports_no_handler() -> None:
    program = (
        "import sys; sys.argv = ['specfleet', 'preflight', '--job'];\n"
        "import specfleet.cli.preflight\n"
        "print(sorted(name for name in sys.modules if name.split('.')[0] in ('kopf', 'kubernetes')"
        " or name.startswith('specfleet.handlers')))"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"

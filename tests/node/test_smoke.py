"""The demo as a user runs it, watched for a shorter time after the switch; and with a real fleet's times."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.node.install import REPOSITORY

pytestmark = pytest.mark.node

RUN_SECONDS = 1800


def test_the_demo_takes_chat_to_baseline_and_leaves_code_and_json(tmp_path: Path) -> None:
    said = shown(tmp_path, "--stay-seconds", "20")
    assert "minAcceptancePercent: 30" in said


def shown(tmp_path: Path, *options: str) -> str:
    """Run the demo with these options; what it said, with its outcome checked."""
    out = tmp_path / "demo.json"
    command = [sys.executable, "-m", "tests.node.demo", "--out", str(out), *options]
    returncode, said = _run_showing(command, env=os.environ | {"NO_COLOR": "1"})
    assert returncode == 0, said[-4000:]

    result = json.loads(out.read_text())
    assert set(result) == {"routes", "failedRequests", "secondsToSwitch", "secondsSetup"}
    assert result["failedRequests"] == 0
    assert {name: route["pool"] for name, route in result["routes"].items()} == {
        "code": "ngram",
        "json": "ngram",
        "chat": "baseline",
    }
    chat = result["routes"]["chat"]
    for name in ("code", "json"):
        route = result["routes"][name]
        assert set(route) == {"pool", "acceptancePercent", "tokensPerStep", "msPerToken", "requests"}
        assert route["acceptancePercent"] >= 30
        assert route["tokensPerStep"] >= 1.5
        assert route["requests"] > 0
    assert chat["acceptancePercent"] < 30
    assert chat["tokensPerStep"] < 1.5
    return said


def _run_showing(command: list[str], env: dict[str, str]) -> tuple[int, str]:
    """Exit status and output of a command whose lines are passed on as they come, so that minutes are not silent."""
    lines = []
    with subprocess.Popen(
        command, cwd=REPOSITORY, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as running:
        overdue = threading.Timer(RUN_SECONDS, running.kill)
        overdue.start()
        assert running.stdout is not None
        for line in running.stdout:
            print(line, end="", flush=True)
            lines.append(line)
        overdue.cancel()
    return running.returncode, "".join(lines)

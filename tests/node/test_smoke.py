"""The demo as a user runs it, watched for a shorter time after the switch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.node.install import REPOSITORY

pytestmark = pytest.mark.node

RUN_SECONDS = 1800


def test_the_demo_takes_chat_to_baseline_and_leaves_code_and_json(tmp_path: Path) -> None:
    out = tmp_path / "demo.json"
    ended = subprocess.run(
        [sys.executable, "-m", "tests.node.demo", "--out", str(out), "--stay-seconds", "20"],
        cwd=REPOSITORY,
        env=os.environ | {"NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS,
        check=False,
    )
    print(ended.stdout, ended.stderr)
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-2000:]

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
    assert "minAcceptancePercent: 30" in ended.stdout

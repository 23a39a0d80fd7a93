"""`specfleet plan` of a SpecDeployment as the cluster has it, beside the metrics page of each of its pools."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.node.conftest import Fleet
from tests.node.install import REPOSITORY, pods_of
from tests.node.kube import ready_pods

LABEL_POOL = "specfleet.dev/pool"


def plans(fleet: Fleet, directory: Path, models: Mapping[str, Path]) -> dict[str, dict[str, Any]]:
    """What `specfleet plan -o json --metrics PAGE` says, by pool that the page is of.

    Args:
        directory: empty; for what the command reads.
        models: directories of this machine by the paths that engine pods know them by.
    """
    for path, where in models.items():
        link = directory / path.lstrip("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(where)
    manifest, settings = directory / "fleet.json", directory / "settings.json"
    manifest.write_text(json.dumps(fleet.body()))
    settings.write_text(json.dumps({"allowHostPath": True}))
    found: dict[str, dict[str, Any]] = {}
    for pod in ready_pods(pods_of(fleet.kube, fleet.name, fleet.namespace)):
        pool = pod["metadata"]["labels"].get(LABEL_POOL)
        if pool is not None and pool not in found:
            page = directory / f"{pool}.txt"
            page.write_bytes(_metrics(pod["status"]["podIP"]))
            options: list[str | Path] = [
                "-f",
                manifest,
                "--models",
                directory,
                "--settings",
                settings,
                "--metrics",
                page,
                "-o",
                "json",
            ]
            ended = subprocess.run(
                [REPOSITORY / ".venv" / "bin" / "specfleet", "plan", *options],
                capture_output=True,
                text=True,
                check=False,
            )
            assert ended.returncode == 0, ended.stderr
            (found[pool],) = json.loads(ended.stdout)
    return found


def agree(found: Mapping[str, Mapping[str, Any]]) -> None:
    """The plan of each pool is within 2 % of what the engine counted."""
    assert len(found) == 2
    for pool, plan in found.items():
        live = plan["live"]
        print(f"{pool}: {live}")
        assert live["agrees"] is True
        assert live["plannedTokens"] > 0
        assert abs(live["plannedTokens"] / live["reportedTokens"] - 1.0) <= 0.02


def _metrics(address: str) -> bytes:
    with urllib.request.urlopen(f"http://{address}:8000/metrics", timeout=10) as response:
        body: bytes = response.read()
    return body

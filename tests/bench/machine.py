"""Where and when a benchmark ran, and its result as a file."""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent.parent


def provenance(command: str) -> dict[str, object]:
    """Date, commit (`+` where decision/ differs from it), machine and command of a result."""
    changed = _git("status", "--porcelain", "--untracked-files=no", "operator/specfleet/decision")
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": _git("rev-parse", "--short", "HEAD") + ("+" if changed else ""),
        "machine": f"{processor()}, {os.cpu_count()} cores, Python {platform.python_version()}, no accelerator",
        "command": command,
    }


def commit() -> str:
    """The checkout's commit, with `-dirty` where files differ from it."""
    words = ["git", "-C", str(REPOSITORY), "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    ended = subprocess.run(words, capture_output=True, text=True, check=False)
    return ended.stdout.strip() or "unknown"


def machine() -> dict[str, Any]:
    """What it ran on."""
    memory_kib = int(Path("/proc/meminfo").read_text().split()[1])
    return {
        "processor": processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memoryGiB": round(memory_kib / 2**20, 1),
        "kernel": platform.release(),
    }


def written(result: dict[str, Any], file: Path) -> None:
    """Write the JSON, a figure with its interval on one line."""
    text = json.dumps(result, indent=1)
    for innermost in (r"\[[^\[\]{}]*\]", r"\{[^{}]*\}"):
        text = re.sub(innermost, lambda found: re.sub(r"\s+", " ", found.group()), text)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text + "\n")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def processor() -> str:
    """Its name, else the architecture."""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()

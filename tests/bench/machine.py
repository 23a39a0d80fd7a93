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


def provenance(command: str) -> dict[str, object]:
    """Date, commit (`+` where decision/ differs from it), machine and command of a result."""
    changed = _git("status", "--porcelain", "--untracked-files=no", "operator/specfleet/decision")
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "commit": _git("rev-parse", "--short", "HEAD") + ("+" if changed else ""),
        "machine": f"{_processor()}, {os.cpu_count()} cores, Python {platform.python_version()}, no accelerator",
        "command": command,
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


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()

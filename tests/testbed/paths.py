"""Where things are kept: the checkout, the cache that outlives it, and a bed's own state."""

from __future__ import annotations

import os
from pathlib import Path

TESTBED = Path(__file__).resolve().parent
REPOSITORY = TESTBED.parent.parent
TEMPLATES = TESTBED / "templates"
GO_MODULES = TESTBED / "go"


def cache_root() -> Path:
    """`$SPECFLEET_CACHE`, else `$XDG_CACHE_HOME/specfleet`, else `~/.cache/specfleet`."""
    explicit = os.environ.get("SPECFLEET_CACHE")
    if explicit:
        return Path(explicit).resolve()
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base).resolve() / "specfleet"


def program_path(name: str, version: str) -> Path:
    """Where the program `name` of that version lies in the cache."""
    return cache_root() / "bin" / name / version / name


def node_state() -> Path:
    """Default state directory of the whole node."""
    return cache_root() / "state" / "node"


def logs_dir() -> Path:
    """Logs of builds and downloads (daemons log to `STATE/logs`)."""
    directory = cache_root() / "logs"
    directory.mkdir(parents=True, exist_ok=True)
    return directory

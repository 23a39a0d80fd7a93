"""Brings `uv`, which a fresh machine does not have, into the cache."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from tests.testbed.commands import run_logged, succeeds
from tests.testbed.locks import exclusive
from tests.testbed.paths import cache_root


def ensure_uv() -> Path:
    """Path of `uv`: the cache's own, else the one on PATH, else installed into the cache by pip."""
    own = cache_root() / "uv" / "bin" / "uv"
    with exclusive("uv"):
        if own.is_file():
            return own
        found = shutil.which("uv")
        if found is not None:
            return Path(found)
        _ensure_venv_module()
        run_logged([sys.executable, "-m", "venv", cache_root() / "uv"], "uv-venv")
        run_logged([own.with_name("python"), "-m", "pip", "install", "--quiet", "uv"], "uv-install")
        return own


def _ensure_venv_module() -> None:
    # Debian ships Python without these two; the package name follows the interpreter's version.
    if not succeeds([sys.executable, "-c", "import ensurepip, venv"]):
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        run_logged(["apt-get", "update"], "apt-update")
        run_logged(["apt-get", "install", "-y", "--no-install-recommends", f"python{version}-venv"], "apt-venv")

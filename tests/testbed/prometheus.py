"""A real Prometheus for tests: Debian's package, unpacked into the cache and not installed.

Installing it would put a service and a user on the machine.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.testbed.commands import run_logged, succeeds
from tests.testbed.errors import TestbedError
from tests.testbed.locks import exclusive, made_whole, remove
from tests.testbed.paths import cache_root
from tests.testbed.progress import step

PACKAGE = "prometheus"


def ensure_prometheus() -> Path:
    """Path of the program `prometheus`; `promtool` lies beside it. 20 MB, fetched once a machine.

    Raises:
        TestbedError: this is no Debian, or the package cannot be had.
    """
    root = cache_root() / PACKAGE
    program = root / "usr" / "bin" / "prometheus"
    if program.is_file():
        return program
    with exclusive(PACKAGE):
        if not program.is_file():
            _fetch(root)
    return program


def _fetch(root: Path) -> None:
    missing = [name for name in ("apt-get", "dpkg") if shutil.which(name) is None]
    if missing:
        raise TestbedError(f"expected {' and '.join(missing)} to fetch the package {PACKAGE}, found none")
    download = cache_root() / "unpack" / PACKAGE
    with step(f"fetch {PACKAGE}", "Debian's package, unpacked into the cache (once a machine)"):
        remove(download)
        download.mkdir(parents=True)
        command = ["env", f"--chdir={download}", "apt-get", "download", PACKAGE]
        if not succeeds(command):
            run_logged(["apt-get", "update"], "apt-update")
            run_logged(command, f"fetch-{PACKAGE}")
        archive = next(download.glob(f"{PACKAGE}_*.deb"), None)
        if archive is None:
            raise TestbedError(f"expected apt-get to leave {PACKAGE}_*.deb in {download}, found none")
        with made_whole(root) as draft:
            run_logged(["dpkg", "-x", archive, draft], f"unpack-{PACKAGE}")
        remove(download)

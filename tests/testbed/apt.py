"""Debian packages that the bed needs on the machine."""

from __future__ import annotations

import shutil

from tests.testbed.commands import run_logged, succeeds
from tests.testbed.errors import TestbedError
from tests.testbed.locks import exclusive
from tests.testbed.progress import step

# Program it brings -> package.
IMAGE_TOOLS = {"buildah": "buildah", "debootstrap": "debootstrap"}
NODE_TOOLS = {
    "runc": "runc",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "ip": "iproute2",
    "mount": "mount",
    "openssl": "openssl",
    "nice": "coreutils",
}


def ensure_packages(packages: dict[str, str]) -> None:
    """Install the packages whose programs are not there.

    Raises:
        TestbedError: this is no Debian, or apt failed.
    """
    if not _missing(packages):
        return
    with exclusive("apt"):
        missing = _missing(packages)
        if not missing:
            return
        if shutil.which("apt-get") is None:
            raise TestbedError(
                f"expected the programs of {', '.join(missing)}, or apt-get to install them; found neither"
            )
        with step("apt", f"install {', '.join(missing)}"):
            environment = {"DEBIAN_FRONTEND": "noninteractive"}
            install = ["apt-get", "install", "-y", "--no-install-recommends", *missing]
            if not succeeds(install, env=environment):
                run_logged(["apt-get", "update"], "apt-update", env=environment)
                run_logged(install, "apt-install", env=environment)


def _missing(packages: dict[str, str]) -> list[str]:
    return sorted({package for program, package in packages.items() if not _found(program)})


def _found(program: str) -> bool:
    # Daemons live in sbin, which the PATH of an unprivileged login leaves out.
    return shutil.which(program) is not None or shutil.which(program, path="/usr/sbin:/sbin") is not None

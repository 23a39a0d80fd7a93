"""The file system of `debian:bookworm-slim`, made from packages since there is no registry to pull it from."""

from __future__ import annotations

from pathlib import Path

from tests.testbed.apt import IMAGE_TOOLS, ensure_packages
from tests.testbed.commands import output_of, run_logged
from tests.testbed.locks import exclusive, made_whole, remove
from tests.testbed.paths import cache_root
from tests.testbed.progress import step

# To be raised when the package list changes: it keys the cache.
REVISION = "bookworm-1"
# Python is in it so that an image can be built where its package mirror is not reachable; the engine needs libnuma1.
PACKAGES = ("python3", "python3-venv", "ca-certificates", "libnuma1", "libexpat1", "procps")
_DEFAULT_MIRROR = "http://deb.debian.org/debian"


def ensure_base_file_system() -> Path:
    """The base image's root directory; about 70 s the first time."""
    target = cache_root() / "base" / REVISION / "rootfs"
    if target.is_dir():
        return target
    with exclusive("base-file-system"):
        if not target.is_dir():
            ensure_packages(IMAGE_TOOLS)
            with (
                step("base file system", "debootstrap Debian bookworm with python3 (once a machine)"),
                made_whole(target) as draft,
            ):
                packages = f"--include={','.join(PACKAGES)}"
                run_logged(
                    ["debootstrap", "--variant=minbase", packages, "bookworm", draft, _mirror()],
                    "debootstrap",
                    nice=True,
                )
                _forget_this_machine(draft)
    return target


def _mirror() -> str:
    """The mirror that this machine's own apt uses for bookworm, if it does."""
    targets = output_of(["apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Created-By: Packages"])
    for line in targets.splitlines():
        address, _, release = line.partition(" ")
        if release == "bookworm" and "debian" in address:
            return address
    return _DEFAULT_MIRROR


def _forget_this_machine(root: Path) -> None:
    for folder in ("var/cache/apt/archives", "var/lib/apt/lists"):
        for entry in (root / folder).iterdir():
            remove(entry)
    (root / "etc/resolv.conf").write_text("")
    (root / "etc/hostname").write_text("localhost\n")

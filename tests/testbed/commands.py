"""Run a program to its end, with its output in a log file."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.testbed.errors import TestbedError
from tests.testbed.paths import logs_dir


def run_logged(
    command: Sequence[str | Path],
    log_name: str,
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    nice: bool = False,
) -> None:
    """Run `command`; its output goes to `CACHE/logs/LOG_NAME.log`, its input is empty.

    Args:
        env: variables added to the caller's environment.
        nice: run at a low priority (long builds on a machine that others use).

    Raises:
        TestbedError: the program is missing or ended with an error.
    """
    log = logs_dir() / f"{log_name}.log"
    full = [str(part) for part in (["nice", *command] if nice else command)]
    with log.open("w") as output:
        output.write("$ " + " ".join(full) + "\n")
        output.flush()
        try:
            ended = subprocess.run(
                full,
                cwd=cwd,
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                check=False,
            )
        except FileNotFoundError as error:
            raise TestbedError(f"expected the program {full[0]} on this machine, but it is not there") from error
    if ended.returncode != 0:
        raise TestbedError(f"expected `{' '.join(full[:4])} ...` to succeed, it ended with {ended.returncode}", log)


def output_of(command: Sequence[str | Path], *, env: Mapping[str, str] | None = None, stdin: str = "") -> str:
    """Standard output of `command`, which is given `stdin`.

    Raises:
        TestbedError: the program is missing or ended with an error (its standard error is quoted).
    """
    full = [str(part) for part in command]
    try:
        ended = subprocess.run(
            full, env={**os.environ, **(env or {})}, input=stdin, capture_output=True, text=True, check=False
        )
    except FileNotFoundError as error:
        raise TestbedError(f"expected the program {full[0]} on this machine, but it is not there") from error
    if ended.returncode != 0:
        raise TestbedError(
            f"expected `{' '.join(full[:5])}` to succeed, it ended with {ended.returncode}: {ended.stderr.strip()}"
        )
    return ended.stdout


def succeeds(command: Sequence[str | Path], *, env: Mapping[str, str] | None = None) -> bool:
    """Whether `command` ends with 0; what it prints is dropped."""
    full = [str(part) for part in command]
    try:
        ended = subprocess.run(
            full,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            check=False,
        )
    except FileNotFoundError:
        return False
    return ended.returncode == 0

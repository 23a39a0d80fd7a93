"""Daemons that outlive the shell that started them, found again by process id and start time."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.testbed.errors import TestbedError

_POLL_SECONDS = 0.05
# Children stay referenced: a Popen object that is collected early warns, and an unreaped child looks alive.
_children: list[subprocess.Popen[bytes]] = []


@dataclass(frozen=True)
class Process:
    """A process id together with its start time, so that a reused id is not taken for it.

    Args:
        started_ticks: start time since boot, in clock ticks (`/proc/PID/stat`, field 22).
    """

    pid: int
    started_ticks: int

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """The process that has this id now; None if there is none, or only a zombie."""
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return None if fields[0] in ("Z", "X") else cls(pid, int(fields[19]))

    @property
    def alive(self) -> bool:
        """Whether that very process still runs."""
        for child in _children:
            child.poll()
        return Process.of(self.pid) == self


@dataclass(frozen=True)
class Daemon:
    """A daemon of the bed in `state`: `STATE/pids/NAME.json` and `STATE/logs/NAME.log`."""

    name: str
    state: Path

    @property
    def log(self) -> Path:
        """Where its output goes."""
        return self.state / "logs" / f"{self.name}.log"

    @property
    def _record(self) -> Path:
        return self.state / "pids" / f"{self.name}.json"

    @property
    def process(self) -> Process | None:
        """The process that was started last, alive or not."""
        try:
            return Process(**json.loads(self._record.read_text()))
        except (OSError, ValueError, TypeError):
            return None

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        process = self.process
        return process is not None and process.alive

    def start(self, command: Sequence[str | Path], env: Mapping[str, str] | None = None) -> None:
        """Start it in a session of its own, without input; does nothing if it runs."""
        if self.alive:
            return
        for directory in (self.log.parent, self._record.parent):
            directory.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as output:
            child = subprocess.Popen(
                [str(part) for part in command],
                env={**os.environ, **(env or {})},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                cwd="/",
            )
        _children.append(child)
        process = Process.of(child.pid)
        if process is not None:
            self._record.write_text(json.dumps(process.__dict__))

    def stop(self, grace_seconds: float = 15.0) -> None:
        """End it: SIGTERM, and SIGKILL after the grace."""
        process = self.process
        if process is not None:
            end([process], grace_seconds)
        self._record.unlink(missing_ok=True)

    def wait_for(self, expected: str, condition: Callable[[], bool], timeout_seconds: float) -> None:
        """Wait until `condition` holds.

        Raises:
            TestbedError: it ended before that, or the time is up.
        """
        deadline = time.monotonic() + timeout_seconds
        while not condition():
            if not self.alive:
                raise TestbedError(f"expected {expected}, but {self.name} has ended", self.log)
            if time.monotonic() > deadline:
                raise TestbedError(f"expected {expected} within {timeout_seconds:.0f} s of starting", self.log)
            time.sleep(_POLL_SECONDS)


def end(processes: Sequence[Process], grace_seconds: float) -> None:
    """SIGTERM to all, SIGKILL to those still alive after the grace; returns when all are gone."""
    for process in processes:
        _signal(process, signal.SIGTERM)
    if not _await_end(processes, grace_seconds):
        for process in processes:
            _signal(process, signal.SIGKILL)
        _await_end(processes, 10.0)


def running_programs() -> list[tuple[Process, list[str]]]:
    """Every process of the machine with its command line (kernel threads have none and are left out)."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().rstrip(b"\0").decode(errors="replace").split("\0")
        except OSError:
            continue
        process = Process.of(int(entry.name))
        if process is not None and words != [""]:
            found.append((process, words))
    return found


def _signal(process: Process, number: signal.Signals) -> None:
    if process.alive:
        try:
            os.kill(process.pid, number)
        except ProcessLookupError:
            return


def _await_end(processes: Sequence[Process], timeout_seconds: float) -> bool:
    deadline = time.monotonic() + timeout_seconds
    while any(process.alive for process in processes):
        if time.monotonic() > deadline:
            return False
        time.sleep(_POLL_SECONDS)
    return True

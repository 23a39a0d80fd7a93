"""Which beds there are on this machine: their ports, and whether the process that wanted them still lives."""

from __future__ import annotations

import hashlib
import json
import os
import socket
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.testbed.errors import TestbedError
from tests.testbed.locks import exclusive
from tests.testbed.paths import cache_root
from tests.testbed.processes import Process

# Below the kernel's ephemeral range (from 32768), so that no outgoing connection takes a port between claim and use.
_PORTS = range(21000, 30000)


@dataclass(frozen=True)
class Bed:
    """A registered bed.

    Args:
        state: its state directory.
        ports: TCP ports it has to itself.
        owner: the process it dies with; None if it stays until it is taken down.
    """

    state: Path
    ports: tuple[int, ...]
    owner: Process | None

    @property
    def orphaned(self) -> bool:
        """Whether its owner has ended without taking it down."""
        return self.owner is not None and not self.owner.alive


def claim(state: Path, ports: int, *, owned: bool) -> Bed:
    """Register the bed in `state` with `ports` free ports; a bed that is registered keeps its ports."""
    with exclusive("registry"):
        present = beds()
        known = next((bed for bed in present if bed.state == state), None)
        owner = Process.of(os.getpid()) if owned else None
        if known is not None:
            chosen = known.ports
        else:
            taken = {port for bed in present for port in bed.ports}
            chosen = _free_ports(taken, ports)
        bed = Bed(state, chosen, owner)
        _write(bed)
        return bed


def release(state: Path) -> None:
    """Forget the bed in `state`."""
    _file(state).unlink(missing_ok=True)


def beds() -> list[Bed]:
    """All registered beds."""
    found = []
    for file in sorted(_directory().glob("*.json")):
        try:
            data = json.loads(file.read_text())
        except (OSError, ValueError):
            continue
        owner = Process(**data["owner"]) if data["owner"] else None
        found.append(Bed(Path(data["state"]), tuple(data["ports"]), owner))
    return found


def _directory() -> Path:
    return cache_root() / "beds"


def _file(state: Path) -> Path:
    return _directory() / f"{hashlib.sha256(str(state).encode()).hexdigest()[:16]}.json"


def _write(bed: Bed) -> None:
    _directory().mkdir(parents=True, exist_ok=True)
    owner = asdict(bed.owner) if bed.owner else None
    content = json.dumps({"state": str(bed.state), "ports": bed.ports, "owner": owner})
    draft = _file(bed.state).with_suffix(".partial")
    draft.write_text(content)
    draft.replace(_file(bed.state))


def _free_ports(taken: set[int], count: int) -> tuple[int, ...]:
    chosen: list[int] = []
    for port in _PORTS:
        if len(chosen) == count:
            return tuple(chosen)
        if port not in taken and _bindable(port):
            chosen.append(port)
    raise TestbedError(f"expected {count} free TCP ports between {_PORTS.start} and {_PORTS.stop}, found {len(chosen)}")


def _bindable(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True

"""A bed's state directory is marked as such: nothing else is ever written to or removed."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from tests.testbed.errors import TestbedError
from tests.testbed.locks import remove

Kind = Literal["node", "control plane only"]
_MARKER = "specfleet-testbed"


def kind_of(state: Path) -> Kind | None:
    """Which kind of bed has its state there; None if none has."""
    try:
        return "node" if (state / _MARKER).read_text() == "node" else "control plane only"
    except OSError:
        return None


def take(state: Path, kind: Kind) -> None:
    """Make `state` the state directory of a bed of this kind.

    Raises:
        TestbedError: it holds other files, or a bed of the other kind.
    """
    present = kind_of(state)
    if present == kind:
        return
    if present is not None:
        raise TestbedError(f"expected no other bed in {state}, found one ({present}): name another --state")
    if state.is_dir() and any(state.iterdir()):
        raise TestbedError(f"expected {state} to be empty or a test bed's own, found other files: name another --state")
    state.mkdir(parents=True, exist_ok=True)
    (state / _MARKER).write_text(kind)


def give_up(state: Path) -> None:
    """Remove the state directory of a bed, and nothing that is none."""
    if kind_of(state) is not None:
        remove(state)

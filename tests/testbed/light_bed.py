"""The API-server-only bed; several may run at once, each in a state directory of its own."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.testbed import control_plane, registry
from tests.testbed.apt import ensure_packages
from tests.testbed.control_plane import Layout
from tests.testbed.locks import exclusive, remove
from tests.testbed.programs import CONTROL_PLANE, CONTROLLER_MANAGER
from tests.testbed.progress import step
from tests.testbed.state_dir import Kind, give_up, kind_of, take
from tests.testbed.tools import ensure_programs

_SERVICE_CIDR = "10.214.0.0/16"
# Never routed: nothing connects to it, but the API server insists on an address that is not loopback (RFC 5737).
_ADVERTISED = "203.0.113.1"
_KIND: Kind = "control plane only"


def up(state: Path, *, controllers: bool, owned: bool, audited: bool = False) -> Layout:
    """Start it in `state`, or return the one that runs there.

    Args:
        owned: it ends with this process (cleaned up by the next start); else it stays until `down`.
        audited: writes are recorded, where it does not run yet.

    Raises:
        TestbedError: `state` holds something else, or a part did not start.
    """
    state = state.resolve()
    take(state, _KIND)
    clean_orphans()
    ensure_packages({"openssl": "openssl"})
    ensure_programs((*CONTROL_PLANE, *((CONTROLLER_MANAGER,) if controllers else ())))
    layout = replace(_layout(state, registry.claim(state, 3, owned=owned).ports), audited=audited)
    with exclusive(f"bed-{layout.ports[0]}"):
        return _started(layout, controllers=controllers)


def _started(layout: Layout, *, controllers: bool) -> Layout:
    if layout.etcd.alive and layout.api_server.alive and layout.ready():
        if controllers:
            control_plane.start_controllers(layout)
        return layout
    with step("control plane", f"start etcd and kube-apiserver on 127.0.0.1:{layout.ports[0]}"):
        control_plane.stop(layout)
        remove(layout.state / "etcd")
        control_plane.start(layout, controllers=controllers)
    return layout


def down(state: Path) -> None:
    """End what runs in `state` and remove the directory; does nothing where there is none."""
    state = state.resolve()
    if kind_of(state) == _KIND:
        control_plane.stop(_layout(state, (0, 0, 0)))
        give_up(state)
    registry.release(state)


def unwell(state: Path) -> list[str]:
    """What is not as it should be, in words; empty for a bed that is well."""
    state = state.resolve()
    known = next((bed for bed in registry.beds() if bed.state == state), None)
    if known is None:
        return ["not running"]
    return [] if _layout(state, known.ports).ready() else ["the API server is not ready"]


def clean_orphans() -> None:
    """Take down the beds whose owners have died."""
    with exclusive("orphans"):
        for bed in registry.beds():
            if bed.orphaned:
                down(bed.state)


def _layout(state: Path, ports: tuple[int, ...]) -> Layout:
    api, clients, peers = ports
    return Layout(state, "127.0.0.1", _ADVERTISED, (api, clients, peers), _SERVICE_CIDR, pods_possible=False)

"""Kernel parameters that a node changes: noted before, put back after."""

from __future__ import annotations

import json
from pathlib import Path

_NEEDED = {"net/ipv4/ip_forward": "1", "net/bridge/bridge-nf-call-iptables": "1"}
_CHANGED_BY_KUBELET_AND_PROXY = (
    "vm/overcommit_memory",
    "vm/panic_on_oom",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
    "net/ipv4/conf/all/route_localnet",
)
_ROOT = Path("/proc/sys")


def prepare(state: Path) -> None:
    """Note the parameters in `STATE/kernel.json` and set those that pods need."""
    names = [*_NEEDED, *_CHANGED_BY_KUBELET_AND_PROXY]
    before = {name: (_ROOT / name).read_text().strip() for name in names if (_ROOT / name).is_file()}
    _record(state).write_text(json.dumps(before))
    for name, value in _NEEDED.items():
        # No such file: bridged packets skip iptables, or always pass it; the DNS check at the end of `up` would tell.
        if name in before:
            (_ROOT / name).write_text(value)


def restore(state: Path) -> None:
    """Put back what `prepare` noted."""
    record = _record(state)
    if not record.is_file():
        return
    for name, value in json.loads(record.read_text()).items():
        if (_ROOT / name).read_text().strip() != value:
            (_ROOT / name).write_text(value)
    record.unlink()


def _record(state: Path) -> Path:
    return state / "kernel.json"

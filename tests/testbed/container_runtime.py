"""containerd of the bed's own, and the images in it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from tests.testbed.commands import output_of, run_logged, succeeds
from tests.testbed.errors import TestbedError
from tests.testbed.filesystem import holds_overlays
from tests.testbed.images import PAUSE_IMAGE
from tests.testbed.network import BRIDGE, NODE_ADDRESS, POD_CIDR
from tests.testbed.processes import Daemon, Process, running_programs
from tests.testbed.programs import CNI_PLUGINS, CONTAINERD, CTR, RUNC_SHIM
from tests.testbed.templates import write_template
from tests.testbed.tools import ensure_program

_SHIM_SOCKETS = Path("/run/containerd/s")


def daemon(state: Path) -> Daemon:
    """The containerd of the bed in `state`."""
    return Daemon("containerd", state)


def socket(state: Path) -> Path:
    """Its socket."""
    return state / "containerd" / "containerd.sock"


def start(state: Path) -> None:
    """Start it and wait until it answers."""
    runc = shutil.which("runc") or shutil.which("runc", path="/usr/sbin:/sbin")
    if runc is None:
        raise TestbedError("expected runc on this machine, found none")
    plugins = [ensure_program(plugin).parent for plugin in CNI_PLUGINS]
    config = write_template(
        "containerd.toml",
        state,
        state=state,
        socket=socket(state),
        snapshotter="overlayfs" if holds_overlays(state) else "native",
        pause_image=PAUSE_IMAGE,
        runc=runc,
        cni_bin_dirs=", ".join(f'"{plugin}"' for plugin in plugins),
    )
    (state / "cni").mkdir(exist_ok=True)
    write_template(
        "cni.conflist", state / "cni", state=state, bridge=BRIDGE, pod_cidr=POD_CIDR, node_address=NODE_ADDRESS
    )
    path = os.pathsep.join([str(ensure_program(RUNC_SHIM).parent), os.environ.get("PATH", ""), "/usr/sbin:/sbin"])
    daemon(state).start([ensure_program(CONTAINERD), "--config", config], env={"PATH": path})
    daemon(state).wait_for("containerd to answer", lambda: succeeds(ctr(state, "version")), 60.0)


def load(state: Path, archive: Path, name: str) -> None:
    """Load an image archive, unless the node has that very archive already.

    Args:
        name: the image's full name, which the archive has too.
    """
    mark = state / "images" / archive.name
    stamp = str(archive.stat().st_mtime_ns)
    if mark.is_file() and mark.read_text() == stamp:
        return
    run_logged(ctr(state, "images", "import", archive), f"import-{archive.stem}")
    if name not in output_of(ctr(state, "images", "list", "--quiet")).split():
        raise TestbedError(f"expected {archive} to hold the image {name}, it does not")
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.write_text(stamp)


def ctr(state: Path, *words: str | Path) -> list[str | Path]:
    """The command line of containerd's client for the node's images and containers."""
    return [ensure_program(CTR), "--address", socket(state), "--namespace", "k8s.io", *words]


def shims(state: Path) -> list[Process]:
    """The shims of this containerd; each holds one pod, and outlives containerd."""
    address = str(socket(state))
    return [
        process
        for process, words in running_programs()
        if words[0].endswith(RUNC_SHIM.name) and any(address in word for word in words)
    ]


def remove_shim_sockets() -> None:
    """Remove the sockets of dead shims, unless another containerd of this machine may own them."""
    if any(Path(words[0]).name == CONTAINERD.name for _, words in running_programs()):
        return
    if _SHIM_SOCKETS.is_dir():
        for file in _SHIM_SOCKETS.iterdir():
            file.unlink()

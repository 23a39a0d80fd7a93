"""End the node and remove everything it left on the machine, also after its processes were killed."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from tests.testbed import cgroups, container_runtime, kernel_settings, mounts, network, registry
from tests.testbed.errors import TestbedError
from tests.testbed.locks import remove
from tests.testbed.processes import Daemon, end, running_programs
from tests.testbed.programs import KUBELET
from tests.testbed.state_dir import give_up

# In this order: who restarts others goes first. containerd goes after the pods.
_SUPERVISORS = ("kubelet", "kube-proxy", "kube-controller-manager", "kube-scheduler")
_REST = ("containerd", "kube-apiserver", "etcd")
_CONTAINER_LOG_LINKS = Path("/var/log/containers")
_CNI_RESULTS = Path("/var/lib/cni/results")
_NETWORK = "specfleet-testbed"
_KUBELET_SOCKET = Path("/var/lib/kubelet/device-plugins/kubelet.sock")
_SHARED_FOLDERS = (
    _CONTAINER_LOG_LINKS,
    _CNI_RESULTS,
    _CNI_RESULTS.parent,
    Path("/run/containerd/s"),
    Path("/run/containerd"),
    _KUBELET_SOCKET.parent,
    _KUBELET_SOCKET.parent.parent,
)


def refuse_beside_another_kubelet(state: Path) -> None:
    """Two kubelets on one machine fight over packet rules and control groups.

    Raises:
        TestbedError: a kubelet runs that is not the one of the bed in `state`.
    """
    own = Daemon(KUBELET.name, state).process
    for process, words in running_programs():
        if Path(words[0]).name == KUBELET.name and process != own and not _of_bed(words, state):
            raise TestbedError(
                f"expected no other kubelet on this machine, found process {process.pid} ({' '.join(words[:2])}); "
                "if it is another test bed's, take it down with `down --state DIR`"
            )


def traces() -> bool:
    """Whether a node was on this machine: its bridge or control groups are there."""
    return network.present() or cgroups.present()


def run(state: Path) -> None:
    """Take the node in `state` down; what is not there is skipped."""
    state = state.resolve()
    refuse_beside_another_kubelet(state)
    _stop(_SUPERVISORS, state)
    end([process for process, words in running_programs() if _is_stray(words, state)], grace_seconds=5)
    cgroups.end_all()
    end(container_runtime.shims(state), grace_seconds=0)
    _stop(_REST, state)
    mounts.detach(state)
    network.remove()
    cgroups.remove()
    kernel_settings.restore(state)
    container_runtime.remove_shim_sockets()
    _remove_traces_elsewhere(state)
    _keep_logs(state)
    give_up(state)
    registry.release(state)


def _stop(names: Sequence[str], state: Path) -> None:
    """End daemons together: nothing of theirs is kept, so they need not wait for each other."""
    end([process for name in names if (process := Daemon(name, state).process) is not None], grace_seconds=5)


def _of_bed(words: list[str], state: Path) -> bool:
    return any(f"{state}/" in word for word in words)


def _is_stray(words: list[str], state: Path) -> bool:
    """A daemon of this bed whose record is lost."""
    return Path(words[0]).name in (*_SUPERVISORS, *_REST) and _of_bed(words, state)


def _remove_traces_elsewhere(state: Path) -> None:
    """What kubelet, containerd and the CNI library write outside the state directory, at paths that cannot be set."""
    if _CONTAINER_LOG_LINKS.is_dir():
        for link in _CONTAINER_LOG_LINKS.iterdir():
            if link.is_symlink() and state in Path(link.readlink()).parents:
                link.unlink()
    if _CNI_RESULTS.is_dir():
        for file in _CNI_RESULTS.glob(f"{_NETWORK}-*-eth0"):
            pod = file.name.removeprefix(f"{_NETWORK}-").removesuffix("-eth0")
            (_CNI_RESULTS / f"cni-loopback-{pod}-lo").unlink(missing_ok=True)
            file.unlink()
    # A socket stays where the kubelet was killed; by now no kubelet runs.
    _KUBELET_SOCKET.unlink(missing_ok=True)
    for folder in _SHARED_FOLDERS:
        # Another program of this machine may use them too: only an empty one goes.
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def _keep_logs(state: Path) -> None:
    """The last node's logs stay beside its state: a failed run is read after it was taken down."""
    kept = state.with_name(state.name + "-last-logs")
    if (state / "logs").is_dir():
        remove(kept)
        shutil.move(state / "logs", kept)

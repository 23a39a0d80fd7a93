"""kubelet and kube-proxy."""

from __future__ import annotations

from pathlib import Path

from tests.testbed import cgroups, container_runtime, network
from tests.testbed.control_plane import Layout
from tests.testbed.processes import Daemon
from tests.testbed.programs import KUBE_PROXY, KUBELET
from tests.testbed.templates import write_template
from tests.testbed.tools import ensure_program

NODE_NAME = "specfleet-testbed"
KUBELET_NAME = KUBELET.name
KUBE_PROXY_NAME = KUBE_PROXY.name


def start_kubelet(layout: Layout) -> None:
    """Start the kubelet, which registers the node."""
    state = layout.state
    config = write_template(
        "kubelet.yaml",
        state,
        state=state,
        node_address=layout.address,
        ca=layout.authority.certificate,
        socket=container_runtime.socket(state),
        dns_address=network.DNS_ADDRESS,
        resolv_conf=_resolv_conf(),
        cgroup=cgroups.NAME,
    )
    kubeconfig = layout.component_kubeconfig("kubelet", f"system:node:{NODE_NAME}", "system:nodes")
    Daemon(KUBELET_NAME, state).start(
        [
            ensure_program(KUBELET),
            f"--config={config}",
            f"--kubeconfig={kubeconfig}",
            f"--root-dir={state / 'kubelet'}",
            f"--cert-dir={state / 'pki' / 'kubelet'}",
            f"--hostname-override={NODE_NAME}",
            f"--node-ip={layout.address}",
            "--v=1",
        ]
    )


def start_kube_proxy(layout: Layout) -> None:
    """Start kube-proxy."""
    kubeconfig = layout.component_kubeconfig("proxy", "system:kube-proxy")
    config = write_template(
        "kube-proxy.yaml",
        layout.state,
        pod_cidr=network.POD_CIDR,
        node_name=NODE_NAME,
        node_address=layout.address,
        kubeconfig=kubeconfig,
    )
    Daemon(KUBE_PROXY_NAME, layout.state).start([ensure_program(KUBE_PROXY), f"--config={config}"])


def _resolv_conf() -> Path:
    # The stub of systemd-resolved listens on loopback, where a pod would find itself.
    behind_stub = Path("/run/systemd/resolve/resolv.conf")
    return behind_stub if behind_stub.is_file() else Path("/etc/resolv.conf")

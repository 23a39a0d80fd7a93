"""etcd and kube-apiserver, and on request the controllers: all a test of the API needs."""

from __future__ import annotations

import ipaddress
import json
from dataclasses import dataclass
from pathlib import Path

from tests.testbed.endpoint import answers_ok
from tests.testbed.errors import TestbedError
from tests.testbed.pki import Authority, Identity, service_account_key, write_kubeconfig
from tests.testbed.processes import Daemon
from tests.testbed.programs import API_SERVER, CONTROLLER_MANAGER, ETCD, SCHEDULER
from tests.testbed.tools import ensure_program

READY_TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True)
class Layout:
    """Where one control plane listens and keeps its state.

    Args:
        address: IP address that the API server binds and is known by.
        advertised: address in the endpoints of the Service `kubernetes`; the API server takes no loopback address here.
        ports: of the API server, etcd's clients and etcd's peers.
        pods_possible: a kubelet will join, so that service accounts are enforced as on a real cluster.
        audited: every write is recorded in `audit_log`.
    """

    state: Path
    address: str
    advertised: str
    ports: tuple[int, int, int]
    service_cidr: str
    pods_possible: bool
    audited: bool = False

    @property
    def audit_log(self) -> Path:
        """One line of JSON a write (audit.k8s.io/v1), written before the write is answered."""
        return self.state / "logs" / "audit.log"

    @property
    def server(self) -> str:
        """URL of the API server."""
        return f"https://{self.address}:{self.ports[0]}"

    @property
    def kubeconfig(self) -> Path:
        """Kubeconfig of the administrator."""
        return self.state / "kubeconfig"

    @property
    def authority(self) -> Authority:
        """The bed's certificate authority."""
        return Authority(self.state / "pki")

    @property
    def etcd(self) -> Daemon:
        """etcd."""
        return Daemon("etcd", self.state)

    @property
    def api_server(self) -> Daemon:
        """kube-apiserver."""
        return Daemon("kube-apiserver", self.state)

    @property
    def controller_manager(self) -> Daemon:
        """kube-controller-manager."""
        return Daemon("kube-controller-manager", self.state)

    @property
    def scheduler(self) -> Daemon:
        """kube-scheduler."""
        return Daemon("kube-scheduler", self.state)

    def component_kubeconfig(self, name: str, user: str, group: str = "") -> Path:
        """Kubeconfig of one component, with a certificate for `user` in `group`."""
        identity = self.authority.issue(name, user, group)
        return write_kubeconfig(self.state / f"{name}.kubeconfig", self.server, self.authority, identity)

    def administrator(self) -> Identity:
        """The identity that may do everything."""
        return self.authority.issue("admin", "testbed-admin", "system:masters")

    def ready(self) -> bool:
        """Whether the API server says it is ready."""
        if not self.authority.certificate.is_file():
            return False
        return answers_ok(f"{self.server}/readyz", self.authority.certificate, self.administrator())


def start_etcd(layout: Layout) -> None:
    """Start etcd; syncing to disk is left out, since no bed has to survive a power cut."""
    _, clients, peers = layout.ports
    peer_url = f"http://127.0.0.1:{peers}"
    client_url = f"http://127.0.0.1:{clients}"
    layout.etcd.start(
        [
            ensure_program(ETCD),
            f"--data-dir={layout.state / 'etcd'}",
            "--unsafe-no-fsync",
            f"--listen-client-urls={client_url}",
            f"--advertise-client-urls={client_url}",
            f"--listen-peer-urls={peer_url}",
            f"--initial-advertise-peer-urls={peer_url}",
            f"--initial-cluster=default={peer_url}",
            "--log-level=warn",
        ]
    )


def start_api_server(layout: Layout) -> None:
    """Start kube-apiserver with RBAC and the default admission plug-ins, and write the administrator's kubeconfig."""
    authority = layout.authority
    authority.create()
    first_service_address = next(ipaddress.ip_network(layout.service_cidr).hosts())
    names = ["localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"]
    hosts = [f"IP:{layout.address}", f"IP:{layout.advertised}", f"IP:{first_service_address}", "IP:127.0.0.1"]
    serving = authority.issue("apiserver", "kube-apiserver", hosts=hosts + [f"DNS:{name}" for name in names])
    kubelet_client = authority.issue("apiserver-kubelet", "kube-apiserver", "system:masters")
    tokens = service_account_key(authority.directory)
    command: list[str | Path] = [
        ensure_program(API_SERVER),
        f"--etcd-servers=http://127.0.0.1:{layout.ports[1]}",
        f"--bind-address={layout.address}",
        f"--advertise-address={layout.advertised}",
        f"--secure-port={layout.ports[0]}",
        f"--service-cluster-ip-range={layout.service_cidr}",
        f"--client-ca-file={authority.certificate}",
        f"--tls-cert-file={serving.certificate}",
        f"--tls-private-key-file={serving.key}",
        f"--kubelet-client-certificate={kubelet_client.certificate}",
        f"--kubelet-client-key={kubelet_client.key}",
        # Else `kubectl logs` looks the node's name up in DNS.
        "--kubelet-preferred-address-types=InternalIP",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-signing-key-file={tokens}",
        f"--service-account-key-file={tokens}",
        "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction",
        "--allow-privileged=true",
        "--shutdown-delay-duration=0s",
        "--v=1",
    ]
    if not layout.pods_possible:
        # Nothing makes the default service accounts here, and without them no pod could be created.
        command += ["--disable-admission-plugins=ServiceAccount", "--endpoint-reconciler-type=none"]
    if layout.audited:
        command += [f"--audit-policy-file={_audit_policy(layout)}", f"--audit-log-path={layout.audit_log}"]
    layout.api_server.start(command)
    write_kubeconfig(layout.kubeconfig, layout.server, authority, layout.administrator())


def _audit_policy(layout: Layout) -> Path:
    """Who wrote what and what became of it; no reads, no contents."""
    policy = {
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{"level": "Metadata", "verbs": ["create", "update", "patch", "delete", "deletecollection"]}],
    }
    file = layout.state / "audit-policy.json"
    file.write_text(json.dumps(policy))
    return file


def start_controllers(layout: Layout, *, nodes: bool = False) -> None:
    """Start kube-controller-manager: garbage collection, namespaces, Deployments, service accounts and the rest.

    Without kubelets (`nodes` False) nobody says that a node lives, and the node controller would take pods that a test
    has called ready for lost.
    """
    authority = layout.authority
    kubeconfig = layout.component_kubeconfig("controller-manager", "system:kube-controller-manager")
    layout.controller_manager.start(
        [
            ensure_program(CONTROLLER_MANAGER),
            f"--kubeconfig={kubeconfig}",
            f"--root-ca-file={authority.certificate}",
            f"--service-account-private-key-file={service_account_key(authority.directory)}",
            "--use-service-account-credentials=true",
            "--leader-elect=false",
            "--secure-port=0",
            f"--flex-volume-plugin-dir={layout.state / 'volume-plugins'}",
            *([] if nodes else ["--controllers=*,-node-lifecycle-controller"]),
        ]
    )


def start_scheduler(layout: Layout) -> None:
    """Start kube-scheduler."""
    kubeconfig = layout.component_kubeconfig("scheduler", "system:kube-scheduler")
    layout.scheduler.start(
        [ensure_program(SCHEDULER), f"--kubeconfig={kubeconfig}", "--leader-elect=false", "--secure-port=0"]
    )


def start(layout: Layout, *, controllers: bool, nodes: bool = False) -> None:
    """Start what is not running, and wait until the API server is ready.

    Raises:
        TestbedError: a part ended, or the API server was not ready in time.
    """
    start_etcd(layout)
    start_api_server(layout)
    layout.api_server.wait_for("the API server to be ready", layout.ready, READY_TIMEOUT_SECONDS)
    if not layout.etcd.alive:
        raise TestbedError("expected etcd to run, but it has ended", layout.etcd.log)
    if controllers:
        start_controllers(layout, nodes=nodes)


def stop(layout: Layout) -> None:
    """End all of it, in the order in which they depend on each other."""
    for daemon in (layout.scheduler, layout.controller_manager, layout.api_server, layout.etcd):
        daemon.stop()

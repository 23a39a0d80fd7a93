"""The whole node: control plane, containerd, kubelet, kube-proxy, CoreDNS and fake GPUs on this machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from tests.testbed import cgroups, container_runtime, control_plane, kernel_settings, network, registry, takedown
from tests.testbed.apt import IMAGE_TOOLS, NODE_TOOLS, ensure_packages
from tests.testbed.cluster_client import condition, kubectl
from tests.testbed.control_plane import Layout
from tests.testbed.errors import TestbedError
from tests.testbed.gpus import set_gpus
from tests.testbed.images import (
    BASE_IMAGE,
    COREDNS_IMAGE,
    ENGINE_IMAGE,
    PAUSE_IMAGE,
    ROUTER_IMAGE,
    archive_of,
    ensure_base_image,
    ensure_coredns_image,
    ensure_engine_image,
    ensure_pause_image,
    ensure_router_image,
)
from tests.testbed.kubernetes_node import KUBE_PROXY_NAME, KUBELET_NAME, NODE_NAME, start_kube_proxy, start_kubelet
from tests.testbed.locks import exclusive
from tests.testbed.paths import node_state
from tests.testbed.processes import Daemon
from tests.testbed.programs import NODE
from tests.testbed.progress import say, step
from tests.testbed.state_dir import kind_of, take
from tests.testbed.templates import filled
from tests.testbed.tools import ensure_programs

GPUS = 8


def up(state: Path) -> Layout:
    """Start the node in `state`, or return the one that runs there and is well.

    A node that is there but not well, or whose processes were killed, is taken down first.

    Raises:
        TestbedError: not root, another kubelet on this machine, or a part did not start.
    """
    state = state.resolve()
    started = time.monotonic()
    if os.geteuid() != 0:
        raise TestbedError("expected to be root: a node makes mounts, namespaces and packet rules")
    takedown.refuse_beside_another_kubelet(state)
    take(state, "node")
    if not unwell(state):
        return layout_of(state)
    with exclusive("node"):
        problems = unwell(state)
        if problems:
            _start_afresh(state, problems[0])
            say(f"[testbed] node: ready after {time.monotonic() - started:.0f} s")
    return layout_of(state)


def _start_afresh(state: Path, problem: str) -> None:
    ensure_packages({**IMAGE_TOOLS, **NODE_TOOLS})
    ensure_programs(NODE)
    archives = {
        PAUSE_IMAGE: ensure_pause_image(),
        COREDNS_IMAGE: ensure_coredns_image(),
        BASE_IMAGE: ensure_base_image(),
        ROUTER_IMAGE: ensure_router_image(),
        ENGINE_IMAGE: ensure_engine_image(),
    }
    if takedown.traces():
        with step("clean", f"remove what an earlier node left ({problem})"):
            takedown.run(state)
    _start(state, archives)


def down(state: Path) -> None:
    """Take the node in `state` down and remove all that it left on the machine.

    For the default state directory this holds even if the directory itself was lost.
    """
    state = state.resolve()
    with exclusive("node"):
        here = kind_of(state) == "node" or (state == node_state() and takedown.traces())
        if here:
            with step("down", "end the node and remove its mounts, namespaces, packet rules and control groups"):
                takedown.run(state)


def runs(state: Path) -> bool:
    """Whether a node runs in `state`."""
    return container_runtime.daemon(state.resolve()).alive


def load_image(state: Path, tag: str, archive: Path | None = None) -> None:
    """Load an image into the node.

    Args:
        archive: a docker archive; by default what `build_archive` made for this tag.

    Raises:
        TestbedError: no such archive, no node, or an archive that holds another image.
    """
    source = archive or archive_of(tag)
    if not source.is_file():
        raise TestbedError(f"expected an archive of {tag} at {source}, found none: build it with `image-build`")
    if not runs(state):
        raise TestbedError(f"expected a node to run in {state}, found none: start it with `up`")
    with step("image", f"load {tag} into the node"):
        container_runtime.load(state.resolve(), source, tag)


def layout_of(state: Path) -> Layout:
    """The control plane of the node in `state`."""
    _, clients, peers = registry.claim(state.resolve(), 3, owned=False).ports
    ports = (network.API_PORT, clients, peers)
    return Layout(
        state.resolve(), network.NODE_ADDRESS, network.NODE_ADDRESS, ports, network.SERVICE_CIDR, pods_possible=True
    )


def unwell(state: Path) -> list[str]:
    """What is not as it should be, in words; empty for a node that is well."""
    state = state.resolve()
    problems = [f"{name} does not run" for name in _daemons() if not Daemon(name, state).alive]
    if problems:
        return problems
    layout = layout_of(state)
    if not layout.ready():
        return ["the API server is not ready"]
    if not condition(layout.kubeconfig, "node", NODE_NAME, "Ready"):
        problems.append("the node is not Ready")
    if not condition(layout.kubeconfig, "deployment", "coredns", "Available", "kube-system"):
        problems.append("CoreDNS is not available")
    return problems


def _daemons() -> tuple[str, ...]:
    plane = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
    return (*plane, "containerd", KUBELET_NAME, KUBE_PROXY_NAME)


def _start(state: Path, archives: dict[str, Path]) -> None:
    take(state, "node")
    layout = layout_of(state)
    with step("network", f"bridge {network.BRIDGE} with {network.POD_CIDR}, control groups, kernel parameters"):
        kernel_settings.prepare(state)
        network.create()
        cgroups.create()
    with step("control plane", f"start etcd, kube-apiserver at {layout.server}, controllers and scheduler"):
        control_plane.start(layout, controllers=True, nodes=True)
        control_plane.start_scheduler(layout)
    with step("containerd", "start it and load the images"):
        container_runtime.start(state)
        for name, archive in archives.items():
            container_runtime.load(state, archive, name)
    with step("kubelet", f"start it and kube-proxy, wait for the node {NODE_NAME} to be Ready"):
        start_kubelet(layout)
        start_kube_proxy(layout)
        _wait(layout, KUBELET_NAME, f"node {NODE_NAME} Ready", lambda: _node_ready(layout), 120.0)
        set_gpus(layout.kubeconfig, NODE_NAME, GPUS)
    with step("CoreDNS", "apply it and wait until it is available"):
        manifest = filled("coredns.yaml", coredns_image=COREDNS_IMAGE, dns_address=network.DNS_ADDRESS)
        kubectl(layout.kubeconfig, "apply", "--filename=-", stdin=manifest)
        _wait(layout, KUBELET_NAME, "CoreDNS available", lambda: _coredns_available(layout), 120.0)


def _node_ready(layout: Layout) -> bool:
    return condition(layout.kubeconfig, "node", NODE_NAME, "Ready")


def _coredns_available(layout: Layout) -> bool:
    return condition(layout.kubeconfig, "deployment", "coredns", "Available", "kube-system")


def _wait(layout: Layout, daemon: str, expected: str, reached: Callable[[], bool], timeout_seconds: float) -> None:
    Daemon(daemon, layout.state).wait_for(expected, reached, timeout_seconds)

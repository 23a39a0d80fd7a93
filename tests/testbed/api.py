"""What pytest fixtures and scripts call: every function here makes what it returns, once, and returns fast afterwards.

All raise `TestbedError` where a part cannot be had.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.testbed import engine, images, light_bed, model, node_bed, paths, prometheus
from tests.testbed.errors import TestbedError
from tests.testbed.kubernetes_node import NODE_NAME
from tests.testbed.programs import CTR, ENVOY, HELM, KUBECTL
from tests.testbed.tools import ensure_program

__all__ = [
    "ControlPlane",
    "Node",
    "TestbedError",
    "build_image",
    "ctr_binary",
    "engine_image",
    "engine_mount",
    "ensure_control_plane",
    "ensure_node",
    "envoy_binary",
    "helm_binary",
    "kubectl_binary",
    "model_dir",
    "prometheus_binary",
    "router_image",
    "vllm_python",
]


@dataclass(frozen=True)
class ControlPlane:
    """A running API server.

    Args:
        kubeconfig: of a user who may do everything.
        state_dir: its state and, under `logs/`, its logs.
        audit_log: every write, one line of JSON each; only where that was asked for.
    """

    kubeconfig: Path
    state_dir: Path
    audit_log: Path

    def stop(self) -> None:
        """End it and remove its state."""
        light_bed.down(self.state_dir)


def ensure_control_plane(state_dir: Path, controllers: bool = False, audited: bool = False) -> ControlPlane:
    """An API server with RBAC and validating admission policies in `state_dir`; about 6 s.

    It has no kubelet: pods can be created and stay pending. It ends with the process that asked for it, at the latest
    when the next bed is started.

    Args:
        controllers: also run kube-controller-manager (garbage collection, namespace deletion, ReplicaSets).
        audited: keep an audit log of all writes.
    """
    layout = light_bed.up(state_dir, controllers=controllers, owned=True, audited=audited)
    return ControlPlane(layout.kubeconfig, layout.state, layout.audit_log)


@dataclass(frozen=True)
class Node:
    """A whole running node.

    Args:
        kubeconfig: of a user who may do everything.
        state_dir: its state and, under `logs/`, its logs.
        name: the Kubernetes node's name.
    """

    kubeconfig: Path
    state_dir: Path
    name: str


def ensure_node() -> Node:
    """The machine's test node, started if it does not run; it stays up until `python3 -m tests.testbed down`."""
    layout = node_bed.up(paths.node_state())
    return Node(layout.kubeconfig, layout.state, NODE_NAME)


def build_image(tag: str, dockerfile: Path, context: Path) -> Path:
    """Build a Dockerfile and, if the node runs, load the image into it; returns the archive.

    Args:
        tag: full name of the image, with registry and tag.
    """
    archive = images.build_archive(tag, dockerfile, context)
    if node_bed.runs(paths.node_state()):
        node_bed.load_image(paths.node_state(), tag)
    return archive


def router_image() -> str:
    """Name of the image with Envoy, which every node of the test bed has."""
    return images.ROUTER_IMAGE


def engine_image() -> str:
    """Name of the image that runs vLLM once the engine is mounted; every node of the test bed has it."""
    return images.ENGINE_IMAGE


def engine_mount() -> tuple[Path, str]:
    """The engine's directory on this machine, and the path at which a pod of the engine image mounts it."""
    engine.ensure_vllm()
    return engine.engine_root(), engine.MOUNT_PATH


def vllm_python() -> Path:
    """A Python that has vLLM for CPU (6 GB, installed on first use)."""
    return engine.ensure_vllm()


def model_dir() -> Path:
    """The small real model: safetensors, tokenizer, chat template (converted on first use)."""
    return model.ensure_model()


def envoy_binary() -> Path:
    """Envoy."""
    return ensure_program(ENVOY)


def helm_binary() -> Path:
    """Helm."""
    return ensure_program(HELM)


def kubectl_binary() -> Path:
    """kubectl."""
    return ensure_program(KUBECTL)


def prometheus_binary() -> Path:
    """Prometheus; `promtool` lies beside it (Debian's package, unpacked on first use)."""
    return prometheus.ensure_prometheus()


def ctr_binary() -> Path:
    """ctr, containerd's client."""
    return ensure_program(CTR)

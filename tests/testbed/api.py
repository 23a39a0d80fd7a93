"""What pytest fixtures and scripts call: every function here makes what it returns, once, and returns fast afterwards.

All raise `TestbedError` where a part cannot be had.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from tests.testbed import light_bed
from tests.testbed.errors import TestbedError
from tests.testbed.programs import CTR, ENVOY, HELM, KUBECTL
from tests.testbed.tools import ensure_program

__all__ = ["ControlPlane", "TestbedError", "ensure_control_plane"]


@dataclass(frozen=True)
class ControlPlane:
    """A running API server.

    Args:
        kubeconfig: of a user who may do everything.
        state_dir: its state and, under `logs/`, its logs.
    """

    kubeconfig: Path
    state_dir: Path

    def stop(self) -> None:
        """End it and remove its state."""
        light_bed.down(self.state_dir)


def ensure_control_plane(state_dir: Path, controllers: bool = False) -> ControlPlane:
    """An API server with RBAC and validating admission policies in `state_dir`; about 6 s.

    It has no kubelet: pods can be created and stay pending. It ends with the process that asked for it, at the latest
    when the next bed is started.

    Args:
        controllers: also run kube-controller-manager (garbage collection, namespace deletion, ReplicaSets).
    """
    layout = light_bed.up(state_dir, controllers=controllers, owned=True)
    return ControlPlane(layout.kubeconfig, layout.state)


def envoy_binary() -> Path:
    """Envoy."""
    return ensure_program(ENVOY)


def helm_binary() -> Path:
    """Helm."""
    return ensure_program(HELM)


def kubectl_binary() -> Path:
    """kubectl."""
    return ensure_program(KUBECTL)


def ctr_binary() -> Path:
    """ctr, containerd's client."""
    return ensure_program(CTR)

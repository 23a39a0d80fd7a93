"""Helm and kubectl on the API server of a test."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.testbed.api import helm_binary, kubectl_binary

REPOSITORY = Path(__file__).resolve().parents[3]
CHART = REPOSITORY / "charts" / "specfleet"
NAMESPACE = "specfleet-system"
OPERATOR = f"system:serviceaccount:{NAMESPACE}:specfleet"
CRD = "specdeployments.specfleet.dev"
DEADLINE_SECONDS = 30.0


@dataclass(frozen=True)
class Cluster:
    """An API server and the two clients that a person uses."""

    kubeconfig: Path

    def run(self, *command: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """One command with this cluster as its own."""
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig)}
        return subprocess.run(command, capture_output=True, text=True, input=stdin, env=environment, check=False)

    def kubectl(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """One kubectl command, whatever its outcome."""
        return self.run(str(kubectl_binary()), *arguments, stdin=stdin)

    def must(self, *arguments: str, stdin: str = "") -> str:
        """The output of a kubectl command that has to succeed."""
        ended = self.kubectl(*arguments, stdin=stdin)
        assert ended.returncode == 0, f"kubectl {' '.join(arguments)}: {ended.stderr}"
        return ended.stdout

    def helm(self, *arguments: str, namespace: str = NAMESPACE) -> str:
        """The output of a Helm command that has to succeed."""
        ended = self.run(str(helm_binary()), *arguments, "--namespace", namespace)
        assert ended.returncode == 0, f"helm {' '.join(arguments)}: {ended.stderr}"
        return ended.stdout

    def can(self, user: str, verb: str, resource: str, namespace: str) -> bool:
        """The API server's own answer on who may do what; `resource` is KIND, KIND/NAME or KIND:SUBRESOURCE."""
        kind, _, subresource = resource.partition(":")
        scope = ["--namespace", namespace] if namespace else ["--all-namespaces"]
        options = ["--as", user, "--subresource", subresource, *scope, "--quiet"]
        return self.kubectl("auth", "can-i", verb, kind, *options).returncode == 0

    def eventually(self, *arguments: str, contains: str) -> None:
        """Wait until a kubectl command succeeds and prints a text."""
        self._await(lambda ended: ended.returncode == 0 and contains in ended.stdout, contains, arguments)

    def eventually_refused(self, *arguments: str, contains: str) -> None:
        """Wait until a kubectl command fails with a text."""
        self._await(lambda ended: ended.returncode != 0 and contains in ended.stderr, contains, arguments)

    def eventually_established(self) -> None:
        """Wait until the API server serves SpecDeployments; `kubectl wait` fails without conditions."""
        established = 'jsonpath={.status.conditions[?(@.type=="Established")].status}'
        self.eventually("get", f"crd/{CRD}", "-o", established, contains="True")

    def _await(
        self, enough: Callable[[subprocess.CompletedProcess[str]], bool], text: str, arguments: tuple[str, ...]
    ) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not enough(ended := self.kubectl(*arguments)):
            assert time.monotonic() < deadline, f"no {text!r} in: {ended.stdout}{ended.stderr}"
            time.sleep(0.2)

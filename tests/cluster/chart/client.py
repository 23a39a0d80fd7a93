"""Helm and kubectl on the API server of a test."""

from __future__ import annotations

import os
import subprocess
import time
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
        """Wait until the combined output of a kubectl command contains a text."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            ended = self.kubectl(*arguments)
            if contains in ended.stdout + ended.stderr:
                return
            assert time.monotonic() < deadline, f"no {contains!r} in: {ended.stdout}{ended.stderr}"
            time.sleep(0.2)

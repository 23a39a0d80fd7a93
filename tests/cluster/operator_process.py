"""The operator as a process of its own, as in a pod."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from tests.cluster.api import eventually
from tests.cluster.routers import free_port

ROOT = Path(__file__).resolve().parents[2]
START = ("-c", "from specfleet.cli.main import main; main()", "run")


class OperatorProcess:
    """`specfleet run`, watching one namespace and holding its Lease there.

    Args:
        wrapper: a script that starts the operator in another way, with arguments of its own.
        environment: variables beside those of this process.
    """

    def __init__(
        self,
        kubeconfig: Path,
        namespace: str,
        router_port: int,
        log: Path,
        wrapper: tuple[str, ...] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.port = free_port()
        self.log = log
        command = [sys.executable, *(wrapper or START)]
        command += ["--kubeconfig", str(kubeconfig), "-n", namespace, "--lease-namespace", namespace]
        command += ["--host", "127.0.0.1", "--port", str(self.port), "--router-port", str(router_port)]
        variables = {**os.environ, "PYTHONPATH": f"{ROOT / 'operator'}:{ROOT}", "POD_NAME": log.stem}
        variables.pop("POD_NAMESPACE", None)
        variables |= environment or {}
        with log.open("ab") as out:
            self.process = subprocess.Popen(command, stdout=out, stderr=out, env=variables, cwd=ROOT)

    def ready(self) -> OperatorProcess:
        """Wait until its readiness probe says so."""
        eventually(f"the operator is ready ({self.log})", lambda: self.probe("/readyz") == 200, 60.0)
        return self

    def leading(self) -> bool:
        """Whether it holds the lease."""
        return "specfleet_operator_leader 1.0" in self.get("/metrics")

    def probe(self, path: str) -> int:
        """HTTP status; 0 where nobody answers."""
        if self.process.poll() is not None:
            raise RuntimeError(f"the operator has ended with {self.process.returncode}: {self.log.read_text()[-2000:]}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def get(self, path: str) -> str:
        """The body of a page; empty where nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    def kill(self, number: signal.Signals = signal.SIGKILL) -> None:
        """Send a signal, and after SIGKILL wait for the end."""
        self.process.send_signal(number)
        if number == signal.SIGKILL:
            self.process.wait()

    def stop(self) -> int:
        """End it as the kubelet does; its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
        try:
            return self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"the operator did not end on SIGTERM: {self.log.read_text()[-2000:]}") from None

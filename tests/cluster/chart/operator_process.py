"""Runs the operator itself with an account of the cluster, as its pods would."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.chart.client import DEADLINE_SECONDS, Cluster


@dataclass(frozen=True)
class RunningOperator:
    """`specfleet run` as an account of the cluster, outside of it."""

    process: subprocess.Popen[bytes]
    url: str
    log: Path

    def get(self, path: str) -> int:
        """The status of a GET; 0 where nobody answers."""
        try:
            direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with direct.open(self.url + path, timeout=5) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def await_ready(self) -> None:
        """Wait until it has listed all that it watches."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while self.get("/readyz") != 200:
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < deadline, self.log.read_text()
            time.sleep(0.2)


@contextlib.contextmanager
def operator_as(cluster: Cluster, account: str, place: str, folder: Path) -> Iterator[RunningOperator]:
    """Run the operator with the token of `account` and the settings of its release in namespace `place`."""
    config = json.loads(cluster.must("config", "view", "--raw", "--flatten", "-o", "json"))
    config["users"] = [{"name": "operator", "user": {"token": cluster.must("create", "token", account, "-n", place)}}]
    config["contexts"] = [{"name": "it", "context": {"cluster": config["clusters"][0]["name"], "user": "operator"}}]
    config["current-context"] = "it"
    kubeconfig, settings, log = folder / "kubeconfig", folder / "settings.yaml", folder / "log"
    kubeconfig.write_text(json.dumps(config))
    data = json.loads(cluster.must("get", "configmap", f"{account}-settings", "-n", place, "-o", "json"))["data"]
    settings.write_text(data["settings.yaml"])
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = Path(sys.executable).with_name("specfleet")
    command = [str(program), "run", "--kubeconfig", str(kubeconfig), "--settings", str(settings)]
    command += ["--host", "127.0.0.1", "--port", str(port)]
    environment = {**os.environ, "POD_NAME": "operator-0", "POD_NAMESPACE": place}
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output)
    try:
        yield RunningOperator(process, f"http://127.0.0.1:{port}", log)
    finally:
        process.kill()
        process.wait()

"""A real Prometheus on the node's machine that scrapes the routers, and a proxy before it that fails as servers do."""

from __future__ import annotations

import json
import socket
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import yaml

from tests.node.kube import KubeError, wait_for
from tests.testbed import api

NODE_ADDRESS = "10.213.0.1"
"""The machine as pods reach it."""
START_SECONDS = 60.0
STOP_SECONDS = 30.0

Fault = Literal["none", "slow", "half the series", "half the bytes"]


def scrape_config(kubeconfig: Path, every_seconds: int) -> dict[str, Any]:
    """Prometheus' configuration: every router pod of every SpecDeployment, labelled and named as docs say."""
    pod = "__meta_kubernetes_pod_"
    return {
        "global": {"scrape_interval": f"{every_seconds}s", "scrape_timeout": f"{every_seconds}s"},
        "scrape_configs": [
            {
                "job_name": "specfleet-routers",
                "metrics_path": "/stats/prometheus",
                "kubernetes_sd_configs": [{"role": "pod", "kubeconfig_file": str(kubeconfig)}],
                "relabel_configs": [
                    {
                        "source_labels": [
                            f"{pod}label_app_kubernetes_io_name",
                            f"{pod}label_app_kubernetes_io_component",
                            f"{pod}container_port_name",
                        ],
                        "regex": "specfleet;router;read",
                        "action": "keep",
                    },
                    {"source_labels": ["__meta_kubernetes_namespace"], "target_label": "namespace"},
                    {"source_labels": [f"{pod}name"], "target_label": "pod"},
                    {"source_labels": [f"{pod}label_specfleet_dev_deployment"], "target_label": "deployment"},
                ],
                "metric_relabel_configs": [
                    {
                        "source_labels": ["__name__"],
                        "regex": "envoy_specfleet_.*|envoy_server_uptime",
                        "action": "keep",
                    },
                    {
                        "source_labels": ["__name__"],
                        "regex": "envoy_(specfleet_.*)",
                        "target_label": "__name__",
                        "replacement": "$1",
                    },
                    {
                        "source_labels": ["__name__"],
                        "regex": "envoy_server_uptime",
                        "target_label": "__name__",
                        "replacement": "specfleet_router_uptime",
                    },
                ],
            }
        ],
    }


class Prometheus:
    """The server. It keeps its data and address over `stop` and `start`, as one on a volume does."""

    def __init__(self, directory: Path, kubeconfig: Path, *, every_seconds: int = 2) -> None:
        self._directory = directory
        self._port = _free_port()
        self._running: subprocess.Popen[bytes] | None = None
        self._config = directory / "prometheus.yml"
        self._config.write_text(yaml.safe_dump(scrape_config(kubeconfig, every_seconds)))

    @property
    def url(self) -> str:
        """Its base URL, which pods reach too."""
        return f"http://{NODE_ADDRESS}:{self._port}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        with (self._directory / "prometheus.log").open("ab") as log:
            self._running = subprocess.Popen(
                [
                    api.prometheus_binary(),
                    f"--config.file={self._config}",
                    f"--storage.tsdb.path={self._directory / 'data'}",
                    f"--web.listen-address={NODE_ADDRESS}:{self._port}",
                ],
                stdout=log,
                stderr=log,
            )
        wait_for("Prometheus to be ready", self._ready, seconds=START_SECONDS)

    def stop(self) -> None:
        """End it; what it has recorded stays."""
        if self._running is not None:
            self._running.terminate()
            self._running.wait(STOP_SECONDS)
            self._running = None

    def query(self, promql: str) -> list[dict[str, Any]]:
        """The result of an instant query."""
        with urllib.request.urlopen(
            f"{self.url}/api/v1/query?" + urllib.parse.urlencode({"query": promql}), timeout=10
        ) as response:
            result: list[dict[str, Any]] = json.load(response)["data"]["result"]
        return result

    def wait_scraped(self, name: str, namespace: str, routers: int) -> None:
        """Wait until the counters of that many routers of a SpecDeployment are there."""
        selector = f'specfleet_router_uptime{{namespace="{namespace}",deployment="{name}"}}'
        wait_for(
            f"{routers} routers of {name} in Prometheus",
            lambda: len(self.query(selector)) == routers or None,
            seconds=START_SECONDS,
        )

    def _ready(self) -> bool | None:
        if self._running is not None and self._running.poll() is not None:
            log = (self._directory / "prometheus.log").read_text()
            raise KubeError(f"Prometheus ended with {self._running.returncode}: {log[-800:]}")
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=2) as response:
                return response.status == 200 or None
        except (urllib.error.URLError, OSError):
            return None

    def __enter__(self) -> Prometheus:
        """Start it."""
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End it."""
        self.stop()


class FaultyProxy:
    """Passes queries on to `upstream`, and spoils the answers while a fault is set.

    `slow`: an answer takes two minutes. `half the series`: every other series is left out, with no word of warning.
    `half the bytes`: the answer is cut off in its middle.
    """

    SLOW_SECONDS = 120.0

    def __init__(self, upstream: str) -> None:
        self.upstream = upstream
        self.asked = 0
        self._fault: Fault = "none"
        self._changed = threading.Condition()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.0"

            def do_GET(self) -> None:
                proxy._answer(self, None)

            def do_POST(self) -> None:
                proxy._answer(self, self.rfile.read(int(self.headers.get("content-length", 0))))

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer((NODE_ADDRESS, 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """Its base URL, which pods reach too."""
        return f"http://{NODE_ADDRESS}:{self._server.server_port}"

    @property
    def fault(self) -> Fault:
        """What it does to answers."""
        return self._fault

    @fault.setter
    def fault(self, fault: Fault) -> None:
        with self._changed:
            self._fault = fault
            self._changed.notify_all()

    def __enter__(self) -> FaultyProxy:
        """Serve."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End."""
        self.fault = "none"
        self._server.shutdown()
        self._server.server_close()

    def _answer(self, handler: BaseHTTPRequestHandler, body: bytes | None) -> None:
        self.asked += 1
        fault = self._fault
        if fault == "slow":
            with self._changed:
                self._changed.wait_for(lambda: self._fault != "slow", timeout=self.SLOW_SECONDS)
        headers = {"content-type": handler.headers["content-type"]} if handler.headers["content-type"] else {}
        request = urllib.request.Request(self.upstream + handler.path, data=body, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                status, answer = response.status, response.read()
        except urllib.error.HTTPError as error:
            status, answer = error.code, error.read()
        except OSError:
            # A server that is gone: the connection ends without an answer, as one that is refused.
            handler.close_connection = True
            return
        if fault == "half the series":
            answer = without_half_the_series(answer)
        handler.send_response(status)
        handler.send_header("content-type", "application/json")
        handler.send_header("content-length", str(len(answer)))
        handler.end_headers()
        try:
            handler.wfile.write(answer[: len(answer) // 2] if fault == "half the bytes" else answer)
        except OSError:
            # The operator did not wait for it.
            handler.close_connection = True


def without_half_the_series(answer: bytes) -> bytes:
    """The answer less every other one of its series."""
    document = json.loads(answer)
    document["data"]["result"] = document["data"]["result"][::2]
    return json.dumps(document).encode()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((NODE_ADDRESS, 0))
        port: int = probe.getsockname()[1]
    return port


def during(seconds: float, look: Callable[[], None], *, every: float = 2.0) -> None:
    """Look again and again for that time; `look` asserts what must hold all the while."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        look()
        time.sleep(every)

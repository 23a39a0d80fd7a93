"""A real Prometheus on the node's machine that scrapes the routers, and a proxy before it that fails as servers do."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

from specfleet.api.names import LABEL_DEPLOYMENT
from tests.node.install import pods_of
from tests.node.kube import Kube, ready_pods, wait_for
from tests.node.routers import READ_PORT
from tests.testbed.prometheus_server import PrometheusServer, Target

NODE_ADDRESS = "10.213.0.1"
"""The machine as pods reach it."""
SCRAPE_SECONDS = 2
SEEN_SECONDS = 60.0

Fault = Literal["none", "slow", "half the series", "half the bytes"]


def server(directory: Path) -> PrometheusServer:
    """A Prometheus that pods reach, not started."""
    return PrometheusServer(directory, scrape_seconds=SCRAPE_SECONDS, listens_on=NODE_ADDRESS)


def scrape(prometheus: PrometheusServer, kube: Kube, fleets: list[tuple[str, str]]) -> None:
    """Have the routers of these SpecDeployments (name, namespace) scraped, and wait until their counters are there.

    Debian's Prometheus has no discovery by Kubernetes, so the labels that it would give are written for it.
    """
    targets = [
        Target(f"{pod['status']['podIP']}:{READ_PORT}", _labels(pod))
        for name, namespace in fleets
        for pod in ready_pods(pods_of(kube, name, namespace))
        if pod["metadata"]["labels"]["app.kubernetes.io/component"] == "router"
    ]
    prometheus.targets(targets)
    for target in targets:
        selector = f'specfleet_router_uptime{{pod="{target.labels["pod"]}"}}'
        wait_for(
            f"{selector} in Prometheus",
            partial(_seen, prometheus.url, selector),
            seconds=SEEN_SECONDS,
        )


def _seen(url: str, selector: str) -> bool | None:
    return bool(query(url, selector)) or None


def _labels(pod: dict[str, Any]) -> dict[str, str]:
    metadata = pod["metadata"]
    return {
        "namespace": metadata["namespace"],
        "pod": metadata["name"],
        "specfleet_dev_deployment": metadata["labels"][LABEL_DEPLOYMENT],
    }


def query(url: str, promql: str) -> list[dict[str, Any]]:
    """The result of an instant query."""
    question = urllib.parse.urlencode({"query": promql})
    with urllib.request.urlopen(f"{url}/api/v1/query?{question}", timeout=10) as response:
        result: list[dict[str, Any]] = json.load(response)["data"]["result"]
    return result


class FaultyProxy:
    """Passes queries on to `upstream`, and spoils the answers while a fault is set.

    `slow`: an answer takes two minutes. `half the series`: two of the four counters are left out, with no word of
    warning.
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
    """The answer less two of the four counters that a router counts together, and so half of what a decision needs."""
    document = json.loads(answer)
    left_out = ("specfleet_accepted", "specfleet_measured")
    kept = [one for one in document["data"]["result"] if one["metric"].get("__name__") not in left_out]
    document["data"]["result"] = kept
    return json.dumps(document).encode()


def during(seconds: float, look: Callable[[], None], *, every: float = 2.0) -> None:
    """Look again and again for that time; `look` asserts what must hold all the while."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        look()
        time.sleep(every)

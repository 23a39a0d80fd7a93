"""Routers of the fake kubelet: what Envoy answers on its read-only port, on loopback addresses of their own."""

from __future__ import annotations

import json
import re
import socket
import time
from itertools import count
from typing import Any
from urllib.parse import parse_qs, urlsplit

import yaml

from tests.cluster.addresses import NETWORK
from tests.cluster.http_server import PROMETHEUS_TEXT, Answer, HttpServer

_HOSTS = count(10)


def next_address() -> str:
    """A loopback address for one more router of this process."""
    return f"{NETWORK}.{next(_HOSTS) % 240 + 1}"


def free_port() -> int:
    """A port that is free on loopback now."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def served_of(routes: dict[str, str]) -> dict[str, Any]:
    """What a router with this ConfigMap answers to GET /served: the direct response in its route table."""
    found = [
        text for text in _strings(yaml.safe_load(routes["rds.yaml"])) if text.startswith("{") and "version" in text
    ]
    answers = [json.loads(text) for text in found]
    bodies = [one for one in answers if isinstance(one, dict) and {"version", "routes"} <= one.keys()]
    assert len(bodies) == 1, f"expected one served body in rds.yaml, found {len(bodies)}"
    body = bodies[0]
    assert isinstance(body, dict)
    return body


def _strings(node: Any) -> list[str]:
    if isinstance(node, dict):
        return [text for value in node.values() for text in _strings(value)]
    if isinstance(node, list):
        return [text for value in node for text in _strings(value)]
    return [node] if isinstance(node, str) else []


def _exposed(counter: tuple[str, int]) -> str:
    """A counter as Envoy shows it to Prometheus: `specfleet.NAME.LABEL.VALUE...` with its labels."""
    _, name, *rest = counter[0].split(".")
    labels = ",".join(f'{label}="{value}"' for label, value in zip(rest[::2], rest[1::2], strict=True))
    return f"envoy_specfleet_{name}{{{labels}}} {counter[1]}"


class Router:
    """One router: its counters and the table that it serves. Close it."""

    def __init__(self, port: int) -> None:
        self.address = next_address()
        self.served: dict[str, Any] | None = None
        self.counters: dict[str, int] = {}
        self.loads: list[tuple[float, str]] = []
        self.deaf = False  # to the operator, as behind a NetworkPolicy that lets Prometheus through only
        self._started = time.time()
        self._server = HttpServer(self.address, port, self.answer, keep_alive=True)

    def answer(self, target: str) -> Answer:
        """The answer to a GET."""
        url = urlsplit(target)
        if self.deaf and url.path != "/stats/prometheus":
            return 403, "text/plain", b""
        if url.path == "/served" and self.served is not None:
            return 200, "application/json", json.dumps(self.served).encode()
        if url.path == "/stats":
            wanted = re.compile(parse_qs(url.query)["filter"][0])
            known = {"server.uptime": int(time.time() - self._started), **self.counters}
            stats: list[dict[str, Any]] = [
                {"name": name, "value": value} for name, value in known.items() if wanted.search(name)
            ]
            return 200, "application/json", json.dumps({"stats": [*stats, {"histograms": {}}]}).encode()
        if url.path == "/stats/prometheus":
            uptime = f"envoy_server_uptime{{}} {int(time.time() - self._started)}"
            return 200, PROMETHEUS_TEXT, "\n".join([uptime, *map(_exposed, self.counters.items()), ""]).encode()
        return 404, "text/plain", b""

    def load(self, routes: dict[str, str]) -> None:
        """Take over the files of the ConfigMap, as Envoy does when the kubelet has synced the volume."""
        self.served = served_of(routes)
        self.loads.append((time.time(), self.served["version"]))

    def count(self, route: str, pool: str, **counts: int) -> None:
        """Add to counters of answers of `pool` that were meant for it."""
        for counter, value in counts.items():
            labels = f"route.{route}.pool.{pool}.intended.{pool}"
            name = f"specfleet.{counter}.{labels}"
            self.counters[name] = self.counters.get(name, 0) + value

    def close(self) -> None:
        """Answer no more."""
        self._server.close()

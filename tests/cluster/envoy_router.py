"""A router of the fake kubelet that is the real Envoy, read through a front that can fail as networks and bugs do."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.cluster.http_server import Answer, HttpServer
from tests.cluster.routers import next_address
from tests.envoy import harness

_PLAIN = "text/plain"
Lie = Callable[[list[dict[str, Any]]], list[dict[str, Any]]]
"""Envoy's counters as the front passes them on."""


class EnvoyRouter:
    """One Envoy, on loopback, with the files of the ConfigMap. `served` is what Envoy itself answers. Close it.

    Attributes:
        silent: the front answers nothing: 403, as behind a NetworkPolicy.
        slow_seconds: how long each answer of the front takes.
        lie: what it makes of the counters.
    """

    def __init__(self, port: int, directory: Path, dns: harness.Dns) -> None:
        directory.mkdir(parents=True)
        self.address = next_address()
        self.loads: list[tuple[float, str]] = []
        self.silent = False
        self.slow_seconds = 0.0
        self.lie: Lie | None = None
        self._envoy = harness.Router(directory, dns, harness.make_plan())
        self._front = HttpServer(self.address, port, self._answer, keep_alive=True)

    @property
    def url(self) -> str:
        """Where clients go."""
        return self._envoy.url

    @property
    def served(self) -> dict[str, Any] | None:
        """What Envoy serves; None before its start."""
        return self._envoy.served() or None

    def healthy(self, pool: str) -> int:
        """Hosts of a pool that Envoy would send a request to."""
        return self._envoy.healthy(pool)

    def load(self, routes: dict[str, str]) -> None:
        """Take over the files of the ConfigMap, as the kubelet delivers them."""
        self._envoy.write_files(routes)
        self.loads.append((time.time(), ""))
        if self._envoy.process is None:
            self._envoy.start()

    def close(self) -> None:
        """End both."""
        self._front.close()
        self._envoy.stop()

    def _answer(self, target: str) -> Answer:
        if self.silent:
            return 403, _PLAIN, b""
        if self.slow_seconds:
            time.sleep(self.slow_seconds)
        try:
            with urllib.request.urlopen(self._envoy.read_url + target, timeout=5) as answer:
                status, kind, body = answer.status, answer.headers.get("content-type", _PLAIN), answer.read()
        except urllib.error.HTTPError as error:
            return error.code, _PLAIN, b""
        except OSError:
            return 503, _PLAIN, b""
        if self.lie is not None and urlsplit(target).path == "/stats":
            document = json.loads(body)
            document["stats"] = self.lie(document["stats"])
            body = json.dumps(document).encode()
        return status, kind, body

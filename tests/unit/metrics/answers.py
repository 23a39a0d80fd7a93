"""An HTTP server on loopback that answers queries as told: as Prometheus does, or as it should not."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

FIGURES = ("decode_tokens", "accepted", "drafted", "measured")
Send = Callable[[BaseHTTPRequestHandler, str], None]


def series(name: str, at: float, value: float | str, **labels: str) -> dict[str, Any]:
    """One series with one sample."""
    text = value if isinstance(value, str) else f"{value:.15g}"
    return {"metric": {"__name__": name, **labels}, "values": [[at, text]]}


def router(
    at: float,
    pod: str = "assistant-router-5d8f7c9b6-x2x4z",
    namespace: str = "serving",
    uptime: float | str = 5000,
    route: str = "chat",
    **figures: float | str,
) -> list[dict[str, Any]]:
    """All series of one router with one route: 100 requests of 41 tokens, a tenth of 400 drafted accepted."""
    where = {"namespace": namespace, "pod": pod, "job": "routers"}
    row = {**where, "route": route, "pool": "ngram", "intended": "ngram"}
    values = {"decode_tokens": 4000, "accepted": 40, "drafted": 400, "measured": 100, **figures}
    return [
        series("specfleet_router_uptime", at, uptime, **where),
        *(series(f"specfleet_{name}", at, values[name], **row) for name in FIGURES),
        series("specfleet_requests", at, values["measured"], code="200", flags="-", phase="body", **row),
    ]


def document(result: Iterable[dict[str, Any]], **more: Any) -> bytes:
    """A good answer of Prometheus."""
    data = {"resultType": "matrix", "result": list(result)}
    return json.dumps({"status": "success", "data": data, **more}).encode()


def plain(body: bytes, status: int = 200, content_type: str = "application/json", **headers: str) -> Send:
    """Answers with this."""

    def send(handler: BaseHTTPRequestHandler, query: str) -> None:
        handler.send_response(status)
        for name, value in {"Content-Type": content_type, "Content-Length": str(len(body)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(body)

    return send


def slow(handler: BaseHTTPRequestHandler, query: str) -> None:
    """Takes two minutes, or until the client has gone."""
    deadline = time.monotonic() + 120.0
    handler.connection.settimeout(0.2)
    while time.monotonic() < deadline:
        try:
            if handler.connection.recv(1) == b"":
                return
        except TimeoutError:
            continue
        except OSError:
            return


def dripping(handler: BaseHTTPRequestHandler, query: str) -> None:
    """A byte now and then, each of them in good time."""
    handler.send_response(200)
    handler.send_header("Content-Length", "100000")
    handler.end_headers()
    for _ in range(1200):
        try:
            handler.wfile.write(b" ")
            handler.wfile.flush()
        except OSError:
            return
        time.sleep(0.1)


@dataclass
class Answers:
    """The server. `send` is what each query gets; `seen` are query and headers of those that came."""

    send: Send
    certificate: Path | None = None
    seen: list[tuple[str, dict[str, str]]] = field(default_factory=list)

    def __enter__(self) -> Answers:
        answers = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                url = urlsplit(self.path)
                query = parse_qs(url.query).get("query", [""])[0]
                answers.seen.append((query, dict(self.headers)))
                if url.path != "/api/v1/query":
                    self.send_error(404)
                    return
                answers.send(self, query)

            def log_message(self, *args: object) -> None:
                """Tests print nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        if self.certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.certificate)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def url(self) -> str:
        """Base URL."""
        scheme = "http" if self.certificate is None else "https"
        return f"{scheme}://localhost:{self._server.server_address[1]}"

"""An HTTP server in the test process, for what the operator reads: routers, engines, their pages."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PROMETHEUS_TEXT = "text/plain; version=0.0.4"
Answer = tuple[int, str, bytes]  # status, content type, body


class HttpServer:
    """Answers GETs by `answer`, which is given the target; port 0 is a free one. Close it."""

    def __init__(self, address: str, port: int, answer: Callable[[str], Answer], *, keep_alive: bool = False) -> None:
        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1" if keep_alive else "HTTP/1.0"

            def do_GET(self) -> None:
                status, kind, body = answer(self.path)
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                with contextlib.suppress(OSError):  # an operator that was killed reads no further
                    self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                """Tests print nothing."""

        self._server = ThreadingHTTPServer((address, port), Handler)
        self._server.daemon_threads = True
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._server.server_close()

"""What the node's proxy does for a Service with a cluster IP: one address, a pod picked anew for each connection."""

from __future__ import annotations

import itertools
import socket
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress

from tests.envoy.harness import ENGINE_PORT, loopback_host


class ServiceAddress:
    """Forwards TCP connections to the backends of the moment, in turns, as kube-proxy does with its endpoints.

    A backend that refuses is not tried for: the client's connection is reset, as it is behind the real one.
    """

    def __init__(self, backends: Sequence[str], port: int = ENGINE_PORT) -> None:
        self.host = loopback_host()
        self.backends = list(backends)
        self.connections: Counter[str] = Counter()
        self._port = port
        self._turn = itertools.count()
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self._socket.bind((self.host, port))
        self._socket.listen(256)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(client,), daemon=True).start()

    def _connect(self, client: socket.socket) -> None:
        backends = self.backends
        if not backends:
            _reset(client)
            return
        backend = backends[next(self._turn) % len(backends)]
        self.connections[backend] += 1
        try:
            server = socket.create_connection((backend, self._port), timeout=5)
        except OSError:
            _reset(client)
            return
        server.settimeout(None)
        threading.Thread(target=_pump, args=(server, client), daemon=True).start()
        _pump(client, server)


def _reset(client: socket.socket) -> None:
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
    client.close()


def _pump(source: socket.socket, target: socket.socket) -> None:
    """Copy until one side ends, then end both."""
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for side in (source, target):
        with suppress(OSError):
            side.shutdown(socket.SHUT_RDWR)
        side.close()

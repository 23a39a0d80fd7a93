"""The end of a pod whose engine's page does not tell what runs: the kernel's table of connections does."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from specfleet.engines.drain import connections_command


@pytest.fixture(params=[socket.AF_INET, socket.AF_INET6])
def server(request: pytest.FixtureRequest) -> Iterator[socket.socket]:
    try:
        listener = socket.create_server(("", 0), family=request.param)
    except OSError:
        assert request.param == socket.AF_INET6, "IPv4 is always there"
        pytest.skip("no IPv6 on this machine")
    with listener:
        yield listener


def hook(server: socket.socket, most: int) -> subprocess.Popen[bytes]:
    command = connections_command(port=server.getsockname()[1], leave_seconds=0, most_seconds=most)
    return subprocess.Popen([sys.executable, *command[1:]])


def connected(server: socket.socket) -> tuple[socket.socket, socket.socket]:
    loopback = "::1" if server.family == socket.AF_INET6 else "127.0.0.1"
    client = socket.create_connection((loopback, server.getsockname()[1]))
    return client, server.accept()[0]


def test_a_pod_ends_once_its_last_connection_is_closed(server: socket.socket) -> None:
    client, served = connected(server)
    with client, served, hook(server, 60) as waiting:
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(2)
        served.close()
        assert waiting.wait(20) == 0


def test_a_pod_without_a_connection_ends_at_once(server: socket.socket) -> None:
    with hook(server, 60) as waiting:
        assert waiting.wait(20) == 0


def test_a_connection_that_stays_is_waited_for_no_longer_than_the_grace_period(server: socket.socket) -> None:
    client, served = connected(server)
    began = time.monotonic()
    with client, served, hook(server, 2) as waiting:
        assert waiting.wait(20) == 0
    assert time.monotonic() - began >= 2.0


def test_connections_that_the_container_made_itself_are_none_of_its_server() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other, socket.create_server(("127.0.0.1", 0)) as server:
        client, served = connected(other)
        with client, served, hook(server, 60) as waiting:
            assert waiting.wait(20) == 0

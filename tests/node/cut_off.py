"""Keeps one pod from another's port, as a NetworkPolicy would: by a rule in the other pod's own network namespace."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from tests.node.kube import Manifest
from tests.node.processes import pids_of
from tests.node.routers import READ_PORT

ROUTER_PROGRAM = "envoy"


@contextmanager
def routers_cut_off(routers: Iterable[Manifest], from_pods: Iterable[Manifest]) -> Iterator[None]:
    """While inside, nothing that these pods send to the routers' read-only port arrives there."""
    rules = [
        (pids_of(router, ROUTER_PROGRAM)[0], pod["status"]["podIP"]) for router in list(routers) for pod in from_pods
    ]
    for pid, address in rules:
        _iptables(pid, "-I", address)
    try:
        yield
    finally:
        for pid, address in rules:
            _iptables(pid, "-D", address)


def _iptables(pid: int, what: str, address: str) -> None:
    words = ["nsenter", f"--net=/proc/{pid}/ns/net", "iptables", what, "INPUT", "-s", address, "-p", "tcp"]
    subprocess.run([*words, "--dport", str(READ_PORT), "-j", "DROP"], check=True, capture_output=True, timeout=20)

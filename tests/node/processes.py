"""Ends what runs inside pods of this machine's node at once, as a crash would: no preStop, no SIGTERM."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path

from tests.node.kube import Manifest


def pids_of(pod: Manifest, program: str) -> list[int]:
    """Processes of one pod whose command line holds `program`; the pod is known by its uid in their control group."""
    uid = pod["metadata"]["uid"]
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            groups = (entry / "cgroup").read_text().replace("_", "-")
            if uid in groups and program in (entry / "cmdline").read_text().replace("\0", " "):
                found.append(int(entry.name))
    return found


def kill(pods: Iterable[Manifest], program: str) -> int:
    """SIGKILL to `program` in all these pods; returns how many processes there were."""
    pids = [pid for pod in pods for pid in pids_of(pod, program)]
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return len(pids)

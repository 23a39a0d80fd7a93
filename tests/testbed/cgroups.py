"""The bed's own branch of every cgroup hierarchy: all pods live below it, so that all can be found and ended."""

from __future__ import annotations

import os
from pathlib import Path

from tests.testbed.processes import Process, end

NAME = "specfleet-testbed"
# What the kubelet asks of cgroup v2.
_V2_CONTROLLERS = ("cpu", "cpuset", "memory", "pids", "hugetlb", "io")


def create() -> None:
    """Make the branch in every hierarchy, with what its children need."""
    for mount, kind in _hierarchies():
        branch = mount / NAME
        branch.mkdir(exist_ok=True)
        if kind == "cgroup2" and not _hybrid():
            for folder in (mount, branch):
                _pass_on_controllers(folder)
        for setting in ("cpuset.cpus", "cpuset.mems"):
            # An empty set would keep every process out (cgroup v1 does not inherit it).
            if kind == "cgroup" and (branch / setting).is_file() and not (branch / setting).read_text().strip():
                (branch / setting).write_text((mount / setting).read_text())


def end_all() -> None:
    """Kill every process below the branch."""
    for _ in range(5):
        found = {process for branch in _branches() for process in _members(branch)}
        if not found:
            return
        end(sorted(found, key=lambda process: process.pid), grace_seconds=0)


def remove() -> None:
    """Remove the branch, children first."""
    for branch in _branches():
        for folder, _, _ in os.walk(branch, topdown=False):
            Path(folder).rmdir()


def present() -> bool:
    """Whether the branch is there."""
    return bool(_branches())


def _pass_on_controllers(folder: Path) -> None:
    offered = (folder / "cgroup.controllers").read_text().split()
    enabled = (folder / "cgroup.subtree_control").read_text().split()
    for name in _V2_CONTROLLERS:
        if name in offered and name not in enabled:
            (folder / "cgroup.subtree_control").write_text(f"+{name}")


def _branches() -> list[Path]:
    return [mount / NAME for mount, _ in _hierarchies() if (mount / NAME).is_dir()]


def _members(branch: Path) -> list[Process]:
    found = []
    for folder, _, _ in os.walk(branch):
        try:
            pids = (Path(folder) / "cgroup.procs").read_text().split()
        except OSError:
            continue
        found += [process for pid in pids if (process := Process.of(int(pid))) is not None]
    return found


def _hierarchies() -> list[tuple[Path, str]]:
    mounts = (line.split() for line in Path("/proc/self/mounts").read_text().splitlines())
    return [(Path(words[1]), words[2]) for words in mounts if words[2] in ("cgroup", "cgroup2")]


def _hybrid() -> bool:
    return any(kind == "cgroup" for _, kind in _hierarchies())

"""Mounts below a directory."""

from __future__ import annotations

from pathlib import Path

from tests.testbed.commands import output_of


def below(directory: Path) -> list[Path]:
    """Mount points below `directory`, the innermost and latest first."""
    points = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        point = Path(line.split()[4].encode().decode("unicode_escape"))
        if directory in point.parents:
            points.append(point)
    return points[::-1]


def detach(directory: Path) -> None:
    """Unmount everything below `directory`, lazily where it is busy."""
    for point in below(directory):
        output_of(["umount", "--lazy", point])

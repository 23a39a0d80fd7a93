"""What the file system under a path can do."""

from __future__ import annotations

import os
from pathlib import Path


def holds_overlays(path: Path) -> bool:
    """Whether overlay layers can lie at `path`: not where it lies on an overlay itself (inside a container)."""
    point_found, kind_found = "", ""
    for line in Path("/proc/self/mounts").read_text().splitlines():
        _, point, kind, *_ = line.split(" ")
        if os.path.commonpath([path, point]) == point and len(point) >= len(point_found):
            point_found, kind_found = point, kind
    return kind_found in ("ext4", "xfs", "btrfs")

"""One builder at a time, and no half-made result ever under its final name."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.testbed.paths import cache_root


@contextmanager
def exclusive(name: str) -> Iterator[None]:
    """Hold the machine-wide lock `name` (a file under `CACHE/locks`; the kernel frees it when the holder dies)."""
    directory = cache_root() / "locks"
    directory.mkdir(parents=True, exist_ok=True)
    with (directory / f"{name}.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@contextmanager
def made_whole(target: Path) -> Iterator[Path]:
    """Yield a temporary path beside `target`, renamed to it if the block succeeds.

    Whatever an interrupted build left there is removed first.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = target.with_name(target.name + ".partial")
    remove(draft)
    yield draft
    os.replace(draft, target)


def remove(path: Path) -> None:
    """Remove a file or a whole directory, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)

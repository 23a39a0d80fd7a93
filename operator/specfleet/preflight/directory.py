"""Model files in a directory: a volume of a pod, a folder of a person, a cache of the Hub's own tools."""

from __future__ import annotations

import re
import stat
from pathlib import Path

from specfleet.preflight.bounded import FileProblem
from specfleet.preflight.reading import InaccessibleError
from specfleet.preflight.request import ModelRef

_MOST_NAMES = 10_000
_COMMIT = re.compile(r"[0-9a-f]{40}")


class DirectorySource:
    """Files of one directory. Only plain files are opened: a pipe would be waited for."""

    def __init__(self, path: Path, what: str, commit: str | None = None) -> None:
        self._path, self._what, self._commit = path, what, commit

    @property
    def commit(self) -> str | None:
        """Where the directory is named by one."""
        return self._commit

    def names(self) -> frozenset[str]:
        """Plain files, and links to such."""
        try:
            found: list[str] = []
            for one in self._path.iterdir():
                if len(found) >= _MOST_NAMES:
                    break
                if one.is_file():
                    found.append(one.name)
            return frozenset(found)
        except FileNotFoundError:
            raise InaccessibleError(f"{self._what} is not there: {self._path} does not exist") from None
        except OSError as problem:
            raise InaccessibleError(f"{self._what} cannot be read: {self._path}: {problem.strerror}") from None

    def read(self, name: str, most_bytes: int) -> bytes:
        """A whole file."""
        data = self.piece(name, 0, most_bytes + 1)
        if len(data) > most_bytes:
            raise FileProblem(f"{name} of {self._what} is larger than {most_bytes} bytes: is it the right file?")
        return data

    def piece(self, name: str, start: int, length: int) -> bytes:
        """Up to `length` bytes from `start`."""
        path = self._path / name
        try:
            if not stat.S_ISREG(path.stat().st_mode):
                raise InaccessibleError(f"{name} of {self._what} is no plain file")
            with path.open("rb") as file:
                file.seek(start)
                return file.read(length)
        except OSError as problem:
            raise InaccessibleError(f"{name} of {self._what} cannot be read: {problem.strerror}") from None


def local_source(models: Path, ref: ModelRef, role: str) -> DirectorySource:
    """The model's folder below `models`: owner/name, the path that `model` names, or the Hub tools' cache.

    Raises:
        InaccessibleError: there is none of them.
    """
    what = f"the {role} {ref.model}"
    plain = models / ref.model.lstrip("/")
    if plain.is_dir():
        return DirectorySource(plain, what)
    if not ref.on_hub:
        raise InaccessibleError(f"{what} is not below {models}: put its files into {plain}")
    cached = models / f"models--{ref.model.replace('/', '--')}"
    if not cached.is_dir() and (models / "hub").is_dir():
        cached = models / "hub" / cached.name
    revision = ref.revision or "main"
    pointer = cached / "refs" / revision
    if pointer.is_file() and pointer.stat().st_size <= 64:
        revision = pointer.read_text().strip()
    if _COMMIT.fullmatch(revision) and (snapshot := cached / "snapshots" / revision).is_dir():
        return DirectorySource(snapshot, what, revision)
    raise InaccessibleError(f"{what} is not below {models}: put its files into {plain}")

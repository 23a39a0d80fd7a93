"""Source files of a released wheel, read from the package index in parts: its hundreds of MB are mostly kernels."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tomllib
import urllib.error
import urllib.request
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

BLOCK_BYTES = 1 << 20
TIMEOUT_SECONDS = 120
PLATFORM = "x86_64-manylinux_2_39"
PYTHON = "3.12"


class NoWheel(Exception):
    """A release has no wheel that can be read; the message says why."""


@dataclass(frozen=True)
class Wheel:
    """A wheel on the index.

    Args:
        sha256: of the whole file, as the index states it; parts of it are checked by the checksums inside the wheel.
        size: bytes.
    """

    url: str
    sha256: str
    size: int

    @property
    def file(self) -> str:
        """Its file name."""
        return self.url.rsplit("/", 1)[-1]


def find(package: str, release: str, uv: Path = Path("uv")) -> Wheel:
    """Asks uv, the client that also makes our environment, for the wheel of one release.

    Raises:
        NoWheel: the index has none for Linux on x86-64.
        FileNotFoundError: there is no uv.
    """
    program = shutil.which(uv)
    if program is None:
        raise FileNotFoundError(f"found no program {uv}: write --uv PATH, or use make, which brings one")
    asked = [
        *(program, "pip", "compile", "--quiet", "--no-deps", "--no-header", "--no-sources", "--format", "pylock.toml"),
        *("--only-binary", ":all:", "--python-version", PYTHON, "--python-platform", PLATFORM, "-"),
    ]
    ended = subprocess.run(  # noqa: S603
        asked,
        input=f"{package}=={release}",
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "UV_PYTHON_DOWNLOADS": "never"},
    )
    if ended.returncode != 0:
        raise NoWheel(" ".join(ended.stderr.split())[:300])
    wheels = tomllib.loads(ended.stdout)["packages"][0].get("wheels", [])
    if not wheels:
        raise NoWheel(f"the index has no wheel of {package} {release} for {PLATFORM}")
    return Wheel(wheels[0]["url"], wheels[0]["hashes"]["sha256"], wheels[0]["size"])


class _Remote(io.RawIOBase):
    """A file on a server that answers range requests, in blocks that are kept."""

    def __init__(self, wheel: Wheel) -> None:
        self._wheel = wheel
        self._blocks: dict[int, bytes] = {}
        self._at = 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._wheel.size}[whence]
        self._at = start + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        view = memoryview(buffer)
        block, within = divmod(self._at, BLOCK_BYTES)
        if self._at >= self._wheel.size:
            return 0
        part = self._block(block)[within : within + len(view)]
        view[: len(part)] = part
        self._at += len(part)
        return len(part)

    def _block(self, number: int) -> bytes:
        if number not in self._blocks:
            first = number * BLOCK_BYTES
            last = min(first + BLOCK_BYTES, self._wheel.size) - 1
            request = urllib.request.Request(self._wheel.url, headers={"Range": f"bytes={first}-{last}"})  # noqa: S310
            with urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310
                if answer.status != 206:
                    raise NoWheel(f"{self._wheel.file}: the index sends whole files only")
                self._blocks[number] = answer.read()
        return self._blocks[number]


class Sources:
    """The files of one wheel. Raises NoWheel where the index cannot be read."""

    def __init__(self, wheel: Wheel) -> None:
        self.wheel = wheel

    @cached_property
    def _archive(self) -> zipfile.ZipFile:
        try:
            return zipfile.ZipFile(io.BufferedReader(_Remote(self.wheel), BLOCK_BYTES))
        except (urllib.error.URLError, zipfile.BadZipFile) as problem:
            raise NoWheel(f"{self.wheel.file}: {problem}") from problem

    def names(self, prefix: str = "") -> Iterator[str]:
        """Names of files, in the wheel's order."""
        return (name for name in self._archive.namelist() if name.startswith(prefix))

    def text(self, name: str) -> str | None:
        """A file's text; None where the wheel has no such file."""
        try:
            return self._archive.read(name).decode("utf-8")
        except KeyError:
            return None

"""A wall clock that a test sets for operators alone, by libfaketime; their monotonic clock goes on as it is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

from tests.testbed.apt import ensure_packages


class SetClock:
    """Processes that are started with `environment` read their wall clock with what `ahead` says added to it."""

    def __init__(self, directory: Path) -> None:
        ensure_packages({"faketime": "faketime"})
        self._library = next(Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"))
        self._file = directory / "clock"
        self.ahead(0)

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables of the process."""
        return {
            "LD_PRELOAD": str(self._library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_NO_CACHE": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }

    def ahead(self, seconds: int) -> None:
        """Set it, for all of them at once."""
        draft = self._file.with_suffix(".draft")
        draft.write_text(f"{seconds:+d}s\n")
        draft.rename(self._file)


def trusting(kubeconfig: Path, target: Path) -> Path:
    """A kubeconfig that does not look at the server's certificate, which was issued after the hour that is set."""
    config = yaml.safe_load(kubeconfig.read_text())
    for one in config["clusters"]:
        one["cluster"].pop("certificate-authority-data")
        one["cluster"]["insecure-skip-tls-verify"] = True
    target.write_text(yaml.safe_dump(config))
    return target

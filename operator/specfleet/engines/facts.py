"""What released engines know, as read from their source by `make engine-facts`: flags, keys and method names. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import Any

from packaging.version import Version

from specfleet.api.v1alpha1 import EngineType
from specfleet.engines.release import Minor

DATA_FILES: Mapping[EngineType, str] = {EngineType.VLLM: "facts_vllm.json", EngineType.SGLANG: "facts_sglang.json"}


@dataclass(frozen=True)
class Fact:
    """One thing that a range of releases has.

    Args:
        name: of a flag: all its spellings, the main one first; of a choice: the key that it is a value of.
        detail: of a flag `switch` (no value), `optional` or `value`; of a key its type; of a choice the value.
        since: the first release that was read and has it.
        until: the last one in a row that has it.
    """

    name: str
    detail: str
    since: Version
    until: Version


@dataclass(frozen=True)
class WheelSource:
    """Where the facts of one release were read.

    Args:
        file: name of the wheel on the package index.
        sha256: of that file, as the index states it.
        missing: why the release could not be read; then there is no file.
    """

    file: str = ""
    sha256: str = ""
    missing: str = ""


@dataclass(frozen=True)
class EngineFactTable:
    """All facts about one engine's releases, by section."""

    sources: Mapping[Version, WheelSource]
    sections: Mapping[str, tuple[Fact, ...]]

    @cached_property
    def releases(self) -> tuple[Version, ...]:
        """Releases that were read, oldest first."""
        return tuple(sorted(version for version, source in self.sources.items() if not source.missing))

    def of(self, section: str, release: Version) -> tuple[Fact, ...]:
        """Facts of one release that was read; of another raises KeyError."""
        if release not in self.releases:
            raise KeyError(f"no facts about {release}: run make engine-facts with it")
        return tuple(fact for fact in self.sections.get(section, ()) if fact.since <= release <= fact.until)

    def newest_of(self, release: Minor) -> Version | None:
        """The newest release of a minor that was read; None where none was."""
        found = [version for version in self.releases if Minor.of(version) == release]
        return found[-1] if found else None

    def nearest(self, release: Version) -> Version:
        """The release that was read whose facts hold: itself, else the newest one before it, at least the oldest.

        A minor alone, such as 0.32, is its newest patch; a release candidate is the release.
        """
        parts = len(release.release)
        before = [one for one in self.releases if one.release[:parts] <= release.release]
        return before[-1] if before else self.releases[0]

    def names(self, section: str, release: Version) -> frozenset[str]:
        """Names in a section of one release."""
        return frozenset(fact.name for fact in self.of(section, release))

    def spellings(self, release: Version) -> Mapping[str, str]:
        """Every spelling of every flag of one release, and whether it takes a value."""
        return {word: fact.detail for fact in self.of("flags", release) for word in fact.name.split()}


def parse_facts(document: Mapping[str, Any]) -> EngineFactTable:
    """From the JSON of a data file."""
    sources = {
        Version(release): WheelSource(source.get("file", ""), source.get("sha256", ""), source.get("missing", ""))
        for release, source in document["releases"].items()
    }
    sections = {
        section: tuple(Fact(name, detail, Version(since), Version(until)) for name, detail, since, until in rows)
        for section, rows in document["facts"].items()
    }
    return EngineFactTable(sources, sections)


@lru_cache(maxsize=len(DATA_FILES))
def engine_facts(kind: EngineType) -> EngineFactTable:
    """The committed facts about one engine."""
    text = files("specfleet.engines").joinpath(DATA_FILES[kind]).read_text(encoding="utf-8")
    return parse_facts(json.loads(text))

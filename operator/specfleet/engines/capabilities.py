"""What an engine can draft with, by release: the table behind validation, rendering and `specfleet engines`. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import Any

import yaml
from packaging.version import Version

from specfleet.api.v1alpha1 import DraftMode, EngineType
from specfleet.engines.facts import EngineFactTable, engine_facts

DATA_FILES: Mapping[EngineType, str] = {EngineType.VLLM: "vllm_modes.yaml"}


class Checkpoint(StrEnum):
    """Where the weights of drafts are."""

    NONE = "none"
    DRAFT = "draft"
    TARGET = "target"


@dataclass(frozen=True)
class Span:
    """Releases from `since` to `until`; None where there is no bound. A bound such as 0.31 takes in all of 0.31."""

    since: Version | None = None
    until: Version | None = None

    def __contains__(self, release: Version) -> bool:
        number = release.release
        if self.until is not None and number[: len(self.until.release)] > self.until.release:
            return False
        return self.since is None or number[: len(self.since.release)] >= self.since.release


@dataclass(frozen=True)
class FlagConflict:
    """A flag that keeps the engine from starting with this mode.

    Args:
        why: what the engine does, as the end of a sentence that begins with its name.
    """

    name: str
    releases: Span
    why: str


@dataclass(frozen=True)
class Unusable:
    """Releases that take a mode's name and cannot do it, and why."""

    releases: Span
    why: str


@dataclass(frozen=True)
class TargetList:
    """Model types of targets that some releases take for a mode; of releases without a list any may do."""

    releases: Span
    types: tuple[str, ...]


@dataclass(frozen=True)
class Mode:
    """One way to draft.

    Args:
        methods: the engine's names for it, the preferred first.
        unusable: releases that know the name and cannot do it.
        unlisted: releases that do it, though their list of names lacks it.
        first_engine: releases that do it on vLLM's V0 engine only.
        targets: lists of targets whose own heads a release takes.
        package: what the image has to bring; "" for nothing.
        args: keys of the speculative config that it takes beside the common ones and those that specfleet sets.
        flags: flags of the engine that it cannot be combined with.
        lookahead: KV slots kept free a request, with k for the drafted tokens.
        needs: in sentences.
        sources: where this was read.
    """

    mode: DraftMode
    methods: tuple[str, ...]
    unusable: tuple[Unusable, ...]
    unlisted: Span | None
    first_engine: Span | None
    targets: tuple[TargetList, ...]
    checkpoint: Checkpoint
    package: str
    args: frozenset[str]
    flags: tuple[FlagConflict, ...]
    lookahead: str
    needs: tuple[str, ...]
    sources: tuple[str, ...]


@dataclass(frozen=True)
class RefusedFields:
    """Members of request bodies that are answered with 400 under speculation."""

    releases: Span
    fields: tuple[str, ...]


@dataclass(frozen=True)
class CapabilityTable:
    """All modes of one engine, and what they share.

    Args:
        common_args: keys that every mode takes.
        lossy: keys that change what the target would have answered.
        lossy_choices: values of keys that do.
        not_offered: keys that specfleet does not offer, and why.
    """

    engine: EngineType
    modes: tuple[Mode, ...]
    common_args: frozenset[str]
    lossy: frozenset[str]
    lossy_choices: Mapping[str, frozenset[str]]
    not_offered: Mapping[str, str]
    refused_fields: tuple[RefusedFields, ...]
    attribution: str
    metrics: str
    notes: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    facts: EngineFactTable = field(default_factory=lambda: EngineFactTable({}, {}))

    @cached_property
    def _by_mode(self) -> Mapping[DraftMode, Mode]:
        return {mode.mode: mode for mode in self.modes}

    def of(self, mode: DraftMode) -> Mode:
        """The row of a mode."""
        return self._by_mode[mode]

    def read(self, release: Version) -> Version:
        """The release whose facts hold: itself where its sources were read, else the nearest before it."""
        return self.facts.nearest(release)

    def method(self, mode: DraftMode, release: Version) -> str | None:
        """The engine's name for a mode; None where the release cannot do it."""
        row = self.of(mode)
        if self.why_unusable(mode, release) is not None:
            return None
        known = self._names(row, self.read(release))
        return next((name for name in row.methods if name in known), None)

    def _names(self, row: Mode, release: Version) -> frozenset[str]:
        unlisted = row.unlisted is not None and release in row.unlisted
        return self.facts.names("methods", release) | (set(row.methods) if unlisted else set())

    def why_unusable(self, mode: DraftMode, release: Version) -> str | None:
        """Why a release cannot do a mode whose name it takes; None where it can, or does not know the name."""
        return next((one.why for one in self.of(mode).unusable if release in one.releases), None)

    def having(self, mode: DraftMode) -> tuple[Version, ...]:
        """The releases, of those that were read, that can do a mode."""
        return tuple(release for release in self.facts.releases if self._usable(self.of(mode), release))

    def _usable(self, row: Mode, release: Version) -> bool:
        if any(release in one.releases for one in row.unusable):
            return False
        return bool(self._names(row, release) & set(row.methods))

    def on_first_engine(self, mode: DraftMode, release: Version) -> bool:
        """Whether a release drafts so on vLLM's V0 engine only."""
        span = self.of(mode).first_engine
        return span is not None and release in span

    def after(self, span: Span) -> Version | None:
        """The first release that was read and is newer than all of a span; None where there is none."""
        later = [one for one in self.facts.releases if span.until is not None and one not in Span(None, span.until)]
        return later[0] if later else None

    def available(self, release: Version) -> tuple[DraftMode, ...]:
        """The modes of a release."""
        return tuple(row.mode for row in self.modes if self.method(row.mode, release) is not None)

    def args_of(self, mode: DraftMode, release: Version) -> tuple[str, ...]:
        """Keys that drafts[].args may hold, in the order of their names."""
        offered = self.of(mode).args | self.common_args
        return tuple(sorted(offered & self.facts.names("keys", self.read(release))))


def parse_capabilities(engine: EngineType, document: Mapping[str, Any], facts: EngineFactTable) -> CapabilityTable:
    """From the YAML of a data file."""
    common = document["common"]
    return CapabilityTable(
        engine=engine,
        modes=tuple(_mode(row) for row in document["modes"]),
        common_args=frozenset(common["args"]),
        lossy=frozenset(common["lossy"]),
        lossy_choices={name: frozenset(values) for name, values in common["lossyChoices"].items()},
        not_offered=dict(common["notOffered"]),
        refused_fields=tuple(RefusedFields(_span(row), tuple(row["fields"])) for row in common["refusedFields"]),
        attribution=common["attribution"],
        metrics=common["metrics"],
        notes=tuple(common["notes"]),
        sources=tuple(common["sources"]),
        facts=facts,
    )


def _span(row: Mapping[str, Any]) -> Span:
    since, until = row.get("since"), row.get("until")
    return Span(Version(since) if since else None, Version(until) if until else None)


def _mode(row: Mapping[str, Any]) -> Mode:
    return Mode(
        mode=DraftMode(row["mode"]),
        methods=tuple(row["methods"]),
        unusable=tuple(Unusable(Span(Version(since), Version(until)), why) for since, until, why in row["unusable"]),
        unlisted=_span(row["unlisted"]) if "unlisted" in row else None,
        first_engine=_span(row["firstEngine"]) if "firstEngine" in row else None,
        targets=tuple(TargetList(_span(one), tuple(one["types"])) for one in row.get("targets", ())),
        checkpoint=Checkpoint(row["checkpoint"]),
        package=row.get("package", ""),
        args=frozenset(row["args"]),
        flags=tuple(FlagConflict(flag["name"], _span(flag), flag["why"]) for flag in row["flags"]),
        lookahead=row["lookahead"],
        needs=tuple(row["needs"]),
        sources=tuple(row["sources"]),
    )


@lru_cache(maxsize=len(DATA_FILES))
def capabilities(engine: EngineType) -> CapabilityTable:
    """The table of one engine. Raises KeyError where specfleet has none."""
    text = files("specfleet.engines").joinpath(DATA_FILES[engine]).read_text(encoding="utf-8")
    return parse_capabilities(engine, yaml.safe_load(text), engine_facts(engine))


def runs(releases: tuple[Version, ...], order: tuple[Version, ...]) -> Iterator[tuple[Version, Version]]:
    """First and last of each run of releases that stand next to each other in `order`."""
    start: Version | None = None
    for release, after in zip(order, [*order[1:], None], strict=True):
        if release in releases:
            start = start or release
            if after is None or after not in releases:
                yield start, release
                start = None


def runs_text(releases: tuple[Version, ...], order: tuple[Version, ...]) -> str:
    """Releases in words, such as `0.8.5 to 0.9.2, since 0.15.0`."""
    words = [
        f"since {first}" if last == order[-1] else f"{first} to {last}" if first != last else str(first)
        for first, last in runs(releases, order)
    ]
    return ", ".join(words) or "never"

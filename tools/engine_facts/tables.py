"""Facts of single releases into one table of ranges and back, and what differs between two releases."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from packaging.version import Version

from specfleet.engines.facts import EngineFactTable, WheelSource

Row = tuple[str, str]
Facts = dict[str, set[Row]]
"""Section, and its rows of name and detail."""


def by_release(table: EngineFactTable) -> dict[Version, Facts]:
    """Takes the ranges apart."""
    return {
        release: {
            section: {(fact.name, fact.detail) for fact in table.of(section, release)} for section in table.sections
        }
        for release in table.releases
    }


def table_text(package: str, sources: Mapping[Version, WheelSource], facts: Mapping[Version, Facts]) -> str:
    """The data file: one line a release, and one line for each run of releases in which a fact is the same."""
    lines = ["{", f' "package": {json.dumps(package)},', ' "releases": {']
    lines += _joined(
        f"  {json.dumps(str(release))}: {json.dumps(_source(sources[release]))}" for release in sorted(sources)
    )
    lines += [" },", ' "facts": {']
    sections = sorted({section for one in facts.values() for section in one})
    for section in sections:
        lines.append(f"  {json.dumps(section)}: [")
        lines += _joined(f"   {json.dumps(row)}" for row in _runs(section, facts))
        lines.append("  ]" if section == sections[-1] else "  ],")
    return "\n".join([*lines, " }", "}", ""])


def _source(source: WheelSource) -> dict[str, str]:
    return {"missing": source.missing} if source.missing else {"file": source.file, "sha256": source.sha256}


def _joined(lines: Iterator[str]) -> list[str]:
    found = list(lines)
    return [f"{line}," for line in found[:-1]] + found[-1:]


def _runs(section: str, facts: Mapping[Version, Facts]) -> Iterator[list[str]]:
    order = sorted(facts)
    for row in sorted({row for one in facts.values() for row in one.get(section, ())}):
        since: Version | None = None
        for release, after in zip(order, [*order[1:], None], strict=True):
            if row not in facts[release].get(section, ()):
                continue
            since = since or release
            if after is None or row not in facts[after].get(section, ()):
                yield [*row, str(since), str(release)]
                since = None


def differences(old: Facts, new: Facts) -> Iterator[str]:
    """One line for each fact that came (+), went (-) or changed (~), by section."""
    for section in sorted(old.keys() | new.keys()):
        before, after = old.get(section, set()), new.get(section, set())
        gone, come = before - after, after - before
        for name, detail in sorted(gone):
            now = [other for known, other in come if known == name]
            if len(now) == 1 and sum(known == name for known, _ in gone) == 1:
                yield f"~ {section}\t{name}\t{detail} -> {now[0]}"
            else:
                yield f"- {section}\t{name}\t{detail}".rstrip()
        for name, detail in sorted(come):
            changed = sum(known == name for known, _ in gone) == 1 and sum(known == name for known, _ in come) == 1
            if not changed:
                yield f"+ {section}\t{name}\t{detail}".rstrip()

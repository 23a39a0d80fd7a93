"""SGLang: what is wrong with the flags and variables that a user wrote. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import replace

from packaging.version import Version

from specfleet.api.findings import Finding, FindingReason, error, warning
from specfleet.api.v1alpha1 import Engine, EngineType, SpecDeploymentSpec
from specfleet.engines.declared import owned_variable, sequences
from specfleet.engines.flags import Flag, Given, Stray, Unresolved, arity_problem
from specfleet.engines.known_flags import KnownFlags, known_flags
from specfleet.engines.sglang_tables import OWNED_ENV, owned, table

MAX_RUNNING = "max-running-requests"
# argparse adds it by itself, so it is no flag of the sources.
_HELP = frozenset({"-h", "--help", "--hel"})


def flags_of(release: Version) -> KnownFlags:
    """The flags of the release that was read and is nearest."""
    return known_flags(EngineType.SGLANG, table().nearest(release))


def given_flags(engine: Engine, release: Version) -> list[Given | Stray]:
    """Every flag of `args`, then of `extraArgs`, as the release's parser reads them."""
    flags = flags_of(release)
    result: list[Given | Stray] = []
    for key, value in engine.args.items():
        path = f"spec.engine.args[{key}]"
        name = key.lstrip("-").split("=", 1)[0].strip()
        given = flags.given(f"--{name}", path)
        if key != name and _owned(given) is None:
            result.append(Stray(path, f"write the flag without dashes, '=' and spaces: {name!r}"))
            continue
        result.append(replace(given, value=value or None, values=()))
    result.extend(flags.read(engine.extra_args, "spec.engine.extraArgs"))
    return result


def last_flags(engine: Engine, release: Version) -> dict[str, Given]:
    """The last occurrence of each flag, by each of its names without dashes."""
    found: dict[str, Given] = {}
    for given in given_flags(engine, release):
        if isinstance(given, Given) and isinstance(given.flag, Flag):
            for spelling in given.flag.spellings:
                found[spelling.lstrip("-")] = given
    return found


def flag_findings(spec: SpecDeploymentSpec, release: Version) -> Iterator[Finding]:
    """Flags that specfleet owns, that the release does not know, or that do not go with the draft mode."""
    for given in given_flags(spec.engine, release):
        if isinstance(given, Stray):
            yield error(FindingReason.UNKNOWN_FLAG, given.path, given.message)
        elif (why := _owned(given)) is not None:
            yield error(FindingReason.OWNED_FLAG, given.path, f"specfleet sets {_shown(given)}: {why}")
        elif given.flag is Unresolved.AMBIGUOUS:
            choices = ", ".join(given.candidates[:6])
            yield error(
                FindingReason.AMBIGUOUS_FLAG, given.path, f"{given.spelling} can stand for {choices}: write one in full"
            )
        elif not isinstance(given.flag, Flag) or not flags_of(release).is_current(given):
            report = warning if release > table().newest else error
            yield report(FindingReason.UNKNOWN_FLAG, given.path, _unknown(given, release))
        else:
            yield from _spelling_findings(given)
            yield from _value_findings(given)
            yield from _mode_conflicts(given, spec, release)


def _owned(given: Given) -> str | None:
    if given.spelling in _HELP:
        return owned(("--help",))
    if isinstance(given.flag, Flag):
        return owned(given.flag.spellings)
    # An abbreviation that could stand for several flags of speculation is one of them.
    return owned((given.spelling,)) or (
        next((why for one in given.candidates if (why := owned((one,))) is not None), None)
        if given.candidates and all(owned((one,)) is not None for one in given.candidates)
        else None
    )


def _shown(given: Given) -> str:
    full = given.matched or given.spelling
    return full if given.spelling == full else f"{full} (here as {given.spelling})"


def _unknown(given: Given, release: Version) -> str:
    read = table().nearest(release)
    whose = f"SGLang {release}" if release <= table().newest else f"SGLang {read}, the newest that specfleet knows,"
    if isinstance(given.flag, Flag):
        name = given.matched or given.spelling
        facts = [fact for fact in table().facts.sections["flags"] if name in fact.name.split()]
        spans = " and ".join(f"{fact.since} to {fact.until}" for fact in facts)
        return f"{whose} does not know the flag {name}, which {spans} had: remove it"
    names = [spelling[2:] for spelling in table().facts.spellings(read) if spelling.startswith("--")]
    close = difflib.get_close_matches(given.spelling.lstrip("-"), names, n=1)
    hint = f": did you mean {close[0]}?" if close else ": remove it, or set engine.version to a release that has it"
    return f"{whose} does not know the flag {given.spelling}{hint}"


def _spelling_findings(given: Given) -> Iterator[Finding]:
    """SGLang's parser takes no `_` for `-`."""
    written = given.path.rpartition("args[")[2].rstrip("]")
    if given.path.startswith("spec.engine.args[") and "_" in written.split("=")[0]:
        yield error(
            FindingReason.UNKNOWN_FLAG,
            given.path,
            f"SGLang takes no '_' in the name of a flag: write {given.spelling.lstrip('-')}",
        )


def _value_findings(given: Given) -> Iterator[Finding]:
    problem = arity_problem(given)
    if problem is not None:
        yield error(FindingReason.INVALID_FLAG_VALUE, given.path, problem)
    elif isinstance(given.flag, Flag) and given.flag.name == MAX_RUNNING and sequences(given.value) is None:
        yield error(
            FindingReason.INVALID_FLAG_VALUE,
            given.path,
            f"{MAX_RUNNING} also sizes the router's limits: write a whole number from 1, found {given.value!r}",
        )


def _mode_conflicts(given: Given, spec: SpecDeploymentSpec, release: Version) -> Iterator[Finding]:
    row = table().of(spec.draft.mode)
    if row is None or not isinstance(given.flag, Flag) or given.switched_off:
        return
    names = {spelling.lstrip("-") for spelling in given.flag.spellings}
    for conflict in row.conflicts:
        if conflict.flag in names and conflict.holds(release):
            newer = "" if conflict.until is None else f", or use a release newer than {conflict.until}"
            yield error(
                FindingReason.CONFLICTING_FLAG, given.path, f"SGLang {release} {conflict.why}: remove the flag{newer}"
            )


def env_findings(spec: SpecDeploymentSpec) -> Iterator[Finding]:
    """Variables that specfleet sets itself or relies on."""
    for variable in spec.engine.env:
        yield from owned_variable(spec, variable, OWNED_ENV)

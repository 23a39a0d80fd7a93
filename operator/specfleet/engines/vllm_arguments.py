"""vLLM: what is wrong with the flags and variables that a user wrote. Pure."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from dataclasses import replace

from packaging.version import Version

from specfleet.api.findings import Finding, FindingReason, error, warning
from specfleet.api.v1alpha1 import Engine, EngineType, SpecDeploymentSpec
from specfleet.engines.capabilities import capabilities
from specfleet.engines.declared import owned_variable, sequences
from specfleet.engines.facts import engine_facts
from specfleet.engines.flags import Given, Stray, Unresolved, arity_problem
from specfleet.engines.vllm_retired import HINTS
from specfleet.engines.vllm_tables import (
    FIGURES_SINCE,
    NEWEST,
    OWNED_ENV,
    OWNED_FLAGS,
    flags_of,
    has_figures,
    knows_generations,
    refused_fields,
)

GENERATION = "VLLM_USE_V1"
CACHE_VARIABLES = frozenset({"HF_HOME", "VLLM_CACHE_ROOT"})


def given_flags(engine: Engine, release: Version) -> list[Given | Stray]:
    """Every flag of `args`, then of `extraArgs`, as the release's parser reads them."""
    table = flags_of(release)
    result: list[Given | Stray] = []
    for key, value in engine.args.items():
        path = f"spec.engine.args[{key}]"
        name = key.lstrip("-").split("=", 1)[0].strip()
        given = table.given(f"--{name}", path)
        short = table.given(f"-{name}", path)
        if isinstance(given.flag, Unresolved) and not isinstance(short.flag, Unresolved):
            if _owned(short) is not None:
                given = short
            elif given.flag is Unresolved.UNKNOWN:
                result.append(Stray(path, f"write the flag by its long name, {short.flag.name!r}"))
                continue
        if key != name and _owned(given) is None:
            result.append(Stray(path, f"write the flag without dashes, '=' and spaces: {name!r}"))
            continue
        result.append(replace(given, value=value or None))
    result.extend(table.read(engine.extra_args, "spec.engine.extraArgs"))
    return result


def flag_findings(spec: SpecDeploymentSpec, release: Version, known_release: bool) -> Iterator[Finding]:
    """Flags that specfleet owns, that the release does not know, or that do not go with the draft mode.

    Args:
        known_release: False where the release is missing or newer than the tables; unknown flags are warnings then.
    """
    for given in given_flags(spec.engine, release):
        if isinstance(given, Stray):
            yield error(FindingReason.UNKNOWN_FLAG, given.path, given.message)
            continue
        owned = _owned(given)
        if owned is not None:
            yield error(FindingReason.OWNED_FLAG, given.path, f"specfleet sets {_shown(given)}: {owned}")
        elif given.flag is Unresolved.AMBIGUOUS:
            choices = ", ".join(given.candidates[:6])
            yield error(
                FindingReason.AMBIGUOUS_FLAG, given.path, f"{given.spelling} can stand for {choices}: write one in full"
            )
        elif given.flag is Unresolved.UNKNOWN:
            report = error if known_release else warning
            yield report(FindingReason.UNKNOWN_FLAG, given.path, _unknown_flag(given, release, known_release))
        else:
            yield from _value_findings(given, release)
            yield from _mode_conflicts(given, spec, release)


def _owned(given: Given) -> str | None:
    if isinstance(given.flag, Unresolved):
        return None
    return OWNED_FLAGS.get(given.flag.name)


def _shown(given: Given) -> str:
    full = given.flag.spellings[0] if not isinstance(given.flag, Unresolved) else given.spelling
    return full if given.spelling == full else f"{full} (here as {given.spelling})"


def _unknown_flag(given: Given, release: Version, known_release: bool) -> str:
    name = given.spelling.lstrip("-")
    close = difflib.get_close_matches(name, flags_of(release).names(), n=1)
    hint = _elsewhere(given.spelling, release) or (f": did you mean {close[0]}?" if close else ": remove it")
    whose = f"vLLM {release}" if known_release else f"vLLM {NEWEST}, the newest release that specfleet knows,"
    return f"{whose} does not know the flag {given.spelling}{hint}"


def _elsewhere(spelling: str, release: Version) -> str:
    """Which other releases know a flag, as the end of a sentence; empty where none that was read does."""
    having = [fact for fact in engine_facts(EngineType.VLLM).sections["flags"] if spelling in fact.name.split()]
    later = [fact.since for fact in having if fact.since > release]
    if later:
        return f", which came with {min(later)}: remove it"
    if having:
        hint = HINTS.get(spelling.lstrip("-"))
        return f", which went after {max(fact.until for fact in having)}: remove it{f'; {hint}' if hint else ''}"
    return ""


def _value_findings(given: Given, release: Version) -> Iterator[Finding]:
    problem = arity_problem(given)
    if problem is not None:
        yield error(FindingReason.INVALID_FLAG_VALUE, given.path, problem)
        return
    name = given.flag.name if not isinstance(given.flag, Unresolved) else ""
    if name == "max-num-seqs" and sequences(given.value) is None:
        yield error(
            FindingReason.INVALID_FLAG_VALUE,
            given.path,
            f"max-num-seqs also sizes the router's limits: write a whole number from 1, found {given.value!r}",
        )
    if name == "disable-log-stats" and not given.switched_off and not has_figures(release):
        yield error(
            FindingReason.CONFLICTING_FLAG,
            given.path,
            f"before {FIGURES_SINCE} decisions rest on the engine's counters, which {given.matched} takes away: "
            "remove it",
        )
    default = _refused_default(given, release) if name == "override-generation-config" else None
    if default is not None:
        yield error(
            FindingReason.CONFLICTING_FLAG,
            given.path,
            f"vLLM refuses {default} under speculation, so every request of the speculative pool would fail: remove it",
        )


def _mode_conflicts(given: Given, spec: SpecDeploymentSpec, release: Version) -> Iterator[Finding]:
    """Flags that keep the release from starting with this draft mode."""
    if isinstance(given.flag, Unresolved) or given.switched_off:
        return
    for conflict in capabilities(EngineType.VLLM).of(spec.draft.mode).flags:
        if conflict.name == given.flag.name and release in conflict.releases:
            after = capabilities(EngineType.VLLM).after(conflict.releases)
            newer = f", or use vLLM {after} or newer" if after is not None else ""
            yield error(
                FindingReason.CONFLICTING_FLAG, given.path, f"vLLM {release} {conflict.why}: remove the flag{newer}"
            )


def _refused_default(given: Given, release: Version) -> str | None:
    """A sampling default that would be refused under speculation for every request that does not set it itself."""
    if given.member:
        return given.member if given.member in refused_fields(release) else None
    try:
        value = json.loads(given.value or "{}")
    except ValueError:
        return None
    found = [name for name in refused_fields(release) if isinstance(value, dict) and value.get(name)]
    return found[0] if found else None


def env_findings(spec: SpecDeploymentSpec, release: Version) -> Iterator[Finding]:
    """Variables that specfleet sets itself or relies on."""
    owned = {name: why for name, why in OWNED_ENV.items() if name != GENERATION or knows_generations(release)}
    for variable in spec.engine.env:
        if variable.name == "VLLM_API_KEY" and variable.value is not None:
            yield error(
                FindingReason.OWNED_ENV,
                f"spec.engine.env[{variable.name}]",
                "a key in plain text is readable by all who may read this object: write valueFrom.secretKeyRef",
            )
        yield from owned_variable(spec, variable, owned, CACHE_VARIABLES)

"""TensorRT-LLM: what is wrong with the flags and variables that a user wrote. Pure.

`trtllm-serve` reads its flags with click: no abbreviations, `_` in names, a value behind `=` or as the next word.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from dataclasses import dataclass

from packaging.version import Version

from specfleet.api.findings import Finding, FindingReason, error, warning
from specfleet.api.v1alpha1 import Engine, SpecDeploymentSpec
from specfleet.engines.declared import owned_variable, sequences
from specfleet.engines.trtllm_tables import OWNED_ENV, OWNED_FLAGS, table

MAX_BATCH = "max_batch_size"
_ARGS, _EXTRA = "spec.engine.args", "spec.engine.extraArgs"


@dataclass(frozen=True)
class GivenFlag:
    """One flag as it was written.

    Args:
        spelling: without dashes.
        value: None for a bare flag.
    """

    path: str
    spelling: str
    value: str | None

    @property
    def name(self) -> str:
        """The name as the engine writes its own."""
        return self.spelling.lower().replace("-", "_")


@dataclass(frozen=True)
class StrayWord:
    """A word that belongs to no flag."""

    path: str
    message: str


def given_flags(engine: Engine, release: Version) -> Iterator[GivenFlag | StrayWord]:
    """Every flag of `args`, then of `extraArgs`, as click reads them."""
    for key, value in engine.args.items():
        path = f"{_ARGS}[{key}]"
        name = key.lstrip("-").split("=", 1)[0].strip()
        flag = GivenFlag(path, name, value or None)
        if key != name and flag.name not in OWNED_FLAGS:
            yield StrayWord(path, f"write the flag without dashes, '=' and spaces: {name!r}")
        else:
            yield flag
    words = list(engine.extra_args)
    while words:
        word = words.pop(0)
        path = f"{_EXTRA}[{word.split('=', 1)[0]}]"
        if word in ("--", "-") or not word.startswith("--"):
            yield StrayWord(path, f"found {word!r}, expected a flag such as --max_num_tokens=8192: remove it")
            continue
        spelling, equals, value = word[2:].partition("=")
        takes = table().flag(f"--{spelling}", release)
        if not equals and takes != "switch" and words and not words[0].startswith("--"):
            yield GivenFlag(path, spelling, words.pop(0))
        else:
            yield GivenFlag(path, spelling, value if equals else None)


def max_sequences(engine: Engine, release: Version, default: int) -> int:
    """What one pod runs at once: the last `max_batch_size` that is given and can be read."""
    found = default
    for given in given_flags(engine, release):
        if isinstance(given, GivenFlag) and given.spelling == MAX_BATCH:
            found = sequences(given.value) or found
    return found


def flag_findings(spec: SpecDeploymentSpec, release: Version) -> Iterator[Finding]:
    """Flags that specfleet owns, that the release does not know, or with a value that cannot be read."""
    for given in given_flags(spec.engine, release):
        if isinstance(given, StrayWord):
            yield error(FindingReason.UNKNOWN_FLAG, given.path, given.message)
        elif given.name in OWNED_FLAGS:
            yield error(
                FindingReason.OWNED_FLAG, given.path, f"specfleet sets --{given.name}: {OWNED_FLAGS[given.name]}"
            )
        elif given.path.startswith(_EXTRA) and given.spelling == MAX_BATCH:
            yield error(FindingReason.OWNED_FLAG, given.path, f"write spec.engine.args.{MAX_BATCH}")
        else:
            yield from _known_findings(given, release)


def _known_findings(given: GivenFlag, release: Version) -> Iterator[Finding]:
    takes = table().flag(f"--{given.spelling}", release)
    if takes is None:
        report = warning if release > table().newest else error
        yield report(FindingReason.UNKNOWN_FLAG, given.path, _unknown(given, release))
    elif takes == "switch" and given.value is not None:
        yield error(
            FindingReason.INVALID_FLAG_VALUE,
            given.path,
            f'{given.spelling} is a switch: write "" for on, found {given.value!r}',
        )
    elif takes == "value" and given.value is None:
        yield error(FindingReason.INVALID_FLAG_VALUE, given.path, f"{given.spelling} needs a value, found none")
    elif given.spelling == MAX_BATCH and sequences(given.value) is None:
        yield error(
            FindingReason.INVALID_FLAG_VALUE,
            given.path,
            f"{MAX_BATCH} also sizes the router's limits: write a whole number from 1, found {given.value!r}",
        )


def _unknown(given: GivenFlag, release: Version) -> str:
    known = [name[2:] for name in table().sections["flags"].names(release)]
    if given.name in known:
        return f"TensorRT-LLM writes it with '_': write {given.name}"
    spans = table().sections["flags"].spans(f"--{given.spelling}")
    if spans:
        return (
            f"specfleet cannot tell whether TensorRT-LLM {release} knows --{given.spelling}, which {spans} had: "
            "remove it, or write the key of engine.config that stands for it"
        )
    close = difflib.get_close_matches(given.name, known, n=1)
    hint = f": did you mean {close[0]}?" if close else ": remove it, or write it as a key of spec.engine.config"
    return f"TensorRT-LLM {release} does not know the flag --{given.spelling}{hint}"


def env_findings(spec: SpecDeploymentSpec) -> Iterator[Finding]:
    """Variables that specfleet sets itself or relies on."""
    for variable in spec.engine.env:
        yield from owned_variable(spec, variable, OWNED_ENV)

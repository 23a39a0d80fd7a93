"""Flags of a running engine, as `spec.engine.args` and `extraArgs` of one that specfleet runs. Pure."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from packaging.version import Version

from specfleet.cli.adopting.dialect import VLLM, Dialect
from specfleet.engines.arguments import ReadArguments, container_variables, other_releases
from specfleet.engines.flags import Arity, Flag, Given, Unresolved
from specfleet.engines.json_text import read_object

_SECRETS = frozenset({"api-key", "admin-api-key", "hf-token", "ssl-keyfile-password"})
_QUOTED = re.compile(r"""['"]?\s*\{.*""", re.DOTALL)
_REFERENCE = re.compile(r"\$\((?P<name>[^()\s]+)\)")


@dataclass
class Flags:
    """What is carried over.

    Args:
        extra: flags with more than one value or given more than once, each with its words.
        parallelism: tensor, pipeline and data.
        api_key: `valueFrom` of the key that clients must send.
    """

    args: dict[str, str] = field(default_factory=dict)
    extra: list[list[str]] = field(default_factory=list)
    parallelism: dict[str, int] = field(default_factory=dict)
    revision: str | None = None
    api_key: dict[str, Any] | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def accelerators(self) -> int:
        """How many accelerators a pod needs."""
        product = 1
        for size in self.parallelism.values():
            product *= size
        return product

    def extra_words(self) -> list[str]:
        """`extraArgs`."""
        return [word for words in self.extra for word in words]

    def drop_extra(self, index: int) -> list[str]:
        """Drops the flag that the word at `index` of `extraArgs` belongs to; returns its words."""
        for place, words in enumerate(self.extra):
            if index < len(words):
                return self.extra.pop(place)
            index -= len(words)
        raise IndexError(index)


def carried_flags(read: ReadArguments, dialect: Dialect, release: Version, container: Mapping[str, Any]) -> Flags:
    """Flags that go on with `release`; those that specfleet sets, or that it does not know, are named in the notes."""
    flags = Flags()
    variables = container_variables(container)
    counts = Counter(_key(given) for given in read.given)
    alike: list[str] = []
    for stray in read.strays:
        flags.notes.append(f"the word {stray.word!r}: {stray.message}")
    for given in read.given:
        name = given.flag.name if isinstance(given.flag, Flag) else given.spelling.lstrip("-")
        if isinstance(given.flag, Unresolved):
            flags.notes.append(_unresolved(given, dialect, release))
        elif name in dialect.read or dialect.speculates(name):
            flags.revision = given.value if name == "revision" else flags.revision
        elif name == "api-key" and dialect is VLLM and _secret_of(given, container) is not None:
            flags.api_key = _secret_of(given, container)
        elif name in dialect.alike:
            alike.append(_shown(given))
        elif name in dialect.parallelism:
            _parallelism(given, dialect.parallelism[name], flags)
        elif (why := dialect.owned(given.flag)) is not None:
            flags.notes.append(f"{_shown(given, masked=name in _SECRETS)}: {why}")
        else:
            _carry(given, counts[_key(given)], flags, dialect, release, variables)
    if alike:
        flags.notes.append(f"specfleet sets these itself: {', '.join(alike)}")
    if read.prefix:
        flags.notes.append(
            f"the engine is started behind {' '.join(read.prefix)}: specfleet starts {dialect.program} itself"
        )
    return flags


def _unresolved(given: Given, dialect: Dialect, release: Version) -> str:
    if given.flag is Unresolved.AMBIGUOUS:
        return f"{_shown(given)} can stand for {', '.join(given.candidates[:6])}"
    return f"{_shown(given)}: {dialect.engine} {release} does not know this flag"


def _secret_of(given: Given, container: Mapping[str, Any]) -> dict[str, Any] | None:
    """Where the key comes from that stands in the flag as `$(NAME)`."""
    reference = _REFERENCE.fullmatch(given.value or "")
    for variable in container.get("env") or [] if reference is not None else []:
        if reference is not None and variable.get("name") == reference["name"]:
            found = (variable.get("valueFrom") or {}).get("secretKeyRef")
            return {"secretKeyRef": dict(found)} if found else None
    return None


def _parallelism(given: Given, field_name: str, flags: Flags) -> None:
    text = given.value or ""
    if text.isascii() and text.isdigit() and 1 <= int(text) <= 64:
        flags.parallelism[field_name] = int(text)
    else:
        flags.notes.append(f"{_shown(given)}: expected a number from 1 to 64")


def _carry(
    given: Given,
    count: int,
    flags: Flags,
    dialect: Dialect,
    release: Version,
    variables: Mapping[str, str | None],
) -> None:
    assert isinstance(given.flag, Flag)
    if dialect is VLLM and given.switched_off:
        known, _ = dialect.table(release).resolve(given.matched)
        found = None if isinstance(known, Unresolved) else (known, given.matched)
    else:
        found = dialect.current(given.flag, release)
    if found is None:
        said = other_releases(given.flag, dialect.engine)
        flags.notes.append(f"{_shown(given)}: {dialect.engine} {release} does not know this flag; {said}")
        return
    known, spelling = found
    key = f"{spelling}.{given.member}" if given.member else spelling
    value = None if given.value is None else _repaired(given, flags)
    words = [_again(word, variables) for word in given.values]
    if len(words) > 1 and known.arity is Arity.MANY:
        flags.extra.append([key, *words])
    elif value is None:
        flags.args[key[2:]] = ""
    elif count > 1 or value == "" or not key.startswith("--"):
        flags.extra.append([f"{key}={_again(value, variables)}"])
    else:
        flags.args[key[2:]] = _again(value, variables)


def _repaired(given: Given, flags: Flags) -> str:
    """The value; JSON whose quoting went wrong is written as it was meant."""
    value = given.value or ""
    if given.member or not _QUOTED.fullmatch(value.strip()):
        return value
    read, problem = read_object(value)
    if read is None or problem is None:
        return value
    flags.notes.append(f"{given.matched or given.spelling}: {problem}; it is written as JSON here")
    return json.dumps(read)


def _again(text: str, variables: Mapping[str, str | None]) -> str:
    """The text as Kubernetes will read it once more: `$(NAME)` stays a reference only where its value is not known."""

    def one(match: re.Match[str]) -> str:
        known = variables.get(match["name"], "") is None
        return match[0] if known else f"$${match[0][1:]}"

    return _REFERENCE.sub(one, text.replace("$$", "$$$$"))


def _key(given: Given) -> str:
    name = given.flag.name if isinstance(given.flag, Flag) else given.spelling
    return f"{name}.{given.member}" if given.member else name


def _shown(given: Given, *, masked: bool = False) -> str:
    name = given.matched or given.spelling
    if given.value is None:
        return name
    text = " ".join(given.value.split())
    return f"{name} ..." if masked else f"{name} {text if len(text) <= 60 else text[:57] + '...'}"

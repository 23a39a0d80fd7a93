"""A release's command-line flags, and how its argparse reads spellings.

It takes abbreviations, `_` for `-`, `=`, and dotted keys for members of a JSON value.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from specfleet.engines.release import Minor

_NEGATIVE_NUMBER = re.compile(r"-\d+|-\d*\.\d+")


class Arity(StrEnum):
    """How many values a flag takes."""

    NONE = "none"
    ONE = "one"
    MANY = "many"
    OPTIONAL = "optional"


@dataclass(frozen=True)
class Flag:
    """One flag with all its spellings, the main one first."""

    spellings: tuple[str, ...]
    arity: Arity
    since: Minor
    until: Minor | None

    @property
    def name(self) -> str:
        """Its first long name without dashes."""
        long = (spelling for spelling in self.spellings if spelling.startswith("--"))
        return next(long, self.spellings[0]).lstrip("-")


class Unresolved(StrEnum):
    """Why a spelling is no flag."""

    UNKNOWN = "unknown"
    AMBIGUOUS = "ambiguous"


@dataclass(frozen=True)
class Given:
    """A flag as a user wrote it.

    Args:
        flag: what it stands for, or why it stands for nothing.
        spelling: the flag as the parser sees it, such as `--max-model-len`.
        matched: the full spelling that it abbreviates.
        value: its value; None for a bare flag.
        candidates: full spellings that an ambiguous one could stand for.
        path: where it stands in the object.
        member: what follows the dot of a dotted key: the value is only that member of the flag's JSON.
        values: the words of a value that stands behind the flag; empty where it follows `=`.
    """

    flag: Flag | Unresolved
    spelling: str
    matched: str
    value: str | None
    candidates: tuple[str, ...]
    path: str
    member: str = ""
    values: tuple[str, ...] = ()

    @property
    def switched_off(self) -> bool:
        """Whether the spelling is a switch's negative form, such as `--no-async-scheduling`."""
        return isinstance(self.flag, Flag) and self.flag.arity is Arity.NONE and self.matched != self.flag.spellings[0]


@dataclass(frozen=True)
class Stray:
    """A word that belongs to no flag, or a value where none is taken or where one is missing."""

    path: str
    message: str
    word: str = ""


class FlagTable:
    """The flags that one release knows.

    Args:
        attached: spellings whose value is written right behind them (`-O3`), and the flag that each stands for.
    """

    def __init__(self, flags: Iterable[Flag], attached: Mapping[str, str]) -> None:
        self._by_spelling = {spelling: flag for flag in flags for spelling in flag.spellings}
        self._attached = attached

    def resolve(self, spelling: str) -> tuple[Flag | Unresolved, tuple[str, ...]]:
        """The flag of one spelling as argparse finds it: exact, else the one that it abbreviates.

        Returns:
            The flag and its full spelling; or why there is none, and the spellings it could stand for.
        """
        if spelling in self._by_spelling:
            return self._by_spelling[spelling], (spelling,)
        matches = tuple(sorted(known for known in self._by_spelling if known.startswith(spelling)))
        if spelling.strip("-") == "" or not matches:
            return Unresolved.UNKNOWN, ()
        if len(matches) == 1:
            return self._by_spelling[matches[0]], (matches[0],)
        return Unresolved.AMBIGUOUS, matches

    def names(self) -> list[str]:
        """All long spellings, without dashes."""
        return [spelling[2:] for spelling in self._by_spelling if spelling.startswith("--")]

    def given(self, word: str, path: str) -> Given:
        """Reads one word that begins with a dash; its value is only what follows `=`."""
        for short, full in self._attached.items():
            if word.startswith(short) and not word.startswith("--"):
                return Given(self._by_spelling[full], short, full, word[len(short) :].lstrip("=") or None, (), path)
        head, member, value = _split(word)
        flag, spellings = self.resolve(head)
        if flag is Unresolved.UNKNOWN and not head.startswith("--") and head[:2] in self._by_spelling:
            attached = head[2:] if value is None else f"{head[2:]}={value}"
            return Given(self._by_spelling[head[:2]], head[:2], head[:2], attached, (), path)
        matched = spellings[0] if len(spellings) == 1 else ""
        return Given(flag, head, matched, value, () if matched else spellings, path, member)

    def read(self, words: Sequence[str], path: str) -> Iterator[Given | Stray]:
        """Reads verbatim arguments as argparse would; `path` is that of the list."""
        index = 0
        while index < len(words):
            word, place = words[index], f"{path}[{index}]"
            index += 1
            if not _is_flag(word):
                yield Stray(place, f"{word!r} belongs to no flag: write it behind the flag, as --flag=value", word)
                continue
            given = self.given(word, place)
            arity = given.flag.arity if isinstance(given.flag, Flag) else Arity.OPTIONAL
            values: list[str] = []
            while given.value is None and index < len(words) and not _is_flag(words[index]):
                if arity is Arity.NONE or (values and arity is not Arity.MANY):
                    break
                values.append(words[index])
                index += 1
            if values:
                given = replace(given, value=" ".join(values), values=tuple(values))
            yield given


def arity_problem(given: Given) -> str | None:
    """What is wrong with the number of values of a resolved flag; None when nothing is."""
    if not isinstance(given.flag, Flag):
        return None
    if given.flag.arity is Arity.NONE and given.value not in (None, ""):
        off = [spelling for spelling in given.flag.spellings if spelling != given.matched]
        other = f', or write {off[0].lstrip("-")}: "" for the opposite' if off else ""
        return f'{given.matched} is a switch and takes no value, found {given.value!r}: write ""{other}'
    if given.flag.arity in (Arity.ONE, Arity.MANY) and given.value in (None, ""):
        return f"{given.matched} needs a value, found none"
    return None


def _is_flag(word: str) -> bool:
    return (
        word.startswith("-") and word != "-" and not _NEGATIVE_NUMBER.fullmatch(word) and " " not in word.split("=")[0]
    )


def _split(word: str) -> tuple[str, str, str | None]:
    """Spelling, member of a dotted key, and `=` value; `_` reads as `-` in the spelling."""
    head, equals, value = word.partition("=")
    head, _, member = head.partition(".")
    if head.startswith("--"):
        head = "--" + head[2:].replace("_", "-")
    return head, member, value if equals else None


def parse_table(text: str) -> tuple[Flag, ...]:
    """Reads the table of flags: first release, last release or -, arity and spellings, by tabs; # begins a comment."""
    flags = []
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        since, until, arity, spellings = line.split("\t")
        last = None if until == "-" else Minor.parse(until)
        flags.append(Flag(tuple(spellings.split()), Arity(arity), Minor.parse(since), last))
    return tuple(flags)


def of_release(flags: Iterable[Flag], release: Minor, attached: Mapping[str, str]) -> FlagTable:
    """The flags that a release knows."""
    known = (flag for flag in flags if flag.since <= release and (flag.until is None or release <= flag.until))
    return FlagTable(known, attached)

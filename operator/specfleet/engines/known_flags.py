"""Flags of whatever release a running engine is: those it knows, and those that only other releases know. Pure."""

from __future__ import annotations

from functools import lru_cache

from packaging.version import Version

from specfleet.api.v1alpha1 import EngineType
from specfleet.engines import vllm_retired, vllm_tables
from specfleet.engines.facts import EngineFactTable, Fact, engine_facts
from specfleet.engines.flags import Arity, Flag, FlagTable, Given, Unresolved
from specfleet.engines.release import Minor

_ARITY = {"switch": Arity.NONE, "optional": Arity.OPTIONAL}
_SECTION = "flags"


class KnownFlags(FlagTable):
    """The flags of one release; a spelling that it does not know may be one of another release.

    Args:
        release: as it is named in sentences.
        others: flags that other releases know.
    """

    def __init__(self, release: str, current: FlagTable, others: tuple[Flag, ...]) -> None:
        self.release = release
        self._current = current
        super().__init__(others, {})

    def resolve(self, spelling: str) -> tuple[Flag | Unresolved, tuple[str, ...]]:
        """As the release's parser finds it, else as a flag of another release."""
        flag, spellings = self._current.resolve(spelling)
        return super().resolve(spelling) if flag is Unresolved.UNKNOWN else (flag, spellings)

    def given(self, word: str, path: str) -> Given:
        """Reads one word that begins with a dash."""
        given = self._current.given(word, path)
        return super().given(word, path) if given.flag is Unresolved.UNKNOWN else given

    def is_current(self, given: Given) -> bool:
        """Whether the release itself knows the flag."""
        return not isinstance(self._current.resolve(given.matched or given.spelling)[0], Unresolved)


@lru_cache(maxsize=32)
def known_flags(engine: EngineType, release: Version | None) -> KnownFlags:
    """The flags of a release; of the newest that was read where it is not known, and of the nearest one before it."""
    facts = engine_facts(engine)
    read = [one for one in facts.releases if release is None or one <= release]
    nearest = read[-1] if read else facts.releases[0]
    others = tuple(_flag(fact, engine) for fact in facts.sections[_SECTION] if not fact.since <= nearest <= fact.until)
    if engine is EngineType.SGLANG:
        return KnownFlags(str(release or nearest), _of_facts(facts, nearest, engine), others)
    minor = Minor.of(release or nearest)
    if minor >= vllm_tables.OLDEST:
        current = vllm_tables.flags_of(minor)
        return KnownFlags(str(minor), current, (*others, *vllm_retired.UNREAD))
    if release is not None and release < facts.releases[0]:
        # Before the first release that was read: the spellings of its time are its own.
        flags = (*(_flag(fact, engine) for fact in facts.of(_SECTION, nearest)), *vllm_retired.UNREAD)
        return KnownFlags(str(release), FlagTable(flags, {}), others)
    return KnownFlags(str(release), _of_facts(facts, nearest, engine), (*others, *vllm_retired.UNREAD))


def _of_facts(facts: EngineFactTable, release: Version, engine: EngineType) -> FlagTable:
    flags = [_flag(fact, engine) for fact in facts.of(_SECTION, release)]
    long = {spelling for flag in flags for spelling in flag.spellings}
    attached = {"-O": "--compilation-config"} if "-O" in long and "--compilation-config" in long else {}
    return FlagTable(flags, attached)


def _flag(fact: Fact, engine: EngineType) -> Flag:
    """The facts do not tell one value from several; a flag that takes one is followed by one."""
    spellings = tuple(fact.name.split())
    arity = _ARITY.get(fact.detail, Arity.MANY)
    if engine is EngineType.VLLM and arity is Arity.MANY:
        arity = _vllm_arities().get(spellings[0], Arity.ONE)
    return Flag(spellings, arity, Minor.of(fact.since), Minor.of(fact.until))


@lru_cache(maxsize=1)
def _vllm_arities() -> dict[str, Arity]:
    return {flag.spellings[0]: flag.arity for flag in vllm_tables.all_flags()}

"""Flags of whatever release a running engine is: those it knows, and those that only other releases know. Pure."""

from __future__ import annotations

from functools import lru_cache

from packaging.version import Version

from specfleet.api.v1alpha1 import EngineType
from specfleet.engines import vllm_retired, vllm_tables
from specfleet.engines.facts import Fact, engine_facts
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
    flag = vllm_tables.fact_flag if engine is EngineType.VLLM else _flag
    others = tuple(flag(fact) for fact in facts.sections[_SECTION] if not fact.since <= nearest <= fact.until)
    if engine is EngineType.SGLANG:
        flags = [_flag(fact) for fact in facts.of(_SECTION, nearest)]
        return KnownFlags(str(release or nearest), FlagTable(flags, {}), others)
    if release is not None and release < facts.releases[0]:
        # Before the first release that was read: the spellings of its time are its own.
        flags = [*(flag(fact) for fact in facts.of(_SECTION, nearest)), *vllm_retired.UNREAD]
        return KnownFlags(str(release), FlagTable(flags, {}), others)
    shown = release or nearest
    minor = Minor.of(shown)
    current = vllm_tables.flags_of(shown)
    name = str(minor if minor >= vllm_tables.PARSERS_SINCE else shown)
    return KnownFlags(name, current, (*others, *vllm_retired.UNREAD))


def _flag(fact: Fact) -> Flag:
    """SGLang's: the facts do not tell one value from several; a flag that takes one is followed by one."""
    arity = _ARITY.get(fact.detail, Arity.MANY)
    return Flag(tuple(fact.name.split()), arity, Minor.of(fact.since), Minor.of(fact.until))

"""SGLang by release: flags, old spellings and what it assumes. Read in the released sources."""

from __future__ import annotations

from functools import lru_cache
from importlib.resources import files

from specfleet.engines.flags import Arity, Flag, FlagTable, of_release, parse_table
from specfleet.engines.release import Minor

FLAGS_FILE = files("specfleet.engines").joinpath("sglang_flags.tsv")
PORT = 30000
SEQUENCES_WITH_SPECULATION = 48
"""What `--max-running-requests` becomes under speculation where it is not given (0.5.2 to 0.5.23)."""
SPECULATIVE = "speculative-"
"""How the flags of speculation begin."""
RELEASE = Minor(0, 5)


def _old(arity: Arity, *spellings: str) -> Flag:
    return Flag(spellings, arity, RELEASE, RELEASE)


RETIRED: tuple[Flag, ...] = (
    _old(Arity.ONE, "--speculative-dflash-draft-window-size"),
    _old(Arity.ONE, "--speculative-ngram-min-match-window-size"),
    _old(Arity.ONE, "--speculative-ngram-max-match-window-size"),
    _old(Arity.ONE, "--speculative-ngram-branch-length"),
)
"""Flags of older releases, which the newest refuses."""


@lru_cache(maxsize=1)
def flag_table() -> FlagTable:
    """Flags of 0.5.23."""
    return of_release(parse_table(FLAGS_FILE.read_text(encoding="utf-8")), RELEASE, {})

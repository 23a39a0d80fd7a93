"""The list of mutants that no test can tell from the code, each with the reason why."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import yaml

from tools.mutation.mutants import Mutant


@dataclass(frozen=True, slots=True)
class Equivalent:
    """One entry: a mutant by its function and diff, so that it stays the same when lines move."""

    function: str
    diff: str
    reason: str

    @property
    def module(self) -> str:
        """The module of specfleet.decision."""
        return self.function.partition(".")[0]

    def explains(self, mutant: Mutant) -> bool:
        """Whether this is that mutant."""
        return (self.function, self.diff) == (mutant.function, mutant.diff)


def read_equivalents(path: Path) -> list[Equivalent]:
    """The entries of the list. ValueError where one has no reason of one line, or more fields than it should."""
    entries = []
    for row in yaml.safe_load(path.read_text()):
        if set(row) != {"function", "diff", "reason"} or not row["reason"].strip() or "\n" in row["reason"].strip():
            raise ValueError(f"expected function, diff and a reason of one line in {path.name}, found {row}")
        entries.append(Equivalent(row["function"], row["diff"], row["reason"].strip()))
    return entries

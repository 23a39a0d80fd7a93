"""The verdict of a preflight, and how it travels in a container's termination message. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from specfleet.sizing.figures import PlanFigures, read_figures

MOST_MESSAGE_BYTES = 4000
"""The kubelet keeps 4,096 bytes of a termination message."""
MOST_SENTENCE = 400
_MOST_FINDINGS = 16
_MOST_MEBIBYTES = 1 << 30
_FORMAT = 1


class Outcome(StrEnum):
    """What was found, from best to worst."""

    PASSED = "Passed"
    UNKNOWN = "Unknown"
    FAILED = "Failed"


class Level(StrEnum):
    """How much a finding matters: ERROR refuses, UNKNOWN says that something could not be looked at."""

    ERROR = "error"
    UNKNOWN = "unknown"
    WARNING = "warning"


class Check(StrEnum):
    """What was compared; stable names."""

    FILES = "Files"
    ACCESS = "Access"
    FORMAT = "Format"
    ARCHITECTURE = "Architecture"
    TOKENIZER = "Tokenizer"
    VOCABULARY_SIZE = "VocabularySize"
    SHAPE = "Shape"
    HEADS = "Heads"
    CONTEXT = "Context"
    NUMBER_FORMAT = "NumberFormat"
    GENERATION = "Generation"
    MEMORY = "Memory"


@dataclass(frozen=True)
class PreflightFinding:
    """One thing that was found: what was compared, how much it matters, and a sentence with both values."""

    check: Check
    level: Level
    message: str

    def line(self) -> str:
        """Level, check and message, separated by tabs."""
        return f"{self.level}\t{self.check}\t{self.message}"


@dataclass(frozen=True)
class Verdict:
    """All findings, the worst first, the KV plan where there is one, and how much a pod has to load."""

    findings: tuple[PreflightFinding, ...] = ()
    plan: PlanFigures | None = None
    weight_mebibytes: int | None = None

    @classmethod
    def of(cls, findings: list[PreflightFinding]) -> Verdict:
        """Sorted by level; what is equally bad stays in the order of the checks."""
        return cls(tuple(sorted(findings, key=lambda one: list(Level).index(one.level))))

    @property
    def outcome(self) -> Outcome:
        """Failed with an error, Unknown where something could not be looked at."""
        levels = {one.level for one in self.findings}
        if Level.ERROR in levels:
            return Outcome.FAILED
        return Outcome.UNKNOWN if Level.UNKNOWN in levels else Outcome.PASSED

    @property
    def message(self) -> str:
        """The worst finding, and how many more there are."""
        if not self.findings:
            return "The draft fits the target"
        more = f" ({len(self.findings) - 1} more)" if len(self.findings) > 1 else ""
        return f"{self.findings[0].message}{more}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "outcome": self.outcome.value,
            "findings": [
                {"check": one.check.value, "level": one.level.value, "message": one.message} for one in self.findings
            ],
        }

    def encode(self) -> str:
        """A termination message of at most MOST_MESSAGE_BYTES; findings that do not fit are left out from the end."""
        findings = [
            [one.check.value, one.level.value, one.message[:MOST_SENTENCE]] for one in self.findings[:_MOST_FINDINGS]
        ]
        figures: dict[str, Any] = {} if self.plan is None else {"plan": self.plan.as_dict()}
        if self.weight_mebibytes is not None:
            figures["mebibytes"] = self.weight_mebibytes
        while True:
            text = json.dumps({"specfleetPreflight": _FORMAT, **figures, "findings": findings}, separators=(",", ":"))
            if len(text) <= MOST_MESSAGE_BYTES:
                return text
            findings.pop()


def decode(text: str | None) -> Verdict | None:
    """The verdict in a termination message; None for anything that is no such message. Never raises.

    A message whose findings are malformed is no verdict: half of one could pass what the other half refuses.
    """
    if text is None or len(text) > MOST_MESSAGE_BYTES + 96:
        return None
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(document, dict) or document.get("specfleetPreflight") != _FORMAT:
        return None
    rows = document.get("findings")
    if not isinstance(rows, list) or len(rows) > _MOST_FINDINGS:
        return None
    findings: list[PreflightFinding] = []
    for row in rows:
        if not (isinstance(row, list) and len(row) == 3 and all(isinstance(part, str) for part in row)):
            return None
        try:
            finding = PreflightFinding(Check(row[0]), Level(row[1]), _plain(row[2]))
        except ValueError:
            return None
        findings.append(finding)
    size = document.get("mebibytes")
    known = isinstance(size, int) and not isinstance(size, bool) and 0 <= size <= _MOST_MEBIBYTES
    return replace(
        Verdict.of(findings), plan=read_figures(document.get("plan")), weight_mebibytes=size if known else None
    )


def _plain(text: str) -> str:
    """One line of printable text, cut: it goes into a condition's message."""
    return "".join(char if char.isprintable() else " " for char in text[:MOST_SENTENCE])

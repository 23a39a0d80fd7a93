"""What the doctor says: findings with what to do, what could not be checked, and what was seen."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """How bad a finding is, the worst first."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True)
class Finding:
    """One thing that is not as it should be.

    Attributes:
        about: the object that it is about, such as `Lease specfleet-system/specfleet`; empty for the whole cluster.
        found: what there is.
        expected: what there should be.
        action: what to do about it; a command where there is one.
        check: name of the check; filled in by whoever runs the checks.
    """

    severity: Severity
    about: str
    found: str
    expected: str
    action: str
    check: str = ""


@dataclass(frozen=True)
class NotChecked:
    """A check, or a part of one, that could not be made. Never to be taken for "fine"."""

    why: str
    check: str = ""


@dataclass(frozen=True)
class Seen:
    """What a check has looked at without a finding, for `--verbose`."""

    text: str
    check: str = ""


Item = Finding | NotChecked | Seen


@dataclass(frozen=True)
class Report:
    """All that one examination has found. `checks`: names of all checks, in the order in which they were made."""

    findings: tuple[Finding, ...]
    not_checked: tuple[NotChecked, ...]
    seen: tuple[Seen, ...]
    checks: tuple[str, ...]

    @property
    def errors(self) -> int:
        """How many findings are errors."""
        return sum(one.severity is Severity.ERROR for one in self.findings)


def error(about: str, found: str, expected: str, action: str) -> Finding:
    """Something does not work, or would not."""
    return Finding(Severity.ERROR, about, found, expected, action)


def warning(about: str, found: str, expected: str, action: str) -> Finding:
    """Something works less well than it should, or will stop working."""
    return Finding(Severity.WARNING, about, found, expected, action)


def info(about: str, found: str, expected: str, action: str) -> Finding:
    """Something that is good to know before it surprises."""
    return Finding(Severity.INFO, about, found, expected, action)

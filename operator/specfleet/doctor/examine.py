"""Runs all checks against what is known. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from specfleet.doctor.facts import CannotTell, Facts, NotYet
from specfleet.doctor.findings import Finding, Item, NotChecked, Report, Seen, Severity

# What an object without its usual fields leads to: it must cost its own check only.
_MALFORMED = (KeyError, TypeError, ValueError, AttributeError, IndexError)
Check = Callable[[Facts], Iterator[Item]]


def examine(facts: Facts, checks: Iterable[tuple[str, Check]]) -> Report | None:
    """The report; None while `facts.missing` names what has to be read first."""
    items: list[Item] = []
    names = []
    for name, check in checks:
        names.append(name)
        items += [replace(item, check=name) for item in _made(check, facts)]
    if facts.missing:
        return None
    order = list(Severity)
    findings = [item for item in items if isinstance(item, Finding)]
    return Report(
        findings=tuple(sorted(findings, key=lambda one: order.index(one.severity))),
        not_checked=tuple(item for item in items if isinstance(item, NotChecked)),
        seen=tuple(item for item in items if isinstance(item, Seen)),
        checks=tuple(names),
    )


def _made(check: Check, facts: Facts) -> list[Item]:
    """What one check says. One that cannot go on keeps what it has said, and breaks no other."""
    items: list[Item] = []
    try:
        for item in check(facts):
            items.append(item)  # noqa: PERF402 - what was said before an exception must be kept
    except NotYet:
        return []
    except CannotTell as why:
        items.append(NotChecked(str(why)))
    except _MALFORMED as problem:
        items.append(NotChecked(f"what was read has a form that is not expected ({type(problem).__name__}: {problem})"))
    return items

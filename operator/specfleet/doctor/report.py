"""The report as text for people and as JSON for programs. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict

from specfleet.doctor.findings import Finding, Report, Severity


def text(report: Report, where: str, *, verbose: bool = False) -> Iterator[str]:
    """Line by line: findings, the worst first; what could not be checked; one line that sums up.

    Args:
        where: what was looked at, for the last line.
        verbose: also what was looked at without a finding.
    """
    for finding in report.findings:
        yield from _finding(finding)
    for why, checks in _by_cause(report).items():
        yield f"not checked  {', '.join(checks)}: {why}"
    if verbose:
        for seen in report.seen:
            yield f"seen  {seen.check}: {seen.text}"
    yield _summary(report, where)


def json_text(report: Report, where: str) -> str:
    """All of it as one JSON object."""
    counts = {severity.value: _count(report, severity) for severity in Severity}
    return json.dumps(
        {
            "cluster": where,
            "counts": {**counts, "notChecked": len(report.not_checked)},
            "findings": [asdict(one) for one in report.findings],
            "notChecked": [asdict(one) for one in report.not_checked],
            "seen": [asdict(one) for one in report.seen],
            "checks": list(report.checks),
        },
        indent=2,
    )


def _by_cause(report: Report) -> dict[str, list[str]]:
    """Names of the checks that one and the same cause has kept from being made."""
    found: dict[str, list[str]] = {}
    for one in report.not_checked:
        checks = found.setdefault(one.why, [])
        if one.check not in checks:
            checks.append(one.check)
    return found


def _finding(finding: Finding) -> Iterator[str]:
    about = f"{finding.about}: " if finding.about else ""
    yield f"{finding.severity}  {finding.check}: {about}{finding.found}"
    yield f"    expected: {finding.expected}"
    yield f"    to do: {finding.action}"


def _summary(report: Report, where: str) -> str:
    made = f"{len(report.checks)} checks of {where}"
    lacking = len({one.check for one in report.not_checked})
    left = f"{lacking} of them could not be made in full" if lacking else ""
    if not report.findings:
        return f"Nothing wrong was found in {made}, but {left}." if left else f"All is well: {made}."
    counted = [_plural(_count(report, severity), severity) for severity in Severity if _count(report, severity)]
    return f"{', '.join(counted)} in {made}" + (f"; {left}." if left else ".")


def _count(report: Report, severity: Severity) -> int:
    return sum(one.severity is severity for one in report.findings)


def _plural(count: int, severity: Severity) -> str:
    return f"{count} {severity}" if count == 1 or severity is Severity.INFO else f"{count} {severity}s"

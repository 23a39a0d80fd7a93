"""Times on the command line: RFC 3339, seconds since the epoch, `now`, or a length of time ago such as `7d`."""

from __future__ import annotations

import re
from datetime import UTC, datetime

_AGO = re.compile(r"-?([0-9]{1,6})(s|m|h|d|w)")
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_EPOCH = re.compile(r"[0-9]{9,10}(\.[0-9]+)?")
MOST_SECONDS = 31 * 86_400.0
FUTURE_SLACK_SECONDS = 5.0


class TimeProblem(ValueError):
    """A time, or a range of them, cannot be used; the text says what was expected."""


def moment(text: str, option: str, now: float) -> float:
    """Seconds since the epoch. A time without an offset is UTC.

    Raises:
        TimeProblem: it is none of the forms.
    """
    text = text.strip()
    if text == "now":
        return now
    ago = _AGO.fullmatch(text)
    if ago is not None:
        return now - int(ago.group(1)) * _UNIT_SECONDS[ago.group(2)]
    if _EPOCH.fullmatch(text):
        return float(text)
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        raise TimeProblem(
            f"{option}: expected a time such as 2026-11-22T09:00:00Z, seconds since the epoch, now, or how long ago, "
            f"such as 7d; found {text!r}"
        ) from None
    return (parsed if parsed.tzinfo is not None else parsed.replace(tzinfo=UTC)).timestamp()


def bounded(start: float, end: float, block_seconds: float, now: float) -> tuple[float, float]:
    """`start` and `end` as they are, where a replay can go from one to the other.

    Raises:
        TimeProblem: the range is empty, too long, or lies in the future.
    """
    if start >= end:
        raise TimeProblem(f"expected --start before --end, found {shown(start)} and {shown(end)}")
    if end > now + FUTURE_SLACK_SECONDS:
        raise TimeProblem(f"--end {shown(end)} lies in the future (it is {shown(now)}): write --end now")
    if end - start > MOST_SECONDS:
        days = (end - start) / 86_400.0
        raise TimeProblem(
            f"expected at most {MOST_SECONDS / 86_400.0:.0f} days in one replay, found {days:.0f}: "
            "replay one month after the other"
        )
    if end - start < 5.0 * block_seconds:
        raise TimeProblem(
            f"expected at least 5 blocks of {block_seconds:g} s, found {end - start:g} s in all: the rule switches "
            "after 5 blocks at the earliest; begin earlier, or shorten --block"
        )
    return start, end


def shown(at: float) -> str:
    """RFC 3339 in UTC, whole seconds."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")

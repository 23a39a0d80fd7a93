"""Times as they stand in objects: RFC 3339, UTC, whole seconds. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

_FORMAT = "%Y-%m-%dT%H:%M:%SZ"


def timestamp(at: float) -> str:
    """The text of a time in seconds since the epoch; fractions of a second are cut off."""
    return datetime.fromtimestamp(at, UTC).strftime(_FORMAT)


def epoch(text: str) -> float:
    """Seconds since the epoch of such a text. Raises ValueError for any other form."""
    return datetime.strptime(text, _FORMAT).replace(tzinfo=UTC).timestamp()

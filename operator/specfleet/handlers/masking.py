"""What a container wrote, made fit for status and events: one bounded line without secrets. Pure."""

from __future__ import annotations

import re

LIMIT = 160
_MASK = "***"
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2066-\u2069]+")
_SECRETS = (
    re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{6,}"),
    re.compile(r"\b(hf|sk|ghp|gho|ghs|glpat|xox[a-z]|AKIA|ASIA|ya29)[-_.A-Za-z0-9]{8,}"),
    re.compile(r"\beyJ[A-Za-z0-9_-]{8,}(\.[A-Za-z0-9_-]+)*"),
    re.compile(
        r"(?i)\b([a-z0-9_-]*(?:token|secret|passw(?:or)?d|api[-_]?key|access[-_]?key|credential)[a-z0-9_-]*)"
        r"(\"?\s*[=:]\s*\"?)[^\s\"',;&]+"
    ),
    re.compile(r"(?<=://)[^\s/@]+@"),
    re.compile(r"\b[A-Za-z0-9+/_-]{40,}={0,2}"),
)


def masked(text: str, limit: int = LIMIT) -> str:
    """One line of at most `limit` characters; anything that looks like a credential is replaced by ***."""
    line = _CONTROL.sub(" ", text)
    for pattern in _SECRETS:
        line = pattern.sub(_replacement, line)
    line = " ".join(line.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def last_line(text: str) -> str:
    """The last line that says something: in a Python traceback that is the error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def _replacement(match: re.Match[str]) -> str:
    if match.lastindex and match.lastindex >= 2 and match.group(2) is not None and match.re is _SECRETS[3]:
        return f"{match.group(1)}{match.group(2)}{_MASK}"
    return f"{_MASK}@" if match.group(0).endswith("@") else _MASK

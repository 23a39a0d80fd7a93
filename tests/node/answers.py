"""What a strict client says of one answer of an OpenAI-compatible endpoint. Pure: bytes in, verdict out."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


class BadAnswer(Exception):
    """The answer is not what a client may count on. The text says what was expected and what was found."""


class IncompleteStream(BadAnswer):
    """A stream that ended before its `[DONE]`."""


@dataclass(frozen=True)
class Content:
    """What an answer said.

    Args:
        text: all generated text.
        finish_reason: why it ended: `stop` or `length`.
        completion_tokens: generated tokens, where the answer tells.
        event_types: for a stream the kind of each event, runs of one kind folded into one.
    """

    text: str
    finish_reason: str
    completion_tokens: int | None
    event_types: tuple[str, ...] = ()


def read_whole(body: bytes) -> Content:
    """The content of a non-streaming answer of `/v1/chat/completions` or `/v1/completions`.

    Raises:
        BadAnswer: no JSON object, no choice, no finish reason or no usage.
    """
    document = _object(body, "the answer")
    choice = _only_choice(document)
    usage = document.get("usage")
    if not isinstance(usage, dict) or not isinstance(usage.get("completion_tokens"), int):
        raise BadAnswer(f"expected usage.completion_tokens in the answer, found usage {usage!r}")
    message = choice.get("message")
    text = message.get("content") if isinstance(message, dict) else choice.get("text")
    return Content(text or "", _finish_reason(choice), usage["completion_tokens"])


def read_stream(body: bytes, *, usage_asked: bool) -> Content:
    """The content of a stream of server-sent events, read to its end.

    Args:
        body: all bytes that came.
        usage_asked: whether the request had `stream_options.include_usage`; otherwise a usage event is a fault,
            since a client that did not ask fails on its empty `choices`.

    Raises:
        IncompleteStream: no `[DONE]` at the end.
        BadAnswer: an event that is no JSON, a second finish reason, an unasked or missing usage event.
    """
    events = split_events(body)
    if not events or events[-1] != b"[DONE]":
        raise IncompleteStream(f"expected the stream to end with [DONE], it ended after {len(events)} events")
    parts: list[str] = []
    reasons: list[str] = []
    types: list[str] = []
    tokens: int | None = None
    for number, data in enumerate(events[:-1]):
        document = _object(data, f"event {number}")
        kind = event_type(document)
        if not types or types[-1] != kind:
            types.append(kind)
        if kind == "usage":
            tokens = document["usage"]["completion_tokens"]
            continue
        choice = _only_choice(document)
        delta = choice.get("delta")
        parts.append((delta.get("content") if isinstance(delta, dict) else choice.get("text")) or "")
        if choice.get("finish_reason") is not None:
            reasons.append(_finish_reason(choice))
    if len(reasons) != 1:
        raise BadAnswer(f"expected one finish reason in the stream, found {reasons}")
    if usage_asked != (tokens is not None):
        found = "none" if tokens is None else "one"
        raise BadAnswer(f"expected {'one usage event' if usage_asked else 'no usage event'}, found {found}")
    return Content("".join(parts), reasons[0], tokens, tuple(types))


def split_events(body: bytes) -> list[bytes]:
    """The data of each complete server-sent event.

    Raises:
        BadAnswer: a line that is neither data nor a comment.
    """
    events = []
    *complete, rest = body.split(b"\n\n")
    if rest.strip():
        raise IncompleteStream(f"expected whole events, the stream ended in the middle of one: {rest[:80]!r}")
    for block in complete:
        for line in block.split(b"\n"):
            if line.startswith(b"data: "):
                events.append(line.removeprefix(b"data: "))
            elif line and not line.startswith(b":"):
                raise BadAnswer(f"expected `data: ...` in the stream, found {line[:80]!r}")
    return events


def event_type(document: dict[str, Any]) -> str:
    """`usage`, `role`, `finish`, `text` or `error`."""
    if "error" in document:
        raise BadAnswer(f"expected text, found an error event: {document['error']}")
    choices = document.get("choices")
    if choices == []:
        if not isinstance(document.get("usage"), dict):
            raise BadAnswer("expected usage in an event with empty choices, found none")
        return "usage"
    choice = _only_choice(document)
    if choice.get("finish_reason") is not None:
        return "finish"
    delta = choice.get("delta")
    if isinstance(delta, dict) and delta.get("role") and not delta.get("content"):
        return "role"
    return "text"


def _object(data: bytes, what: str) -> dict[str, Any]:
    try:
        document = json.loads(data)
    except ValueError as error:
        raise BadAnswer(f"expected JSON in {what}, found {data[:120]!r}") from error
    if not isinstance(document, dict):
        raise BadAnswer(f"expected a JSON object in {what}, found {data[:120]!r}")
    return document


def _only_choice(document: dict[str, Any]) -> dict[str, Any]:
    choices = document.get("choices")
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        raise BadAnswer(f"expected one choice, found {choices!r}")
    return choices[0]


def _finish_reason(choice: dict[str, Any]) -> str:
    reason = choice.get("finish_reason")
    if reason not in ("stop", "length"):
        raise BadAnswer(f"expected finish_reason stop or length, found {reason!r}")
    return str(reason)

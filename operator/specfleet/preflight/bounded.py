"""JSON of strangers, within limits of size, depth and type: what is wrong with it is an error, never a crash. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

MOST_CONFIG_BYTES = 1024 * 1024
MOST_TOKENIZER_BYTES = 64 * 1024 * 1024
MOST_INDEX_BYTES = 16 * 1024 * 1024
MOST_HEADER_BYTES = 16 * 1024 * 1024
"""safetensors allows 100 MB; headers of the largest models have a few."""
MOST_DEPTH = 32
MOST_SHOWN = 80


class FileProblem(Exception):
    """A file cannot be used; the message is a sentence about it."""


def parse_object(data: bytes, what: str, most_bytes: int = MOST_CONFIG_BYTES) -> Mapping[str, Any]:
    """The JSON object in `data`, nested at most MOST_DEPTH deep.

    Args:
        what: names the file in messages.

    Raises:
        FileProblem: it is too large, truncated, no JSON, nested too deep or no object.
    """
    if len(data) > most_bytes:
        raise FileProblem(f"{what} is larger than {most_bytes} bytes: is it the right file?")
    try:
        value = json.loads(data.decode("utf-8-sig"), parse_constant=_no_number)
    except UnicodeDecodeError:
        raise FileProblem(f"{what} is no UTF-8 text") from None
    except json.JSONDecodeError as problem:
        ended = problem.pos >= len(problem.doc.rstrip()) - 1 or problem.msg.startswith("Unterminated")
        cut = "; it looks cut off" if ended else ""
        raise FileProblem(f"{what} is no JSON ({problem.msg}, line {problem.lineno}{cut}): download it again") from None
    except RecursionError:
        raise FileProblem(f"{what} is nested deeper than {MOST_DEPTH} levels") from None
    except ValueError as problem:
        raise FileProblem(f"{what} holds a number that cannot be: {shown(str(problem))}") from None
    if not isinstance(value, dict):
        raise FileProblem(f"{what} should hold a JSON object, found {kind_name(value)}")
    _check_depth(value, what)
    return value


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is no JSON number")


def _check_depth(value: object, what: str) -> None:
    level: list[object] = [value]
    for _ in range(MOST_DEPTH):
        level = [
            child
            for one in level
            if isinstance(one, dict | list)
            for child in (one.values() if isinstance(one, dict) else one)
            if isinstance(child, dict | list)
        ]
        if not level:
            return
    raise FileProblem(f"{what} is nested deeper than {MOST_DEPTH} levels")


def kind_name(value: object) -> str:
    """The JSON type of a value, in words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    names: tuple[tuple[type, str], ...] = ((dict, "an object"), (list, "a list"), (str, "text"), (int, "a number"))
    return next((name for kind, name in names if isinstance(value, kind)), "a number")


def shown(value: object) -> str:
    """A value of a file, fit for a message: ASCII, escaped, cut."""
    try:
        text = json.dumps(value, ensure_ascii=True)
    except (TypeError, ValueError, RecursionError):
        text = "?"
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 3]}..."

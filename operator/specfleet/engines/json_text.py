"""Reads a JSON argument however it was quoted on its way through YAML, Helm and shells. Pure."""

from __future__ import annotations

import ast
import json
from typing import Any


def read_object(text: str) -> tuple[dict[str, Any] | None, str | None]:
    """The object in the text; None where there is none.

    Returns:
        The object, and what is wrong with its writing: such a text is no JSON, and the engine refuses it.
    """
    for candidate, problem in _writings(text.strip()):
        try:
            value = json.loads(candidate)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            return value, problem
        if isinstance(value, str) and value != text:
            inner, inner_problem = read_object(value)
            if inner is not None:
                return inner, problem or inner_problem or "it is JSON inside of a JSON text"
    return _python_object(text)


def _writings(text: str) -> list[tuple[str, str | None]]:
    bare = text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text
    quoted = f"the quotes ({text[0]}) around it are part of the argument, since no shell takes them off" if text else ""
    escaped = 'its quotes are escaped (\\"), and no shell takes the backslashes off'
    return [
        (text, None),
        (bare, quoted),
        (bare.replace('\\"', '"'), escaped),
        (bare.replace('\\\\"', '"'), escaped),
        (bare.replace("\\n", " ").replace('\\"', '"'), escaped),
    ]


def _python_object(text: str) -> tuple[dict[str, Any] | None, str | None]:
    """`{'method': 'ngram'}`: no JSON, but its meaning is plain."""
    bare = text.strip().strip('"')
    try:
        value = ast.literal_eval(bare)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None, None
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        return None, None
    return value, "it has single quotes where JSON has double ones"


def read_value(text: str) -> Any:
    """The value of a dotted key: JSON, a number with a suffix such as 32k, else the text itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return _suffixed(text)


def _suffixed(text: str) -> int | str:
    number, suffix = text.strip()[:-1], text.strip()[-1:]
    decimal = {"k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
    binary = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}
    if suffix in binary and number.isascii() and number.isdigit():
        return int(number) * binary[suffix]
    if suffix in decimal and number.replace(".", "", 1).isdigit() and number.isascii() and number[-1:] != ".":
        return int(float(number) * decimal[suffix])
    return text

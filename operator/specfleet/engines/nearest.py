"""What somebody may have meant by a key of `drafts[].args` that the engine does not know. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping


def meant(name: str, offered: Iterable[str], owned: Mapping[str, str], otherwise: str) -> str:
    """The nearest known key as a hint, with what to write where specfleet sets it itself; else `otherwise`."""
    close = difflib.get_close_matches(name, [*offered, *owned], n=1)
    if not close:
        return otherwise
    if close[0] in owned:
        return f"did you mean {close[0]}, which specfleet sets? Then {owned[close[0]]}"
    return f"did you mean {close[0]}?"

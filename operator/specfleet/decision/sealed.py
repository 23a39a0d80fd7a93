"""Text that status keeps for the operator: with a checksum at its end, so that what was cut or altered is told."""

from __future__ import annotations

import zlib


def sealed(body: str) -> str:
    """`body` with its checksum."""
    return f"{body};{zlib.crc32(body.encode()):08x}"


def unsealed(text: str) -> str:
    """The body of what `sealed` gave. Raises ValueError where it was cut or altered."""
    body, _, _ = text.rpartition(";")
    if sealed(body) != text:
        raise ValueError("cut or altered: the checksum is another one")
    return body

"""Amounts of memory as people write them. Pure."""

from __future__ import annotations

import re

from specfleet.sizing.reading import SizingProblem, shown

_FACTORS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
_QUANTITY = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)\s*([kmgt]?i?)b?", re.IGNORECASE)


def bytes_of(text: str) -> int:
    """Bytes of an amount such as 80Gi, 79.1GiB, 80G or 85899345920. Raises SizingProblem where it is none."""
    match = _QUANTITY.fullmatch(text.strip())
    factor = _FACTORS.get(match.group(2).lower()) if match is not None else None
    if match is None or factor is None or not float(match.group(1)):
        raise SizingProblem(f"expected an amount of memory such as 80Gi, found {shown(text)}")
    return round(float(match.group(1)) * factor)

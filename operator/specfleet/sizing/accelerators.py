"""Accelerators whose memory is known. Data with its source, in `accelerators.yaml`."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

import yaml

from specfleet.sizing.reading import SizingProblem, shown

GIB = 1 << 30


@dataclass(frozen=True)
class Accelerator:
    """One kind.

    Args:
        memory_bytes: that a process sees.
        products: values of the node label `nvidia.com/gpu.product`.
        source: where the figure is from.
    """

    name: str
    memory_bytes: int
    products: tuple[str, ...] = ()
    source: str = ""


@lru_cache(maxsize=1)
def accelerators() -> Mapping[str, Accelerator]:
    """All that are known, by name."""
    rows = yaml.safe_load(files("specfleet.sizing").joinpath("accelerators.yaml").read_text(encoding="utf-8"))
    return {
        row["name"]: Accelerator(row["name"], round(row["gib"] * GIB), tuple(row["products"]), row["source"])
        for row in rows
    }


def accelerator(name: str) -> Accelerator:
    """The accelerator of this name or product label, in any case. Raises SizingProblem where it is not known."""
    known = accelerators()
    for one in known.values():
        if name.lower() in {one.name.lower(), *(product.lower() for product in one.products)}:
            return one
    longer = [one for one in known if one.startswith(name.upper())]
    near = longer or difflib.get_close_matches(name.upper(), known, n=1, cutoff=0.4)
    meant = f", did you mean {' or '.join(near)}?" if near else ""
    raise SizingProblem(
        f"accelerator {shown(name)} is not in the table ({', '.join(known)}){meant}: name one of these, or give the "
        "memory that the engine sees: --memory 80Gi, or pools.accelerator.memory"
    )

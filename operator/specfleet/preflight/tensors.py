"""Names, types and shapes of tensors, from safetensors headers and indices; no weight is read. Pure.

The format: eight bytes with the header's length N, little-endian, then N bytes of JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specfleet.preflight.bounded import MOST_HEADER_BYTES, FileProblem, kind_name, parse_object, shown

PREFIX_BYTES = 8
MOST_TENSORS = 500_000


@dataclass(frozen=True)
class Tensor:
    """One tensor. `shape` and `dtype` are None where only an index names it."""

    dtype: str | None = None
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Tensors:
    """Tensors of a checkpoint, by name.

    Attributes:
        total_bytes: of all weights, where header or index tell.
    """

    by_name: Mapping[str, Tensor] = field(default_factory=dict)
    total_bytes: int | None = None

    def ending(self, *suffixes: str) -> dict[str, Tensor]:
        """Those whose name is one of `suffixes`, or ends with a dot and it."""
        return {
            name: tensor
            for name, tensor in self.by_name.items()
            if any(name == suffix or name.endswith(f".{suffix}") for suffix in suffixes)
        }


def header_length(prefix: bytes, what: str) -> int:
    """Bytes of the header behind the first eight of a file.

    Raises:
        FileProblem: the file is cut off, or its header is larger than any should be.
    """
    if len(prefix) < PREFIX_BYTES:
        raise FileProblem(f"{what} is cut off: it has {len(prefix)} bytes, and its header alone more")
    length = int.from_bytes(prefix[:PREFIX_BYTES], "little")
    if not 2 <= length <= MOST_HEADER_BYTES:
        raise FileProblem(f"{what} is no safetensors file: its header would be {length} bytes long")
    return length


def parse_header(data: bytes, length: int, what: str) -> Tensors:
    """From the header's `length` bytes. Raises FileProblem: it is cut off or malformed."""
    if len(data) < length:
        raise FileProblem(f"the header of {what} is cut off: expected {length} bytes, found {len(data)}")
    document = parse_object(data[:length], f"the header of {what}", MOST_HEADER_BYTES)
    found: dict[str, Tensor] = {}
    total = 0
    for name, entry in document.items():
        if name == "__metadata__":
            continue
        tensor, end = _entry(name, entry, what)
        found[name] = tensor
        total = max(total, end)
    return Tensors(found, total)


def _entry(name: str, entry: object, what: str) -> tuple[Tensor, int]:
    shape, dtype, offsets = (
        (entry.get("shape"), entry.get("dtype"), entry.get("data_offsets")) if isinstance(entry, dict) else (None,) * 3
    )
    if not (isinstance(dtype, str) and _whole_list(shape) and _whole_list(offsets) and len(offsets or ()) == 2):
        raise FileProblem(f"the header of {what} is malformed at tensor {shown(name)}")
    assert isinstance(shape, list)
    assert isinstance(offsets, list)
    return Tensor(dtype, tuple(shape)), offsets[1]


def _whole_list(value: object) -> bool:
    return isinstance(value, list) and all(type(one) is int and one >= 0 for one in value)


def parse_index(document: Mapping[str, Any], what: str) -> tuple[Tensors, tuple[str, ...]]:
    """Tensor names from `model.safetensors.index.json`, and the files that hold them.

    Raises:
        FileProblem: it is malformed, or names a file outside the checkpoint.
    """
    weights = document.get("weight_map")
    if not isinstance(weights, dict):
        raise FileProblem(f"{what} has no weight_map, found {kind_name(weights)}")
    if len(weights) > MOST_TENSORS:
        raise FileProblem(f"{what} names {len(weights)} tensors; the most that is read is {MOST_TENSORS}")
    for name, file in weights.items():
        if not isinstance(file, str) or "/" in file or "\\" in file or file.startswith("."):
            raise FileProblem(f"{what} has tensor {shown(name)} in {shown(file)}, which is no file beside it")
    metadata = document.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    size = int(total) if isinstance(total, int | float) and not isinstance(total, bool) and total > 0 else None
    return Tensors({name: Tensor() for name in weights}, size), tuple(sorted(set(weights.values())))

"""Compare before writing: what we want, what lives in the cluster, and whether the one shows in the other. Pure.

Each owned object carries a digest of what was applied (`specfleet.dev/applied`). An object needs writing when that
digest differs from today's manifest, or when a field that the manifest sets has another value in the live object.
"""

from __future__ import annotations

import hashlib
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from typing import Any

from specfleet.api.v1alpha1 import GROUP

ANNOTATION_APPLIED = f"{GROUP}/applied"
_VOLATILE = ("resourceVersion", "managedFields", "generation", "uid", "creationTimestamp", "selfLink")
_NOT_OURS = ("deployment.kubernetes.io/", "kubectl.kubernetes.io/last-applied-configuration")
_QUANTITY = re.compile(r"^([0-9]+(?:\.[0-9]+)?)(m|k|M|G|T|Ki|Mi|Gi|Ti)?$")
_FACTOR = {
    None: Decimal(1),
    "m": Decimal("0.001"),
    "k": Decimal(1000),
    "M": Decimal(1000**2),
    "G": Decimal(1000**3),
    "T": Decimal(1000**4),
    "Ki": Decimal(1024),
    "Mi": Decimal(1024**2),
    "Gi": Decimal(1024**3),
    "Ti": Decimal(1024**4),
}


def digest(value: Any) -> str:
    """A short, stable hash of a JSON value."""
    data = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
    return hashlib.sha256(data).hexdigest()[:16]


def stamped(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest with its own digest as an annotation."""
    meta = dict(manifest["metadata"])
    meta["annotations"] = {**(meta.get("annotations") or {}), ANNOTATION_APPLIED: digest(manifest)}
    return {**manifest, "metadata": meta}


def projection(live: Mapping[str, Any]) -> dict[str, Any]:
    """The part of a live object that somebody may have written on purpose: no status, no book-keeping."""
    meta = {key: value for key, value in (live.get("metadata") or {}).items() if key not in _VOLATILE}
    annotations = {k: v for k, v in (meta.get("annotations") or {}).items() if not k.startswith(_NOT_OURS)}
    meta["annotations"] = annotations
    return {**{k: v for k, v in live.items() if k not in ("status", "metadata")}, "metadata": meta}


def packed(value: Any) -> bytes:
    """A projection in few bytes, for the time until it has been compared."""
    return zlib.compress(json.dumps(value, separators=(",", ":")).encode(), 1)


def unpacked(data: bytes) -> dict[str, Any]:
    """What `packed` took."""
    value = json.loads(zlib.decompress(data))
    assert isinstance(value, dict)
    return value


def differences(wanted: Any, live: Any, path: str = "") -> Iterator[str]:
    """Paths of the fields that `wanted` sets and `live` has otherwise. What only `live` has is nobody's business.

    Lists are compared as a whole; numbers in quantities (`1Gi`, `1024Mi`) by value; an empty value equals none.
    """
    if isinstance(wanted, Mapping):
        if not isinstance(live, Mapping):
            if wanted:
                yield path or "/"
            return
        for key, value in wanted.items():
            yield from differences(value, live.get(key), f"{path}.{key}" if path else str(key))
    elif isinstance(wanted, list):
        if not isinstance(live, list) or len(wanted) != len(live):
            if wanted or live:
                yield path
            return
        for index, (left, right) in enumerate(zip(wanted, live, strict=True)):
            yield from differences(left, right, f"{path}[{index}]")
    elif not _same(wanted, live):
        yield path


def _same(wanted: Any, live: Any) -> bool:
    if wanted == live or (not wanted and live is None):
        return True
    left, right = _number(wanted), _number(live)
    return left is not None and left == right


def _number(value: Any) -> Decimal | None:
    if isinstance(value, bool):
        return None
    match = _QUANTITY.match(str(value))
    if match is None:
        return None
    try:
        return Decimal(match.group(1)) * _FACTOR[match.group(2)]
    except (InvalidOperation, KeyError):
        return None

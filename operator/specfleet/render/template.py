"""Merges `pools.template` over the rendered pod template as Kubernetes' strategic merge patch does. Pure."""

from __future__ import annotations

import json
from functools import lru_cache
from importlib.resources import files
from typing import Any

Node = dict[str, Any]


@lru_cache(maxsize=1)
def merge_keys() -> Node:
    """Fields of a PodTemplateSpec that merge: `{field: {"key": merge key or "", "fields": {...}}}`.

    Taken from the API server's OpenAPI document (`x-kubernetes-patch-merge-key`); lists that are not named in it are
    replaced as a whole.
    """
    table: Node = json.loads(files("specfleet.render").joinpath("merge_keys.json").read_text(encoding="utf-8"))
    return table


def merge_pod_template(base: Node, patch: Node) -> Node:
    """`patch` merged over `base`; neither is changed. null removes a field."""
    return _merge_maps(base, patch, merge_keys())


def _merge_maps(base: Node, patch: Node, table: Node) -> Node:
    merged = dict(base)
    for name, value in patch.items():
        entry = table.get(name, {})
        fields = entry.get("fields", {})
        if value is None:
            merged.pop(name, None)
        elif isinstance(value, dict):
            known = merged.get(name)
            merged[name] = _merge_maps(known if isinstance(known, dict) else {}, value, fields)
        elif isinstance(value, list) and "key" in entry:
            known = merged.get(name)
            merged[name] = _merge_lists(known if isinstance(known, list) else [], value, entry["key"], fields)
        else:
            merged[name] = value
    return merged


def _merge_lists(base: list[Any], patch: list[Any], key: str, fields: Node) -> list[Any]:
    """Items of one key are merged; the rest is kept. The order is that of Kubernetes' own code."""

    def identity(item: Any) -> Any:
        return item.get(key) if key and isinstance(item, dict) else item

    by_identity: dict[Any, Any] = {}
    for item in base:
        by_identity[identity(item)] = item
    order = list(by_identity)
    patched: list[Any] = []
    for item in patch:
        name = identity(item)
        if isinstance(item, dict):
            known = by_identity.get(name, {})
            by_identity[name] = _merge_maps(known, item, fields)
        else:
            by_identity[name] = item
        if name not in patched:
            patched.append(name)
    rest = [name for name in order if name not in patched]
    return [by_identity[name] for name in _interleave(rest, patched, order)]


def _interleave(rest: list[Any], patched: list[Any], order: list[Any]) -> list[Any]:
    """Items of the patch keep its order, the others theirs; an item of the patch comes first unless it stood later."""
    result: list[Any] = []
    left, right = list(rest), list(patched)
    while left and right:
        both_known = right[0] in order
        before = both_known and order.index(left[0]) < order.index(right[0])
        result.append(left.pop(0) if before else right.pop(0))
    return result + left + right

"""Writes the table of merge keys of a PodTemplateSpec from an API server's OpenAPI document.

`kubectl get --raw /openapi/v2 | python -m tests.render.read_merge_keys > operator/specfleet/render/merge_keys.json`
"""

from __future__ import annotations

import json
import sys
from typing import Any

ROOT = "io.k8s.api.core.v1.PodTemplateSpec"


def merge_key_table(document: dict[str, Any]) -> dict[str, Any]:
    """The table that `specfleet.render.template.merge_keys` reads."""
    return _fields(document["definitions"], ROOT, ())


def _fields(definitions: dict[str, Any], name: str, seen: tuple[str, ...]) -> dict[str, Any]:
    if name in seen:
        return {}
    table: dict[str, Any] = {}
    for field, schema in sorted(definitions[name].get("properties", {}).items()):
        entry: dict[str, Any] = {}
        strategies = schema.get("x-kubernetes-patch-strategy", "").split(",")
        if "merge" in strategies and schema.get("type") == "array":
            entry["key"] = schema.get("x-kubernetes-patch-merge-key", "")
        inner = schema.get("items", schema).get("$ref")
        if inner is not None and ("key" in entry or schema.get("type") != "array"):
            fields = _fields(definitions, inner.rsplit("/", 1)[1], (*seen, name))
            if fields:
                entry["fields"] = fields
        if entry:
            table[field] = entry
    return table


if __name__ == "__main__":
    json.dump(merge_key_table(json.load(sys.stdin)), sys.stdout, indent=1, sort_keys=True)
    print()

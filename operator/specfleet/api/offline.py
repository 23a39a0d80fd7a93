"""What the API server would say about a SpecDeployment, without one: fields, types, ranges and the CRD's own CEL rules.

The rules are evaluated from the generated schema, so that a rule stands in one place only. Pure.
"""

from __future__ import annotations

import copy
import difflib
import json
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import cel
from pydantic import ValidationError
from pydantic_core import ErrorDetails

from specfleet.api.base import DNS_LABEL
from specfleet.api.findings import Finding, FindingReason, error
from specfleet.api.schema import object_schema
from specfleet.api.v1alpha1 import API_VERSION, SpecDeployment

_ROOT_FIELDS = ("apiVersion", "kind", "metadata", "spec", "status")
_SHOWN = 80


@lru_cache(maxsize=1)
def _schema() -> dict[str, Any]:
    return object_schema()


def parse(document: Mapping[str, Any]) -> tuple[SpecDeployment | None, list[Finding]]:
    """The typed object, or what is wrong with the document. Rules are looked at only where fields and types are right.

    Never raises, whatever the document holds.
    """
    found = list(_root_findings(document))
    if found:
        return None, found
    try:
        deployment = SpecDeployment.parse(document)
    except ValidationError as problem:
        return None, [_field_finding(detail) for detail in problem.errors(include_url=False, include_context=True)]
    except (TypeError, ValueError, RecursionError) as problem:
        return None, [error(FindingReason.INVALID_VALUE, "", f"expected JSON values only: {problem}")]
    broken = list(rule_findings(document))
    return (None, broken) if broken else (deployment, [])


def rule_findings(document: Mapping[str, Any]) -> Iterator[Finding]:
    """CEL rules of the CRD that the document breaks, after the schema's defaults are filled in."""
    filled = _with_defaults(copy.deepcopy(dict(document)), _schema())
    filled.pop("status", None)
    yield from _rules(filled, _schema(), "")


def _root_findings(document: Mapping[str, Any]) -> Iterator[Finding]:
    for key in document:
        if key not in _ROOT_FIELDS:
            yield error(FindingReason.UNKNOWN_FIELD, str(key), f"no field {key!r}{_meant(str(key), _ROOT_FIELDS)}")
    if document.get("apiVersion") != API_VERSION:
        found = document.get("apiVersion")
        yield error(FindingReason.UNSUPPORTED_VERSION, "apiVersion", f"expected {API_VERSION}, found {found!r}")
    metadata = document.get("metadata")
    if not isinstance(metadata, Mapping) or not isinstance(metadata.get("name"), str) or not metadata["name"]:
        yield error(FindingReason.MISSING_FIELD, "metadata.name", "expected a name, found none: write metadata.name")
        return
    namespace = metadata.get("namespace")
    if namespace is not None and not (isinstance(namespace, str) and re.fullmatch(DNS_LABEL, namespace)):
        yield error(FindingReason.INVALID_VALUE, "metadata.namespace", f"expected a DNS label, found {namespace!r}")
    if "spec" not in document:
        yield error(FindingReason.MISSING_FIELD, "spec", "expected spec, found none")


def _field_finding(detail: ErrorDetails) -> Finding:
    path = _path(detail["loc"])
    kind, value = detail["type"], detail["input"]
    if kind == "extra_forbidden":
        *parent, name = detail["loc"]
        known = _known_fields(tuple(parent))
        return error(FindingReason.UNKNOWN_FIELD, path, f"no field {str(name)!r} here{_meant(str(name), known)}")
    if kind == "missing":
        return error(FindingReason.MISSING_FIELD, path, "expected a value, found none: write it")
    shown = json.dumps(value) if not isinstance(value, str) else repr(value)
    if len(shown) > _SHOWN:
        shown = shown[:_SHOWN] + "..."
    said = detail["msg"].replace("Input should be", "expected").replace("String should", "the text should")
    said = f"{said}, found {shown}{_quoting(kind, value)}{_looks_like(path)}"
    return error(FindingReason.INVALID_VALUE, path, said)


def _quoting(kind: str, value: Any) -> str:
    """What to do about YAML's own idea of a type: 0.30 is a number to it, and loses its last digit."""
    if kind == "string_type" and isinstance(value, int | float):
        return ": write it in quotes"
    if kind == "int_type" and isinstance(value, str) and value.isdecimal():
        return ": write it without quotes"
    return ""


def _looks_like(path: str) -> str:
    """A word on what goes here: the schema's own description, and its default where that is text."""
    schema = _schema_at(path_parts(path)) or {}
    words = [schema.get("description", "").rstrip(".")]
    if isinstance(schema.get("default"), str) and "enum" not in schema:
        words.append(f"for instance {schema['default']}")
    shown = "; ".join(word for word in words if word)
    return f" ({shown})" if shown else ""


def path_parts(path: str) -> tuple[str, ...]:
    """The parts of a shown path: `spec.drafts[0].name` is spec, drafts, 0, name."""
    return tuple(part for part in re.split(r"[.\[\]]+", path) if part)


def _path(location: tuple[int | str, ...]) -> str:
    path = ""
    for part in location:
        if part != "[key]":  # pydantic's word for "the key itself", behind the key
            path += f"[{part}]" if isinstance(part, int) else f".{part}"
    return path.removeprefix(".")


def _schema_at(parts: tuple[str, ...]) -> dict[str, Any] | None:
    node: dict[str, Any] | None = _schema()
    for part in parts:
        if node is None:
            return None
        if "items" in node:
            node = node["items"]
        elif "properties" in node:
            node = node["properties"].get(part)
        else:
            node = node.get("additionalProperties")
    return node


def _known_fields(location: tuple[int | str, ...]) -> tuple[str, ...]:
    node = _schema_at(tuple(str(part) for part in location))
    return tuple(node.get("properties", ())) if node is not None else ()


def _meant(name: str, known: tuple[str, ...]) -> str:
    lower = {field.lower(): field for field in known}
    plain = name.replace("_", "").replace("-", "").lower()
    close = difflib.get_close_matches(plain, lower, n=1, cutoff=0.6)
    if close:
        return f": did you mean {lower[close[0]]}?"
    return f": known are {', '.join(known)}" if known else ""


def _with_defaults(value: Any, schema: Mapping[str, Any]) -> Any:
    if isinstance(value, dict):
        for name, sub in schema.get("properties", {}).items():
            if name in value and value[name] is None:
                del value[name]  # as the API server does with null
            if name not in value and "default" in sub and name != "status":
                value[name] = copy.deepcopy(sub["default"])
            if name in value:
                value[name] = _with_defaults(value[name], sub)
    elif isinstance(value, list) and "items" in schema:
        return [_with_defaults(item, schema["items"]) for item in value]
    return value


def _rules(value: Any, schema: Mapping[str, Any], path: str) -> Iterator[Finding]:
    for rule in schema.get("x-kubernetes-validations", ()):
        if "oldSelf" in rule["rule"]:
            continue  # it is about a change, and here is nothing to compare with
        if not _holds(rule["rule"], value):
            where = (path + rule.get("fieldPath", "")).removeprefix(".")
            if not where and "self.metadata.name" in rule["rule"]:
                where = "metadata.name"  # a CRD's schema has no field there to point at
            yield error(FindingReason.RULE_VIOLATED, where, rule["message"])
    if isinstance(value, dict):
        for name, sub in schema.get("properties", {}).items():
            if value.get(name) is not None:
                yield from _rules(value[name], sub, f"{path}.{name}")
    elif isinstance(value, list) and "items" in schema:
        yield from _twice(value, schema, path)
        for index, item in enumerate(value):
            yield from _rules(item, schema["items"], f"{path}[{index}]")


def _twice(items: list[Any], schema: Mapping[str, Any], path: str) -> Iterator[Finding]:
    """Items that stand twice in a list whose items are told apart by a key, or by themselves."""
    keys = schema.get("x-kubernetes-list-map-keys", ())
    if not keys and schema.get("x-kubernetes-list-type") != "set":
        return
    seen: list[Any] = []
    for index, item in enumerate(items):
        identity = [item.get(key) for key in keys] if keys else item
        if identity in seen:
            shown = ", ".join(map(str, identity)) if keys else item
            yield error(FindingReason.INVALID_VALUE, f"{path}[{index}]".removeprefix("."), f"{shown} stands twice")
        seen.append(identity)


@lru_cache(maxsize=256)
def _program(rule: str) -> cel.Program:
    return cel.compile(rule)


def _holds(rule: str, value: Any) -> bool:
    """Whether a rule is true of a value; one that cannot be evaluated is false, as with the API server."""
    try:
        return _program(rule).execute({"self": value}) is True
    except (ValueError, RuntimeError, TypeError, KeyError, OverflowError):
        return False

"""Writes the generated parts of `docs/reference/`: `python -m specfleet.api.reference [--check]`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from specfleet.api.conditions import markdown_tables
from specfleet.api.schema import NAME_RULES, object_schema

DIRECTORY = Path(__file__).resolve().parents[3] / "docs" / "reference"
_PART = re.compile(r"(<!-- generated: (?P<name>[a-z]+) -->\n)(?P<text>.*?)(<!-- end of generated -->)", re.DOTALL)


def fields_table(part: str) -> str:
    """A table of all fields below `spec` or `status`, with type, default and description."""
    rows = ["| field | type | default | meaning |", "|---|---|---|---|"]
    schema = object_schema()["properties"][part]
    for path, node, required in _fields(schema, part):
        default = f"`{_json(node['default'])}`" if "default" in node and not isinstance(node["default"], dict) else ""
        default = "required" if required else default
        rows.append(f"| `{path}` | {_type(node)} | {default} | {_cell(node.get('description', ''))} |")
    return "\n".join(rows) + "\n"


def rules_table() -> str:
    """A table of the rules that the API server holds fields to, beyond type and range."""
    rows = ["| where | what is asked |", "|---|---|"]
    rows += [f"| `metadata.name` | {_cell(rule.message)} |" for rule in NAME_RULES]
    spec = object_schema()["properties"]["spec"]
    for path, node, _ in [("spec", spec, True), *_fields(spec, "spec")]:
        for rule in node.get("x-kubernetes-validations", ()):
            rows.append(f"| `{path}{rule.get('fieldPath', '')}` | {_cell(rule['message'])} |")
        for rule in node.get("items", {}).get("x-kubernetes-validations", ()):
            rows.append(f"| `{path}[]{rule.get('fieldPath', '')}` | {_cell(rule['message'])} |")
    return "\n".join(rows) + "\n"


def settings_table() -> str:
    """A table of the operator's settings, those of groups included."""
    from specfleet.settings import rows

    lines = ["| setting | type | default | meaning |", "|---|---|---|---|"]
    lines += [f"| `{row.name}` | {row.type} | {row.default} | {_cell(row.meaning)} |" for row in rows()]
    return "\n".join(lines) + "\n"


PARTS: dict[str, Callable[[], str]] = {
    "spec": lambda: fields_table("spec"),
    "status": lambda: fields_table("status"),
    "rules": rules_table,
    "conditions": markdown_tables,
    "settings": settings_table,
}


def renewed(text: str) -> str:
    """A page with its generated parts written anew.

    Raises:
        KeyError: the page asks for a part that there is not.
    """
    return _PART.sub(lambda found: f"{found[1]}{PARTS[found['name']]()}{found[4]}", text)


def _fields(node: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any], bool]]:
    required = node.get("required", ())
    for name, sub in node.get("properties", {}).items():
        here = f"{path}.{name}"
        yield here, sub, name in required
        inner, below = (sub["items"], f"{here}[]") if "items" in sub else (sub, here)
        yield from _fields(inner, below)


def _type(node: Mapping[str, Any]) -> str:
    if "enum" in node:
        return " or ".join(f"`{value}`" for value in node["enum"])
    if node["type"] == "array":
        return f"list of {_type(node['items'])}, at most {node['maxItems']}"
    if "additionalProperties" in node:
        return "map of texts"
    if node["type"] == "integer" and "minimum" in node:
        return f"integer, {node['minimum']} to {node['maximum']}" if "maximum" in node else "integer"
    return {"string": "text", "object": "object", "boolean": "true or false"}.get(node["type"], str(node["type"]))


def _json(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ", ".join(_json(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_json(item)}" for key, item in value.items()) + "}"
    return str(value)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def main(arguments: list[str]) -> int:
    """Writes the pages, or with `--check` says which differ. Returns the exit status."""
    if arguments not in ([], ["--check"]):
        print("usage: python -m specfleet.api.reference [--check]", file=sys.stderr)
        return 2
    stale = 0
    for page in sorted(DIRECTORY.glob("*.md")):
        text = page.read_text(encoding="utf-8")
        if renewed(text) == text:
            continue
        if arguments:
            print(
                f"docs/reference/{page.name} differs from the models: run python -m specfleet.api.reference",
                file=sys.stderr,
            )
            stale = 1
        else:
            page.write_text(renewed(text), encoding="utf-8")
            print(f"wrote docs/reference/{page.name}")
    return stale


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

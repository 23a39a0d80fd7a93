"""Reads SpecDeployments from YAML files: several documents, Lists, other kinds in between."""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from specfleet.api.findings import Finding, FindingReason, error
from specfleet.api.v1alpha1 import GROUP, KIND

MOST_BYTES = 16 * 1024 * 1024


class InputProblem(Exception):
    """The input cannot be read; the message is one sentence."""


@dataclass(frozen=True)
class Input:
    """What was found in the input.

    Args:
        documents: the SpecDeployments, unchecked.
        findings: what is wrong with the text itself.
        others: how many objects of other kinds were passed over.
    """

    documents: tuple[dict[str, Any], ...]
    findings: tuple[Finding, ...]
    others: int


class _Loader(yaml.SafeLoader):
    """Refuses a key that stands twice, and leaves dates as text as the API server does."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            name = str(key.value)
            if name in seen and name != "<<":
                raise yaml.constructor.ConstructorError(None, None, f"the key {name!r} stands twice", key.start_mark)
            seen.add(name)
        return super().construct_mapping(node, deep)


_Loader.yaml_implicit_resolvers = {
    letter: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_text(file: str) -> str:
    """The text of a file, or of standard input for `-`.

    Raises:
        InputProblem: it cannot be read, is no UTF-8 or is too large.
    """
    try:
        data = sys.stdin.buffer.read(MOST_BYTES + 1) if file == "-" else Path(file).read_bytes()
        if len(data) > MOST_BYTES:
            raise InputProblem(f"{file} is larger than {MOST_BYTES} bytes")
        return data.decode("utf-8-sig")
    except OSError as problem:
        raise InputProblem(f"cannot read {file}: {problem.strerror or problem}") from None
    except UnicodeDecodeError:
        raise InputProblem(f"cannot read {file}: it is no UTF-8 text") from None


def read_documents(text: str) -> Input:
    """The SpecDeployments in a YAML text. Never raises."""
    documents: list[dict[str, Any]] = []
    others = 0
    try:
        for item in yaml.load_all(text, Loader=_Loader):
            for one in _expanded(item):
                if _is_ours(one):
                    documents.append(one)
                else:
                    others += 1
    except yaml.YAMLError as problem:
        return Input(tuple(documents), (_syntax_finding(problem),), others)
    except (ValueError, RecursionError, TypeError) as problem:
        finding = error(FindingReason.SYNTAX_ERROR, "", f"the YAML cannot be read: {problem}")
        return Input(tuple(documents), (finding,), others)
    return Input(tuple(documents), tuple(_duplicates(documents)), others)


def _expanded(item: Any) -> Iterator[Any]:
    if isinstance(item, dict) and item.get("kind") in ("List", f"{KIND}List") and isinstance(item.get("items"), list):
        yield from item["items"]
    elif item is not None:
        yield item


def _is_ours(item: Any) -> bool:
    return isinstance(item, dict) and item.get("kind") == KIND and str(item.get("apiVersion", "")).startswith(GROUP)


def _syntax_finding(problem: yaml.YAMLError) -> Finding:
    mark = getattr(problem, "problem_mark", None)
    where = f"line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
    said = getattr(problem, "problem", None) or str(problem)
    return error(FindingReason.SYNTAX_ERROR, where, f"the text is no YAML: {said}")


def _duplicates(documents: list[dict[str, Any]]) -> Iterator[Finding]:
    seen: set[str] = set()
    for document in documents:
        name = display_name(document)
        if name in seen:
            yield error(FindingReason.DUPLICATE_NAME, "metadata.name", f"two SpecDeployments are called {name}")
        seen.add(name)


def display_name(document: dict[str, Any]) -> str:
    """`name` or `namespace/name` of a document that may lack either."""
    metadata = document.get("metadata")
    metadata = metadata if isinstance(metadata, dict) else {}
    name = str(metadata.get("name", ""))
    namespace = metadata.get("namespace")
    return f"{namespace}/{name}" if namespace else name

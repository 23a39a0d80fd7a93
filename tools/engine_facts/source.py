"""Reads Python source without running it: command-line flags, class fields and the values of literal types."""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

SWITCH, OPTIONAL, VALUE = "switch", "optional", "value"


@dataclass
class Module:
    """The parts of some files that facts are read from.

    Args:
        classes: by name; of two with one name the first.
        literals: names that stand for a `Literal[...]`.
    """

    trees: list[ast.Module]
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    literals: dict[str, ast.expr] = field(default_factory=dict)

    @classmethod
    def parse(cls, texts: Iterable[str]) -> Module:
        """Raises SyntaxError where a text is no Python of this interpreter."""
        module = cls([ast.parse(text) for text in texts])
        for tree in module.trees:
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    module.classes.setdefault(node.name, node)
                elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
                    target = node.targets[0] if isinstance(node, ast.Assign) else node.target
                    if isinstance(target, ast.Name) and _is_literal(node.value):
                        module.literals.setdefault(target.id, node.value)
        return module

    def fields(self, name: str) -> dict[str, ast.AnnAssign]:
        """Annotated fields of a class and of its bases that were read, the bases' first."""
        node = self.classes.get(name)
        if node is None:
            return {}
        found: dict[str, ast.AnnAssign] = {}
        for base in node.bases:
            if isinstance(base, ast.Name):
                found.update(self.fields(base.id))
        found.update(
            {
                item.target.id: item
                for item in node.body
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
            }
        )
        return found

    def choices(self, annotation: ast.expr) -> tuple[str, ...]:
        """Values of the literal types in an annotation; names of literal types are followed."""
        found: list[str] = []
        for node in _outermost_literals(annotation, self.literals):
            found += self._values(node)
        return tuple(dict.fromkeys(found))

    def _values(self, node: ast.expr) -> list[str]:
        if isinstance(node, ast.Name) and node.id in self.literals:
            return self._values(self.literals[node.id])
        if isinstance(node, ast.Subscript):
            inner = node.slice
            parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
            return [value for part in parts for value in self._values(part)]
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return [node.value]
        return []


def _is_literal(node: ast.expr) -> bool:
    return isinstance(node, ast.Subscript) and ast.unparse(node.value).rsplit(".", 1)[-1] == "Literal"


def _outermost_literals(node: ast.expr, names: Mapping[str, ast.expr]) -> Iterator[ast.expr]:
    if _is_literal(node) or (isinstance(node, ast.Name) and node.id in names):
        yield node
        return
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.expr):
            yield from _outermost_literals(child, names)


def add_argument_calls(tree: ast.AST) -> Iterator[tuple[tuple[str, ...], dict[str, ast.expr], ast.Call]]:
    """Every `add_argument` that names its flags as text: spellings, keyword arguments and the call itself.

    A call in a loop over a written list is one for each item.
    """
    for node in ast.walk(tree):
        if isinstance(node, ast.For):
            for body in _looped(node):
                yield from add_argument_calls(body)
            continue
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        if node.func.attr != "add_argument":
            continue
        words = [word.value for word in node.args if isinstance(word, ast.Constant) and isinstance(word.value, str)]
        if words and words[0].startswith("-"):
            keywords = {word.arg: word.value for word in node.keywords if word.arg is not None}
            yield tuple(words), keywords, node


def _looped(loop: ast.For) -> Iterator[ast.Module]:
    """The body of a loop over a list that is written out, once for each item, with the item's values in it."""
    if not isinstance(loop.iter, (ast.List, ast.Tuple)):
        return
    names = loop.target.elts if isinstance(loop.target, ast.Tuple) else [loop.target]
    for item in loop.iter.elts:
        values = item.elts if isinstance(item, ast.Tuple) and isinstance(loop.target, ast.Tuple) else [item]
        known = {name.id: value for name, value in zip(names, values, strict=False) if isinstance(name, ast.Name)}
        yield _With(known).visit(ast.Module(copy.deepcopy(loop.body), []))


class _With(ast.NodeTransformer):
    """Puts values in the place of names."""

    def __init__(self, known: Mapping[str, ast.expr]) -> None:
        self._known = known

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self._known.get(node.id, node)


def unpacked(call: ast.Call) -> ast.expr | None:
    """What follows `**` in a call; of a dict that unpacks another one, that."""
    source = next((word.value for word in call.keywords if word.arg is None), None)
    if isinstance(source, ast.Dict):
        return next((value for key, value in zip(source.keys, source.values, strict=True) if key is None), None)
    return source


def flag_of(
    spellings: tuple[str, ...], takes: str, negatable: bool = False, inverses: Mapping[str, str] | None = None
) -> tuple[str, str]:
    """A row of the flags: all spellings and what the flag takes.

    Args:
        negatable: it is an optional boolean, which has a `--no-` form.
        inverses: prefixes of such a flag, and the one that stands for the opposite.
    """
    if not negatable:
        return " ".join(spellings), takes
    negative = [f"--no-{word[2:]}" for word in spellings if word.startswith("--")]
    opposite = [
        other + word.removeprefix(prefix)
        for word in spellings
        for prefix, other in (inverses or {}).items()
        if word.startswith(prefix)
    ]
    return " ".join([*spellings, *negative, *opposite]), takes


def taken(keywords: Mapping[str, ast.expr]) -> tuple[str, bool] | None:
    """What a flag takes by the keywords of its call, and whether it has a `--no-` form; None where they do not say."""
    action = ast.unparse(keywords["action"]) if "action" in keywords else ""
    if action.endswith("BooleanOptionalAction"):
        return SWITCH, True
    if action.strip("'\"") in ("store_true", "store_false", "store_const", "help", "version", "count"):
        return SWITCH, False
    nargs = keywords.get("nargs")
    if isinstance(nargs, ast.Constant) and nargs.value in ("?", 0):
        return (OPTIONAL if nargs.value == "?" else SWITCH), False
    return (VALUE, False) if action or {"type", "nargs", "choices"} & keywords.keys() else None


def is_bool(annotation: str) -> bool:
    """Whether a type, as text, has bool among its alternatives."""
    return re.search(r"\bbool\b", annotation) is not None


def flag_name(name: str) -> str:
    """The flag that a field stands for."""
    return "--" + name.replace("_", "-")

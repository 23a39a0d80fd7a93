"""What mutmut 3 left behind: each mutant as a function's name and the lines that differ."""

from __future__ import annotations

import ast
import difflib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_KILLED = {1: "killed", 3: "killed"}  # pytest's exit codes; 3 is an error inside pytest
_TIMED_OUT = (24, 36, 152, 255, -24)
_STATUS = {0: "survived", 5: "no test runs it", 33: "no test runs it", None: "not run"}
_NAME = re.compile(r"x(?:ǁ(?P<owner>\w+?)ǁ|_)(?P<function>\w+)__mutmut_(?P<which>\d+|orig)")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change. `diff` has no line numbers or line breaks of the source: those move without a change of meaning."""

    function: str  # with module and class: evidence.LineState.says_switch
    diff: str
    status: str

    @property
    def killed(self) -> bool:
        """Whether a test failed, or the change made the tests run without end."""
        return self.status in ("killed", "timeout")


def read_mutants(mutants: Path, package: str, module: str) -> Iterator[Mutant]:
    """The mutants of one module from mutmut's directory `mutants`."""
    path = mutants / package / f"{module}.py"
    codes: dict[str, int | None] = json.loads(path.with_name(f"{module}.py.meta").read_text())["exit_code_by_key"]
    functions = dict(_functions(ast.parse(path.read_text())))
    for key, code in codes.items():
        found = _NAME.fullmatch(key.rpartition(".")[2])
        if found is None:
            raise ValueError(f"expected a mutant's name as mutmut 3 writes it, found {key!r}")
        name = found.group("function")
        before = _source(functions[re.sub(r"\d+$", "orig", found.group())], name)
        after = _source(functions[found.group()], name)
        owner = found.group("owner")
        yield Mutant(
            function=".".join([module, *([owner] if owner else []), name]),
            diff="".join(f"{line}\n" for line in _changes(before, after)),
            status=_status(code),
        )


def _status(code: int | None) -> str:
    if code in _TIMED_OUT:
        return "timeout"
    return _KILLED.get(code or 0) or _STATUS.get(code, f"ended with {code}")


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and "__mutmut_" in node.name:
            yield node.name, node


def _source(function: ast.FunctionDef, name: str) -> list[str]:
    function.name = name
    return ast.unparse(function).splitlines()


def _changes(before: list[str], after: list[str]) -> list[str]:
    lines = list(difflib.unified_diff(before, after, lineterm="", n=0))[2:]
    return [line[0] + line[1:].strip() for line in lines if not line.startswith("@@")]

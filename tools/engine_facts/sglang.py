"""SGLang: flags of its server, names of its speculative algorithms, architectures and quantisation methods."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from tools.engine_facts.source import (
    SWITCH,
    VALUE,
    Module,
    add_argument_calls,
    flag_name,
    flag_of,
    taken,
)
from tools.engine_facts.tables import Facts
from tools.engine_facts.wheels import Sources

PACKAGE = "sglang"
_SERVER = "sglang/srt/server_args.py"
_GROUPS = "sglang/srt/arg_groups/"
_ALGORITHMS = "sglang/srt/speculative/spec_info.py"
_ALIAS = "NEXTN"
_MODELS = "sglang/srt/models/"
_ENTRY = "EntryClass"
_QUANTIZATION = "sglang/srt/layers/quantization/__init__.py"
_METHODS = "QUANTIZATION_METHODS"


def read(sources: Sources) -> Facts:
    """Facts of one release.

    Raises:
        ValueError: the wheel has no such files, or they are built in another way than those known so far.
    """
    names = [_SERVER, *(name for name in sources.names(_GROUPS) if name.endswith(".py"))]
    texts = [text for name in names if (text := sources.text(name)) is not None]
    module = Module.parse(texts)
    facts: Facts = {
        "flags": set(_flags(module)),
        "methods": set(_methods(module, sources, texts)),
        "architectures": {(name, "") for name in _architectures(sources)},
        "quantizations": {(name, "") for name in _quantizations(ast.parse(sources.text(_QUANTIZATION) or ""))},
    }
    if not all(facts.values()):
        raise ValueError(f"{sources.wheel.file} is built in a way that the reader does not know")
    return facts


def _flags(module: Module) -> Iterator[tuple[str, str]]:
    server = module.classes.get("ServerArgs")
    for tree in module.trees if server is not None else ():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name == "add_cli_args":
                for spellings, keywords, _ in add_argument_calls(node):
                    yield flag_of(spellings, *_taken(keywords))
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                flag = _annotated(node.target.id, node.annotation)
                if flag is not None:
                    yield flag


def _taken(keywords: dict[str, ast.expr]) -> tuple[str, bool]:
    action = ast.unparse(keywords["action"]) if "action" in keywords else ""
    if "StoreTrue" in action:
        return SWITCH, False
    return taken(keywords) or (VALUE, False)


def _annotated(field: str, annotation: ast.expr) -> tuple[str, str] | None:
    """The flag of a field `A[type, "help" or Arg(...)]`; None where the field makes none."""
    if not (isinstance(annotation, ast.Subscript) and ast.unparse(annotation.value) in ("A", "Annotated")):
        return None
    parts = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else []
    said = [part for part in parts[1:] if _is_help(part) or _is_arg(part)]
    if not said:
        return None
    words = {word.arg: word.value for word in said[0].keywords if word.arg} if isinstance(said[0], ast.Call) else {}
    if "no_cli" in words and ast.unparse(words["no_cli"]) == "True":
        return None
    name = words.get("cli_name")
    main = str(name.value) if isinstance(name, ast.Constant) else flag_name(field)
    spellings = (main, *_texts_of(words.get("aliases")))
    if "action" in words:
        return flag_of(spellings, *_taken({**words, **_action_keywords(words)}))
    if "nargs" in words:
        return flag_of(spellings, *_taken({"nargs": words["nargs"]}))
    return flag_of(spellings, SWITCH if _plain_bool(parts[0]) else VALUE)


def _action_keywords(words: dict[str, ast.expr]) -> dict[str, ast.expr]:
    more = words.get("action_kwargs")
    if not isinstance(more, ast.Dict):
        return {}
    pairs = zip(more.keys, more.values, strict=True)
    return {str(key.value): value for key, value in pairs if isinstance(key, ast.Constant)}


def _texts_of(node: ast.expr | None) -> list[str]:
    """The texts of a list."""
    return (
        [str(item.value) for item in node.elts if isinstance(item, ast.Constant)] if isinstance(node, ast.List) else []
    )


def _is_text(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_help(node: ast.expr) -> bool:
    return _is_text(node) or isinstance(node, (ast.JoinedStr, ast.BinOp))


def _is_arg(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "Arg"


def _plain_bool(annotation: ast.expr) -> bool:
    return ast.unparse(annotation) in ("bool", "Optional[bool]", "bool | None")


def _methods(module: Module, sources: Sources, texts: list[str]) -> Iterator[tuple[str, str]]:
    """The choices of the flag, where it states them; else the members of the enumeration and the alias."""
    for tree in module.trees:
        for spellings, keywords, _ in add_argument_calls(tree):
            choices = keywords.get("choices")
            if spellings[0] == "--speculative-algorithm" and isinstance(choices, ast.List):
                yield from ((name, "") for name in _texts_of(choices))
                return
    algorithms = Module.parse([sources.text(_ALGORITHMS) or ""]).classes.get("SpeculativeAlgorithm")
    for node in algorithms.body if algorithms is not None else ():
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id != "NONE":
            yield node.targets[0].id, ""
    if any(f'"{_ALIAS}"' in text for text in texts):
        yield _ALIAS, ""


def _architectures(sources: Sources) -> Iterator[str]:
    """Classes that model files hand to the registry: `EntryClass = [LlamaForCausalLM, ...]`; their names are it."""
    for name in sources.names(_MODELS):
        text = (sources.text(name) or "").removeprefix("\ufeff") if name.endswith(".py") else ""
        for node in ast.parse(text).body if _ENTRY in text else ():
            target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
            value = getattr(node, "value", None)
            if isinstance(target, ast.Name) and target.id == _ENTRY and value is not None:
                yield from (part.id for part in ast.walk(value) if isinstance(part, ast.Name))


def _quantizations(tree: ast.Module) -> Iterator[str]:
    """Keys of the tables of methods, those of other platforms and of vLLM's kernels too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            target: ast.expr = node.targets[0] if isinstance(node, ast.Assign) else node.target
            tables = [node.value] if isinstance(target, ast.Name) and target.id.endswith(_METHODS) else []
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith(f"{_METHODS}.update"):
            tables = list(node.args)
        else:
            continue
        for table in tables:
            if isinstance(table, ast.Dict):
                yield from (str(key.value) for key in table.keys if isinstance(key, ast.Constant))

"""vLLM: flags of `vllm serve`, keys and methods of the speculative config, models that hand out hidden states."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping

from tools.engine_facts.source import (
    OPTIONAL,
    SWITCH,
    VALUE,
    Module,
    add_argument_calls,
    flag_name,
    flag_of,
    is_bool,
    taken,
    unpacked,
)
from tools.engine_facts.tables import Facts
from tools.engine_facts.wheels import Sources

PACKAGE = "vllm"
_ENGINE = ("vllm/engine/arg_utils.py",)
_ENTRYPOINTS = "vllm/entrypoints/"
_COMMAND = ("vllm/entrypoints/cli/serve.py",)
_MODELS = "vllm/model_executor/models/"
_CLASS = re.compile(r"^class\s+(?P<name>\w+)\s*\((?P<bases>[^()]*)\)", re.MULTILINE)
_SUPPORTS = "SupportsEagle3"
_QUANTIZATION = "vllm/model_executor/layers/quantization/__init__.py"
_METHODS = ("QuantizationMethods", "QUANTIZATION_METHODS")
_SET_BY_THE_ENGINE = frozenset(
    {
        "target_model_config",
        "target_parallel_config",
        "draft_model_config",
        "draft_parallel_config",
        "enable_chunked_prefill",
        "disable_log_stats",
    }
)
_PARSER = "vllm/utils/argparse_utils.py"
_INVERSES = {"--enable-": "--disable-", "--disable-": "--enable-"}


def read(sources: Sources) -> Facts:
    """Facts of one release.

    Raises:
        ValueError: the wheel has no such files, or they are built in another way than those known so far.
    """
    configs = Module.parse(text for name in sorted(_config_files(sources)) if (text := sources.text(name)))
    inverses = _INVERSES if "_inverse_prefixes" in (sources.text(_PARSER) or "") else {}
    facts: Facts = {
        "flags": {*_engine_flags(sources, configs, inverses), *_frontend_flags(sources, inverses)},
        "keys": set(),
        "choices": set(),
        "methods": set(),
        "eagle3Targets": set(_eagle3_targets(configs)),
        "eagle3Models": set(_eagle3_models(sources)),
        **model_facts(sources),
    }
    for name, node in configs.fields("SpeculativeConfig").items():
        if name in _SET_BY_THE_ENGINE or _set_later(node):
            continue
        annotation = _plain_type(node.annotation)
        facts["keys"].add((name, annotation))
        section, of = ("methods", "") if name == "method" else ("choices", name)
        for choice in configs.choices(node.annotation):
            facts[section].add((choice, "") if section == "methods" else (of, choice))
    if not facts["flags"] or not facts["keys"] or not facts["methods"]:
        raise ValueError(f"{sources.wheel.file} is built in a way that the reader does not know")
    return facts


def model_facts(sources: Sources) -> Facts:
    """Architectures that the release has a class for, and its quantisation methods."""
    registry = sources.text(f"{_MODELS}registry.py") or ""
    methods = ast.parse(sources.text(_QUANTIZATION) or "")
    return {
        "architectures": {(name, "") for name, _ in _registered(registry)},
        "quantizations": {(name, "") for name in _quantization_methods(methods)},
    }


def _quantization_methods(tree: ast.Module) -> Iterator[str]:
    """The texts of the list, which newer releases write as a literal type."""
    for node in ast.walk(tree):
        if not isinstance(node, (ast.Assign, ast.AnnAssign)) or node.value is None:
            continue
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        if isinstance(target, ast.Name) and target.id in _METHODS:
            yield from (
                part.value
                for part in ast.walk(node.value)
                if isinstance(part, ast.Constant) and isinstance(part.value, str)
            )


def _plain_type(node: ast.expr) -> str:
    """A type as text; older spellings of the same type read alike."""
    if isinstance(node, ast.Subscript):
        outer = ast.unparse(node.value)
        if outer == "Optional":
            return f"{_plain_type(node.slice)} | None"
        if outer == "SkipValidation":
            return _plain_type(node.slice)
    return ast.unparse(node)


def _config_files(sources: Sources) -> Iterator[str]:
    return (
        name
        for name in sources.names("vllm/config")
        if name.endswith(".py") and (name == "vllm/config.py" or name.startswith("vllm/config/"))
    )


def _texts(sources: Sources, names: tuple[str, ...]) -> Iterator[str]:
    return (text for name in names if (text := sources.text(name)) is not None)


def _set_later(node: ast.AnnAssign) -> bool:
    """Whether the field is no argument of the class: `field(init=False)` or a class variable."""
    if ast.unparse(node.annotation).startswith("ClassVar"):
        return True
    value = node.value
    return isinstance(value, ast.Call) and any(
        word.arg == "init" and isinstance(word.value, ast.Constant) and word.value.value is False
        for word in value.keywords
    )


def _engine_flags(sources: Sources, configs: Module, inverses: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Flags of the engine's arguments; what they take is the type of the config field that each is made from."""
    for tree in Module.parse(_texts(sources, (*_ENGINE, *_COMMAND))).trees:
        config_of = _config_classes(tree)
        for spellings, keywords, call in add_argument_calls(tree):
            said = taken(keywords)
            annotation = _field_type(call, config_of, configs)
            if said is not None:
                yield flag_of(spellings, *said, inverses)
            elif annotation is None:
                yield flag_of(spellings, VALUE)
            elif _takes_bool_or_text(annotation):
                yield flag_of(spellings, OPTIONAL)
            else:
                yield flag_of(spellings, SWITCH if is_bool(annotation) else VALUE, is_bool(annotation), inverses)


def _takes_bool_or_text(annotation: str) -> bool:
    return {part.strip() for part in annotation.split("|")} == {"bool", "str", "None"}


def _config_classes(tree: ast.Module) -> dict[str, str]:
    """Names that hold the keywords of a config class: `model_kwargs = get_kwargs(ModelConfig)`."""
    found = {}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and node.value.args):
            continue
        if ast.unparse(node.value.func) == "get_kwargs" and isinstance(node.targets[0], ast.Name):
            found[node.targets[0].id] = ast.unparse(node.value.args[0])
    return found


def _field_type(call: ast.Call, config_of: dict[str, str], configs: Module) -> str | None:
    source = unpacked(call)
    if not (isinstance(source, ast.Subscript) and isinstance(source.slice, ast.Constant)):
        return None
    field = configs.fields(config_of.get(ast.unparse(source.value), "")).get(str(source.slice.value))
    return ast.unparse(field.annotation) if field is not None else None


def _frontend_flags(sources: Sources, inverses: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Flags of the server: written out in old releases, made of the fields of a class in newer ones."""
    module = Module.parse(
        text
        for name in sources.names(_ENTRYPOINTS)
        if name.endswith("/cli_args.py") and "def make_arg_parser" in (text := sources.text(name) or "")
    )
    for tree in module.trees:
        for spellings, keywords, _ in add_argument_calls(tree):
            yield flag_of(spellings, *(taken(keywords) or (VALUE, False)), inverses)
    for name, node in module.fields("FrontendArgs").items():
        boolean = is_bool(ast.unparse(node.annotation))
        yield flag_of((flag_name(name),), SWITCH if boolean else VALUE, boolean, inverses)


def _eagle3_targets(configs: Module) -> Iterator[tuple[str, str]]:
    """The list of target model types that releases before 0.22 took EAGLE-3 for."""
    speculative = configs.classes.get("SpeculativeConfig")
    for node in ast.walk(speculative) if speculative is not None else ():
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and isinstance(node.value, ast.List):
            if node.targets[0].id in ("eagle3_target_supported", "aux_hidden_states_supported"):
                yield from ((str(item.value), "") for item in node.value.elts if isinstance(item, ast.Constant))
        elif (
            isinstance(node, ast.If)
            and "eagle3" in ast.unparse(node.test)
            and '"llama" not in' in ast.unparse(node.test).replace("'", '"')
        ):
            yield "llama", ""


def _eagle3_models(sources: Sources) -> Iterator[tuple[str, str]]:
    """Architectures whose class, or a class that it is made from, hands out the states that EAGLE-3 heads read."""
    bases: dict[str, set[str]] = {}
    for name in sources.names(_MODELS):
        for found in _CLASS.finditer(sources.text(name) or "" if name.endswith(".py") else ""):
            parts = (part.strip().rsplit(".", 1)[-1] for part in found["bases"].split(","))
            bases.setdefault(found["name"], set()).update(part for part in parts if part.isidentifier())
    supporting = {_SUPPORTS}
    while more := {name for name, parts in bases.items() if name not in supporting and parts & supporting}:
        supporting |= more
    for architecture, model in _registered(sources.text(f"{_MODELS}registry.py") or ""):
        if model in supporting:
            yield architecture, ""


def _registered(text: str) -> Iterator[tuple[str, str]]:
    """Architectures of the registry and the class of each: `"LlamaForCausalLM": ("llama", "LlamaForCausalLM")`."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Dict):
            continue
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and isinstance(value, ast.Tuple) and len(value.elts) == 2:
                model = value.elts[1]
                if isinstance(key.value, str) and isinstance(model, ast.Constant):
                    yield key.value, str(model.value)

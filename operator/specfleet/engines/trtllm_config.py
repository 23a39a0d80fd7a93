"""TensorRT-LLM's configuration file: `engine.config` read with limits, and the file of one pool written. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from importlib.resources import files
from typing import Any

import yaml
from jinja2 import StrictUndefined, Template
from jinja2.sandbox import ImmutableSandboxedEnvironment

from specfleet.api.findings import Finding, FindingReason, error
from specfleet.engines.trtllm_tables import OWNED_ANYWHERE, OWNED_CONFIG

PATH = "spec.engine.config"
MAX_DEPTH = 12
MAX_NODES = 4000
_TEMPLATE = "trtllm_config.yaml.j2"
_PLAIN = "tag:yaml.org,2002:"
_NAME = re.compile(r"[a-z][a-zA-Z0-9_]+")


class ConfigProblem(Exception):
    """Why the text of `engine.config` cannot be used, as a sentence."""


def read_config(text: str) -> dict[str, Any]:
    """The mapping in `engine.config`; {} for an empty text.

    It is read as the engine does (YAML 1.1), but for what could hide something or grow without bound.

    Raises:
        ConfigProblem: it is no YAML, no mapping, too deep, or holds anchors, tags, several documents, a key twice or
            values that are no JSON.
    """
    try:
        _check_events(text)
        node = yaml.compose(text, Loader=yaml.CSafeLoader)
        if node is None:
            return {}
        _check_keys(node)
        value = yaml.load(text, Loader=yaml.CSafeLoader)
    except yaml.YAMLError as problem:
        raise ConfigProblem(f"is no YAML: {_where(problem)}") from None
    except ValueError as problem:
        # The constructors of numbers and dates raise it.
        raise ConfigProblem(f"has a value that YAML cannot read: {problem}") from None
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise ConfigProblem(f"expected keys with values, such as 'kv_cache_config: {{...}}', found {_kind(value)}")
    _check_values(value, "")
    return value


def _check_events(text: str) -> None:
    """Before anything is built: no anchors and tags, and bounds on depth, size and documents."""
    depth = documents = 0
    for nodes, event in enumerate(yaml.parse(text, Loader=yaml.CSafeLoader)):
        at = f" (line {event.start_mark.line + 1})" if event.start_mark is not None else ""
        if isinstance(event, yaml.DocumentStartEvent):
            documents += 1
            if documents > 1:
                raise ConfigProblem(f"holds several documents{at}: write one")
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise ConfigProblem(f"has an anchor or an alias{at}: write the values out")
        tag = getattr(event, "tag", None)
        if tag is not None:
            raise ConfigProblem(f"has a tag {str(tag)[:40]!r}{at}: write plain values")
        if isinstance(event, (yaml.MappingStartEvent, yaml.SequenceStartEvent)):
            depth += 1
            if depth > MAX_DEPTH:
                raise ConfigProblem(f"is nested deeper than {MAX_DEPTH} levels{at}")
        elif isinstance(event, (yaml.MappingEndEvent, yaml.SequenceEndEvent)):
            depth -= 1
        if nodes >= MAX_NODES:
            raise ConfigProblem(f"has more than {MAX_NODES} parts")


def _check_keys(node: yaml.Node) -> None:
    """No key twice: the last one would win without a word."""
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            at = f"line {key.start_mark.line + 1}"
            if not isinstance(key, yaml.ScalarNode):
                raise ConfigProblem(f"has a key that is no text ({at})")
            if key.tag == f"{_PLAIN}merge":
                raise ConfigProblem(f"has a merge key '<<' ({at}): write the values out")
            if key.value in seen:
                raise ConfigProblem(f"has the key {key.value[:60]!r} twice ({at}): remove one")
            seen.add(key.value)
            _check_keys(value)
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            _check_keys(item)


def _check_values(value: Any, path: str) -> None:
    if isinstance(value, dict):
        for key, item in value.items():
            if isinstance(key, float) or not isinstance(key, (str, int)) or (not path and not isinstance(key, str)):
                raise ConfigProblem(f"has the key {str(key)[:60]!r} where a name is expected: put it in quotes")
            _check_values(item, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for item in value:
            _check_values(item, f"{path}[]")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ConfigProblem(f"has {value} at {path}: write a number")
    elif value is not None and not isinstance(value, (str, int, float, bool)):
        raise ConfigProblem(f"has {_kind(value)} at {path}: put it in quotes, or write a number")


def _kind(value: Any) -> str:
    if isinstance(value, list):
        return "a list"
    if isinstance(value, str):
        return "a text"
    if isinstance(value, (bool, int, float)):
        return f"{value!r}"
    return f"a {type(value).__name__}"


def _where(problem: yaml.YAMLError) -> str:
    mark = getattr(problem, "problem_mark", None)
    said = getattr(problem, "problem", None) or "it cannot be read"
    return f"{said}, line {mark.line + 1} column {mark.column + 1}" if mark is not None else str(said)


def config_findings(text: str) -> Iterator[Finding]:
    """What is wrong with `engine.config`: its form, and keys that specfleet owns, in any spelling."""
    try:
        config = read_config(text)
    except ConfigProblem as problem:
        yield error(FindingReason.INVALID_VALUE, PATH, f"engine.config {problem}")
        return
    for key in config:
        why = OWNED_CONFIG.get(_plain(key))
        if why is not None:
            yield error(FindingReason.OWNED_FLAG, f"{PATH}[{key}]", f"specfleet sets {_plain(key)}: {why}")
        else:
            yield from _nested(config[key], key)


def _plain(key: Any) -> str:
    return str(key).strip().lower().replace("-", "_")


def _nested(value: Any, path: str) -> Iterator[Finding]:
    if isinstance(value, dict):
        for key, item in value.items():
            if _plain(key) in OWNED_ANYWHERE:
                yield error(
                    FindingReason.OWNED_FLAG,
                    f"{PATH}[{path}.{key}]",
                    f"specfleet sets {_plain(key)}: {OWNED_CONFIG[_plain(key)]}",
                )
            else:
                yield from _nested(item, f"{path}.{key}")
    elif isinstance(value, list):
        for item in value:
            yield from _nested(item, path)


def config_text(own: Mapping[str, Any], speculative: Mapping[str, Any] | None, user: Mapping[str, Any]) -> str:
    """The file of one pool.

    Args:
        own: keys that specfleet sets, alike in both pools.
        speculative: the speculative config; None in baseline.
        user: what `engine.config` holds, without owned keys.
    """
    return _template().render(own=own, speculative=speculative, user=user)


@lru_cache(maxsize=1)
def _template() -> Template:
    environment = ImmutableSandboxedEnvironment(
        undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, autoescape=False
    )
    environment.filters["yaml"] = yaml_value
    environment.filters["yaml_key"] = yaml_key
    source = files("specfleet.engines").joinpath("templates", _TEMPLATE).read_text(encoding="utf-8")
    return environment.from_string(source)


def yaml_key(key: Any) -> str:
    """A key of a block: as it is where YAML can take it for nothing but text."""
    plain = isinstance(key, str) and _NAME.fullmatch(key) and yaml.safe_load(key) == key
    return str(key) if plain else yaml_value(key)


def yaml_value(value: Any) -> str:
    """A value on one line, so quoted that no text in it is read as anything but text."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{yaml_value(key)}: {yaml_value(item)}" for key, item in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(yaml_value(item) for item in value) + "]"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        dumped: str = yaml.safe_dump(value, default_style='"', allow_unicode=False, width=math.inf)
        return dumped.removesuffix("\n")
    if value is None or isinstance(value, (int, float)):
        plain: str = yaml.safe_dump(value)
        return plain.removesuffix("\n...\n")
    raise ValueError(f"a {type(value).__name__} has no place in the file")

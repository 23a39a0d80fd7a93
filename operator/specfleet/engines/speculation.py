"""Speculation as it stands in an engine's arguments, in whatever words. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specfleet.engines import vllm_retired
from specfleet.engines.flags import Flag, Given
from specfleet.engines.json_text import read_object, read_value

_SGLANG = "speculative-"
_SHOWN = 60


def vllm_speculation(given: Sequence[Given], problems: list[str]) -> dict[str, Any] | None:
    """The speculative config: as one JSON, in dotted parts, by short flags, or by the flags from before it.

    Args:
        problems: gets a sentence for what is not as the engine wants it.
    """
    config: dict[str, Any] | None = None
    dotted: dict[str, dict[str, Any]] = {}
    keys: dict[str, Any] = {}
    for one in given:
        name = flag_name(one)
        if name == "speculative-config" and one.member:
            _add_member(dotted.setdefault(one.spelling, {}), one.member, one.value or "")
        elif name == "speculative-config" and one.value:
            config, problem = read_object(one.value)
            if problem is not None or config is None:
                problems.append(f"--speculative-config is no JSON object: {problem or 'found ' + short(one.value)}")
        elif name in vllm_retired.SPECULATIVE_KEYS and one.value:
            keys[vllm_retired.SPECULATIVE_KEYS[name]] = _scalar(one.value)
        elif name in vllm_retired.SPECULATIVE_SWITCHES:
            keys[vllm_retired.SPECULATIVE_SWITCHES[name]] = (one.value or "true").lower() != "false"
    # Dotted keys become one more --speculative-config by spelling, behind all others; the last one counts.
    if len(dotted) + (config is not None) > 1:
        kept = f"{list(dotted)[-1]}. counts"
        problems.append(f"--speculative-config is given whole and in parts, or in two spellings: only {kept}")
    chosen = list(dotted.values())[-1] if dotted else config
    whole = {str(key).replace("-", "_"): value for key, value in (chosen or {}).items()} | keys
    if not chosen and not {"model", "method"} & set(whole):
        return None
    return _with_method(whole)


def sglang_speculation(last: Mapping[str, Given]) -> dict[str, Any] | None:
    """SGLang's flags of speculation without their prefix; None without an algorithm.

    Args:
        last: the last occurrence of each flag, by main name.
    """
    config: dict[str, Any] = {}
    for name, one in last.items():
        if name.startswith(_SGLANG):
            config[name.removeprefix(_SGLANG).replace("-", "_")] = True if one.value is None else _scalar(one.value)
    return config if config.get("algorithm") else None


def flag_name(given: Given) -> str:
    """The flag's main name, or the spelling of one that is none."""
    return given.flag.name if isinstance(given.flag, Flag) else given.spelling.lstrip("-")


def short(text: str) -> str:
    """A text in a sentence."""
    one_line = " ".join(text.split())
    return repr(one_line if len(one_line) <= _SHOWN else one_line[: _SHOWN - 3] + "...")


def _add_member(members: dict[str, Any], path: str, text: str) -> None:
    """Adds the value of a dotted key, `a.b` for nested ones and `a+` for entries of a list, as vLLM's parser does."""
    *parents, last = path.removesuffix("+").split(".")
    value = text.split(",") if path.endswith("+") else read_value(text)
    node = members
    for parent in parents:
        inner = node.get(parent)
        if not isinstance(inner, dict):
            inner = node[parent] = {}
        node = inner
    if isinstance(value, list) and isinstance(node.get(last), list):
        node[last] = [*node[last], *value]
    else:
        node[last] = value


def _with_method(config: dict[str, Any]) -> dict[str, Any]:
    """The method as vLLM infers it from the draft model's name; left out where the checkpoint itself decides."""
    if config.get("method"):
        return config
    model = str(config.get("model") or "").lower()
    if model in ("ngram", "[ngram]"):
        return {"method": "ngram"} | {key: value for key, value in config.items() if key != "model"}
    if "eagle3" in model:
        return {"method": "eagle3"} | config
    if "eagle-" in model:
        return {"method": "eagle"} | config
    return config


def _scalar(text: str) -> Any:
    value = read_value(text)
    return value if isinstance(value, (bool, int, float)) else text

"""The one draft of an adopted fleet, from the speculation of an engine that runs already. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from packaging.version import Version

from specfleet.api.v1alpha1 import EngineType
from specfleet.cli.adopting.scene import AdoptError
from specfleet.cli.adopting.side import Side
from specfleet.engines import vllm_retired
from specfleet.engines.sglang_tables import table

_WITHOUT_MODEL = frozenset({"NGram", "Suffix"})
LOOK_UP_TOKENS = 5
"""What vLLM takes for both look-up lengths where neither is given."""
_STEPPING = frozenset({"DraftModel", "EAGLE", "EAGLE3", "MTP"})
_BREADTH, _NGRAM_TOKENS, _MATCHES = 10, 12, (1, 12)
"""What SGLang takes for its n-gram tree where nothing is given: breadth, tokens with the root, and match lengths."""
_LONGEST_MATCH = "ngram_max_match_window_size"
_SUGGESTED_STEPS = 3


@dataclass
class Draft:
    """The one draft, as it is built.

    Args:
        speculated: whether the engine drafts already.
    """

    body: dict[str, Any]
    speculated: bool
    notes: list[str] = field(default_factory=list)


def draft_of(side: Side, release: Version) -> Draft:
    """The drafts as they were, else n-gram drafts as a suggestion. Whether they can be rendered the validator says.

    Raises:
        AdoptError: how it drafts cannot be seen in its arguments.
    """
    config = dict(side.read.speculative or {})
    if not config:
        note = (
            f"{side.name} does not speculate: n-gram drafts of 4 tokens are a suggestion, which needs no model. "
            "In Observe all its traffic stays in baseline; Enforce, or initial: Speculative, shows what they are worth"
        )
        return Draft({"name": "ngram", "mode": "NGram", "tokens": 4}, speculated=False, notes=[note])
    return _sglang(side, config, release) if side.engine is EngineType.SGLANG else _vllm(side, config)


def _vllm(side: Side, config: dict[str, Any]) -> Draft:
    mode = side.read.mode
    if mode is None:
        raise AdoptError(
            f"{side.name} drafts with {config.get('model') or config.get('method')}, and its own configuration decides "
            "how: write method into --speculative-config, or leave out --split, and it is adopted as it runs"
        )
    draft = Draft({"name": mode.lower(), "mode": mode}, speculated=True)
    if config.pop("method", None) == "ngram_gpu":
        draft.notes.append("method ngram_gpu: rendered as ngram, which drafts the same on the CPU")
    model = config.pop("model", None)
    if model is not None and mode not in _WITHOUT_MODEL and model != side.read.model:
        draft.body["model"] = model
        if config.get("revision") is not None:
            draft.body["revision"] = config.pop("revision")
    tokens = config.pop("num_speculative_tokens", None)
    if tokens is not None:
        draft.body["tokens"] = tokens
    longest, shortest = config.pop("prompt_lookup_max", None), config.pop("prompt_lookup_min", None)
    if mode == "NGram":
        draft.body["ngram"] = {
            "minMatch": shortest or longest or LOOK_UP_TOKENS,
            "maxMatch": longest or shortest or LOOK_UP_TOKENS,
        }
    arguments = {}
    for key, value in config.items():
        if key in vllm_retired.GONE_KEYS:
            draft.notes.append(f"{key} of the speculative config: {vllm_retired.GONE_KEYS[key]}")
        else:
            arguments[key] = value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))
    if arguments:
        draft.body["args"] = arguments
    return draft


def _sglang(side: Side, config: dict[str, Any], release: Version) -> Draft:
    mode = side.read.mode
    if mode is None:
        raise AdoptError(
            f"{side.name} drafts with --speculative-algorithm {config.get('algorithm')}, which specfleet does not "
            "render: leave out --split, and it is adopted as it runs"
        )
    model = config.pop("draft_model_path", None)
    notes = []
    if mode == "EAGLE" and model is None:
        mode = "MTP"
        notes.append("EAGLE without a draft model drafts with the target's own layers: that is mode MTP")
    draft = Draft({"name": mode.lower(), "mode": mode}, speculated=True, notes=notes)
    del config["algorithm"]
    if model is not None:
        draft.body["model"] = model
    revision = config.pop("draft_model_revision", None)
    if revision is not None and model is not None:
        draft.body["revision"] = str(revision)
    if mode == "NGram":
        _ngram(draft, config, release)
    elif mode in _STEPPING:
        _steps(draft, config)
    else:
        _blocks(side, draft, config)
    arguments = {f"speculative-{key.replace('_', '-')}": _text(value) for key, value in sorted(config.items())}
    if arguments:
        draft.body["args"] = arguments
    return draft


def _steps(draft: Draft, config: dict[str, Any]) -> None:
    """A chain, or a tree as it was; without figures the engine chooses by the model's architecture, unseen here."""
    wide = config.get("eagle_topk")
    steps, size = config.pop("num_steps", None), config.get("num_draft_tokens")
    if wide in (None, 1):
        config.pop("eagle_topk", None)
        config.pop("num_draft_tokens", None)
    if steps is None:
        steps = size - 1 if isinstance(size, int) and wide in (None, 1) else _SUGGESTED_STEPS
        if size is None:
            draft.notes.append(
                "how many tokens are drafted is left to the engine, which chooses by architecture, often a tree: a "
                f"chain of {steps} is written; see the engine's log for its own choice"
            )
    draft.body["tokens"] = steps


def _ngram(draft: Draft, config: dict[str, Any], release: Version) -> None:
    """The engine's own default is a tree, which specfleet's is not: it is written out."""
    windows = table().knows(f"speculative-{_LONGEST_MATCH.replace('_', '-')}", table().nearest(release))
    longest = config.pop(_LONGEST_MATCH, _MATCHES[1])
    shortest = config.pop("ngram_min_match_window_size", _MATCHES[0])
    if windows:
        draft.body["ngram"] = {"minMatch": shortest, "maxMatch": longest}
    size = config.pop("num_draft_tokens", longest if windows else _NGRAM_TOKENS)
    draft.body["tokens"] = max(1, size - 1)
    config.setdefault("ngram_max_bfs_breadth", _BREADTH)
    config.setdefault("ngram_min_bfs_breadth", 1)


def _blocks(side: Side, draft: Draft, config: dict[str, Any]) -> None:
    """DFlash drafts a block at once; its length is the checkpoint's where no flag says."""
    block, size = config.pop("dflash_block_size", None), config.pop("num_draft_tokens", None)
    known = block or size
    if not isinstance(known, int):
        raise AdoptError(
            f"{side.name} drafts as many tokens as the checkpoint's config.json says, which cannot be seen here: write "
            "--speculative-num-draft-tokens into its arguments, or leave out --split"
        )
    draft.body["tokens"] = max(1, known - 1)
    for key in ("num_steps", "eagle_topk"):
        config.pop(key, None)


def _text(value: object) -> str:
    if value is True:
        return ""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))

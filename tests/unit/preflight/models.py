"""Tiny checkpoints for preflight tests: real file formats, no weights worth the name."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specfleet.api.v1alpha1 import DraftMode, EngineType
from specfleet.preflight.job import opener
from specfleet.preflight.reading import run_preflight
from specfleet.preflight.request import ModelRef, PreflightRequest
from specfleet.preflight.verdict import Verdict

Body = dict[str, Any]
CONFIG: Body = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "vocab_size": 8,
    "max_position_embeddings": 32768,
    "torch_dtype": "bfloat16",
}
VOCABULARY = {"a": 0, "b": 1, "c": 2, "ab": 3, "bc": 4}
SPECIAL = {"<s>": 5, "</s>": 6, "<pad>": 7}
MTP = {"num_nextn_predict_layers": 1}


def tokenizer(vocabulary: Body | None = None, special: Body | None = None, **more: Any) -> Body:
    """The content of a tokenizer.json."""
    special = SPECIAL if special is None else special
    return {
        "added_tokens": [{"id": number, "content": token, "special": True} for token, number in special.items()],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "ByteLevel"},
        "model": {"type": "BPE", "vocab": VOCABULARY if vocabulary is None else vocabulary, "merges": [["a", "b"]]},
        **more,
    }


def safetensors(shapes: dict[str, list[int]]) -> bytes:
    """A whole file with these tensors in bf16, all zero."""
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 2
        for part in shape:
            size *= part
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + bytes(at)


def write(
    directory: Path,
    config: Body | bytes | None = None,
    tokens: Body | None = None,
    tensors: dict[str, list[int]] | None = None,
    files: Mapping[str, Body | bytes] | None = None,
) -> Path:
    """A checkpoint; `tokens` is its tokenizer.json, `files` are others by name."""
    directory.mkdir(parents=True, exist_ok=True)
    contents: dict[str, Body | bytes] = dict(files or {})
    contents["config.json"] = CONFIG if config is None else config
    if tokens is not None:
        contents["tokenizer.json"] = tokens
    if tensors is not None:
        contents["model.safetensors"] = safetensors(tensors)
    for name, content in contents.items():
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        (directory / name).write_bytes(data)
    return directory


def request(mode: DraftMode = DraftMode.DRAFT_MODEL, **changes: Any) -> PreflightRequest:
    """Of vLLM 0.32.0, target team/target, draft team/draft."""
    given: dict[str, Any] = {
        "engine": EngineType.VLLM,
        "release": "0.32.0",
        "mode": mode,
        "tokens": 4,
        "served_tokens": None,
        "target": ModelRef("team/target"),
        "draft": ModelRef("team/draft"),
    }
    return PreflightRequest(**(given | changes))


def verdict(models: Path, asked: PreflightRequest) -> Verdict:
    """What the checks say of the checkpoints below a directory."""
    return run_preflight(asked, opener({}, models))

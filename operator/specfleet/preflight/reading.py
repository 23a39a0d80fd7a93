"""Reads a model's small files from wherever it is, each within limits; problems become findings."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar

from specfleet.api.v1alpha1 import DraftMode
from specfleet.preflight.bounded import (
    MOST_CONFIG_BYTES,
    MOST_INDEX_BYTES,
    MOST_TOKENIZER_BYTES,
    FileProblem,
    parse_object,
)
from specfleet.preflight.checks import judge
from specfleet.preflight.model import Model
from specfleet.preflight.request import ModelRef, PreflightRequest
from specfleet.preflight.room import room_findings
from specfleet.preflight.tensors import PREFIX_BYTES, Tensor, Tensors, header_length, parse_header, parse_index
from specfleet.preflight.tokenizer import Tokenizer, parse_tokenizer
from specfleet.preflight.verdict import Check, Level, PreflightFinding, Verdict

MOST_SHARDS = 64
_INDEX = "model.safetensors.index.json"
_SPECIAL = ("special_tokens_map.json", "tokenizer_config.json")
_MODELOPT = "hf_quant_config.json"
_RAW = ("tokenizer.model", "tekken.json", "tiktoken.model", "qwen.tiktoken", "vocab.json", "vocab.txt", "spiece.model")
T = TypeVar("T")


class InaccessibleError(Exception):
    """A model or a file of it is not to be had; the message is a sentence that says why, and what to do."""


class Source(Protocol):
    """Files of one model."""

    @property
    def commit(self) -> str | None:
        """Of the revision that is read, where there is such a thing."""

    def names(self) -> frozenset[str]:
        """Files at the top of the model. Raises InaccessibleError."""

    def read(self, name: str, most_bytes: int) -> bytes:
        """A whole file. Raises InaccessibleError; FileProblem where it is larger than `most_bytes`."""

    def piece(self, name: str, start: int, length: int) -> bytes:
        """Up to `length` bytes from `start`. Raises InaccessibleError."""


@dataclass
class _Reading:
    source: Source
    ref: ModelRef
    role: str
    findings: list[PreflightFinding] = field(default_factory=list)

    @property
    def label(self) -> str:
        return f"the {self.role} {self.ref.model}"

    def attempt(self, make: Callable[[], T | None]) -> T | None:
        """The result; None with a finding where a file is bad or not to be had."""
        try:
            return make()
        except FileProblem as problem:
            self.findings.append(PreflightFinding(Check.FORMAT, Level.ERROR, str(problem)))
        except InaccessibleError as problem:
            self.findings.append(PreflightFinding(Check.ACCESS, Level.UNKNOWN, str(problem)))
        return None

    def parsed(self, name: str, most_bytes: int = MOST_CONFIG_BYTES) -> Mapping[str, Any]:
        return parse_object(self.source.read(name, most_bytes), f"{name} of {self.label}", most_bytes)

    def tokenizer(self, names: frozenset[str]) -> Tokenizer | None:
        raw = [name for name in _RAW if name in names]
        if "tokenizer.json" not in names and not raw:
            return None
        document = self.parsed("tokenizer.json", MOST_TOKENIZER_BYTES) if "tokenizer.json" in names else None
        configs = tuple(self.parsed(name) for name in _SPECIAL if name in names)
        # With a tokenizer.json the others say nothing more.
        data = {} if document is not None else {name: self.source.read(name, MOST_TOKENIZER_BYTES) for name in raw}
        return parse_tokenizer(document, configs, data, self.label)

    def tensors(self, names: frozenset[str], *, headers: bool) -> Tensors | None:
        listed = Tensors()
        files: tuple[str, ...] = tuple(sorted(name for name in names if name.endswith(".safetensors")))
        if _INDEX in names:
            listed, files = parse_index(self.parsed(_INDEX, MOST_INDEX_BYTES), f"{_INDEX} of {self.label}")
            absent = [name for name in files if name not in names]
            if absent:
                raise FileProblem(
                    f"{_INDEX} of {self.label} names {absent[0]}, which is not there ({len(absent)} such)"
                )
            if not headers:
                return listed
        if not files:
            return None
        headed = [self._header(file) for file in files[:MOST_SHARDS]]
        found: dict[str, Tensor] = dict(listed.by_name)
        for one in headed:
            found.update(one.by_name)
        whole = sum(one.total_bytes or 0 for one in headed) if len(headed) == len(files) else None
        return Tensors(found, listed.total_bytes if listed.total_bytes is not None else whole)

    def _header(self, file: str) -> Tensors:
        what = f"{file} of {self.label}"
        length = header_length(self.source.piece(file, 0, PREFIX_BYTES), what)
        return parse_header(self.source.piece(file, PREFIX_BYTES, length), length, what)


def read_model(source: Source, ref: ModelRef, role: str, *, tensors: bool, headers: bool, tokenizer: bool) -> Model:
    """What the files of one model tell. Never raises for what is in them.

    Args:
        role: `target` or `draft`.
        tensors: read which tensors there are; with `headers` also where an index names them, so that shapes are known.
    """
    reading = _Reading(source, ref, role)
    names = reading.attempt(source.names)
    if names is None:
        return Model(role, ref, findings=tuple(reading.findings))
    config = None
    if "config.json" in names:
        config = reading.attempt(lambda: reading.parsed("config.json"))
    else:
        reading.findings.append(
            PreflightFinding(Check.FILES, Level.UNKNOWN, f"{reading.label} has no config.json: nothing can be compared")
        )
    if config is not None and "quantization_config" not in config and _MODELOPT in names:
        config = _with_modelopt(config, reading.attempt(lambda: reading.parsed(_MODELOPT)))
    generation = None
    if role == "target" and "generation_config.json" in names:
        generation = reading.attempt(lambda: reading.parsed("generation_config.json"))
    return Model(
        role,
        ref,
        config,
        generation,
        reading.attempt(lambda: reading.tokenizer(names)) if tokenizer else None,
        reading.attempt(lambda: reading.tensors(names, headers=headers)) if tensors else None,
        source.commit,
        tuple(reading.findings),
    )


def _with_modelopt(config: Mapping[str, Any], said: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """With the quantisation of a ModelOpt checkpoint, which older ones have in a file of its own: engines read both."""
    own = (said or {}).get("quantization")
    return {**config, "quantization_config": {"quant_method": "modelopt", **own}} if isinstance(own, dict) else config


def run_preflight(request: PreflightRequest, open_source: Callable[[ModelRef, str], Source]) -> Verdict:
    """Read what the mode needs of both models, and judge.

    Args:
        open_source: the files of a model, called `target` or `draft`.
    """
    heads = request.mode is not DraftMode.DRAFT_MODEL
    target = read_model(
        open_source(request.target, "target"),
        request.target,
        "target",
        tensors=True,
        headers=False,
        tokenizer=request.draft is not None and not request.heterogeneous_vocab,
    )
    draft = None
    if request.draft is not None:
        draft = read_model(
            open_source(request.draft, "draft"),
            request.draft,
            "draft",
            tensors=heads and request.mode is not DraftMode.MTP,
            headers=True,
            tokenizer=request.mode is not DraftMode.MTP and not request.heterogeneous_vocab,
        )
    found = replace(judge(request, target, draft), weight_mebibytes=_weight(target, draft))
    if request.room is None:
        return found
    said, figures = room_findings(request.room, target, draft)
    return replace(found, findings=Verdict.of([*found.findings, *said]).findings, plan=figures)


def _weight(target: Model, draft: Model | None) -> int | None:
    """MiB that an engine pod loads at most; None where the target does not tell."""
    if target.tensors is None or target.tensors.total_bytes is None:
        return None
    more = draft.tensors.total_bytes if draft is not None and draft.tensors is not None else None
    return (target.tensors.total_bytes + (more or 0)) >> 20

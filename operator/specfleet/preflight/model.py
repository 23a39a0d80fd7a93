"""A model as its files tell, and typed access to a config.json that anybody may have written. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from specfleet.preflight.bounded import kind_name, shown
from specfleet.preflight.request import ModelRef
from specfleet.preflight.tensors import Tensors
from specfleet.preflight.tokenizer import Tokenizer
from specfleet.preflight.verdict import Check, Level, PreflightFinding

_MOST_WHOLE = 2**40
_LANGUAGE_PARTS = ("text_config", "llm_config", "language_config")


@dataclass(frozen=True)
class Model:
    """What was read of one model.

    Attributes:
        role: `target` or `draft`.
        config: config.json; None where it could not be read.
        generation: generation_config.json, where there is one.
        tensors: None where no safetensors file or index was found.
        commit: of the Hub's revision.
        findings: what could not be read, and why.
    """

    role: str
    ref: ModelRef
    config: Mapping[str, Any] | None = None
    generation: Mapping[str, Any] | None = None
    tokenizer: Tokenizer | None = None
    tensors: Tensors | None = None
    commit: str | None = None
    findings: tuple[PreflightFinding, ...] = ()

    def __str__(self) -> str:
        return f"{self.role} {self.ref.model}"


@dataclass
class Fields:
    """Members of a model's config.json; one of a wrong type is noted in `findings`, once, and read as None."""

    model: Model
    findings: list[PreflightFinding] = field(default_factory=list)

    @property
    def top(self) -> Mapping[str, Any]:
        """The whole config."""
        return self.model.config or {}

    @property
    def language(self) -> Mapping[str, Any]:
        """The part that describes the language model, of a multimodal one too."""
        for name in _LANGUAGE_PARTS:
            part = self.top.get(name)
            if isinstance(part, dict):
                return part
        return self.top

    def whole(self, *names: str) -> int | None:
        """The first of these members that is there, a whole number from 0 on."""
        for part in (self.language, self.top):
            for name in names:
                value = part.get(name)
                if value is None:
                    continue
                if type(value) is int and 0 <= value < _MOST_WHOLE:
                    return value
                self._malformed(name, "a whole number", value)
                return None
        return None

    def text(self, *names: str) -> str | None:
        """The first of these members that is there, as text."""
        for part in (self.language, self.top):
            for name in names:
                value = part.get(name)
                if isinstance(value, str):
                    return value
                if value is not None:
                    self._malformed(name, "text", value)
                    return None
        return None

    def part(self, name: str) -> Mapping[str, Any]:
        """A member that is an object; empty where there is none."""
        for part in (self.language, self.top):
            value = part.get(name)
            if isinstance(value, dict):
                return value
            if value is not None:
                self._malformed(name, "an object", value)
                return {}
        return {}

    def texts(self, name: str) -> tuple[str, ...]:
        """A member that is a list of texts, of the whole config."""
        value = self.top.get(name)
        if value is None:
            return ()
        if isinstance(value, list) and all(isinstance(one, str) for one in value):
            return tuple(value)
        self._malformed(name, "a list of texts", value)
        return ()

    def numbers(self, value: object, name: str) -> tuple[int, ...]:
        """A list of whole numbers that stands somewhere in the config under this name."""
        if value is None:
            return ()
        if isinstance(value, list) and all(type(one) is int and 0 <= one < _MOST_WHOLE for one in value):
            return tuple(value)
        self._malformed(name, "a list of whole numbers", value)
        return ()

    def _malformed(self, name: str, expected: str, value: object) -> None:
        message = (
            f"{name} in config.json of the {self.model} should be {expected}, found {kind_name(value)}: {shown(value)}"
        )
        found = PreflightFinding(Check.FORMAT, Level.ERROR, message)
        if found not in self.findings:
            self.findings.append(found)

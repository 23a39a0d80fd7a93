"""Typed reading of a model's config.json, which somebody else wrote. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MOST = 1 << 40
"""The largest number that any field may hold: far above what a model has, and far below what makes sums slow."""
_SHOWN = 40


class SizingProblem(ValueError):
    """What keeps the plan from being made: expected, found, what to do, in one sentence."""


class Config:
    """One object of a config.json.

    Args:
        fields: as parsed from JSON.
        where: what to call it in a message.
        defaults: values of fields that the model's own library fills in where the file leaves them out.
    """

    def __init__(
        self, fields: Mapping[str, Any], where: str = "config.json", defaults: Mapping[str, Any] | None = None
    ) -> None:
        self.fields = fields
        self.where = where
        self.defaults = defaults or {}

    def given(self, name: str) -> Any:
        """The value as it stands, or the default; None where there is neither."""
        value = self.fields.get(name)
        return self.defaults.get(name) if value is None else value

    def whole(self, name: str, *, least: int = 1) -> int:
        """A whole number. Raises SizingProblem where it is missing or none."""
        value = self.optional_whole(name, least=least)
        if value is None:
            raise SizingProblem(f"{self.where} has no {name}: is it the config.json of a language model?")
        return value

    def optional_whole(self, name: str, *, least: int = 1) -> int | None:
        """A whole number, or None where there is none. Raises SizingProblem for anything else."""
        value = self.given(name)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST:
            raise self.wrong(name, f"a whole number from {least}", value)
        return value

    def first_whole(self, *names: str) -> int | None:
        """The first of several spellings that is there."""
        return next((value for value in (self.optional_whole(name, least=0) for name in names) if value), None)

    def flag(self, name: str, otherwise: bool) -> bool:
        """True or false."""
        value = self.given(name)
        if value is None:
            return otherwise
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false", value)
        return value

    def text(self, name: str) -> str | None:
        """A text, or None."""
        value = self.given(name)
        if value is not None and not isinstance(value, str):
            raise self.wrong(name, "a text", value)
        return value

    def items(self, name: str, kind: type, length: int | None = None) -> list[Any] | None:
        """A list of one type, or None. Raises SizingProblem where the length is not the one expected."""
        value = self.given(name)
        if value is None:
            return None
        if not isinstance(value, list) or not all(
            isinstance(item, kind) and not (kind is int and isinstance(item, bool)) for item in value
        ):
            raise self.wrong(name, f"a list of {kind.__name__}", value)
        if length is not None and len(value) != length:
            raise SizingProblem(
                f"{self.where}: {name} has {len(value)} entries, and the model {length} layers: the file contradicts "
                "itself, take it from the model's repository again"
            )
        return value

    def inner(self, name: str) -> Config | None:
        """An object inside, or None."""
        value = self.given(name)
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise self.wrong(name, "an object", value)
        return Config(value, f"{self.where}: {name}")

    def wrong(self, name: str, expected: str, found: Any) -> SizingProblem:
        """The problem of a field that is not what it should be."""
        return SizingProblem(f"{self.where}: expected {name} to be {expected}, found {shown(found)}")


def shown(value: Any) -> str:
    """A value from outside, escaped and shortened for a sentence."""
    if isinstance(value, (dict, list)):
        return f"{'an object' if isinstance(value, dict) else 'a list'} with {len(value)} entries"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > MOST:
        return "a number beyond all models"
    text = ascii(value)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 3]}..."

"""What every API model shares: camelCase on the wire, frozen values, unknown keys refused, CEL rules carried along."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints
from pydantic.alias_generators import to_camel


class Model(BaseModel):
    """Base of all API objects. Attributes are snake_case, JSON keys camelCase.

    Validation is strict: enums come as their text only from JSON, so validate with `model_validate_json`.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        extra="forbid",
        frozen=True,
        strict=True,
    )


@dataclass(frozen=True)
class Rule:
    """A CEL rule of the generated CRD. `message` says what to write instead."""

    rule: str
    message: str
    field_path: str | None = None

    def as_schema(self) -> dict[str, str]:
        """The entry of `x-kubernetes-validations`."""
        entry = {"rule": self.rule, "message": self.message}
        if self.field_path is not None:
            entry["fieldPath"] = self.field_path
        return entry


def rules(*items: Rule) -> dict[str, Any]:
    """`json_schema_extra` that puts CEL rules on a field or model."""
    return {"x-kubernetes-validations": [item.as_schema() for item in items]}


DNS_LABEL = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
DURATION = r"^([0-9]+(ms|s|m|h))+$"
_DURATION_PART = re.compile(r"([0-9]+)(ms|s|m|h)")
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_LONGEST_SECONDS = 100 * 365.25 * 24 * 3600
_QUANTITY = re.compile(r"^([0-9]+)(|k|M|G|Ki|Mi|Gi)$")
_QUANTITY_FACTOR = {
    "": 1,
    "k": 1000,
    "M": 1000**2,
    "G": 1000**3,
    "Ki": 1024,
    "Mi": 1024**2,
    "Gi": 1024**3,
}

ShortName = Annotated[str, StringConstraints(pattern=DNS_LABEL, min_length=1, max_length=16)]
Duration = Annotated[str, StringConstraints(pattern=DURATION, max_length=32)]
Percent = Annotated[int, Field(ge=0, le=100)]
DecimalText = Annotated[str, StringConstraints(pattern=r"^[0-9]{1,3}(\.[0-9]{1,4})?$")]
ByteQuantity = Annotated[
    str, StringConstraints(pattern=r"^([1-9][0-9]{0,8}|[1-9][0-9]{0,5}(k|Ki)|[1-9][0-9]{0,2}(M|Mi)|1(G|Gi))$")
]
HeaderName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9!#$%&'*+.^_`|~-]+$", min_length=1, max_length=128)]


def duration(text: str) -> timedelta:
    """The length of a duration such as `10m` or `1h30m`. Raises ValueError when it is none or longer than a century."""
    if not re.fullmatch(DURATION, text):
        raise ValueError(f"expected a duration such as 60s or 1h30m, found {text!r}")
    seconds = sum(int(n) * _UNIT_SECONDS[unit] for n, unit in _DURATION_PART.findall(text))
    if seconds > _LONGEST_SECONDS:
        raise ValueError(f"expected a duration such as 60s or 1h30m, found {text!r}, which is longer than 100 years")
    return timedelta(seconds=seconds)


def quantity_bytes(text: str) -> int:
    """Bytes of a quantity such as `16Mi`. Raises ValueError when it is not one."""
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise ValueError(f"expected bytes such as 16Mi, found {text!r}")
    return int(match.group(1)) * _QUANTITY_FACTOR[match.group(2)]

"""Structural openAPIV3Schema of the API models. Pure.

pydantic writes JSON Schema; the API server takes only a structural subset of OpenAPI v3: no references, no titles, no
`anyOf` with null, no `additionalProperties` beside `properties`, integers with a format.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from specfleet.api.base import Rule
from specfleet.api.status import SpecDeploymentStatus
from specfleet.api.v1alpha1 import KIND, MAX_NAME, SpecDeploymentSpec

NAME_RULES = (
    Rule(
        f"self.metadata.name.size() <= {MAX_NAME}",
        f"metadata.name must have at most {MAX_NAME} characters, since names of pods and services are built from it",
    ),
    Rule(
        "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')",
        "metadata.name must be a DNS label that begins with a letter (a-z, 0-9, '-'): it is the name of a Service",
    ),
    Rule(
        "!has(self.spec.pools.external) || "
        "((!has(self.spec.pools.external.speculative) || self.spec.pools.external.speculative.service != "
        "self.metadata.name) && (!has(self.spec.pools.external.baseline) || "
        "self.spec.pools.external.baseline.service != self.metadata.name))",
        "the router's own Service has the SpecDeployment's name, so that it would send requests to itself: give the "
        "SpecDeployment another metadata.name than an external Service",
    ),
)

_KEPT = (
    "type",
    "format",
    "description",
    "default",
    "enum",
    "pattern",
    "minLength",
    "maxLength",
    "minimum",
    "maximum",
    "minItems",
    "maxItems",
    "maxProperties",
    "required",
)


class _WithDefaults(GenerateJsonSchema):
    """Shows defaults that a factory makes, and leaves out those that say nothing (null, empty)."""

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        inner = self.generate_inner(schema["schema"])
        factory = schema.get("default_factory")
        value = factory() if factory is not None else schema.get("default")  # type: ignore[call-arg]
        if value is None or value in ("", [], {}):
            return inner
        plain = _plain(value)
        return inner if plain == {} else {"allOf": [inner], "default": plain}


def _plain(value: Any) -> Any:
    """The JSON of a default, written out: the API server checks rules on it before it fills in inner defaults."""
    if isinstance(value, BaseModel):
        shown = {name: _plain(getattr(value, attribute)) for attribute, name in _wire_names(type(value)).items()}
        return {name: item for name, item in shown.items() if item is not None and item not in ("", [], {})}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.value if isinstance(value, Enum) else value


def _wire_names(model: type[BaseModel]) -> dict[str, str]:
    return {attribute: field.alias or attribute for attribute, field in model.model_fields.items()}


def structural(model: type[BaseModel]) -> dict[str, Any]:
    """The structural schema of one model, with descriptions, defaults and `x-kubernetes-*` keys.

    Raises:
        ValueError: the model has something that a structural schema cannot say.
    """
    document = model.model_json_schema(by_alias=True, mode="validation", schema_generator=_WithDefaults)
    return _node(document, document.get("$defs", {}), model.__name__)


def _node(node: Mapping[str, Any], definitions: Mapping[str, Any], path: str) -> dict[str, Any]:
    flat = _flatten(node, definitions, path)
    result = {key: flat[key] for key in _KEPT if key in flat}
    result |= {key: value for key, value in flat.items() if key.startswith("x-kubernetes-")}
    if "const" in flat:
        result |= {"type": "string", "enum": [flat["const"]]}
    if "description" in result:
        result["description"] = " ".join(result["description"].split())
    if result.get("type") == "integer":
        result["format"] = "int64" if path.endswith("eneration") else "int32"
    if result.get("type") == "number":
        raise ValueError(f"{path}: floats have no place in the API; use a percent or decimal text")
    if "items" in flat:
        result["items"] = _node(flat["items"], definitions, f"{path}[]")
        if "maxItems" not in result:
            raise ValueError(f"{path}: a list needs max_length")
    properties = flat.get("properties")
    if properties:
        result["properties"] = {name: _node(sub, definitions, f"{path}.{name}") for name, sub in properties.items()}
    additional = flat.get("additionalProperties")
    if isinstance(additional, Mapping) and additional:
        result["additionalProperties"] = _node(additional, definitions, f"{path}{{}}")
        if "maxProperties" not in result:
            raise ValueError(f"{path}: a map needs max_length")
    if "type" not in result:
        raise ValueError(f"{path}: no type, found {dict(node)}")
    return result


def _flatten(node: Mapping[str, Any], definitions: Mapping[str, Any], path: str) -> dict[str, Any]:
    """References, `allOf` of one and `anyOf` with null are resolved; what stands nearer to the field wins."""
    flat = dict(node)
    while True:
        if "$ref" in flat:
            inner = definitions[flat.pop("$ref").rsplit("/", 1)[1]]
        elif "allOf" in flat:
            (inner,) = flat.pop("allOf")
        elif "anyOf" in flat:
            choices = [choice for choice in flat.pop("anyOf") if choice.get("type") != "null"]
            if len(choices) != 1:
                raise ValueError(f"{path}: a field has one type, found {choices}")
            inner = choices[0]
        else:
            return flat
        checks = "x-kubernetes-validations"
        merged = {**inner, **flat}
        if checks in inner and checks in flat:
            merged[checks] = [*inner[checks], *flat[checks]]
        flat = merged


def object_schema() -> dict[str, Any]:
    """The openAPIV3Schema of a SpecDeployment."""
    status = structural(SpecDeploymentStatus)
    status["default"] = {"observedGeneration": -1}
    return {
        "type": "object",
        "description": f"A {KIND} serves one model from two pools, one with speculation and one without, and moves "
        "each route of its traffic to the pool that serves it faster.",
        "required": ["spec"],
        "properties": {
            "apiVersion": {"type": "string", "description": "Version of this schema: specfleet.dev/v1alpha1."},
            "kind": {"type": "string", "description": f"{KIND}."},
            "metadata": {"type": "object"},
            "spec": structural(SpecDeploymentSpec),
            "status": status,
        },
        "x-kubernetes-validations": [rule.as_schema() for rule in NAME_RULES],
    }

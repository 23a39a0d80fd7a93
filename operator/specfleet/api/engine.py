"""SpecDeployment v1alpha1: `spec.engine`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field, StringConstraints

from specfleet.api.base import Model, Rule, rules


class EngineType(StrEnum):
    """Serving engines."""

    VLLM = "vLLM"
    SGLANG = "SGLang"
    TENSORRTLLM = "TensorRTLLM"


ObjectName = Annotated[str, Field(min_length=1, max_length=253)]
FlagName = Annotated[str, StringConstraints(min_length=1, max_length=128)]
FlagValue = Annotated[str, Field(max_length=4096)]


class KeySelector(Model):
    """A key of a Secret or ConfigMap in the same namespace."""

    name: ObjectName = Field(description="Name of the object.")
    key: ObjectName = Field(description="Key in its data.")
    optional: bool | None = Field(None, description="Whether the container starts without it.")


class FieldSelector(Model):
    """A field of the pod, by the downward API."""

    api_version: Annotated[str, Field(max_length=64)] | None = Field(None, description="Version of the path; v1.")
    field_path: Annotated[str, Field(min_length=1, max_length=253)] = Field(description="Such as status.podIP.")


class ResourceFieldSelector(Model):
    """A container's request or limit, by the downward API."""

    container_name: Annotated[str, Field(max_length=63)] | None = Field(None, description="Default: the engine.")
    resource: Annotated[str, Field(min_length=1, max_length=253)] = Field(description="Such as limits.memory.")
    divisor: Annotated[str, Field(max_length=32)] | None = Field(None, description="Unit of the value, such as 1Mi.")


class EnvVarSource(Model):
    """Where a variable's value comes from, as in core/v1; exactly one."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "[has(self.secretKeyRef), has(self.configMapKeyRef), has(self.fieldRef), has(self.resourceFieldRef)]"
                ".filter(x, x).size() == 1",
                "write exactly one of secretKeyRef, configMapKeyRef, fieldRef and resourceFieldRef",
            )
        )
    )
    secret_key_ref: KeySelector | None = None
    config_map_key_ref: KeySelector | None = None
    field_ref: FieldSelector | None = None
    resource_field_ref: ResourceFieldSelector | None = None


class EnvVar(Model):
    """An environment variable, as in core/v1."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule("!(has(self.value) && has(self.valueFrom))", "write value or valueFrom, not both of them")
        )
    )
    name: ObjectName = Field(description="Name of the variable.")
    value: Annotated[str | None, Field(max_length=32768, description="Its text.")] = None
    value_from: EnvVarSource | None = Field(None, description="Where its value comes from instead.")


class Engine(Model):
    """The serving engine, alike in both pools."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "!has(self.config) || self.type == 'TensorRTLLM'",
                "only TensorRT-LLM is configured by a file: write flags in engine.args, and remove config",
                ".config",
            )
        )
    )
    type: EngineType = Field(description="Serving engine.")
    version: (
        Annotated[str, StringConstraints(pattern=r"^v?[0-9]+\.[0-9]+(\.[0-9]+)?([-+.a-z0-9]*)?$", max_length=64)] | None
    ) = Field(
        None,
        description="Engine release, such as 0.32.0. Required where the image tag is no release (latest, nightly, a "
        "digest). With External pools: only where it cannot be read from the pods.",
    )
    image: Annotated[str, StringConstraints(min_length=1, max_length=512, pattern=r"^[^\s]+$")] | None = Field(
        None, description="Engine image. Default: the engine's public image of that version."
    )
    args: dict[FlagName, FlagValue] = Field(
        default_factory=dict,
        max_length=64,
        description="Command-line flags for both pools, without the leading dashes; an empty value is a bare flag. "
        "Flags that specfleet owns are refused.",
    )
    extra_args: list[FlagValue] = Field(
        default_factory=list,
        max_length=64,
        description="Verbatim arguments after `args`, for flags that are given more than once.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    env: list[EnvVar] = Field(
        default_factory=list,
        max_length=64,
        description="Environment of the engine container.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    config: Annotated[str, Field(max_length=32768)] | None = Field(
        None,
        description="TensorRT-LLM only: YAML text with keys of its configuration file, alike in both pools. Keys that "
        "specfleet owns are refused, speculative_config among them.",
    )

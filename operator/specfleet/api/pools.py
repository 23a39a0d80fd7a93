"""SpecDeployment v1alpha1: `spec.pools`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints

from specfleet.api.base import Model, Rule, rules
from specfleet.api.engine import ObjectName


class Accelerator(Model):
    """The extended resource that an engine pod asks for."""

    resource: Annotated[str, StringConstraints(pattern=r"^([a-z0-9.-]+/[A-Za-z0-9._-]+)?$", max_length=253)] = Field(
        "nvidia.com/gpu",
        description="Resource name; an empty text asks for none (CPU engines). Count: the parallelism's product.",
    )


class CacheVolume(Model):
    """A claim that keeps downloaded weights and compiled graphs."""

    persistent_volume_claim: ObjectName = Field(description="Name of the claim; all pods of both pools mount it.")


class Storage(Model):
    """Volumes of engine pods."""

    cache: CacheVolume | None = None


class Pools(Model):
    """The engine pods: one pool without speculation, one with."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "!has(self.minBaseline) || self.minBaseline < self.replicas",
                "minBaseline must leave at least one replica for speculation: lower it or raise replicas",
                ".minBaseline",
            )
        )
    )
    strategy: Literal["Split"] = Field("Split", description="Split: both pools are rendered.")
    replicas: int = Field(ge=2, le=1000, description="The whole fleet; specfleet divides it.")
    min_baseline: int | None = Field(
        None, ge=1, le=999, description="Replicas without speculation. Default: half of replicas, rounded down."
    )
    accelerator: Accelerator = Field(default_factory=Accelerator)
    storage: Storage = Field(default_factory=Storage)
    template: dict[str, Any] = Field(
        default_factory=dict,
        description="Partial PodTemplateSpec, merged by the Kubernetes merge keys over what is rendered. "
        "The engine container is named engine.",
        json_schema_extra={"x-kubernetes-preserve-unknown-fields": True},
    )

    @property
    def baseline_replicas(self) -> int:
        """Replicas of the baseline pool."""
        return self.min_baseline if self.min_baseline is not None else self.replicas // 2

    @property
    def speculative_replicas(self) -> int:
        """Replicas of the speculative pool."""
        return self.replicas - self.baseline_replicas

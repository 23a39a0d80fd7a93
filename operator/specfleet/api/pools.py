"""SpecDeployment v1alpha1: `spec.pools`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any

from pydantic import ConfigDict, Field, StringConstraints

from specfleet.api.base import Model, Rule, rules
from specfleet.api.engine import ObjectName


class Strategy(StrEnum):
    """Who runs the engine pods."""

    SPLIT = "Split"
    EXTERNAL = "External"


class Accelerator(Model):
    """The extended resource that an engine pod asks for, and what is known of it."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "self.resource != '' || (!has(self.product) && !has(self.memory))",
                "engines on CPUs have no accelerator to plan for: remove product and memory; their KV cache is what "
                "engine.env VLLM_CPU_KVCACHE_SPACE says",
            )
        )
    )
    resource: Annotated[str, StringConstraints(pattern=r"^([a-z0-9.-]+/[A-Za-z0-9._-]+)?$", max_length=253)] = Field(
        "nvidia.com/gpu",
        description="Resource name; an empty text asks for none (CPU engines). Count: the parallelism's product.",
    )
    product: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$", max_length=63)] | (
        None
    ) = Field(
        None,
        description="Which one it is, such as H100-80GB, or a value of the node label nvidia.com/gpu.product: for the "
        "KV plan. Default: that label in template.spec.nodeSelector. It places no pod.",
    )
    memory: (
        Annotated[str, StringConstraints(pattern=r"^[1-9][0-9]{0,5}(\.[0-9]{1,2})?(Gi|Mi|G|M)$", max_length=16)] | None
    ) = Field(
        None,
        description="Memory of one as the engine sees it, such as 79.1Gi: for the KV plan, where the product is not in "
        "the table or has another.",
    )


class CacheVolume(Model):
    """A claim that keeps downloaded weights and compiled graphs."""

    persistent_volume_claim: ObjectName = Field(description="Name of the claim; all pods of both pools mount it.")


class Storage(Model):
    """Volumes of engine pods."""

    cache: CacheVolume | None = None


class ExternalService(Model):
    """A Service in the same namespace whose pods serve one pool; specfleet changes neither."""

    service: Annotated[str, StringConstraints(pattern=r"^[a-z]([-a-z0-9]*[a-z0-9])?$", max_length=63)] = Field(
        description="Name of the Service. Headless, each pod is balanced and checked on its own; with a cluster IP the "
        "node's proxy picks the pod.",
    )
    port: int = Field(8000, ge=1, le=65535, description="Port of the Service.")
    max_sequences: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="Requests that one pod runs at once; only where it cannot be read from the pods.",
    )


class External(Model):
    """The Services of External pools; one of the two may be missing, to see figures first."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "has(self.speculative) || has(self.baseline)",
                "write the Service of at least one pool: speculative {service, port} or baseline {service, port}",
            ),
            Rule(
                "!has(self.speculative) || !has(self.baseline) || self.speculative.service != self.baseline.service",
                "both pools name the same Service, and requests would reach pods of both kinds: write a Service for "
                "each pool, or only speculative, to see figures first",
                ".baseline.service",
            ),
        )
    )
    speculative: ExternalService | None = Field(None, description="Pods that run with speculation.")
    baseline: ExternalService | None = Field(None, description="Pods that run without.")


def _only_split(field: str, given: str, why: str) -> Rule:
    return Rule(f"self.strategy != 'External' || !({given})", f"{why}: remove {field}", f".{field}")


_NOT_SCALED = "specfleet does not scale External pools"
_NOT_STARTED = "specfleet does not start the pods of External pools"


class Pools(Model):
    """The engine pods: one pool without speculation, one with."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "!has(self.minBaseline) || !has(self.replicas) || self.minBaseline < self.replicas",
                "minBaseline must leave at least one replica for speculation: lower it or raise replicas",
                ".minBaseline",
            ),
            Rule(
                "self.strategy == 'External' || has(self.replicas)",
                "strategy Split needs the size of the fleet: write replicas, for instance 2",
                ".replicas",
            ),
            Rule(
                "(self.strategy == 'External') == has(self.external)",
                "write external {speculative: {service, port}, baseline: {service, port}} with strategy External, and "
                "only there",
                ".external",
            ),
            Rule(
                "self.strategy == oldSelf.strategy",
                "strategy cannot be changed: the pods of one would be gone before those of the other serve; make a "
                "SpecDeployment of another name beside this one, move clients to it, and delete this one",
                ".strategy",
            ),
            _only_split("replicas", "has(self.replicas)", _NOT_SCALED),
            _only_split("minBaseline", "has(self.minBaseline)", _NOT_SCALED),
            _only_split(
                "accelerator",
                "self.accelerator.resource != 'nvidia.com/gpu' || has(self.accelerator.product) || "
                "has(self.accelerator.memory)",
                _NOT_STARTED,
            ),
            _only_split("sequenceTokens", "has(self.sequenceTokens)", _NOT_STARTED),
            _only_split("storage", "has(self.storage)", _NOT_STARTED),
            _only_split("template", "has(self.template)", _NOT_STARTED),
        )
    )
    strategy: Strategy = Field(
        Strategy.SPLIT,
        description="Split: specfleet runs both pools. External: two Services that exist already; specfleet runs the "
        "router only.",
    )
    replicas: int | None = Field(None, ge=2, le=1000, description="The whole fleet; specfleet divides it. Split only.")
    min_baseline: int | None = Field(
        None, ge=1, le=999, description="Replicas without speculation. Default: half of replicas, rounded down."
    )
    accelerator: Accelerator = Field(default_factory=Accelerator)
    sequence_tokens: int | None = Field(
        None,
        ge=1,
        le=16_777_216,
        description="Tokens of a usual sequence, prompt and answer, that the KV plan counts sequences by. Where the "
        "plan is known the routers then let no more through than it has room for. Default: the longest that is served, "
        "and the routers' limits stay at what the engines run at once.",
    )
    storage: Storage = Field(default_factory=Storage)
    template: dict[str, Any] = Field(
        default_factory=dict,
        description="Partial PodTemplateSpec, merged by the Kubernetes merge keys over what is rendered. "
        "The engine container is named engine.",
        json_schema_extra={"x-kubernetes-preserve-unknown-fields": True},
    )
    external: External | None = Field(None, description="Where the pools are, with strategy External.")

    @property
    def size(self) -> int:
        """Replicas of the whole fleet.

        Raises:
            ValueError: External pools, whose size is not specfleet's.
        """
        if self.replicas is None:
            raise ValueError("External pools have no replicas of specfleet's: ask the cluster for their pods")
        return self.replicas

    @property
    def baseline_replicas(self) -> int:
        """Replicas of the baseline pool. Raises ValueError for External pools."""
        return self.min_baseline if self.min_baseline is not None else self.size // 2

    @property
    def speculative_replicas(self) -> int:
        """Replicas of the speculative pool. Raises ValueError for External pools."""
        return self.size - self.baseline_replicas

"""SpecDeployment v1alpha1: the object and its `spec`; the parts are in the modules beside this one.

What the operator answers is in `status.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import ConfigDict, Field

from specfleet.api.base import Model, Rule, rules
from specfleet.api.engine import (
    Engine,
    EngineType,
    EnvVar,
    EnvVarSource,
    FieldSelector,
    KeySelector,
    ResourceFieldSelector,
)
from specfleet.api.models import (
    RESERVED_DRAFT_NAMES,
    Draft,
    DraftMode,
    HostPathSource,
    HuggingFaceSource,
    NgramOptions,
    Parallelism,
    PersistentVolumeClaimSource,
    SecretKeyRef,
    Source,
    Target,
)
from specfleet.api.policy import BreakEven, Enforcement, Exploration, Initial, Policy
from specfleet.api.pools import Accelerator, CacheVolume, Pools, Storage
from specfleet.api.routing import HeaderMatch, Route, RouteMatch, RoutePolicy, Routing, Speculation

__all__ = [
    "API_VERSION",
    "CATEGORIES",
    "GROUP",
    "KIND",
    "MAX_NAME",
    "PLURAL",
    "RESERVED_DRAFT_NAMES",
    "SHORT_NAMES",
    "SINGULAR",
    "VERSION",
    "Accelerator",
    "BreakEven",
    "CacheVolume",
    "Draft",
    "DraftMode",
    "Enforcement",
    "Engine",
    "EngineType",
    "EnvVar",
    "EnvVarSource",
    "Exploration",
    "FieldSelector",
    "HeaderMatch",
    "HostPathSource",
    "HuggingFaceSource",
    "Initial",
    "KeySelector",
    "Metadata",
    "NgramOptions",
    "Parallelism",
    "PersistentVolumeClaimSource",
    "Policy",
    "Pools",
    "ResourceFieldSelector",
    "Route",
    "RouteMatch",
    "RoutePolicy",
    "Routing",
    "SecretKeyRef",
    "Source",
    "SpecDeployment",
    "SpecDeploymentSpec",
    "Speculation",
    "Storage",
    "Target",
]

GROUP = "specfleet.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "SpecDeployment"
PLURAL = "specdeployments"
SINGULAR = "specdeployment"
SHORT_NAMES = ("specdep",)
CATEGORIES = ("specfleet",)
MAX_NAME = 45


class SpecDeploymentSpec(Model):
    """The desired state of a speculative serving fleet."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "has(self.engine.version) || has(self.engine.image)",
                'write engine.version, for instance "0.32.0", or an engine.image with a release tag',
                ".engine",
            ),
            Rule(
                "self.policy.enforcement != 'Enforce' || has(self.policy.minAcceptancePercent) || "
                "(has(self.policy.breakEven) && self.policy.breakEven.source == 'Fixed') || "
                "self.routing.routes.all(r, r.speculation != 'Auto' || (has(r.policy) && "
                "(has(r.policy.minAcceptancePercent) || "
                "(has(r.policy.breakEven) && r.policy.breakEven.source == 'Fixed'))))",
                "enforcement Enforce needs a line to decide by: write policy.minAcceptancePercent, or "
                'policy.breakEven {source: Fixed, tokensPerStep: "1.60"}, or enforcement: Observe',
                ".policy",
            ),
        )
    )
    engine: Engine
    target: Target
    drafts: list[Draft] = Field(
        min_length=1,
        max_length=1,
        description="Ways to draft tokens; one entry in this version.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    pools: Pools
    routing: Routing = Field(default_factory=Routing)
    policy: Policy

    @property
    def draft(self) -> Draft:
        """The one draft."""
        return self.drafts[0]


class Metadata(Model):
    """The part of an object's metadata that specfleet reads; the rest is passed over."""

    model_config = ConfigDict(extra="ignore")
    name: str
    namespace: str = "default"
    uid: str = ""
    generation: int = 0


class SpecDeployment(Model):
    """One SpecDeployment without its status."""

    model_config = ConfigDict(extra="ignore")
    api_version: Literal["specfleet.dev/v1alpha1"] = "specfleet.dev/v1alpha1"
    kind: Literal["SpecDeployment"] = "SpecDeployment"
    metadata: Metadata
    spec: SpecDeploymentSpec

    @classmethod
    def parse(cls, document: Mapping[str, Any]) -> SpecDeployment:
        """The typed object of a document as read from YAML or the API server.

        Raises:
            pydantic.ValidationError: a field of `spec` is unknown or has a wrong value.
        """
        return cls.model_validate_json(json.dumps(document), by_alias=True, by_name=False)

    @property
    def name(self) -> str:
        """Its name."""
        return self.metadata.name

    @property
    def namespace(self) -> str:
        """Its namespace."""
        return self.metadata.namespace

    @property
    def served_name(self) -> str:
        """The model name that clients send."""
        return self.spec.target.served_name or self.metadata.name

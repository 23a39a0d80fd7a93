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
from specfleet.api.metrics import Metrics, MetricsSource, PrometheusSource
from specfleet.api.models import (
    RESERVED_DRAFT_NAMES,
    Draft,
    DraftMode,
    HostPathSource,
    HuggingFaceSource,
    ImageSource,
    NgramOptions,
    Parallelism,
    PersistentVolumeClaimSource,
    SecretKeyRef,
    Source,
    Target,
)
from specfleet.api.policy import BreakEven, Enforcement, Exploration, Initial, Policy
from specfleet.api.pools import Accelerator, CacheVolume, External, ExternalService, Pools, Storage, Strategy
from specfleet.api.routing import (
    Affinity,
    HeaderMatch,
    PromptHash,
    Route,
    RouteMatch,
    RoutePolicy,
    Routing,
    Speculation,
)

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
    "Affinity",
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
    "External",
    "ExternalService",
    "FieldSelector",
    "HeaderMatch",
    "HostPathSource",
    "HuggingFaceSource",
    "ImageSource",
    "Initial",
    "KeySelector",
    "Metadata",
    "Metrics",
    "MetricsSource",
    "NgramOptions",
    "Parallelism",
    "PersistentVolumeClaimSource",
    "Policy",
    "Pools",
    "PrometheusSource",
    "PromptHash",
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
    "Strategy",
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


_EXTERNAL = "self.pools.strategy == 'External'"
_TWO_SIDED = "has(self.pools.external) && has(self.pools.external.speculative) && has(self.pools.external.baseline)"


def _only_split(field: str, given: str, why: str) -> Rule:
    return Rule(f"!({_EXTERNAL}) || !({given})", f"{why}: remove {field}", f".{field.split('[')[0]}")


_DRAFTS = f"{_EXTERNAL} || !has(self.drafts) || !has(self.target)"
_TARGET_VOLUME = "(has(self.target.source) && !has(self.target.source.huggingFace))"
_RUNNING = "specfleet starts no engine of External pools"

_EXTERNAL_RULES = (
    Rule(
        f"{_EXTERNAL} || has(self.target)",
        "strategy Split needs the model to serve: write target.model",
        ".target",
    ),
    Rule(
        f"{_EXTERNAL} || !has(self.target) || !self.target.model.startsWith('/') || "
        "(has(self.target.source) && !has(self.target.source.huggingFace))",
        "an absolute path needs a volume source: write source.persistentVolumeClaim, source.image or source.hostPath, "
        "or a model id owner/name",
        ".target.model",
    ),
    Rule(
        f"{_EXTERNAL} || !has(self.target) || self.target.model.startsWith('/') || !has(self.target.source) || "
        "has(self.target.source.huggingFace)",
        "a volume source is mounted at the path that model names: write model as an absolute path, "
        "for instance /models/target",
        ".target.model",
    ),
    Rule(
        f"{_EXTERNAL} || (has(self.drafts) && size(self.drafts) == 1)",
        "strategy Split needs one way to draft: write drafts: [{name: ngram, mode: NGram}]",
        ".drafts",
    ),
    Rule(
        f"{_EXTERNAL} || !has(self.drafts) || self.drafts.all(d, d.mode in ['NGram', 'Suffix', 'MTP'] || has(d.model))",
        "modes DraftModel, Medusa, EAGLE, EAGLE3 and DFlash need a draft checkpoint: write drafts[0].model",
        ".drafts",
    ),
    Rule(
        f"{_DRAFTS} || self.drafts.all(d, !has(d.model) || !d.model.startsWith('/') || has(d.source) || "
        f"({_TARGET_VOLUME} && d.model.startsWith(self.target.model + '/')))",
        "a draft model at an absolute path needs a volume: write drafts[0].source.persistentVolumeClaim, "
        "drafts[0].source.image or drafts[0].source.hostPath, or a path inside the target's volume",
        ".drafts",
    ),
    Rule(
        f"{_DRAFTS} || self.drafts.all(d, !has(d.model) || d.model.startsWith('/') || has(d.source) || "
        f"!{_TARGET_VOLUME})",
        "the target comes from a volume and the draft model from the Hub: write drafts[0].source: {huggingFace: {}}, "
        "or draft from a volume too",
        ".drafts",
    ),
    Rule(
        f"{_DRAFTS} || self.drafts.all(d, !has(d.model) || !has(d.source) || has(d.source.huggingFace) || "
        f"!{_TARGET_VOLUME} || !((d.model + '/').startsWith(self.target.model + '/') || "
        "(self.target.model + '/').startsWith(d.model + '/')))",
        "the volumes of target and draft would be mounted one in the other: write paths side by side, for instance "
        "/models/target and /models/draft",
        ".drafts",
    ),
    Rule(
        f"{_DRAFTS} || self.drafts.all(d, !has(d.source) || !has(d.source.huggingFace) || "
        "!has(d.source.huggingFace.tokenSecretRef) || !has(self.target.source) || "
        "!has(self.target.source.huggingFace) || !has(self.target.source.huggingFace.tokenSecretRef) || "
        "(d.source.huggingFace.tokenSecretRef.name == self.target.source.huggingFace.tokenSecretRef.name && "
        "d.source.huggingFace.tokenSecretRef.key == self.target.source.huggingFace.tokenSecretRef.key))",
        "an engine takes one token for the Hub: write the same tokenSecretRef for target and draft, or remove "
        "drafts[0].source",
        ".drafts",
    ),
    _only_split("engine.image", "has(self.engine.image)", _RUNNING),
    _only_split("engine.args", "has(self.engine.args)", _RUNNING),
    _only_split("engine.extraArgs", "has(self.engine.extraArgs)", _RUNNING),
    _only_split("engine.env", "has(self.engine.env)", _RUNNING),
    Rule(
        f"!({_EXTERNAL}) || self.engine.type != 'TensorRTLLM'",
        "specfleet reads what External pools do of vLLM and SGLang only: write strategy: Split, and let it run "
        "TensorRT-LLM's pods",
        ".engine.type",
    ),
    _only_split("target.source", "has(self.target) && has(self.target.source)", _RUNNING),
    _only_split(
        "target.parallelism",
        "has(self.target) && (self.target.parallelism.tensor != 1 || self.target.parallelism.pipeline != 1 || "
        "self.target.parallelism.data != 1)",
        _RUNNING,
    ),
    _only_split("drafts[0].model", "has(self.drafts) && self.drafts.exists(d, has(d.model))", _RUNNING),
    _only_split("drafts[0].args", "has(self.drafts) && self.drafts.exists(d, has(d.args))", _RUNNING),
    _only_split("drafts[0].allowLossy", "has(self.drafts) && self.drafts.exists(d, d.allowLossy)", _RUNNING),
    _only_split(
        "drafts[0].ngram",
        "has(self.drafts) && self.drafts.exists(d, d.ngram.minMatch != 2 || d.ngram.maxMatch != 4)",
        _RUNNING,
    ),
    Rule(
        f"!({_EXTERNAL}) || (has(self.target) && has(self.target.servedName)) || "
        "self.routing.routes.all(r, !has(r.match) || r.match.all(m, !has(m.model)))",
        "routes that match a model alias need the name that the engines serve, to which the router rewrites it: write "
        "target {model, servedName}",
        ".target",
    ),
    Rule(
        f"!({_EXTERNAL}) || ({_TWO_SIDED}) || self.policy.enforcement == 'Observe'",
        "with one External pool there is nowhere to move traffic to: write enforcement: Observe, or the other pool's "
        "Service in pools.external",
        ".policy.enforcement",
    ),
)


class SpecDeploymentSpec(Model):
    """The desired state of a speculative serving fleet."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                f"{_EXTERNAL} || self.engine.type == oldSelf.engine.type",
                "engine.type cannot be changed: routers reach pods of one engine only; make a SpecDeployment of "
                "another name beside this one, move clients to it, and delete this one",
                ".engine.type",
            ),
            Rule(
                f"{_EXTERNAL} || has(self.engine.version) || has(self.engine.image)",
                'write engine.version, for instance "0.32.0", or an engine.image with a release tag',
                ".engine",
            ),
            Rule(
                "self.policy.enforcement != 'Enforce' || has(self.policy.minAcceptancePercent) || "
                "(has(self.policy.breakEven) && self.policy.breakEven.source != 'None') || "
                "self.routing.routes.all(r, r.speculation != 'Auto' || (has(r.policy) && "
                "(has(r.policy.minAcceptancePercent) || "
                "(has(r.policy.breakEven) && r.policy.breakEven.source != 'None'))))",
                "enforcement Enforce needs a line to decide by: write policy.minAcceptancePercent, or "
                "policy.breakEven {source: Measured}, or enforcement: Observe",
                ".policy",
            ),
            *_EXTERNAL_RULES,
        )
    )
    engine: Engine
    target: Target | None = Field(None, description="The model that answers. Optional with External pools.")
    drafts: list[Draft] = Field(
        default_factory=list,
        max_length=1,
        description="Ways to draft tokens; one entry in this version, optional with External pools.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    pools: Pools
    routing: Routing = Field(default_factory=Routing)
    policy: Policy
    metrics: Metrics = Field(default_factory=Metrics)

    @property
    def external(self) -> External | None:
        """The Services of External pools; None where specfleet runs the pools itself."""
        return self.pools.external

    @property
    def draft(self) -> Draft:
        """The one draft. External pools need none: it is then one named `speculative`, of which only the name holds."""
        return self.drafts[0] if self.drafts else _UNDECLARED

    @property
    def rendered_target(self) -> Target:
        """The target of pools that specfleet runs.

        Raises:
            ValueError: there is none, which only External pools may have.
        """
        if self.target is None:
            raise ValueError("the pools are External and name no target")
        return self.target


_UNDECLARED = Draft(name="speculative", mode=DraftMode.NGRAM)


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
        """The model name that clients send; "" where it is whatever the engines of External pools serve."""
        target = self.spec.target
        if target is not None and target.served_name is not None:
            return target.served_name
        return "" if self.spec.external is not None else self.metadata.name

"""SpecDeployment v1alpha1: what a user writes (`spec`). What the operator answers is in `status.py`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints

from specfleet.api.base import (
    ByteQuantity,
    DecimalText,
    Duration,
    HeaderName,
    Model,
    Percent,
    Rule,
    ShortName,
    rules,
)

GROUP = "specfleet.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
KIND = "SpecDeployment"
PLURAL = "specdeployments"
SINGULAR = "specdeployment"
SHORT_NAMES = ("specdep",)
CATEGORIES = ("specfleet",)
MAX_NAME = 45
RESERVED_DRAFT_NAMES = ("baseline", "speculative", "router", "routes", "preflight")


class EngineType(StrEnum):
    """Serving engines that this release renders."""

    VLLM = "vLLM"


class DraftMode(StrEnum):
    """How draft tokens are made."""

    NGRAM = "NGram"


class Speculation(StrEnum):
    """A person's override for one route."""

    AUTO = "Auto"
    ALWAYS = "Always"
    NEVER = "Never"


class Enforcement(StrEnum):
    """Whether decisions move traffic."""

    ENFORCE = "Enforce"
    OBSERVE = "Observe"


class Initial(StrEnum):
    """Where a new route starts."""

    BASELINE = "Baseline"
    SPECULATIVE = "Speculative"


class EnvVar(Model):
    """One core/v1 EnvVar; `valueFrom` is passed on as it is."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    value: Annotated[str | None, Field(max_length=32768)] = None
    value_from: Annotated[
        dict[str, Any] | None,
        Field(json_schema_extra={"x-specfleet-schema": "core/v1.EnvVarSource"}),
    ] = None


class Engine(Model):
    """The serving engine, alike in both pools."""

    type: EngineType = Field(description="Serving engine.")
    version: (
        Annotated[str, StringConstraints(pattern=r"^[0-9]+\.[0-9]+(\.[0-9]+)?([-+.a-z0-9]*)?$", max_length=64)] | None
    ) = Field(
        None,
        description="Engine release, such as 0.32.0. Required where the image tag is no release (latest, nightly, a digest).",
    )
    image: Annotated[str, StringConstraints(min_length=1, max_length=512, pattern=r"^[^\s]+$")] | None = Field(
        None, description="Engine image. Default: the engine's public image of that version."
    )
    args: dict[
        Annotated[str, StringConstraints(min_length=1, max_length=128)], Annotated[str, Field(max_length=4096)]
    ] = Field(
        default_factory=dict,
        max_length=64,
        description='Command-line flags for both pools, without dashes; "" is a bare flag. Flags that specfleet owns are refused.',
    )
    extra_args: list[Annotated[str, Field(max_length=4096)]] = Field(
        default_factory=list,
        max_length=64,
        description="Verbatim arguments after `args`, for repeated flags.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    env: list[EnvVar] = Field(
        default_factory=list,
        max_length=64,
        description="Environment of the engine container.",
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )


class SecretKeyRef(Model):
    """A key of a Secret in the same namespace."""

    name: Annotated[str, Field(min_length=1, max_length=253)]
    key: Annotated[str, Field(min_length=1, max_length=253)]


class HuggingFaceSource(Model):
    """Weights from the Hugging Face Hub, downloaded by the engine."""

    token_secret_ref: SecretKeyRef | None = Field(None, description="Secret key that holds the Hub token.")


class PersistentVolumeClaimSource(Model):
    """Weights on a volume, mounted read-only."""

    claim_name: Annotated[str, Field(min_length=1, max_length=253)]
    path: Annotated[str, StringConstraints(max_length=1024)] = Field(
        "", description="Directory inside the volume that is mounted; empty is its root."
    )


class HostPathSource(Model):
    """Weights in a directory of the node. Needs the operator setting `allowHostPath`."""

    path: Annotated[str, StringConstraints(pattern=r"^/", max_length=1024)]


class Source(Model):
    """Where model files come from; exactly one."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "[has(self.huggingFace), has(self.persistentVolumeClaim), has(self.hostPath)].filter(x, x).size() == 1",
                "write exactly one of huggingFace, persistentVolumeClaim and hostPath",
            )
        )
    )
    hugging_face: HuggingFaceSource | None = None
    persistent_volume_claim: PersistentVolumeClaimSource | None = None
    host_path: HostPathSource | None = None


class Parallelism(Model):
    """How one engine pod is split over accelerators; their count per pod is the product."""

    tensor: int = Field(1, ge=1, le=64)
    pipeline: int = Field(1, ge=1, le=64)
    data: int = Field(1, ge=1, le=64)


MODEL_ID = r"^([A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*|/[A-Za-z0-9._/-]+)$"
ModelId = Annotated[str, StringConstraints(min_length=1, max_length=512)]
MODEL_ID_RULES = rules(
    Rule(
        f"self.matches('{MODEL_ID}') && !self.contains('..')",
        "write the model as owner/name, or with a volume source as an absolute path; no URL, no '..'",
    )
)


class Target(Model):
    """The model that answers."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "!self.model.startsWith('/') || !has(self.source) || !has(self.source.huggingFace)",
                "an absolute path needs a volume source: write source.persistentVolumeClaim or source.hostPath, "
                "or a model id owner/name",
            ),
            Rule(
                "!self.model.startsWith('/') || has(self.source)",
                "an absolute path needs a volume source: write source.persistentVolumeClaim or source.hostPath",
            ),
        )
    )
    model: ModelId = Field(
        description="owner/name, or an absolute path inside a volume source.", json_schema_extra=MODEL_ID_RULES
    )
    revision: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._/-]+$", max_length=128)] | None = Field(
        None, description="Branch, tag or commit of a Hub model."
    )
    served_name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$", max_length=253)] | None = (
        Field(None, description="Model name that clients send. Default: the SpecDeployment's name.")
    )
    source: Source | None = Field(None, description="Where the files come from. Default: huggingFace.")
    parallelism: Parallelism = Field(default_factory=Parallelism)


class NgramOptions(Model):
    """Prompt look-up lengths, in tokens."""

    model_config = ConfigDict(
        json_schema_extra=rules(Rule("self.minMatch <= self.maxMatch", "minMatch must not be greater than maxMatch"))
    )
    min_match: int = Field(2, ge=1, le=64)
    max_match: int = Field(4, ge=1, le=64)


class Draft(Model):
    """A way to draft tokens; its pool has the draft's name."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "!has(self.model)",
                "mode NGram drafts from the prompt and takes no draft model: remove model",
                ".model",
            ),
        )
    )
    name: ShortName = Field(
        description="Name of the draft and of its pool.",
        json_schema_extra=rules(
            Rule(
                "!(self in [" + ", ".join(f"'{name}'" for name in RESERVED_DRAFT_NAMES) + "])",
                "this name is taken by specfleet: call the draft otherwise, for instance ngram",
            )
        ),
    )
    mode: DraftMode = Field(description="How draft tokens are made.")
    model: ModelId | None = Field(None, description="Draft checkpoint. Mode NGram takes none: a value is refused.")
    tokens: int = Field(4, ge=1, le=32, description="k, the tokens drafted a round.")
    ngram: NgramOptions = Field(default_factory=NgramOptions)
    args: dict[
        Annotated[str, StringConstraints(min_length=1, max_length=128)], Annotated[str, Field(max_length=4096)]
    ] = Field(
        default_factory=dict,
        max_length=32,
        description="Further keys of the engine's speculative config, checked against that release; "
        "read as JSON where the key is no string.",
    )
    allow_lossy: bool = Field(False, description="Allow arguments that change what the target would have answered.")


class Accelerator(Model):
    """The extended resource that an engine pod asks for."""

    resource: (
        Annotated[str, StringConstraints(pattern=r"^[a-z0-9.-]+/[A-Za-z0-9._-]+$", max_length=253)] | Literal[""]
    ) = Field("nvidia.com/gpu", description='Resource name; "" asks for none (CPU engines).')


class CacheVolume(Model):
    """A claim that keeps downloaded weights and compiled graphs."""

    persistent_volume_claim: Annotated[str, Field(min_length=1, max_length=253)]


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
        description="Partial PodTemplateSpec, merged by the Kubernetes merge keys over what is rendered.",
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


class HeaderMatch(Model):
    """A request header with exactly this value."""

    name: HeaderName
    value: Annotated[str, StringConstraints(min_length=1, max_length=256, pattern=r"^[\x20-\x7e]+$")]


class RouteMatch(Model):
    """All keys that are given must match."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "has(self.header) || has(self.model) || has(self.responseFormat) || has(self.tools)",
                "a match needs at least one of header, model, responseFormat and tools",
            )
        )
    )
    header: HeaderMatch | None = None
    model: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$", max_length=253)] | None = Field(
        None, description="A model alias that the client sends."
    )
    response_format: list[Literal["text", "json_object", "json_schema"]] | None = Field(
        None,
        min_length=1,
        max_length=3,
        description="Value of response_format.type in the request.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    tools: bool | None = Field(None, description="Whether the request carries a non-empty list of tools.")


class BreakEven(Model):
    """The tokens per decode step above which speculation pays."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "(self.source == 'Fixed') == has(self.tokensPerStep)",
                'write tokensPerStep, for instance "1.60", with source Fixed, and only there',
            ),
            Rule(
                "!has(self.tokensPerStep) || (double(self.tokensPerStep) >= 1.0 && double(self.tokensPerStep) <= 33.0)",
                "tokensPerStep must be between 1 and 33: no decode step yields less than one token",
                ".tokensPerStep",
            ),
        )
    )
    source: Literal["Fixed", "None"] = Field(description="Fixed: the figure given here. None: no break-even line.")
    tokens_per_step: DecimalText | None = None


class RoutePolicy(Model):
    """What one route has otherwise than `spec.policy`."""

    min_acceptance_percent: Annotated[int, Field(ge=1, le=100)] | None = None
    break_even: BreakEven | None = None


class Route(Model):
    """A kind of traffic that is decided for on its own."""

    name: ShortName
    match: list[RouteMatch] = Field(
        default_factory=list,
        max_length=16,
        description="Any entry may match; none on the last route, which takes the rest.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    speculation: Speculation = Field(Speculation.AUTO, description="A person's override, in Git.")
    policy: RoutePolicy | None = None


def _default_routes() -> list[Route]:
    return [Route(name="default")]


class Routing(Model):
    """How requests are told apart."""

    max_request_bytes: ByteQuantity = Field("16Mi", description="Larger request bodies are answered with 413.")
    tenant_header: HeaderName | None = Field(
        None, description="Header whose value is logged with each request; never a metric label."
    )
    routes: list[Route] = Field(
        default_factory=_default_routes,
        min_length=1,
        max_length=32,
        description="Ordered; the first that matches wins.",
        json_schema_extra={
            "x-kubernetes-list-type": "atomic",
            **rules(
                Rule(
                    "self.all(r, self.exists_one(s, s.name == r.name))",
                    "route names must differ: two routes have one name",
                ),
                Rule(
                    "!has(self[size(self) - 1].match) || size(self[size(self) - 1].match) == 0",
                    "the last route takes what no other does and must have no match: remove it, "
                    "or add a last route without one",
                ),
                Rule(
                    "self.filter(r, !has(r.match) || size(r.match) == 0).size() <= 1",
                    "only the last route may be without match: give every other route one",
                ),
            ),
        },
    )


class Exploration(Model):
    """Traffic that goes on looking while a route is off."""

    max_percent: Percent = Field(10, description="Most of a route's traffic that explores; 0 is none.")


class Policy(Model):
    """When speculation is on."""

    enforcement: Enforcement = Field(
        Enforcement.ENFORCE, description="Enforce, or Observe: decide and report, move nothing."
    )
    initial: Initial = Field(Initial.BASELINE, description="Where a new route starts.")
    min_acceptance_percent: Annotated[int, Field(ge=1, le=100)] | None = Field(
        None, description="Accepted over drafted tokens, in percent; under it, with evidence, speculation is off."
    )
    break_even: BreakEven | None = Field(None, description="The line that tokens per decode step must reach to pay.")
    exploration: Exploration = Field(default_factory=Exploration)
    block: Duration = Field(
        "60s",
        description="Length of one sample.",
        json_schema_extra=rules(
            Rule("duration(self) >= duration('1s') && duration(self) <= duration('1h')", "block must be 1s to 1h")
        ),
    )
    dwell: Duration = Field(
        "10m",
        description="Least time in baseline, doubled with each repeated switch-off; half of it in speculation.",
        json_schema_extra=rules(
            Rule("duration(self) >= duration('1s') && duration(self) <= duration('24h')", "dwell must be 1s to 24h")
        ),
    )


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
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    pools: Pools
    routing: Routing = Field(default_factory=Routing)
    policy: Policy

    @property
    def draft(self) -> Draft:
        """The one draft."""
        return self.drafts[0]

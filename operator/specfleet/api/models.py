"""SpecDeployment v1alpha1: `spec.target` and `spec.drafts`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints

from specfleet.api.base import Model, Rule, ShortName, rules
from specfleet.api.engine import FlagName, FlagValue, ObjectName

RESERVED_DRAFT_NAMES = ("baseline", "speculative", "router", "routes", "preflight")


class DraftMode(StrEnum):
    """How draft tokens are made."""

    NGRAM = "NGram"
    SUFFIX = "Suffix"
    DRAFT_MODEL = "DraftModel"
    MEDUSA = "Medusa"
    EAGLE = "EAGLE"
    EAGLE3 = "EAGLE3"
    MTP = "MTP"
    DFLASH = "DFlash"


class Preflight(StrEnum):
    """What a draft that does not fit its target costs."""

    REQUIRE = "Require"
    WARN = "Warn"
    SKIP = "Skip"


class SecretKeyRef(Model):
    """A key of a Secret in the same namespace."""

    name: ObjectName = Field(description="Name of the Secret.")
    key: ObjectName = Field(description="Key in its data.")


class HuggingFaceSource(Model):
    """Weights from the Hugging Face Hub, downloaded by the engine."""

    token_secret_ref: SecretKeyRef | None = Field(None, description="Secret key that holds the Hub token.")


class PersistentVolumeClaimSource(Model):
    """Weights on a claim, mounted read-only at the path that `model` names."""

    claim_name: ObjectName = Field(description="The claim, in the same namespace.")
    path: Annotated[str, StringConstraints(max_length=1024)] = Field(
        "",
        description="Directory inside the volume that is mounted; empty is its root.",
        json_schema_extra=rules(
            Rule(
                "!self.startsWith('/') && !self.contains('..')",
                "path is relative to the volume's root and holds no '..': write it without a leading slash",
            )
        ),
    )


class HostPathSource(Model):
    """Weights in a directory of the node, mounted read-only at the path that `model` names.

    Needs the operator setting allowHostPath.
    """

    path: Annotated[str, StringConstraints(pattern=r"^/", max_length=1024)] = Field(
        description="Absolute path of a directory on the node.",
        json_schema_extra=rules(Rule("!self.contains('..')", "path holds no '..': write it in full")),
    )


class ImageSource(Model):
    """Weights in an image, or another artifact of a registry, mounted read-only at the path that `model` names.

    Needs image volumes: Kubernetes 1.35 or newer (before it the feature gate ImageVolume), and a runtime that has them.
    """

    reference: Annotated[str, StringConstraints(pattern=r"^[^\s]+$", min_length=1, max_length=512)] = Field(
        description="Image reference, such as registry.example.com/models/llama:1. Pull secrets are those of "
        "pools.template.spec.imagePullSecrets."
    )
    pull_policy: Literal["Always", "IfNotPresent", "Never"] | None = Field(
        None, description="When the kubelet pulls it. Default: Always with the tag latest, else IfNotPresent."
    )


class Source(Model):
    """Where model files come from; exactly one."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "[has(self.huggingFace), has(self.persistentVolumeClaim), has(self.image), has(self.hostPath)]"
                ".filter(x, x).size() == 1",
                "write exactly one of huggingFace, persistentVolumeClaim, image and hostPath",
            )
        )
    )
    hugging_face: HuggingFaceSource | None = None
    persistent_volume_claim: PersistentVolumeClaimSource | None = None
    image: ImageSource | None = None
    host_path: HostPathSource | None = None


class Parallelism(Model):
    """How one engine pod is split over accelerators; their count per pod is the product."""

    tensor: int = Field(1, ge=1, le=64, description="Tensor-parallel size.")
    pipeline: int = Field(1, ge=1, le=64, description="Pipeline-parallel size.")
    data: int = Field(1, ge=1, le=64, description="Data-parallel size.")


MODEL_ID = r"^([A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*|/[A-Za-z0-9._/-]+)$"
Revision = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9._/-]+$", max_length=128)]
ModelId = Annotated[str, StringConstraints(min_length=1, max_length=512)]
MODEL_ID_RULES = rules(
    Rule(
        f"self.matches('{MODEL_ID}') && !self.contains('..')",
        "write the model as owner/name, or with a volume source as an absolute path; no URL, no '..'",
    )
)


class Target(Model):
    """The model that answers."""

    model: ModelId = Field(
        description="owner/name, or with a volume source the absolute path at which the volume is mounted. With "
        "External pools: what their engines serve.",
        json_schema_extra=MODEL_ID_RULES,
    )
    revision: Revision | None = Field(None, description="Branch, tag or commit of a Hub model.")
    served_name: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$", max_length=253)] | None = (
        Field(None, description="Model name that clients send. Default: the SpecDeployment's name.")
    )
    source: Source | None = Field(None, description="Where the files come from. Default: huggingFace.")
    parallelism: Parallelism = Field(default_factory=Parallelism)


class NgramOptions(Model):
    """Prompt look-up lengths, in tokens."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "self.minMatch <= self.maxMatch",
                "minMatch must not be greater than maxMatch: lower minMatch or raise maxMatch",
                ".minMatch",
            )
        )
    )
    min_match: int = Field(2, ge=1, le=64, description="Shortest match that is looked up.")
    max_match: int = Field(4, ge=1, le=64, description="Longest match that is looked up.")


class Draft(Model):
    """A way to draft tokens; its pool has the draft's name."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "!has(self.model) || !(self.mode in ['NGram', 'Suffix'])",
                "modes NGram and Suffix draft from the text so far, and take no draft model: remove model",
                ".model",
            ),
            Rule(
                "has(self.model) || (!has(self.revision) && !has(self.source))",
                "revision and source belong to a draft model, and there is none: write model, or remove them",
                ".model",
            ),
            Rule(
                "!has(self.model) || !self.model.startsWith('/') || (!has(self.revision) && "
                "!(has(self.source) && has(self.source.huggingFace)))",
                "an absolute path is no model of the Hub: remove revision and source.huggingFace, or write model as "
                "owner/name",
                ".model",
            ),
            Rule(
                "!has(self.model) || self.model.startsWith('/') || !has(self.source) || has(self.source.huggingFace)",
                "a volume source is mounted at the path that model names: write model as an absolute path, "
                "for instance /models/draft",
                ".model",
            ),
            Rule(
                "self.mode == 'NGram' || (self.ngram.minMatch == 2 && self.ngram.maxMatch == 4)",
                "only mode NGram looks up matches: remove ngram",
                ".ngram",
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
    mode: DraftMode = Field(
        description="How draft tokens are made; which release has which is in engines.md. External pools: what their "
        "engines do."
    )
    model: ModelId | None = Field(
        None,
        description="Draft checkpoint: owner/name, or an absolute path at which source is mounted or that lies in the "
        "target's volume. Modes DraftModel, Medusa, EAGLE, EAGLE3 and DFlash need one; MTP takes the target's own.",
        json_schema_extra=MODEL_ID_RULES,
    )
    revision: Revision | None = Field(None, description="Branch, tag or commit of a draft model of the Hub.")
    source: Source | None = Field(
        None,
        description="Where the draft's files come from; only the speculative pool gets them. Default: the target's.",
    )
    tokens: int = Field(
        4,
        ge=1,
        le=32,
        description="k, the tokens drafted a round. With External pools: only where it cannot be read from the pods.",
    )
    ngram: NgramOptions = Field(default_factory=NgramOptions)
    args: dict[FlagName, FlagValue] = Field(
        default_factory=dict,
        max_length=32,
        description="Further keys of the engine's speculative config, checked against that release; "
        "read as JSON where the key is no string.",
    )
    allow_lossy: bool = Field(False, description="Allow arguments that change what the target would have answered.")
    preflight: Preflight = Field(
        Preflight.REQUIRE,
        description="Both models' small files are compared by a Job without accelerators. Require: the speculative "
        "pool waits for the verdict, and is not made where the draft does not fit. Warn: it is only said. Skip: no "
        "Job. Modes NGram and Suffix have nothing to compare: for them a Job only plans, where pools.accelerator says "
        "what pods get. External pools have no preflight.",
    )

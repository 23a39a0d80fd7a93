"""From what was read of two models and how pods are started to the plan of their fleet. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from specfleet.api.findings import Finding
from specfleet.api.v1alpha1 import DraftMode, EngineType, SpecDeployment
from specfleet.engines.arguments import ReadArguments, read
from specfleet.engines.capabilities import capabilities
from specfleet.engines.registry import engine_module
from specfleet.sizing.accelerators import accelerator
from specfleet.sizing.drafts import DraftCost, draft_cost
from specfleet.sizing.plan import FleetPlan, Serving, fleet_plan
from specfleet.sizing.reading import SizingProblem
from specfleet.sizing.shape import ModelShape, medusa_shape
from specfleet.sizing.started import (
    READ_FLAGS,
    READ_KEYS,
    Parallel,
    Told,
    draft_kv_bytes,
    draft_tensor,
    loaded,
    loaded_beside,
    serving_of,
)

PRODUCT_LABEL = "nvidia.com/gpu.product"


@dataclass(frozen=True)
class Question:
    """How pods are started, as far as their memory depends on it; all of it plain values, so that it can travel.

    Args:
        release: of vLLM.
        lookahead: KV slots that the engine keeps free ahead of a sequence.
        flags: of the engine, those that the plan reads.
        speculative: keys of the speculative config, those that the plan reads.
        max_sequences: that one engine runs at once.
        memory_bytes: of one accelerator; 0 for CPUs.
    """

    release: str
    mode: str
    tokens: int
    lookahead: int
    flags: Mapping[str, str | None]
    speculative: Mapping[str, str | int]
    tensor: int
    pipeline: int
    data: int
    max_sequences: int
    memory_bytes: int
    baseline_replicas: int
    speculative_replicas: int

    @property
    def arguments(self) -> ReadArguments:
        """The flags as the reader of arguments gives them."""
        return ReadArguments(EngineType.VLLM, flags=tuple(self.flags.items()), speculative=self.speculative)


@dataclass(frozen=True)
class Answer:
    """The plan, and the shapes that it was made of, as the engine loads them."""

    target: ModelShape
    draft: DraftCost
    serving: Serving
    plan: FleetPlan


def question(deployment: SpecDeployment, memory_bytes: int) -> Question:
    """What a valid SpecDeployment asks. Raises ValueError where it is not valid, or its engine is not vLLM."""
    spec = deployment.spec
    facts = engine_module(spec.engine.type).facts(deployment, speculative=True)
    arguments = read((*facts.command, *facts.args), spec.engine.type, image=facts.image)
    parallelism = spec.rendered_target.parallelism
    return Question(
        release=facts.release,
        mode=str(spec.draft.mode),
        tokens=spec.draft.tokens,
        lookahead=_lookahead(spec.engine.type, spec.draft.mode, spec.draft.tokens),
        flags={name: value for name, value in arguments.flags if name in READ_FLAGS},
        speculative={name: value for name, value in (arguments.speculative or {}).items() if name in READ_KEYS},
        tensor=parallelism.tensor,
        pipeline=parallelism.pipeline,
        data=parallelism.data,
        max_sequences=facts.max_sequences,
        memory_bytes=memory_bytes,
        baseline_replicas=spec.pools.baseline_replicas,
        speculative_replicas=spec.pools.speculative_replicas,
    )


def product_of(deployment: SpecDeployment) -> str | None:
    """The accelerator that nodes are selected by, of `pools.template`; None where none is."""
    spec = deployment.spec.pools.template.get("spec")
    selector = spec.get("nodeSelector") if isinstance(spec, Mapping) else None
    label = selector.get(PRODUCT_LABEL) if isinstance(selector, Mapping) else None
    return label if isinstance(label, str) else None


def known_memory(deployment: SpecDeployment) -> int | None:
    """Memory of the accelerator that nodes are selected by; None where that is not written or not known."""
    product = product_of(deployment)
    try:
        return accelerator(product).memory_bytes if product is not None else None
    except SizingProblem:
        return None


def answer(asked: Question, target: ModelShape, checkpoint: ModelShape | None, told: Told | None = None) -> Answer:
    """The plan.

    Args:
        target, checkpoint: as their files describe them; the checkpoint is the draft's, None where it has none.
        told: what a person says beside the object.

    Raises:
        SizingProblem: something that the plan needs is not known.
    """
    arguments = asked.arguments
    target = loaded(target, arguments)
    parallel = Parallel(asked.tensor, asked.pipeline, asked.data)
    told = told or Told(memory_bytes=asked.memory_bytes)
    serving = serving_of(arguments, asked.release, target, parallel, asked.max_sequences, told)
    if checkpoint is not None:
        checkpoint = loaded_beside(checkpoint, target, asked.speculative)
    cost = draft_cost(
        DraftMode(asked.mode),
        asked.tokens,
        asked.lookahead,
        target,
        checkpoint,
        tensor=draft_tensor(asked.speculative, asked.tensor),
    )
    cost = replace(cost, kv_bytes=draft_kv_bytes(asked.speculative, target))
    plan = fleet_plan(
        target,
        cost,
        serving,
        baseline_replicas=asked.baseline_replicas,
        speculative_replicas=asked.speculative_replicas,
    )
    return Answer(target, cost, serving, plan)


def draft_shape(
    mode: DraftMode, config: Mapping[str, Any], target: ModelShape, parameter_bytes: int | None, where: str
) -> ModelShape:
    """The shape of a draft's checkpoint. Raises SizingProblem where it is not known."""
    if mode is DraftMode.MEDUSA:
        return replace(medusa_shape(config, target, where=where), parameter_bytes=parameter_bytes)
    return ModelShape.from_config(config, parameter_bytes=parameter_bytes, where=where)


def findings(
    asked: Question,
    target: tuple[Mapping[str, Any], int | None],
    draft: tuple[Mapping[str, Any], int | None] | None,
) -> tuple[Finding, ...]:
    """Whether target and draft fit, each given as its config.json and the bytes of its weights where they are known.

    Raises:
        SizingProblem: something that the plan needs is not known.
    """
    shape = ModelShape.from_config(target[0], parameter_bytes=target[1], where="config.json of the target")
    checkpoint = None
    if draft is not None:
        checkpoint = draft_shape(DraftMode(asked.mode), draft[0], shape, draft[1], "config.json of the draft")
    return answer(asked, shape, checkpoint).plan.findings


def _lookahead(engine: EngineType, mode: DraftMode, tokens: int) -> int:
    """Slots ahead of a running sequence, by the engine's table: a number, k, or k and some more."""
    stated = capabilities(engine).of(mode).lookahead
    return sum(tokens if part.strip() == "k" else int(part) for part in stated.split("+"))

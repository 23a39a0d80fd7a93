"""From what was read of two models and how pods are started to the plan of their fleet. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from packaging.version import Version

from specfleet.api.findings import errors
from specfleet.api.v1alpha1 import DraftMode, EngineType, SpecDeployment
from specfleet.engines.arguments import ReadArguments, read
from specfleet.engines.capabilities import capabilities
from specfleet.engines.registry import engine_module
from specfleet.sizing import sglang
from specfleet.sizing.accelerators import Accelerator, accelerator
from specfleet.sizing.drafts import DraftCost, draft_cost
from specfleet.sizing.figures import PlanFigures
from specfleet.sizing.plan import FleetPlan, Serving, fleet_plan
from specfleet.sizing.quantities import bytes_of
from specfleet.sizing.reading import SizingProblem
from specfleet.sizing.shape import ModelShape, medusa_shape
from specfleet.sizing.started import (
    ONE_GROUP,
    READ_FLAGS,
    READ_KEYS,
    Parallel,
    Told,
    alike,
    check_engine,
    draft_kv_bytes,
    draft_tensor,
    loaded,
    loaded_beside,
    serving_of,
)

PRODUCT_LABEL = "nvidia.com/gpu.product"
_CPU_CACHE = "VLLM_CPU_KVCACHE_SPACE"


@dataclass(frozen=True)
class Question:
    """How pods are started, as far as their memory depends on it; all of it plain values, so that it can travel.

    Args:
        release: of the engine.
        lookahead: KV slots that the engine keeps free ahead of a sequence, beside the drafted ones.
        flags: of the engine, those that the plan reads.
        speculative: keys of the speculative config, those that the plan reads.
        max_sequences: that a pod runs at once; its data-parallel ranks share them.
        memory_bytes: of one accelerator; 0 for CPUs.
        context: tokens of the sequences to count; None: the longest that is served.
        cpu_cache: what an engine on CPUs is told to keep its KV cache in, GiB.
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
    engine: str = EngineType.VLLM.value
    context: int | None = None
    cpu_cache: str | None = None

    @property
    def arguments(self) -> ReadArguments:
        """The flags as the reader of arguments gives them."""
        return ReadArguments(EngineType(self.engine), flags=tuple(self.flags.items()), speculative=self.speculative)


@dataclass(frozen=True)
class Answer:
    """The plan, and the shapes that it was made of, as the engine loads them."""

    target: ModelShape
    draft: DraftCost
    serving: Serving
    plan: FleetPlan

    @property
    def figures(self) -> PlanFigures | None:
        """What of it is told in status; None where something does not fit."""
        return None if errors(list(self.plan.findings)) else PlanFigures.of(self.plan, self.serving.context)


def question(deployment: SpecDeployment, memory_bytes: int) -> Question:
    """What a valid SpecDeployment asks.

    Raises:
        ValueError: it is not valid.
        SizingProblem: the plan does not know its engine.
    """
    spec = deployment.spec
    engine = spec.engine.type
    check_engine(engine)
    facts = engine_module(engine).facts(deployment, speculative=True)
    arguments = read((*facts.command, *facts.args), engine, image=facts.image)
    speculation = arguments.speculative or {}
    parallelism = spec.rendered_target.parallelism
    wanted_flags, wanted_keys = (
        (sglang.READ_FLAGS, sglang.READ_KEYS) if engine is EngineType.SGLANG else (READ_FLAGS, READ_KEYS)
    )
    return Question(
        release=facts.release,
        mode=str(spec.draft.mode),
        tokens=spec.draft.tokens,
        lookahead=sglang.lookahead(spec.draft.tokens, speculation.get("num_draft_tokens"))
        if engine is EngineType.SGLANG
        else _lookahead(engine, spec.draft.mode, spec.draft.tokens),
        flags={name: value for name, value in arguments.flags if name in wanted_flags},
        speculative={name: value for name, value in speculation.items() if name in wanted_keys},
        tensor=parallelism.tensor,
        pipeline=parallelism.pipeline,
        data=parallelism.data,
        max_sequences=facts.max_sequences,
        memory_bytes=memory_bytes,
        engine=engine.value,
        context=spec.pools.sequence_tokens,
        cpu_cache=None if memory_bytes else cpu_cache(deployment),
    )


def cpu_cache(deployment: SpecDeployment) -> str | None:
    """What vLLM on CPUs keeps its KV cache in, GiB; None where it is not written in the object."""
    return next((one.value for one in deployment.spec.engine.env if one.name == _CPU_CACHE), None)


def product_of(deployment: SpecDeployment) -> str | None:
    """The accelerator that nodes are selected by, of `pools.template`; None where none is."""
    spec = deployment.spec.pools.template.get("spec")
    selector = spec.get("nodeSelector") if isinstance(spec, Mapping) else None
    label = selector.get(PRODUCT_LABEL) if isinstance(selector, Mapping) else None
    return label if isinstance(label, str) else None


def accelerator_of(deployment: SpecDeployment) -> Accelerator | None:
    """What the pods get: by `pools.accelerator`, else by the nodes that are selected; None where nothing says.

    Raises:
        SizingProblem: it is not known.
    """
    said = deployment.spec.pools.accelerator
    if said.memory is not None:
        return Accelerator(said.product or f"accelerator of {said.memory}", bytes_of(said.memory))
    product = said.product or product_of(deployment)
    return accelerator(product) if product is not None else None


def known_memory(deployment: SpecDeployment) -> int | None:
    """Memory of the accelerator that pods get, 0 for CPUs; None where what they have is not written or not known."""
    if not deployment.spec.pools.accelerator.resource:
        return 0 if cpu_cache(deployment) is not None else None
    try:
        found = accelerator_of(deployment)
    except SizingProblem:
        return None
    return found.memory_bytes if found is not None else None


def answer(
    asked: Question,
    target: ModelShape,
    checkpoint: ModelShape | None,
    told: Told | None = None,
    *,
    baseline_replicas: int = 1,
    speculative_replicas: int = 1,
) -> Answer:
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
    told = told or Told(memory_bytes=asked.memory_bytes or None, cpu_cache=asked.cpu_cache)
    told = replace(told, context=told.context or asked.context)
    mode, on_sglang = DraftMode(asked.mode), asked.engine == EngineType.SGLANG
    max_sequences = max(1, asked.max_sequences // asked.data)
    if on_sglang:
        serving = sglang.serving_of(arguments, target, parallel, max_sequences, told)
    else:
        serving = serving_of(arguments, asked.release, target, parallel, max_sequences, told)
    keys = asked.speculative
    if "draft_model_quantization" in keys:
        keys = {"quantization": keys["draft_model_quantization"]}
    if checkpoint is not None:
        checkpoint = loaded_beside(checkpoint, target, keys)
    if not on_sglang and ONE_GROUP in asked.flags:
        target, checkpoint = alike(target, checkpoint)
    cost = draft_cost(mode, asked.tokens, asked.lookahead, target, checkpoint, tensor=draft_tensor(keys, asked.tensor))
    cost = replace(cost, kv_bytes=draft_kv_bytes(keys, target))
    counted = sglang.counted(cost, target, mode, Version(asked.release)) if on_sglang else cost

    def planned(by: Serving) -> FleetPlan:
        return fleet_plan(
            target, counted, by, baseline_replicas=baseline_replicas, speculative_replicas=speculative_replicas
        )

    plan = planned(serving)
    if on_sglang:
        more = sglang.findings(plan, cost, target, serving, Version(asked.release))
        plan = replace(plan, findings=(*plan.findings, *more))
    if serving.refuses_longest and serving.longest is not None and serving.context < serving.longest:
        refused = errors(list(planned(replace(serving, context=serving.longest)).findings))
        plan = replace(plan, findings=tuple(refused)) if refused else plan
    return Answer(target, cost, serving, plan)


def draft_shape(
    mode: DraftMode, config: Mapping[str, Any], target: ModelShape, parameter_bytes: int | None, where: str
) -> ModelShape:
    """The shape of a draft's checkpoint. Raises SizingProblem where it is not known."""
    if mode is DraftMode.MEDUSA:
        return replace(medusa_shape(config, target, where=where), parameter_bytes=parameter_bytes)
    return ModelShape.from_config(config, parameter_bytes=parameter_bytes, where=where)


def answer_from_files(
    asked: Question,
    target: tuple[Mapping[str, Any], int | None],
    draft: tuple[Mapping[str, Any], int | None] | None,
) -> Answer:
    """The plan for target and draft, each given as its config.json and the bytes of its weights where they are known.

    Raises:
        SizingProblem: something that the plan needs is not known.
    """
    shape = ModelShape.from_config(target[0], parameter_bytes=target[1], where="config.json of the target")
    checkpoint = None
    if draft is not None:
        checkpoint = draft_shape(DraftMode(asked.mode), draft[0], shape, draft[1], "config.json of the draft")
    return answer(asked, shape, checkpoint)


def _lookahead(engine: EngineType, mode: DraftMode, tokens: int) -> int:
    """Slots ahead of a running sequence, by the engine's table: a number, k, or k and some more."""
    stated = capabilities(engine).of(mode).lookahead
    return sum(tokens if part.strip() == "k" else int(part) for part in stated.split("+"))

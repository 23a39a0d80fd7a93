"""Asks running engine pods once how much KV cache they have, beside the passes, and tells the plan with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from specfleet.api.status import PlanStatus
from specfleet.api.v1alpha1 import EngineType, Metadata, SpecDeployment, SpecDeploymentSpec
from specfleet.engines.registry import engine_module
from specfleet.handlers.observed import Key
from specfleet.handlers.planned import Reports, sequences_of, told_plan
from specfleet.handlers.pods import PodRecord
from specfleet.handlers.preflight import Gate
from specfleet.metrics.engine import EngineError, EngineReader
from specfleet.sizing.live import reported_tokens
from specfleet.sizing.reading import SizingProblem

logger = logging.getLogger(__name__)
RETRY_SECONDS = 60.0


@dataclass
class _Known:
    """What is remembered of one SpecDeployment: pods' answers, the last plan, and how its engine is reached."""

    reports: Reports = field(default_factory=Reports)
    plan: PlanStatus | None = None
    generation: int = -1
    port: int = 0
    accelerators: int = 0
    round: asyncio.Task[None] | None = None


class Reporter:
    """Keeps what pods report by SpecDeployment; no pass waits for one."""

    def __init__(self, reader: EngineReader) -> None:
        self._reader = reader
        self._known: dict[Key, _Known] = {}

    def plan(self, key: Key) -> PlanStatus | None:
        """The last plan, where status keeps none (the CRD of an earlier release)."""
        known = self._known.get(key)
        return known.plan if known is not None else None

    def follow(
        self,
        key: Key,
        body: Mapping[str, Any],
        spec: SpecDeploymentSpec,
        pods: Iterable[PodRecord],
        gate: Gate,
        before: PlanStatus | None,
        now: float,
    ) -> Gate:
        """The gate with its plan as status tells it. Starts a round of questions where there are pods to ask.

        Args:
            before: what status tells now.
        """
        if spec.external is not None:
            return gate
        known = self._known.setdefault(key, _Known())
        _learn(known, body, spec)
        pods = list(pods)
        reported = known.reports.by_pool(pods)
        if gate.plan is not None and gate.plan.kv_tokens and (known.round is None or known.round.done()):
            asked = known.reports.unasked(pods, now)
            if asked:
                round_ = self._round(spec.engine.type, known, asked, now)
                known.round = asyncio.create_task(round_, name="KV cache of engines")
        second_pool = spec.pools.baseline_replicas * known.accelerators
        plan = told_plan(gate.plan, before, reported, second_pool if spec.pools.accelerator.resource else None)
        known.plan = plan
        said = gate.said
        if said is not None and plan is not None and plan.message is not None:
            said = replace(said, message=f"{said.message} {plan.message}")
        return replace(gate, plan=plan, sequences=sequences_of(plan, spec), said=said)

    def forget(self, key: Key) -> None:
        """The SpecDeployment is gone."""
        known = self._known.pop(key, None)
        if known is not None and known.round is not None:
            known.round.cancel()

    async def _round(self, engine: EngineType, known: _Known, pods: list[PodRecord], now: float) -> None:
        await asyncio.gather(*(self._ask(engine, known, pod, now) for pod in pods))

    async def _ask(self, engine: EngineType, known: _Known, pod: PodRecord, now: float) -> None:
        try:
            page = await self._reader.page(pod.ip or "", known.port)
            known.reports.tokens[pod.uid] = reported_tokens(page, engine)
        except (EngineError, SizingProblem) as problem:
            known.reports.later[pod.uid] = now + RETRY_SECONDS
            logger.info("pod %s does not tell its KV cache: %s", pod.name, problem)


def _learn(known: _Known, body: Mapping[str, Any], spec: SpecDeploymentSpec) -> None:
    """Port and accelerators of a pod, once for each edit."""
    generation = int(body["metadata"]["generation"])
    if known.generation != generation:
        deployment = SpecDeployment(metadata=Metadata.model_validate(body["metadata"]), spec=spec)
        facts = engine_module(spec.engine.type).facts(deployment, speculative=False)
        known.generation, known.port, known.accelerators = generation, facts.port, facts.accelerators

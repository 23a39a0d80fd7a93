"""Brings what is seen of External pools into a pass, and lets no pass wait for a pod that does not answer."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from specfleet.api.conditions import Reason
from specfleet.api.findings import Finding, Severity
from specfleet.api.v1alpha1 import SpecDeploymentSpec
from specfleet.cluster.errors import ClusterError
from specfleet.decision.samples import Ledger
from specfleet.handlers.decide import blocks, for_all_routes
from specfleet.handlers.discovery import Discovery, Sight
from specfleet.handlers.external import Assessment, assess_pools
from specfleet.handlers.memory import Memory
from specfleet.handlers.observed import Key
from specfleet.handlers.outside import Outside
from specfleet.handlers.pods import Problem
from specfleet.handlers.rendering import Renderer
from specfleet.handlers.sampling import IMPLAUSIBLE
from specfleet.metrics.own import OperatorMetrics
from specfleet.routing.counters import RouterSample

logger = logging.getLogger(__name__)
UNSETTLED_SECONDS = 5.0
Body = Mapping[str, Any]


class Looker:
    """Looks at External pools beside the passes; only the first look after a change of the spec is waited for."""

    def __init__(
        self,
        discovery: Discovery,
        renderer: Renderer,
        metrics: OperatorMetrics,
        mark: Callable[[Key, float], None],
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._discovery = discovery
        self._renderer = renderer
        self._metrics = metrics
        self._mark = mark
        self._clock = clock

    async def assess(
        self, key: Key, body: Body, spec: SpecDeploymentSpec, memory: Memory, now: float
    ) -> SpecDeploymentSpec:
        """Fill `memory.outside`. Returns the spec with the number of draft tokens that the pods have.

        Raises:
            ClusterError: the API server does not answer, and nothing has been seen yet.
        """
        outside = await self._seen(key, spec, memory, now)
        seen = outside.sight.seen or {}
        draft = spec.draft
        outside.figures_seen = outside.figures_seen or _measured(memory.counted.values(), draft.name)
        found = assess_pools(spec, seen, figures_seen=outside.figures_seen, before=outside.assessment)
        found = _with_findings(found, self._renderer.check_external(body, spec, found.pools))
        before = outside.assessment
        if before is not None and before.attribution != found.attribution:
            # Two counts of one traffic do not continue each other.
            memory.ledger = Ledger(memory.block_seconds, now)
            outside.ledger = Ledger(memory.block_seconds, now)
            memory.blocks = {}
        if found.attribution == "Deployment":
            outside.count(seen.get(draft.name), found.draft_tokens)
        outside.assessment = found
        counted = draft.model_copy(update={"tokens": found.draft_tokens})
        return spec.model_copy(update={"drafts": [counted]})

    def counted(self, spec: SpecDeploymentSpec, memory: Memory, now: float) -> None:
        """After the routers were read: with one count for all routes, close its block instead of theirs."""
        outside = memory.outside
        if outside is None or outside.assessment is None:
            return
        if outside.weigh_due:
            outside.weighed(memory.loads.values())
        outside.filled(memory.loads.values(), spec.draft.name)
        if outside.assessment.attribution == "Router":
            return
        increment, problems = outside.take(now)
        for problem in problems:
            self._metrics.samples_dropped.labels(problem.kind.value).inc()
            logger.info("sample of engine %s left out: %s (%s)", problem.source, problem.message, problem.kind)
            memory.implausible = memory.implausible or problem.kind in IMPLAUSIBLE
        if increment is not None:
            outside.blocks.update(blocks(for_all_routes(spec, increment), memory.routes, now, memory.block_seconds))
        memory.blocks = dict(outside.blocks)

    def next_look(self, memory: Memory, now: float) -> list[float]:
        """Seconds until the next look, where one is to come."""
        outside = memory.outside
        if outside is None or (outside.looking is not None and not outside.looking.done()):
            return []
        return [max(0.05, outside.sight.next_look - now)]

    def forget(self, memory: Memory) -> None:
        """The SpecDeployment is gone, or has no External pools any more."""
        if memory.outside is not None and memory.outside.looking is not None:
            memory.outside.looking.cancel()
        memory.outside = None

    async def _seen(self, key: Key, spec: SpecDeploymentSpec, memory: Memory, now: float) -> Outside:
        asked = (spec.external, spec.engine.type, spec.draft.name)
        outside = memory.outside
        if outside is None or outside.asked != asked:
            self.forget(memory)
            outside = memory.outside = Outside.new(asked, memory.block_seconds, now)
        idle = outside.looking is None or outside.looking.done()
        if idle and now >= outside.sight.next_look:
            outside.looking = asyncio.create_task(self._look(key, spec, outside, memory.sample_seconds, now))
        if outside.sight.seen is None and outside.looking is not None:
            await outside.looking
        return outside

    async def _look(self, key: Key, spec: SpecDeploymentSpec, outside: Outside, pace: float, now: float) -> None:
        sight = outside.sight
        first = sight.seen is None
        sight.next_look = now + pace
        try:
            await self._discovery.look(key[0], spec, sight, now)
        except ClusterError as error:
            if first:
                sight.next_look = 0.0
                raise
            logger.warning("%s/%s: External pools are not seen now: %s", *key, error)
            return
        outside.looked += 1
        if _unsettled(sight):
            sight.next_look = min(sight.next_look, now + UNSETTLED_SECONDS)
        if not first:
            self._mark(key, 0.0)


def _unsettled(sight: Sight) -> bool:
    """Whether a pool cannot serve yet: what mends it should be seen soon."""
    return any(pool.problem is not None or pool.ready == 0 for pool in (sight.seen or {}).values())


def _measured(samples: Iterable[RouterSample], speculative_pool: str) -> bool:
    return any(row.pool == speculative_pool and row.measured > 0 for sample in samples for row in sample.rows)


def _with_findings(found: Assessment, findings: Iterable[Finding]) -> Assessment:
    """What keeps requests from being answered alike by both pools makes them unfit; the rest is told."""
    findings = tuple(findings)
    wrong = next((one for one in findings if one.severity is Severity.ERROR), None)
    unfit = found.unfit
    if unfit is None and wrong is not None:
        unfit = Problem(Reason.POOLS_DIFFER, f"{wrong.path}: {wrong.message}")
    warnings = tuple(one for one in findings if one.severity is not Severity.ERROR)
    return replace(found, unfit=unfit, warnings=(*found.warnings, *warnings))

"""Reads engine pages of rendered pools beside the passes, and closes the guards' blocks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping

from specfleet.api.v1alpha1 import EngineType, SpecDeploymentSpec
from specfleet.engines import sglang, trtllm, vllm
from specfleet.engines.counting import engine_counting
from specfleet.handlers.decide import configs, pool_roles
from specfleet.handlers.fleet import Fleet
from specfleet.handlers.guarding import Guarding, ReadyPod, seen_block
from specfleet.handlers.memory import Memory
from specfleet.handlers.pods import PodRecord
from specfleet.metrics.engine import METRICS_PATH, EngineError, EngineReader
from specfleet.metrics.own import OperatorMetrics

logger = logging.getLogger(__name__)
SILENT_BLOCKS = 5
PAGES: Mapping[EngineType, tuple[int, str]] = {
    EngineType.VLLM: (vllm.PORT, METRICS_PATH),
    EngineType.SGLANG: (sglang.PORT, METRICS_PATH),
    EngineType.TENSORRTLLM: (trtllm.PORT, trtllm.METRICS_PATH),
}


class Guards:
    """Of all SpecDeployments. No pass waits for a page, and none that fails stops anything."""

    def __init__(self, reader: EngineReader, metrics: OperatorMetrics) -> None:
        self._reader = reader
        self._metrics = metrics

    def follow(self, spec: SpecDeploymentSpec, memory: Memory, pods: Iterable[PodRecord], now: float) -> None:
        """Start a round of readings when it is time: one a block, of all ready pods of both pools."""
        guarding = memory.guarding
        if spec.external is not None or _tells_nothing(spec):
            return
        ready = {pod.uid: pod for pod in pods if pod.component == "engine" and pod.ready and pod.ip is not None}
        guarding.kept(ready)
        idle = guarding.reading is None or guarding.reading.done()
        if idle and now >= guarding.next_page:
            guarding.next_page = now + guarding.block_seconds
            due = [pod for uid, pod in ready.items() if guarding.silent_until.get(uid, 0.0) <= now]
            guarding.reading = asyncio.create_task(self._round(spec, guarding, due, now), name="load of engines")

    def look(
        self, spec: SpecDeploymentSpec, memory: Memory, state: Fleet, pods: Iterable[PodRecord], now: float
    ) -> None:
        """After the routers were read: take their counters in, and judge the block that is due."""
        guarding = memory.guarding
        guarding.take_in(memory.counted, spec)
        outside = memory.outside.sight.seen if memory.outside is not None else None
        guarding.look_outside(outside or {})
        if now < guarding.next_block or state.baseline.absent or state.speculative.absent:
            return
        found = configs(spec)
        routes = {name: memory.routes[name] for name in found if name in memory.routes}
        active = {name: sum(one.route_active.get(name, 0) for one in memory.loads.values()) for name in routes}
        roles = pool_roles(spec.draft.name)
        if outside is None:
            engines = [pod for pod in pods if pod.component == "engine" and pod.ready and pod.pool in roles]
            ready = [ReadyPod(pod.uid, pod.name, roles[str(pod.pool)], pod.created) for pod in engines]
        else:
            ready = [
                ReadyPod(pod.uid, pod.name, roles[name], None)
                for name, pool in outside.items()
                for pod in pool.pods
                if pod.ready
            ]
        counts = memory.counts
        attributed = memory.outside.assessment if memory.outside is not None else None
        seen = seen_block(
            spec,
            guarding,
            state,
            routes,
            found,
            active,
            ready,
            now,
            curves=memory.times.curves,
            suppressed=counts.suppressed if counts is not None else None,
            by_router=counts is None and (attributed is None or attributed.attribution == "Router"),
        )
        if left_out := guarding.close_block(seen):
            self._metrics.samples_dropped.labels("NotACount").inc(left_out)

    async def _round(self, spec: SpecDeploymentSpec, guarding: Guarding, pods: list[PodRecord], now: float) -> None:
        await asyncio.gather(*(self._read(spec, guarding, pod, now) for pod in pods))

    async def _read(self, spec: SpecDeploymentSpec, guarding: Guarding, pod: PodRecord, now: float) -> None:
        port, path = PAGES[spec.engine.type]
        try:
            page = await self._reader.load(str(pod.ip), port, spec.engine.type, path, spec.draft.tokens)
        except EngineError as error:
            guarding.pages.pop(pod.uid, None)
            level = logging.DEBUG if pod.uid in guarding.silent_until else logging.INFO
            guarding.silent_until[pod.uid] = now + SILENT_BLOCKS * guarding.block_seconds
            self._metrics.engine_readings.labels("failed").inc()
            logger.log(level, "pod %s does not tell its load: %s", pod.name, error)
            return
        guarding.silent_until.pop(pod.uid, None)
        self._metrics.engine_readings.labels("ok").inc()
        guarding.look_at(page, pod.uid)


def _tells_nothing(spec: SpecDeploymentSpec) -> bool:
    """Whether the release is known to have neither load nor drafts on its page: TensorRT-LLM before 1.3."""
    how = engine_counting(spec)
    return spec.engine.type is EngineType.TENSORRTLLM and how is not None and how.silent

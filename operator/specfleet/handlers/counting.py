"""Reads the pages of rendered engines that count, beside the passes, into the ledger of decisions."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from specfleet.api.v1alpha1 import SpecDeploymentSpec
from specfleet.decision.samples import Ledger
from specfleet.engines.counting import engine_counting
from specfleet.handlers.engine_counts import EngineCounts
from specfleet.handlers.memory import Memory
from specfleet.handlers.pods import PodRecord
from specfleet.metrics.engine import EngineError, EngineReader
from specfleet.metrics.own import OperatorMetrics

logger = logging.getLogger(__name__)


class Counter:
    """Reads engine pages of SpecDeployments; no pass waits for one."""

    def __init__(self, reader: EngineReader, metrics: OperatorMetrics) -> None:
        self._reader = reader
        self._metrics = metrics

    def follow(self, spec: SpecDeploymentSpec, memory: Memory, pods: Iterable[PodRecord], now: float) -> None:
        """Before the routers are read: start a round of readings when it is time. Fills `memory.counts`."""
        how = engine_counting(spec)
        counts = memory.counts
        if how is None or counts is None or counts.how != how:
            if (how is None) != (counts is None) or (how and counts and how.label != counts.how.label):
                # Two counts of one traffic do not continue each other.
                memory.ledger = Ledger(memory.block_seconds, now)
            counts = memory.counts = None if how is None else EngineCounts(how)
        if counts is None:
            return
        ready = [pod for pod in pods if pod.component == "engine" and pod.pool == spec.draft.name and pod.ready]
        counts.kept({pod.uid: pod.name for pod in ready}, memory.ledger)
        if how is not None and how.silent:
            return
        idle = counts.reading is None or counts.reading.done()
        new = [pod for pod in ready if pod.uid not in counts.readings and pod.name not in counts.troubles]
        if idle and (now >= memory.next_sample or new):
            counts.reading = asyncio.create_task(self._round(spec, counts, memory.ledger, ready), name="engine pages")

    async def _round(
        self, spec: SpecDeploymentSpec, counts: EngineCounts, ledger: Ledger, pods: list[PodRecord]
    ) -> None:
        await asyncio.gather(*(self._read(spec, counts, ledger, pod) for pod in pods))

    async def _read(self, spec: SpecDeploymentSpec, counts: EngineCounts, ledger: Ledger, pod: PodRecord) -> None:
        if pod.ip is None:
            return
        try:
            reading = await self._reader.metrics(
                pod.ip, counts.how.port, spec.engine.type, counts.how.path, route_label=counts.how.label
            )
        except EngineError as error:
            counts.troubles[pod.name] = str(error)
            self._metrics.samples.labels("failed").inc()
            logger.info("pod %s: %s", pod.name, error)
            return
        counts.troubles.pop(pod.name, None)
        self._metrics.samples.labels("ok").inc()
        if pod.uid in counts.expected:
            routes = [route.name for route in spec.routing.routes]
            counts.take_in(pod.uid, reading, ledger, routes, spec.draft.tokens)

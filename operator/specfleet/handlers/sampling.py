"""Reads the routers of one SpecDeployment when it is time, and closes blocks."""

from __future__ import annotations

import asyncio
import logging

from specfleet.api.v1alpha1 import SpecDeploymentSpec
from specfleet.decision.reasons import Hold
from specfleet.decision.samples import Kind
from specfleet.handlers.decide import ALL_ROUTES, blocks, for_all_routes, route_totals
from specfleet.handlers.fleet import Fleet
from specfleet.handlers.memory import Memory
from specfleet.handlers.pods import PodRecord
from specfleet.metrics.direct import RouterError, RouterReader
from specfleet.metrics.own import OperatorMetrics

logger = logging.getLogger(__name__)
UNREACHABLE_SECONDS = 300.0
IMPLAUSIBLE = frozenset({Kind.NOT_A_COUNT, Kind.ACCEPTED_OVER_DRAFTED, Kind.COUNTER_FELL, Kind.LEAP})


async def sample(
    memory: Memory,
    state: Fleet,
    spec: SpecDeploymentSpec,
    reader: RouterReader,
    metrics: OperatorMetrics,
    now: float,
    *,
    connecting: bool = False,
) -> None:
    """Read all ready routers if it is time, or while they are `connecting` to pods; and new ones at once.

    With source Prometheus that tells what is in flight and what is served, and what Prometheus has is what is counted.
    At the end of a block, what was counted goes into `memory.blocks`.
    """
    draft = spec.draft.name
    memory.kept(state.router_pods)
    due = list(state.routers)
    if now < memory.next_sample and not connecting:
        due = memory.unheard(state.routers, memory.samples, now)
    elif now >= memory.next_sample:
        memory.next_sample = now + memory.sample_seconds
    due = memory.asked(due, now)
    await asyncio.gather(*(_read(memory, pod, draft, reader, metrics, now) for pod in due))
    if memory.scraped is not None and due and not memory.samples:
        # It may not reach them at all, which need not be: then it does not wait for their silence in every pass.
        memory.served.clear()
        memory.silent_until.update(dict.fromkeys((pod.uid for pod in due), now + UNREACHABLE_SECONDS))
    if memory.scraped is not None and memory.counts is None:
        for uid, one in memory.scraped.new_samples(state.routers, now):
            memory.ledger.observe(uid, one.started_at, one.at, route_totals(one, draft))
    if now < memory.next_block:
        return
    memory.next_block = max(memory.next_block + memory.block_seconds, now + memory.block_seconds / 2.0)
    taken = memory.ledger.take(now)
    memory.implausible = any(problem.kind in IMPLAUSIBLE for problem in taken.problems)
    for problem in taken.problems:
        metrics.samples_dropped.labels(problem.kind.value).inc()
        logger.info("sample of %s left out: %s (%s)", problem.source or "all routers", problem.message, problem.kind)
    increments = taken.increments
    if memory.counts is not None and memory.counts.together and ALL_ROUTES in increments:
        increments = for_all_routes(spec, increments[ALL_ROUTES])
    memory.blocks.update(blocks(increments, memory.routes, now, memory.block_seconds))


async def _read(
    memory: Memory, pod: PodRecord, draft: str, reader: RouterReader, metrics: OperatorMetrics, now: float
) -> None:
    assert pod.ip is not None
    try:
        reading = await reader.sample(pod.ip)
    except RouterError as error:
        memory.samples.pop(pod.uid, None)
        memory.silent_until[pod.uid] = now + memory.sample_seconds
        metrics.samples.labels("failed").inc()
        logger.info("%s", error)
        return
    metrics.samples.labels("ok").inc()
    memory.silent_until.pop(pod.uid, None)
    memory.samples[pod.uid] = reading
    if memory.scraped is None and memory.counts is None:
        memory.ledger.observe(pod.uid, reading.started_at, reading.at, route_totals(reading, draft))


def metrics_hold(memory: Memory, state: Fleet, now: float) -> Hold | None:
    """Why the figures of the routers, or of the engines where those count, cannot be decided by, if so."""
    if memory.counts is not None:
        return memory.counts.hold(memory.ledger, now)
    return memory.ledger.hold(now, [pod.uid for pod in state.routers])

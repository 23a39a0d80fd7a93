"""Brings what was read of routers and engines into the curves of step times, and closes their blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specfleet.api.v1alpha1 import SpecDeploymentSpec
from specfleet.decision.curves import Curves
from specfleet.decision.rule import Pool
from specfleet.handlers.decide import pool_roles
from specfleet.handlers.fleet import Fleet
from specfleet.handlers.memory import Memory
from specfleet.handlers.observed import Key, Observed
from specfleet.handlers.status import parse_status
from specfleet.handlers.step_times import measures, pool_keys
from specfleet.metrics.load import LoadPage


def follow(
    key: Key,
    body: Mapping[str, Any],
    spec: SpecDeploymentSpec,
    memory: Memory,
    state: Fleet,
    observed: Observed,
    now: float,
) -> None:
    """After the routers were read, in every pass. Nothing where no time is of use, or a pool is missing."""
    times = memory.times
    if state.baseline.absent or state.speculative.absent:
        return
    if not measures(spec):
        times.curves = Curves()
        return
    if not times.recalled:
        times.recall(parse_status(body).curves)
    outside = memory.outside
    assessment = None if outside is None else outside.assessment
    uid = str(body["metadata"]["uid"])
    times.curves = times.curves.keyed(*pool_keys(key[1], spec, uid, observed.owned(key), assessment))
    elsewhere = {} if outside is None else outside.elsewhere
    times.take_in(spec, state, memory.counted, memory.loads, elsewhere, _pages(key, spec, memory, observed, now))
    if now >= times.next_block:
        times.close_block(spec, state, memory.blocks, now, held=parse_status(body).upgrade is not None)


def _pages(
    key: Key, spec: SpecDeploymentSpec, memory: Memory, observed: Observed, now: float
) -> dict[Pool, list[LoadPage]]:
    """The pages of ready engine pods that were read within the last block and a half."""
    roles = pool_roles(spec.draft.name)
    found: dict[Pool, list[LoadPage]] = {}
    for pod in observed.pods(key):
        page = memory.guarding.pages.get(pod.uid)
        if pod.component != "engine" or not pod.ready or pod.pool not in roles or page is None:
            continue
        if 0.0 <= now - page.at + 1.0 <= 1.5 * memory.block_seconds + 1.0:
            found.setdefault(roles[pod.pool], []).append(page)
    return found

"""Brings what was read of routers and engines into curves of step times, closes their blocks, and reads lines off."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specfleet.api.status import PlanStatus
from specfleet.api.v1alpha1 import SpecDeploymentSpec
from specfleet.decision.break_even import Estimate
from specfleet.decision.curves import Curves
from specfleet.decision.rule import Pool, RouteState
from specfleet.handlers.decide import configs, grouped, pool_roles
from specfleet.handlers.fleet import Fleet
from specfleet.handlers.memory import Memory
from specfleet.handlers.observed import Key, Observed
from specfleet.handlers.status import parse_status
from specfleet.handlers.step_times import StepTimes, measures, pool_keys
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


def measured_lines(
    spec: SpecDeploymentSpec,
    times: StepTimes,
    states: Mapping[str, RouteState],
    state: Fleet,
    planned: PlanStatus | None,
    now: float,
    *,
    together: bool,
) -> dict[str, Estimate]:
    """The break-even lines that are measured, by route."""
    groups = grouped(spec, together=together)
    expected = None if planned is None else planned.break_even_tokens_per_step
    prior = None if expected is None else float(expected)
    return {
        name: times.estimate(spec, state, states[name], groups[name], now, prior)
        for name, config in configs(spec).items()
        if config.certainty is not None
    }


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

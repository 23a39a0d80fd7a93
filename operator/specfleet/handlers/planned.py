"""The KV plan as status carries it, what running pods say of it, and what the routers let through by it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from specfleet.api.names import BASELINE_POOL
from specfleet.api.status import PlanStatus
from specfleet.api.v1alpha1 import SpecDeploymentSpec
from specfleet.handlers.pods import PodRecord
from specfleet.render.plan import requests_per_router
from specfleet.sizing.figures import PlanFigures
from specfleet.sizing.live import TOLERANCE

TOLD_ABOVE = 0.05
"""Plan and report are told to differ from this share on."""


@dataclass
class Reports:
    """Tokens of KV cache as pods report them, by uid, and those that could not be asked yet, until when."""

    tokens: dict[str, int] = field(default_factory=dict)
    later: dict[str, float] = field(default_factory=dict)

    def unasked(self, pods: Iterable[PodRecord], now: float) -> list[PodRecord]:
        """Ready engine pods to ask."""
        return [
            pod for pod in pods if _ready(pod) and pod.uid not in self.tokens and self.later.get(pod.uid, 0.0) <= now
        ]

    def by_pool(self, pods: Iterable[PodRecord]) -> dict[str, int]:
        """The least of each pool of which every ready pod has been asked; forgets pods that are gone."""
        ready: dict[str, list[str]] = {}
        for pod in pods:
            if _ready(pod) and pod.pool is not None:
                ready.setdefault(pod.pool, []).append(pod.uid)
        alive = {uid for uids in ready.values() for uid in uids}
        self.tokens = {uid: tokens for uid, tokens in self.tokens.items() if uid in alive}
        self.later = {uid: until for uid, until in self.later.items() if uid in alive}
        return {
            pool: min(self.tokens[uid] for uid in uids)
            for pool, uids in ready.items()
            if all(uid in self.tokens for uid in uids)
        }


def _ready(pod: PodRecord) -> bool:
    return pod.component == "engine" and pod.ready and not pod.deleting and pod.ip is not None


def plan_of(figures: PlanFigures, spec: SpecDeploymentSpec) -> PlanStatus:
    """The plan that came with a verdict."""
    rooms = {BASELINE_POOL: figures.baseline, spec.draft.name: figures.speculative}
    line = figures.break_even_percent
    return PlanStatus(
        kv_bytes_per_token=figures.kv_bytes_per_token,
        sequence_tokens=figures.context,
        sequences={pool: room.sequences for pool, room in rooms.items()},
        kv_tokens={pool: room.kv_tokens for pool, room in rooms.items() if room.kv_tokens is not None} or None,
        draft_cost_percent=figures.cost_percent,
        break_even_tokens_per_step=None if line is None else f"{line / 100:.2f}",
    )


def told_plan(
    planned: PlanStatus | None, before: PlanStatus | None, reported: Mapping[str, int], second_pool: int | None
) -> PlanStatus | None:
    """The plan as status tells it; None where nothing of it is known.

    Args:
        before: what status tells now; a report that is not there stands until there is another.
        reported: tokens of KV cache by pool.
        second_pool: accelerators of the pool without speculation; None where it has none.
    """
    if planned is None:
        return None if second_pool is None else PlanStatus(second_pool_accelerators=second_pool)
    kv_tokens = planned.kv_tokens or {}
    known = before.reported_kv_tokens if before is not None and before.kv_tokens == planned.kv_tokens else None
    reports = {pool: tokens for pool, tokens in {**(known or {}), **reported}.items() if pool in kv_tokens}
    said = [_contradiction(pool, kv_tokens[pool], tokens) for pool, tokens in sorted(reports.items())]
    message = " ".join(one for one in said if one is not None)
    return planned.model_copy(
        update={
            "reported_kv_tokens": reports or None,
            "second_pool_accelerators": second_pool,
            "message": message[:512] or None,
        }
    )


def _contradiction(pool: str, planned: int, reported: int) -> str | None:
    difference = planned / reported - 1 if reported else 0.0
    if abs(difference) <= TOLD_ABOVE:
        return None
    return (
        f"Pods of {pool} report {reported} tokens of KV cache, and {planned} were planned ({100 * difference:+.0f} %): "
        "what the engine reports counts."
    )


def sequences_of(plan: PlanStatus | None, spec: SpecDeploymentSpec) -> dict[str, int]:
    """Sequences of the stated length that a pod has room for, by pool, for the routers' limits.

    Empty where nobody has stated a length: by the longest that is served, the routers would turn away most of the
    traffic that has room. A pod's own report wins over the plan where they differ by more than a plan may.
    """
    if plan is None or plan.sequence_tokens is None or plan.sequence_tokens != spec.pools.sequence_tokens:
        return {}
    kv_tokens, reports, found = plan.kv_tokens or {}, plan.reported_kv_tokens or {}, {}
    for pool, sequences in (plan.sequences or {}).items():
        planned, reported = kv_tokens.get(pool), reports.get(pool)
        if planned and reported and abs(planned / reported - 1) > TOLERANCE:
            sequences = sequences * reported // planned
        found[pool] = max(1, sequences)
    return found


def planned_limits(
    breakers: Mapping[str, int], sequences: Mapping[str, int], spec: SpecDeploymentSpec, routers: int
) -> dict[str, int]:
    """Requests that one router lets through, by pool: no more than the plan has room for."""
    return {
        pool: min(limit, requests_per_router(sequences[pool], spec.pools.size, routers)) if pool in sequences else limit
        for pool, limit in breakers.items()
    }

"""The upgrade of a SpecDeployment's pools: what differs, which pool is next, and what waits for it. Pure.

An upgrade is a change of pod templates. It is read from annotations of the pools' Deployments and from status, so that
an operator that was killed in the middle of one is followed by the next at the same place.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from specfleet.api.conditions import Reason
from specfleet.api.names import BASELINE_POOL, pool_object
from specfleet.api.status import UpgradeStatus
from specfleet.api.v1alpha1 import SpecDeploymentSpec
from specfleet.capacity.rollout import Order, PoolRollout, order
from specfleet.cluster.applied import differences, unpacked
from specfleet.cluster.kinds import DEPLOYMENT
from specfleet.handlers.fleet import Fleet, WorkloadHealth
from specfleet.handlers.masking import masked
from specfleet.handlers.observed import OwnedRecord
from specfleet.handlers.plan import ObjectId
from specfleet.handlers.pods import Problem
from specfleet.handlers.rendering import WantedPool
from specfleet.render.start import USUAL_START, Start, Starts
from specfleet.render.upgrade import HASHED, PLAIN_NAMES, RELEASE, difference, drafts_differ

MOST_TOLD = 4
_ONLY_POD = " Until its only pod is ready, requests that only baseline may serve are answered 503."
_MOST_VALUE = 60
_MOST_CHANGES = 480
_MOST_RELEASE = 64
_SHORT_REVISION = 12
_NUMBER = re.compile(r"[0-9.]{0,12}")
Template = Callable[[str], Mapping[str, Any]]  # the pod template of a pool by its name, rendered


@dataclass(frozen=True)
class Upgrade:
    """What is to be done about pod templates in this pass.

    Attributes:
        waits: why a pool keeps its template for now, by its name.
        status: None where no upgrade is under way.
        frozen: nothing is decided: some ready pods may be of another template than others.
        redrafted: what was counted so far was counted of other drafts, or of another target.
        alone: there is no speculative pool, and its accelerators are free.
        starts: how long pods may take to start.
        moving: routers were taken to be taking over other files.
    """

    changed: frozenset[str] = frozenset()
    waits: Mapping[str, str] = field(default_factory=dict)
    status: UpgradeStatus | None = None
    frozen: bool = False
    redrafted: bool = False
    alone: bool = False
    starts: Starts = field(default_factory=dict)
    moving: bool = False

    @property
    def digest(self) -> list[Any]:
        """What of it the plan depends on."""
        starts = {pool: (one.probe_seconds, one.deadline_seconds) for pool, one in self.starts.items()}
        return [sorted(self.changed), sorted(self.waits), self.alone, self.from_release, starts]

    @property
    def from_release(self) -> str | None:
        """The engine's release of which pods may still run beside the one in the spec."""
        return None if self.status is None else self.status.from_release

    def marked(self, state: Fleet) -> Fleet:
        """`state`, in which a pool that has still to take its template counts as not rolled out."""

        def mark(pool: WorkloadHealth) -> WorkloadHealth:
            return replace(pool, rolled_out=False) if pool.name in self.changed else pool

        return replace(state, baseline=mark(state.baseline), speculative=mark(state.speculative))


def upgrade(
    name: str,
    spec: SpecDeploymentSpec,
    uid: str,
    wanted: Mapping[str, WantedPool],
    owned: Mapping[ObjectId, OwnedRecord],
    state: Fleet,
    before: UpgradeStatus | None,
    template: Template,
    *,
    held: Problem | None = None,
    moving: bool = False,
    reached: Mapping[str, bool] | None = None,
    start_seconds: int = 0,
) -> Upgrade:
    """From what was observed of SpecDeployment `name` with this uid.

    Args:
        wanted: the pools as the spec has them; none for External pools.
        before: what status said of it.
        template: asked only for a Deployment that a release without annotations has written.
        held: why the speculative pool must not be made or changed.
        moving: routers are taking over other files.
        reached: whether routers reach a pool that has ready pods.
        start_seconds: how long pods may take to start by the size of their models; 0 is the engine's usual time.
    """
    if not wanted:
        return Upgrade()
    records = {pool: _record(owned, pool_object(name, pool), uid) for pool in wanted}
    changed = frozenset(
        pool
        for pool, record in records.items()
        if record is not None and _differs(record, wanted[pool], pool, template)
    )
    undecided = held is not None and held.reason is not Reason.DRAFT_INCOMPATIBLE

    def rollout(health: WorkloadHealth, kept: str | None) -> PoolRollout:
        return PoolRollout(
            health.name,
            exists=records[health.name] is not None,
            changed=health.name in changed,
            ready=health.ready,
            serving=health.serving,
            rolled_out=health.rolled_out,
            underway=health.rolling,
            reached=(reached or {}).get(health.name, True),
            kept=kept,
            undecided=undecided,
        )

    speculative = rollout(state.speculative, None if held is None else _kept(undecided=undecided))
    found = order(speculative, rollout(state.baseline, None), moving=moving)
    draft = spec.draft.name
    # A pool that is kept out takes no part, unless it is there and waits with a template of its own.
    pools = (state.speculative, state.baseline) if held is None or draft in changed else (state.baseline,)
    status = _status(pools, changed, found, records, wanted, before)
    return Upgrade(
        changed=changed,
        waits=found.waits,
        moving=moving,
        status=status,
        # A pool that keeps its old draft for good is counted and decided on as ever.
        frozen=status is not None and (held is None or undecided),
        redrafted=_renamed(owned, uid, wanted) or (draft in found.go and _redrafted(records[draft], wanted[draft])),
        alone=held is not None and records[draft] is None,
        starts={
            pool.name: one
            for pool in state.pools
            if (one := _start(pool, records[pool.name], start_seconds, changed=pool.name in changed)) != USUAL_START
        },
    )


def _start(health: WorkloadHealth, record: OwnedRecord | None, seconds: int, *, changed: bool) -> Start:
    """Pods that run are not rolled for another probe: they take it with their next template.

    Those of a pool that has none ready take a longer one at once, or a large model would never come up.
    """
    kept = record is not None and not changed and not (health.ready == 0 and seconds > record.start_seconds)
    probe = record.start_seconds if record is not None and kept else seconds
    return Start(probe, max(probe, seconds))


def _kept(*, undecided: bool) -> str:
    return "target and draft are being compared" if undecided else "its draft does not fit the target"


def _record(owned: Mapping[ObjectId, OwnedRecord], name: str, uid: str) -> OwnedRecord | None:
    record = owned.get((DEPLOYMENT, name))
    return record if record is not None and record.owner_uid == uid and not record.deleting else None


def _differs(record: OwnedRecord, wanted: WantedPool, pool: str, template: Template) -> bool:
    if record.template is not None:
        return record.template != wanted.template
    if record.body is None:
        return False
    live = ((unpacked(record.body).get("spec") or {}).get("template")) or {}
    return any(True for _ in differences(template(pool), live))


def _renamed(owned: Mapping[ObjectId, OwnedRecord], uid: str, wanted: Mapping[str, WantedPool]) -> bool:
    """Whether the pool of a draft of another name is about to go."""
    ours = (one for one in owned.values() if one.kind == DEPLOYMENT and one.owner_uid == uid)
    return any(one.pool is not None and one.pool not in wanted for one in ours)


def _redrafted(record: OwnedRecord | None, wanted: WantedPool) -> bool:
    return (
        record is not None and record.runs is not None and drafts_differ(facts_of(record.runs), facts_of(wanted.runs))
    )


def facts_of(text: str | None) -> dict[str, str]:
    """What an annotation says that a pool runs; nothing where it says nothing that can be read."""
    try:
        read = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return {str(name): str(value) for name, value in read.items()} if isinstance(read, dict) else {}


def told(records: Mapping[str, OwnedRecord | None], wanted: Mapping[str, WantedPool], changed: frozenset[str]) -> str:
    """What differs, in a few words without values that could be secret."""
    parts: list[str] = []
    for pool in sorted(changed, key=lambda one: one == BASELINE_POOL):
        record = records[pool]
        if record is None or record.runs is None:
            continue
        for item in difference(facts_of(record.runs), facts_of(wanted[pool].runs)):
            part = _told(*item)
            if part not in parts:
                parts.append(part)
    if not parts:
        return "what specfleet renders for the engines"
    more = f" and {len(parts) - MOST_TOLD} more" if len(parts) > MOST_TOLD else ""
    return _cut(", ".join(parts[:MOST_TOLD]), _MOST_CHANGES) + more


def _told(name: str, old: str, new: str) -> str:
    if HASHED in (old[:1], new[:1]) or (name not in PLAIN_NAMES and (_private(name, old) or _private(name, new))):
        return f"{masked(name, _MOST_VALUE)} {'changed' if old and new else 'added' if new else 'removed'}"
    return f"{name} {_value(name, old)} -> {_value(name, new)}"


def _private(name: str, value: str) -> bool:
    """Whether a value may be a credential, by its look or by its name; a short number is none."""
    return not _NUMBER.fullmatch(value) and masked(f"{name}={value}") != f"{name}={value}"


def _value(name: str, text: str) -> str:
    shown = text[:_SHORT_REVISION] if name.endswith("revision") else text
    return _cut(shown, _MOST_VALUE) or "none"


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _status(
    pools: tuple[WorkloadHealth, ...],
    changed: frozenset[str],
    found: Order,
    records: Mapping[str, OwnedRecord | None],
    wanted: Mapping[str, WantedPool],
    before: UpgradeStatus | None,
) -> UpgradeStatus | None:
    unfinished = [pool for pool in pools if not (pool.rolled_out and pool.serving)]
    if not changed and (before is None or not unfinished):
        return None
    begun = before.pool if before is not None and before.state != "Waiting" else None
    rolling = [one for one in pools if one.name in found.go or (one in unfinished and one.name == begun)]
    rolling.sort(key=lambda pool: not pool.overdue)
    waiting = [pool for pool in pools if pool.name in found.waits]
    now = [*rolling, *waiting, *unfinished][0]
    after = next((pool.name for pool in waiting if pool.name != now.name), None)
    changes = told(records, wanted, changed)
    if before is not None and (not changed or changes in before.changes):
        changes = before.changes
    return UpgradeStatus(
        state=_phase(now, found),
        pool=now.name,
        next=after,
        changes=changes,
        from_release=_from(records, wanted, changed) or (before.from_release if before is not None else None),
        message=_message(now, after, found) + (_ONLY_POD if now.desired == 1 and _carried(now, pools, found) else ""),
    )


def _from(
    records: Mapping[str, OwnedRecord | None], wanted: Mapping[str, WantedPool], changed: frozenset[str]
) -> str | None:
    """The release of the pods that have still to be replaced, where it is another than the wanted one."""
    for pool in changed:
        record = records[pool]
        old = facts_of(record.runs).get(RELEASE) if record is not None else None
        if old and old != facts_of(wanted[pool].runs).get(RELEASE):
            return old[:_MOST_RELEASE]
    return None


def _phase(now: WorkloadHealth, found: Order) -> Literal["Rolling", "Waiting", "Stuck"]:
    if now.name in found.waits:
        return "Waiting"
    return "Stuck" if now.overdue and now.name not in found.go else "Rolling"


def _carried(now: WorkloadHealth, pools: tuple[WorkloadHealth, ...], found: Order) -> bool:
    """Whether speculation carries while baseline is rolled."""
    return now.name == BASELINE_POOL and len(pools) > 1 and _phase(now, found) != "Waiting"


def _message(now: WorkloadHealth, after: str | None, found: Order) -> str:
    phase = _phase(now, found)
    if phase == "Waiting":
        return f"Pool {now.name} waits: {found.waits[now.name]}."
    then = f" Pool {after} carries on its old template" if after is not None else ""
    if phase == "Stuck":
        return f"Pool {now.name} does not come up with the new template.{then and f'{then} and is not touched.'}"
    return f"Pool {now.name} takes the new template.{then and f'{then} and is next.'}"

"""In which order pools take a new pod template: one at a time, and only while the other one carries. Pure.

Speculation goes first, because baseline alone can serve every request: it is rolled once the other pool has shown that
the new template comes up (docs/decisions/0760). All that is asked here is read from the cluster, so whoever asks next
goes on where the last one was stopped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class PoolRollout:
    """One pool, as far as its pod template goes.

    Attributes:
        exists: there is a Deployment.
        changed: its pod template is not the one that is wanted.
        ready: pods that are ready, whatever their template.
        serving: the pods that have to be ready are.
        rolled_out: all pods carry the Deployment's template, and all are ready.
        underway: some pods carry an older template than the Deployment's.
        reached: every router that answers reaches one of its pods.
        kept: why it must neither be made nor changed.
        undecided: whether `kept` will pass by itself.
    """

    name: str
    exists: bool = True
    changed: bool = False
    ready: int = 1
    serving: bool = True
    rolled_out: bool = True
    underway: bool = False
    reached: bool = True
    kept: str | None = None
    undecided: bool = False


@dataclass(frozen=True)
class Order:
    """The pools that may take the new template now, and why the others wait, by name, as the end of a sentence."""

    go: frozenset[str] = frozenset()
    waits: Mapping[str, str] = field(default_factory=dict)


def order(speculative: PoolRollout, baseline: PoolRollout, *, moving: bool) -> Order:
    """Which pool may take its new template now; `moving`: routers are taking over new weights or addresses.

    A pool without a ready pod has nothing to lose and never waits. Of two that serve, one that is in the middle of a
    roll goes on before the other begins.
    """
    waits: dict[str, str] = {}
    candidates = [pool for pool in (speculative, baseline) if pool.changed]
    if speculative.kept is not None:
        candidates = [pool for pool in candidates if pool is not speculative]
        if speculative.changed:
            waits[speculative.name] = speculative.kept
        if baseline.changed and _stays_alike(speculative, baseline):
            # Pools of two models or releases would answer one request in two ways for as long as the draft is refused.
            return Order(waits={**waits, baseline.name: f"{speculative.name} stays as it is: {speculative.kept}"})
    go = {pool.name for pool in candidates if pool.ready == 0}
    serving = sorted(
        (pool for pool in candidates if pool.ready > 0), key=lambda one: (not one.underway, one is baseline)
    )
    if serving:
        first = serving[0]
        why = _waits_for(baseline if first is speculative else speculative, moving=moving)
        if why is None:
            go.add(first.name)
        else:
            waits[first.name] = why
        waits |= {pool.name: f"{first.name} goes first" for pool in serving[1:]}
    return Order(frozenset(go), waits)


def _stays_alike(speculative: PoolRollout, baseline: PoolRollout) -> bool:
    if speculative.ready > 0:
        return True
    return speculative.undecided and baseline.ready > 0


def _waits_for(other: PoolRollout, *, moving: bool) -> str | None:
    """Why a pool may not lose pods now; `other` has to carry what it carries."""
    if not other.exists:
        # A pool that is not to be made at all carries nothing, and its accelerators are free.
        return None if other.kept is not None and not other.undecided else f"{other.name} is made first"
    if not other.serving:
        return f"{other.name} does not serve"
    if not other.changed and not other.rolled_out:
        return f"{other.name} has not all its pods"
    if moving:
        return "routers are taking over what was decided last"
    return None if other.reached else f"routers have yet to reach {other.name}"

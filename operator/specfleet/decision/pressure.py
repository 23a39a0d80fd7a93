"""Whether a pool is short of room: requests wait, or running ones are put back.

A full KV cache is told beside it. Alone it is no shortage: one that is well used for hours must neither send routes
away nor freeze decisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specfleet.decision.measures import PodSeen

KV_FULL = 0.9
ALONE_BLOCKS = 5
BOTH_BLOCKS = 2
APART_BLOCKS = 3


@dataclass(frozen=True, slots=True)
class Load:
    """Of one pool, over the pods that were read: what it is short of, and running requests a pod."""

    signs: tuple[str, ...]
    batch: float | None

    @property
    def short(self) -> bool:
        """Whether it is short of anything."""
        return bool(self.signs)


def load(pods: Sequence[PodSeen], ready: int) -> Load | None:
    """None where fewer than half of the `ready` pods were read, or their pages tell nothing of this."""
    told = [pod for pod in pods if not (pod.waiting is None and pod.kv_used is None and pod.preempted is None)]
    if not told or 2 * len(told) < ready:
        return None
    waiting = sum(pod.waiting or 0 for pod in told)
    fullest = max((pod.kv_used for pod in told if pod.kv_used is not None), default=0.0)
    preempted = sum(pod.preempted or 0 for pod in told)
    full = fullest > KV_FULL and (waiting or preempted)
    signs = (
        f"{waiting} requests wait" if waiting else "",
        f"{preempted} requests were preempted" if preempted else "",
        f"a KV cache is {fullest:.0%} full" if full else "",
    )
    running = [pod.running for pod in told if pod.running is not None]
    return Load(tuple(sign for sign in signs if sign), sum(running) / len(running) if running else None)


@dataclass(slots=True)
class Pressure:
    """Blocks in a row: in which speculation alone was short, in which both pools were, and in which not both were."""

    alone: int = 0
    both: int = 0
    apart: int = 0
    short: int = 0

    def block(self, speculative: Load | None, baseline: Load | None) -> None:
        """Take in one block; what is not known breaks every row but the one that ends a freeze."""
        short = speculative is not None and speculative.short
        self.short = self.short + 1 if short else 0
        self.alone = self.alone + 1 if short and baseline is not None and not baseline.short else 0
        if short and baseline is not None and baseline.short:
            self.both, self.apart = self.both + 1, 0
            return
        self.apart += 1
        if self.both < BOTH_BLOCKS or self.apart >= APART_BLOCKS:
            self.both = 0

    def recall(self) -> None:
        """Both pools were short of room when this process began."""
        self.both = BOTH_BLOCKS

    @property
    def overloaded(self) -> bool:
        """Both pools are short of room."""
        return self.both >= BOTH_BLOCKS

    @property
    def saturated(self) -> bool:
        """Speculation alone has been short for long."""
        return self.alone >= ALONE_BLOCKS

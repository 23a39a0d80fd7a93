"""What the operator remembers of External pools between passes, and what their engines' own counters come to."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from specfleet.decision.reasons import Hold
from specfleet.decision.rule import Block
from specfleet.decision.samples import Increment, Ledger, SampleProblem
from specfleet.handlers.decide import ALL_ROUTES
from specfleet.handlers.discovery import Sight
from specfleet.handlers.external import Assessment
from specfleet.handlers.seen import SeenPool
from specfleet.handlers.starts import Starts
from specfleet.routing.counters import RouterSample

logger = logging.getLogger(__name__)
FREE_AGAIN = 0.8


@dataclass
class Outside:
    """Of one SpecDeployment; all of it can be lost without harm.

    Attributes:
        asked: what of the spec says where to look.
        blocks: closed blocks of the engines' counters that no committed decision has taken in yet.
        looking: the look that is under way.
        looked: looks that have ended; `counted` and `weighed_at` are the last ones whose readings were taken in.
        figures_seen: whether a router has counted figures in answers of the speculative pool.
        elsewhere: requests in the engines by pool that did not come by the routers.
        full: whether the speculative pool has no room for exploration: from its capacity on, until a fifth is free.
        starts: when the engines' processes began.
    """

    asked: object
    ledger: Ledger
    next_block: float
    block_seconds: float
    sight: Sight = field(default_factory=Sight)
    looking: asyncio.Task[None] | None = None
    looked: int = 0
    counted: int = 0
    weighed_at: int = 0
    blocks: dict[str, Block] = field(default_factory=dict)
    figures_seen: bool = False
    elsewhere: dict[str, int] = field(default_factory=dict)
    full: bool = False
    starts: Starts = field(default_factory=Starts)
    assessment: Assessment | None = None

    @classmethod
    def new(cls, asked: object, block_seconds: float, now: float) -> Outside:
        """Of pools that nothing is known about."""
        return cls(asked, Ledger(block_seconds, now), now + block_seconds, block_seconds)

    def retimed(self, block_seconds: float, now: float) -> None:
        """The policy's block was changed: counting starts anew."""
        if block_seconds != self.block_seconds:
            self.block_seconds = block_seconds
            self.recount(now)

    def recount(self, now: float) -> None:
        """Counting starts anew."""
        self.next_block = now + self.block_seconds
        self.ledger = Ledger(self.block_seconds, now)

    def clock_set(self, now: float, seconds: float) -> None:
        """The wall clock was set, by `seconds`."""
        self.recount(now)
        self.sight.next_look += seconds

    def count(self, pool: SeenPool | None, draft_tokens: int) -> None:
        """Take in the readings of the last look at the speculative pool, once."""
        if self.counted == self.looked:
            return
        self.counted = self.looked
        pods = () if pool is None else pool.pods
        for uid in set(self.starts.known) - {pod.uid for pod in pods}:
            self.starts.forget(uid)
            self.ledger.forget(uid)
        for pod in pods:
            totals = None if pod.reading is None else pod.reading.totals(draft_tokens)
            if pod.reading is not None and totals is not None:
                started = self.starts.of(pod.uid, pod.reading)
                self.ledger.observe(pod.uid, started, pod.reading.at, {ALL_ROUTES: totals})

    def take(self, now: float) -> tuple[Increment | None, list[SampleProblem]]:
        """What was counted in a block that ends now, and what was wrong; None within a block, or without a count."""
        if now < self.next_block:
            return None, []
        self.next_block = max(self.next_block + self.block_seconds, now + self.block_seconds / 2.0)
        taken = self.ledger.take(now)
        return taken.increments.get(ALL_ROUTES), taken.problems

    def hold(self, pool: SeenPool | None, now: float) -> Hold | None:
        """Why the engines' counters cannot be decided by, if so."""
        ready = [] if pool is None else [pod.uid for pod in pool.pods if pod.ready]
        return self.ledger.hold(now, ready)

    def filled(self, samples: Iterable[RouterSample], pool: str) -> None:
        """Note whether speculative pool `pool` is full."""
        limit = self.assessment.capacity.get(pool) if self.assessment is not None else None
        if limit is None:
            self.full = True
            return
        load = self.elsewhere.get(pool, 0) + sum(sample.active.get(pool, 0) for sample in samples)
        self.full = load >= limit or (self.full and load > FREE_AGAIN * limit)

    @property
    def weigh_due(self) -> bool:
        """Whether a look has ended since the load was noted last."""
        return self.weighed_at != self.looked

    def weighed(self, samples: Iterable[RouterSample]) -> None:
        """Note what is in the engines and did not come by the routers, from readings of about the same time."""
        self.weighed_at = self.looked
        through: dict[str, int] = {}
        for sample in samples:
            for pool, active in sample.active.items():
                through[pool] = through.get(pool, 0) + active
        self.elsewhere = {
            name: max(0, inside - through.get(name, 0)) for name, inside in in_engines(self.sight.seen or {}).items()
        }


def in_engines(seen: Mapping[str, SeenPool]) -> dict[str, int]:
    """Requests in the engines of each pool, running or waiting, as far as their pages tell."""
    return {
        name: sum(pod.reading.running + pod.reading.waiting for pod in pool.pods if pod.reading is not None)
        for name, pool in seen.items()
    }

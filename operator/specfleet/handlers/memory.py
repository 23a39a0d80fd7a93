"""What the operator remembers of one SpecDeployment between passes; all of it can be lost without harm."""

from __future__ import annotations

import random
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from specfleet.api.by_hand import ByHand
from specfleet.api.status import PreflightStatus
from specfleet.decision.clock import shifted
from specfleet.decision.rule import Block, RouteState
from specfleet.decision.samples import Ledger
from specfleet.handlers.claims import Claims
from specfleet.handlers.engine_counts import EngineCounts
from specfleet.handlers.fleet import Fleet
from specfleet.handlers.guarding import Guarding
from specfleet.handlers.observed import OwnedRecord
from specfleet.handlers.outside import Outside
from specfleet.handlers.plan import ObjectId
from specfleet.handlers.pods import PodRecord
from specfleet.handlers.prefill import Prefill
from specfleet.handlers.scraped import Scraping
from specfleet.handlers.status import Serving
from specfleet.handlers.step_times import StepTimes
from specfleet.metrics.direct import Served
from specfleet.routing.counters import RouterSample

DEAD_GRACE_SECONDS = 10.0
CLOCK_SET_SECONDS = 2.0  # a clock that is disciplined moves by less between two passes
TAKE_OVER_SECONDS = 120.0  # the kubelet syncs files within 90 s where nobody tells it to


@dataclass
class Memory:
    """Of one SpecDeployment, as identified by its uid.

    Attributes:
        routes: state of each route as of the last decision that was committed, or that needed no commit.
        blocks: closed blocks that no committed decision has taken in yet.
        samples: last good reading by router pod uid.
        rejected_base: routes_rejected of each router when its table was last the wanted one.
        served: last answer of each router pod, by uid.
        silent_until: when a router that did not answer is asked again, by uid.
        verified: hashes of owned objects that were found to agree.
        wanted: all objects that are to exist, as of the last rendering.
        settled_key: what was rendered when all objects last agreed; while it and they stay, nothing is rendered.
        wanted_version: version of the routes file that was applied last.
        switch_started: epoch seconds of a switch that is not served yet.
        unconfirmed_since: since when routers have not been seen to serve what was written last.
        outside: what is known of External pools; None where specfleet runs the pools.
        by_hand: what a person has said of routes, while it holds.
        compared: the last verdict about target and draft.
        comparing: key of the preflight that has no verdict yet, and since when it is wanted.
        claims: what the volume claims of the spec offer.
        scraped: what Prometheus has of the routers; None where decisions rest on direct readings.
        counts: what engines count themselves; None where the routers do.
        guarding: what guards have seen, and what they make of it.
        times: what decode steps take, where a break-even line is measured.
        written: the status as it was written last; None before the first time.
        wall_ahead: epoch seconds less monotonic seconds at the last pass; it moves when the wall clock is set.
    """

    uid: str
    ledger: Ledger
    block_seconds: float
    next_block: float
    guarding: Guarding
    times: StepTimes
    next_sample: float = 0.0
    routes: dict[str, RouteState] = field(default_factory=dict)
    blocks: dict[str, Block] = field(default_factory=dict)
    samples: dict[str, RouterSample] = field(default_factory=dict)
    rejected_base: dict[str, int] = field(default_factory=dict)
    served: dict[str, Served] = field(default_factory=dict)
    silent_until: dict[str, float] = field(default_factory=dict)
    verified: dict[ObjectId, tuple[str, str]] = field(default_factory=dict)
    wanted: frozenset[ObjectId] = frozenset()
    settled_key: str | None = None
    taken: dict[ObjectId, float] = field(default_factory=dict)
    refused: dict[ObjectId, str] = field(default_factory=dict)
    wanted_version: str | None = None
    switch_started: float | None = None
    unconfirmed_since: float | None = None
    pods_denied: bool = False
    implausible: bool = False
    read_failures: int = 0
    told: set[str] = field(default_factory=set)
    status_written: float = 0.0
    outside: Outside | None = None
    scraped: Scraping | None = None
    compared: PreflightStatus | None = None
    comparing: tuple[str, float] | None = None
    claims: Claims = field(default_factory=Claims)
    counts: EngineCounts | None = None
    by_hand: Mapping[str, ByHand] = field(default_factory=dict)
    dead_since: dict[str, float] = field(default_factory=dict)
    written: Mapping[str, Any] | None = None
    wall_ahead: float | None = None
    prefill: Prefill = field(default_factory=Prefill)
    jitter: float = field(default_factory=lambda: random.uniform(0.8, 1.0))  # noqa: S311

    @classmethod
    def new(cls, uid: str, block_seconds: float, now: float) -> Memory:
        """Of a SpecDeployment seen for the first time."""
        next_block = now + block_seconds
        guarding, times = Guarding(block_seconds, next_block), StepTimes(block_seconds, next_block)
        return cls(uid, Ledger(block_seconds, now), block_seconds, next_block, guarding, times)

    @property
    def sample_seconds(self) -> float:
        """Time between readings: twice a block, at most every second, at least every 30 s."""
        return min(30.0, max(1.0, self.block_seconds / 2.0))

    def retimed(self, block_seconds: float, now: float) -> None:
        """The policy's block was changed: counting starts anew."""
        if block_seconds != self.block_seconds:
            self.block_seconds = block_seconds
            self._begin(now)
        if self.outside is not None:
            self.outside.retimed(block_seconds, now)

    def recalled(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """`body` with the status that was written last: what others make of the status is no news of the fleet."""
        return dict(body) if self.written is None else {**body, "status": self.written}

    def clock_read(self, now: float, monotonic: float) -> float:
        """A pass begins. Seconds by which the wall clock was set since the last one, 0 where it was not.

        Where it was, all that is remembered moves with it: waits go on for what is left of them, and counting starts
        anew, since samples before and after do not continue each other.
        """
        ahead, before = now - monotonic, self.wall_ahead
        self.wall_ahead = ahead
        if before is None or abs(ahead - before) < CLOCK_SET_SECONDS:
            return 0.0
        jump = ahead - before
        self.routes = {name: shifted(state, jump) for name, state in self.routes.items()}
        self.recount(now)
        self.times.clock_set(jump)
        self.silent_until = {uid: until + jump for uid, until in self.silent_until.items()}
        self.dead_since = {pool: since if since < 0.0 else since + jump for pool, since in self.dead_since.items()}
        self.status_written += jump
        self.switch_started = None if self.switch_started is None else self.switch_started + jump
        self.unconfirmed_since = None if self.unconfirmed_since is None else self.unconfirmed_since + jump
        self.comparing = None if self.comparing is None else (self.comparing[0], self.comparing[1] + jump)
        self.claims.next_look += jump
        if self.scraped is not None:
            self.scraped.since += jump
        if self.outside is not None:
            self.outside.clock_set(now, jump)
        return jump

    def comparing_since(self, key: str, now: float) -> float:
        """Since when the preflight of that key is wanted: its Job may be refused for as long as it is asked for."""
        if self.comparing is None or self.comparing[0] != key:
            self.comparing = key, now
        return self.comparing[1]

    def recount(self, now: float) -> None:
        """Counting starts anew: what is half counted is of pods that are gone."""
        self._begin(now)
        self.blocks = {}

    def _begin(self, now: float) -> None:
        self.ledger = Ledger(self.block_seconds, now)
        self.next_block = now + self.block_seconds
        self.next_sample = 0.0
        self.guarding = Guarding(self.block_seconds, self.next_block)
        self.times.retimed(self.block_seconds, self.next_block)

    def kept(self, pods: Iterable[PodRecord]) -> None:
        """Forget routers that are gone. One that only was not read goes on from its last sample."""
        alive = {pod.uid for pod in pods}
        for counted in (self.guarding.answers, self.times.counted, self.prefill.counted):
            counted.kept(alive)
        self.silent_until = {uid: until for uid, until in self.silent_until.items() if uid in alive}
        scraped = self.scraped.newest if self.scraped is not None else {}
        for uid in set(self.samples) | set(self.served) | set(scraped):
            if uid not in alive:
                scraped.pop(uid, None)
                self.samples.pop(uid, None)
                self.served.pop(uid, None)
                self.rejected_base.pop(uid, None)
                self.ledger.forget(uid)

    def sourced(self, scraped: Scraping | None, now: float) -> None:
        """Where decisions are read from now on; another source, or another server, is another count."""
        if scraped is not self.scraped:
            self.scraped = scraped
            self.ledger = Ledger(self.block_seconds, now)

    @property
    def counted(self) -> Mapping[str, RouterSample]:
        """The last reading that decisions rest on, by router pod uid."""
        return self.samples if self.scraped is None else self.scraped.newest

    @property
    def loads(self) -> Mapping[str, RouterSample]:
        """The last reading of requests in flight: a router that does not answer has what Prometheus has of it."""
        return self.samples if self.scraped is None else {**self.scraped.newest, **self.samples}

    def agrees(self, owned: Mapping[ObjectId, OwnedRecord]) -> bool:
        """Whether exactly the wanted objects exist, each as it was when it was found to be right."""
        return owned.keys() == self.wanted and all(
            id_ in self.verified and record.live == self.verified[id_][1] for id_, record in owned.items()
        )

    def sampled_before(self, at: float) -> bool:
        """Whether a router's last reading is older than `at`, or there is none."""
        return not self.samples or any(sample.at < at for sample in self.samples.values())

    def unheard(self, routers: Iterable[PodRecord], heard: Container[str], now: float) -> list[PodRecord]:
        """Routers that are not in `heard` and have not just failed to answer."""
        return [pod for pod in routers if pod.uid not in heard and self.silent_until.get(pod.uid, 0.0) <= now]

    def asked(self, routers: Iterable[PodRecord], now: float) -> list[PodRecord]:
        """Routers to ask: with source Prometheus, one that did not answer is left alone for a while."""
        return [pod for pod in routers if self.scraped is None or self.silent_until.get(pod.uid, 0.0) <= now]

    def unseen(self, routers: tuple[PodRecord, ...], now: float) -> bool:
        """Whether the operator cannot reach the routers and need not: what they serve is then not known."""
        return bool(routers) and not self.samples and not self.served and not self.asked(routers, now)

    def serving(self, routers: tuple[PodRecord, ...], version: str | None) -> Serving:
        """What all ready routers serve."""
        answers = [self.served[pod.uid] for pod in routers if pod.uid in self.served]
        if not answers or len(answers) < len(routers):
            return Serving()
        first = answers[0].speculative_percent
        agreed = {
            route: percent
            for route, percent in first.items()
            if all(one.speculative_percent.get(route) == percent for one in answers)
        }
        return Serving(version is not None and all(one.version == version for one in answers), agreed)

    def reached(self, state: Fleet) -> dict[str, bool]:
        """Whether every router that tells it reaches a host of each pool that has ready pods."""
        readings = [self.samples[pod.uid] for pod in state.routers if pod.uid in self.samples]
        ready = [pool.name for pool in state.pools if pool.ready > 0]
        return {name: all(reading.healthy.get(name, 1) > 0 for reading in readings) for name in ready}

    def connected(self, state: Fleet) -> bool:
        """Whether every router reaches a host of each pool that has ready pods.

        A pod is found by DNS and then has to pass a router's health check, which comes up to half a minute after it
        is ready. Routers that do not answer, or do not tell, are not waited for.
        """
        unread = [pod for pod in state.routers if pod.uid not in self.samples and pod.uid not in self.silent_until]
        return not unread and all(self.reached(state).values())

    def moving(self, routers: tuple[PodRecord, ...], now: float) -> bool:
        """Whether routers are taking over what was written last; they have done so, or do not tell, after a while."""
        if not routers or self.unseen(routers, now) or self.serving(routers, self.wanted_version).confirmed:
            self.unconfirmed_since = None
            return False
        if self.unconfirmed_since is None:
            self.unconfirmed_since = now
        return now - self.unconfirmed_since < TAKE_OVER_SECONDS

    def rejected(self, routers: tuple[PodRecord, ...], version: str | None) -> bool:
        """Whether a router refused files since it last served what was wanted, and still serves something else."""
        for pod in routers:
            sample, served = self.samples.get(pod.uid), self.served.get(pod.uid)
            if sample is None:
                continue
            if served is not None and served.version == version:
                self.rejected_base[pod.uid] = sample.routes_rejected
            elif sample.routes_rejected > self.rejected_base.setdefault(pod.uid, sample.routes_rejected):
                return True
        return False

    def dead(self, state: Fleet, now: float, *, starting: bool) -> Mapping[str, bool]:
        """Pools to which no traffic may be sent: no pod is ready.

        While the first pods of a SpecDeployment start (`starting`), a pool has some seconds, so that two pools that
        come up a moment apart do not cost two changes of the weights; routers avoid hosts that are not there anyhow.
        """
        result = {}
        for pool in (state.baseline, state.speculative):
            if pool.ready > 0:
                self.dead_since[pool.name] = -1.0
            since = self.dead_since.setdefault(pool.name, now)
            result[pool.name] = pool.ready == 0 and (not starting or since < 0.0 or now - since >= DEAD_GRACE_SECONDS)
        return result

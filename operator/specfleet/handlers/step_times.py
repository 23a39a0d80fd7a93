"""The times of decode steps of one SpecDeployment: from the routers' counters to curves, once a block. Pure.

Kept only where a break-even line is measured or a guard predicts times. A block of a pool is the time that its answers
took, by kind, the steps they took it for, and the requests that a ready replica ran meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from specfleet.api.names import BASELINE_POOL, pool_object
from specfleet.api.v1alpha1 import Policy, RoutePolicy, SpecDeploymentSpec
from specfleet.cluster.applied import digest
from specfleet.cluster.kinds import DEPLOYMENT
from specfleet.decision.break_even import MIN_POINTS, Estimate, batch_after, break_even
from specfleet.decision.counted import Counted
from specfleet.decision.curves import STREAMS, Curves, Timing, decode
from specfleet.decision.fading import FadingMean
from specfleet.decision.rule import Block, Pool, RouteState
from specfleet.decision.samples import gap_seconds
from specfleet.decision.types import POOLS
from specfleet.handlers.decide import as_meant, pool_roles
from specfleet.handlers.external import Assessment
from specfleet.handlers.fleet import Fleet, WorkloadHealth
from specfleet.handlers.observed import OwnedRecord
from specfleet.handlers.plan import ObjectId
from specfleet.metrics.load import LoadPage
from specfleet.routing.counters import PROMPT_CLASSES, RouteRow, RouterSample
from specfleet.sizing.drafts import WITHOUT_CHECKPOINT

CLASSES = tuple("longer" if bound is None else f"to{bound}" for bound in PROMPT_CLASSES)
_Key = tuple[str, Pool, str, str]  # route, pool, kind, counter


@dataclass
class StepTimes:
    """Of one SpecDeployment. What is lost with it is what was counted since the last point; curves are in status.

    Attributes:
        curves: both pools' measurements.
        recalled: whether status was asked for them.
        batches: requests running per ready replica in this block, by pool, as often as they were read.
        active: the same of requests in flight by route, over all replicas.
    """

    block_seconds: float
    next_block: float
    curves: Curves = field(default_factory=Curves)
    recalled: bool = False
    counted: Counted[_Key] = field(init=False)
    batches: dict[Pool, list[float]] = field(default_factory=dict)
    active: dict[str, list[int]] = field(default_factory=dict)
    loads: dict[str, FadingMean] = field(default_factory=dict)
    read_at: float = 0.0
    closed_at: float = 0.0

    def __post_init__(self) -> None:
        self._found: dict[tuple[Pool, float | None, int, float | None], Estimate] = {}
        self._found_in = self.curves  # curves do not change: others are another object
        self._recount()

    def _recount(self) -> None:
        self.counted = Counted(gap_seconds(self.block_seconds))
        self.batches, self.active = {}, {}
        self.closed_at = self.next_block - self.block_seconds

    def retimed(self, block_seconds: float, next_block: float) -> None:
        """Counting starts anew; what was measured stays."""
        self.block_seconds, self.next_block = block_seconds, next_block
        self._recount()

    def clock_set(self, seconds: float) -> None:
        """The wall clock was set by `seconds`: ages stay."""
        self.curves = self.curves.shifted(seconds)
        self.read_at = 0.0

    def recall(self, text: str | None) -> None:
        """What status holds, once."""
        if not self.recalled:
            self.recalled, self.curves = True, decode(text)

    def take_in(
        self,
        spec: SpecDeploymentSpec,
        state: Fleet,
        counted: Mapping[str, RouterSample],
        loads: Mapping[str, RouterSample],
        elsewhere: Mapping[str, int],
        pages: Mapping[Pool, Iterable[LoadPage]],
    ) -> None:
        """What was read of routers and engines; readings that are known are passed over.

        Args:
            counted: the readings that decisions rest on, by router.
            loads: those of requests in flight.
            elsewhere: requests by pool that did not come by the routers.
            pages: of ready engine pods, where all of a pool's were read.
        """
        names = pool_roles(spec.draft.name)
        routes = {route.name for route in spec.routing.routes}
        for uid, sample in counted.items():
            self.counted.observe(uid, sample.at, dict(_counts(sample.rows, names, routes)))
        newest = max((sample.at for sample in loads.values()), default=0.0)
        if newest <= self.read_at or 2 * len(loads) < len(state.routers):
            return
        self.read_at = newest
        share = max(1.0, len(state.routers) / len(loads))  # routers that were not read carry as much as the others
        for health, name, pool in _pools(state, spec):
            running = [page.running for page in pages.get(pool, ()) if page.running is not None]
            if health.ready > 0 and len(running) == health.ready:
                self.batches.setdefault(pool, []).append(sum(running) / len(running))
            elif health.ready > 0:
                through = share * sum(sample.active.get(name, 0) for sample in loads.values())
                self.batches.setdefault(pool, []).append((through + elsewhere.get(name, 0)) / health.ready)
        for route in routes:
            one = round(share * sum(sample.route_active.get(route, 0) for sample in loads.values()))
            self.active.setdefault(route, []).append(one)

    def close_block(
        self, spec: SpecDeploymentSpec, state: Fleet, blocks: Mapping[str, Block], now: float, *, held: bool
    ) -> None:
        """A block ends. `blocks` say what routes yielded in it; while `held`, some pods are other ones than before."""
        self.next_block = max(self.next_block + self.block_seconds, now + self.block_seconds / 2.0)
        seconds = min(2.0 * self.block_seconds, max(0.0, now - self.closed_at))
        self.closed_at = now
        grown, batches, active = self.counted.take(), self.batches, self.active
        self.batches, self.active = {}, {}
        for route, counts in active.items():
            self.loads.setdefault(route, FadingMean()).add(sum(counts) / len(counts), seconds)
        self.loads = {route: load for route, load in self.loads.items() if route in active}
        for health, _, pool in _pools(state, spec):
            found = batches.get(pool)
            if found and not held and not health.rolling:
                timings = _timings(grown, pool, blocks, self._wanted)
                batch = sum(found) / len(found)
                self.curves = self.curves.with_block(pool, now, seconds, batch, timings, self.block_seconds)

    def estimate(
        self,
        spec: SpecDeploymentSpec,
        state: Fleet,
        route: RouteState,
        together: Iterable[str],
        now: float,
        prior: float | None = None,
    ) -> Estimate:
        """The break-even line of a route, which is decided with the routes `together` (itself among them).

        `prior`, in tokens per step, is what the plan of weights lets expect: shown until there are measurements.
        """
        base, spec_batch = self.curves.baseline.batch, self.curves.speculative.batch
        batch = base if route.served == "baseline" else spec_batch
        if route.served == "baseline" and base is not None and state.speculative.ready > 0:
            moved = sum(self.loads[name].mean for name in together if name in self.loads) / state.speculative.ready
            batch = batch_after(base, spec_batch or 0.0, moved)
        prior = 1.0 if spec.draft.mode in WITHOUT_CHECKPOINT else prior
        asked = route.mode, batch, spec.draft.tokens, prior
        if self._found_in is not self.curves:
            self._found, self._found_in = {}, self.curves
        if asked not in self._found:
            self._found[asked] = break_even(self.curves, route.mode, spec.draft.tokens, now, batch=batch, prior=prior)
        return self._found[asked]

    def _wanted(self, kind: str) -> bool:
        """Whether timings of that kind can be of use: whole answers only where there are too few streams."""
        return kind == STREAMS or any(len(self.curves.pool(pool).curve().points) < MIN_POINTS for pool in POOLS)


def measures(spec: SpecDeploymentSpec) -> bool:
    """Whether step times are of use: for a measured line, or for what an SLO's guard predicts."""
    policies: list[Policy | RoutePolicy | None] = [spec.policy, *(route.policy for route in spec.routing.routes)]
    return any(
        one.slo is not None or (one.break_even is not None and one.break_even.source == "Measured")
        for one in policies
        if one is not None
    )


def pool_keys(
    name: str,
    spec: SpecDeploymentSpec,
    uid: str,
    owned: Mapping[ObjectId, OwnedRecord],
    outside: Assessment | None,
) -> tuple[str, str]:
    """What the pods of both pools are, in a word each: other engines, models or accelerators are other curves."""
    baseline = _pool_key(name, spec, uid, owned, outside, BASELINE_POOL)
    return baseline, _pool_key(name, spec, uid, owned, outside, spec.draft.name)


def _pool_key(
    name: str,
    spec: SpecDeploymentSpec,
    uid: str,
    owned: Mapping[ObjectId, OwnedRecord],
    outside: Assessment | None,
    pool: str,
) -> str:
    facts: list[Any] = [spec.pools.accelerator.product, pool]
    if spec.external is not None:
        seen = None if outside is None else outside.pools.get(pool)
        facts += [] if seen is None or outside is None else [seen.service, seen.release, outside.draft_tokens]
    else:
        record = owned.get((DEPLOYMENT, pool_object(name, pool)))
        mine = record if record is not None and record.owner_uid == uid else None
        facts += [None if mine is None else mine.template, None if mine is None else mine.runs]
    return digest(facts)


def _pools(state: Fleet, spec: SpecDeploymentSpec) -> Iterator[tuple[WorkloadHealth, str, Pool]]:
    yield state.baseline, BASELINE_POOL, "baseline"
    yield state.speculative, spec.draft.name, "speculative"


def _counts(rows: Iterable[RouteRow], pools: Mapping[str, Pool], routes: set[str]) -> Iterator[tuple[_Key, int]]:
    for row, pool in as_meant(rows, pools, routes):
        yield (row.route, pool, STREAMS, "us"), row.stream_decode_us
        yield (row.route, pool, STREAMS, "tokens"), row.stream_decode_tokens
        yield (row.route, pool, STREAMS, "requests"), row.stream_tpot_us.total
        for kind, whole in zip(CLASSES, row.whole_by_prompt, strict=True):
            yield (row.route, pool, kind, "us"), whole.us
            yield (row.route, pool, kind, "tokens"), whole.tokens
            yield (row.route, pool, kind, "requests"), whole.answers


def _timings(
    grown: Mapping[_Key, int], pool: Pool, blocks: Mapping[str, Block], wanted: Callable[[str], bool]
) -> dict[str, Timing]:
    """By kind; under speculation a route whose tokens per step are not known is left out."""
    found: dict[str, Timing] = {}
    yields = {route: block.tokens_per_step for route, block in blocks.items()}
    for route, of, kind, counter in grown:
        tokens = grown.get((route, pool, kind, "tokens"), 0)
        if of != pool or counter != "us" or tokens == 0 or not wanted(kind):
            continue
        yielded = 1.0 if pool == "baseline" else yields.get(route)
        if yielded is None:
            continue
        old = found.get(kind, Timing(0.0, 0.0, 0))
        found[kind] = Timing(
            us=old.us + grown[route, pool, kind, "us"],
            steps=old.steps + tokens / yielded,
            requests=old.requests + grown.get((route, pool, kind, "requests"), 0),
        )
    return found

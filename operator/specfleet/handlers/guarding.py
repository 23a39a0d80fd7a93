"""What guards see: the routers' counters of both pools and the engines' pages, put together once a block. Pure."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from specfleet.api.v1alpha1 import EngineType, SpecDeploymentSpec
from specfleet.decision import evidence
from specfleet.decision.break_even import step_us
from specfleet.decision.counted import Counted
from specfleet.decision.curves import Curves
from specfleet.decision.guards import foremost
from specfleet.decision.measures import Answers, PodSeen, Predicted, RouteSeen, Seen, Tail
from specfleet.decision.reasons import Hold, Reason
from specfleet.decision.rule import RouteConfig, RouteState
from specfleet.decision.samples import MIN_GAP_SECONDS, gap_seconds
from specfleet.decision.slo import slo_of
from specfleet.decision.types import POOLS, Guard, Pool
from specfleet.decision.watch import Outcome, Watch
from specfleet.handlers.decide import as_meant, pool_roles
from specfleet.handlers.fleet import Fleet
from specfleet.handlers.seen import SeenPool
from specfleet.metrics.engine import EngineReading
from specfleet.metrics.load import LoadPage
from specfleet.percentiles import NONE_TIMED, TimeBuckets
from specfleet.routing.counters import RouterSample
from specfleet.sizing.drafts import WITHOUT_CHECKPOINT

_HOLDS = {
    one.value: one for one in (Hold.OVERLOADED, Hold.ENGINE_SUPPRESSED, Hold.INSUFFICIENT_COVERAGE, Hold.POD_DECAYED)
}
_FIELDS = ("requests", "finished", "client_errors", "cancelled", "measured", "decode_tokens", "drafted", "accepted")
_TPOT, _TTFT = "stream_tpot_us", "stream_ttft_us"
_RouterKey = tuple[str, Pool, str, int]  # route, pool, counter, bucket
_PodKey = tuple[str, str]  # uid, counter


class ReadyPod(NamedTuple):
    """A ready engine pod; `created` is in epoch seconds, None where it is not known."""

    uid: str
    name: str
    pool: Pool
    created: float | None


@dataclass
class Guarding:
    """Of one SpecDeployment. All of it is filled anew within some blocks when it is lost.

    Attributes:
        pages: the last page of each pod, by uid.
        silent_until: when a pod whose page could not be read is asked again, by uid.
        recalled: what held each route when this process began, until its first block.
        taken: time of the last sample of each router, by uid.
        outcome: what the guards made of the last block.
        reading: the round of readings under way.
    """

    block_seconds: float
    next_block: float
    watch: Watch = field(default_factory=Watch)
    outcome: Outcome = field(default_factory=Outcome)
    pages: dict[str, LoadPage] = field(default_factory=dict)
    silent_until: dict[str, float] = field(default_factory=dict)
    recalled: Mapping[str, Hold] | None = None
    taken: dict[str, float] = field(default_factory=dict)
    next_page: float = 0.0
    reading: asyncio.Task[None] | None = None
    answers: Counted[_RouterKey] = field(init=False)
    engines: Counted[_PodKey] = field(init=False)
    left_out: int = 0

    def __post_init__(self) -> None:
        gap = gap_seconds(self.block_seconds)
        self.answers, self.engines = Counted(gap), Counted(gap)

    def recall(self, reasons: Mapping[str, str]) -> None:
        """What status says of routes, once: a new process frees nothing that the last one held until it knows more."""
        if self.recalled is None:
            self.recalled = {name: _HOLDS[reason] for name, reason in reasons.items() if reason in _HOLDS}
            if Hold.OVERLOADED in self.recalled.values():
                self.watch.recall_overload()

    def of(self, routes: Iterable[str], state: RouteState) -> tuple[Hold | None, Guard]:
        """What is to be done about these routes, which are decided together and are in this state."""
        outcome, routes = self.outcome, list(routes)
        recalled = {} if outcome.judged or self.recalled is None else self.recalled
        held = next((recalled[name] for name in routes if name in recalled), None)
        if held is not None:
            return held, Guard()
        if state.cause is Reason.REQUESTS_REFUSED and not any(name in outcome.guards for name in routes):
            # Before the first block of this process: no request may be refused only because the operator is new.
            return None, Guard(stay_off=state.cause, explore=False, why=state.told)
        return foremost((outcome.holds.get(name), outcome.guards[name]) for name in routes if name in outcome.guards)

    def take_in(self, samples: Mapping[str, RouterSample], spec: SpecDeploymentSpec) -> None:
        """What routers have counted, as often as it is read; a sample that is known is passed over."""
        routes = {route.name for route in spec.routing.routes}
        pools = pool_roles(spec.draft.name)
        for uid, sample in samples.items():
            if self.taken.get(uid) != sample.at:
                self.answers.observe(uid, sample.at, dict(_router_counts(sample, routes, pools)))
        self.taken = {uid: sample.at for uid, sample in samples.items()}

    def kept(self, pods: Collection[str]) -> None:
        """Forget all pods but these, by uid."""
        self.pages = {uid: page for uid, page in self.pages.items() if uid in pods}
        self.silent_until = {uid: until for uid, until in self.silent_until.items() if uid in pods}
        self.engines.kept(pods)

    def look_at(self, page: LoadPage, uid: str) -> None:
        """One pod's page."""
        self.pages[uid] = page
        self.engines.observe(uid, page.at, {(uid, name): count for name, count in page.counts.items()})

    def look_outside(self, pools: Mapping[str, SeenPool]) -> None:
        """The pages of External pools, which are read for other reasons and tell less."""
        if pools:
            self.kept({pod.uid for pool in pools.values() for pod in pool.pods})
        for pool in pools.values():
            for pod in pool.pods:
                known = self.pages.get(pod.uid)
                if pod.reading is not None and (known is None or known.at != pod.reading.at):
                    self.look_at(_outside_page(pod.reading), pod.uid)

    def close_block(self, seen: Seen) -> int:
        """Judge one block. Returns how many figures could not be taken as counts since the last one."""
        self.next_block = max(self.next_block + self.block_seconds, seen.now + self.block_seconds / 2.0)
        self.outcome = self.watch.block(seen)
        before, self.left_out = self.left_out, self.answers.left_out + self.engines.left_out
        return self.left_out - before


def seen_block(
    spec: SpecDeploymentSpec,
    guarding: Guarding,
    state: Fleet,
    routes: Mapping[str, RouteState],
    configs: Mapping[str, RouteConfig],
    active: Mapping[str, int],
    pods: Iterable[ReadyPod],
    now: float,
    *,
    curves: Curves,
    suppressed: str | None,
    by_router: bool,
) -> Seen:
    """Everything of the block that ends now. `curves`: what decode steps take, as far as it was measured."""
    counted = guarding.answers.take()
    grown = guarding.engines.take()
    pods = list(pods)
    pages = [_pod(guarding, grown, pod, spec.engine.type, now) for pod in pods]
    told = [page for page in pages if page is not None]
    batches = {pool: _batch(told, pool, curves) for pool in POOLS}
    created = [pod.created for pod in pods if pod.pool == "speculative"]
    known = [made for made in created if made is not None]
    slos = {route.name: slo_of(spec.policy, route.policy) for route in spec.routing.routes}
    percentiles = {slo.percentile for slo in slos.values() if slo is not None}
    timed = {name: _summed(_buckets(counted, route, "baseline", name) for route in routes) for name in (_TPOT, _TTFT)}
    return Seen(
        now=now,
        block_seconds=guarding.block_seconds,
        dwell_seconds=next(iter(configs.values())).dwell_seconds,
        routes=tuple(
            RouteSeen(
                name=name,
                mode=route.mode,
                served=route.served,
                since=route.since,
                served_since=route.served_since,
                percent=route.percent,
                cause=route.cause,
                told=route.told,
                speculative=_answers(counted, name, "speculative", slo.percentile if slo else None),
                baseline=_answers(counted, name, "baseline", slo.percentile if slo else None),
                slo=slo,
                active=active.get(name),
                predicted=_predicted(curves, batches, _tokens_per_step(route), active.get(name), state.baseline.ready),
                tokens_per_step=_tokens_per_step(route),
                judged=configs[name].enforce and configs[name].override == "Auto",
            )
            for name, route in routes.items()
            for slo in (slos[name],)
        ),
        pods=tuple(told),
        ready={"speculative": state.speculative.ready, "baseline": state.baseline.ready},
        baseline_tpot={one: tail for one in percentiles if (tail := _tail(timed[_TPOT], one)) is not None},
        baseline_ttft={one: tail for one in percentiles if (tail := _tail(timed[_TTFT], one)) is not None},
        renewed=min(known) if created and len(known) == len(created) else None,
        # Those without a checkpoint look up, and draft nothing where they find nothing.
        learned_draft=spec.draft.mode not in WITHOUT_CHECKPOINT,
        suppressed=suppressed,
        by_router=by_router,
    )


def _router_counts(
    sample: RouterSample, routes: set[str], pools: Mapping[str, Pool]
) -> Iterator[tuple[_RouterKey, int]]:
    for row, pool in as_meant(sample.rows, pools, routes):
        for counter in _FIELDS:
            yield (row.route, pool, counter, 0), getattr(row, counter)
        for name in (_TPOT, _TTFT):
            times: TimeBuckets = getattr(row, name)
            for bucket, count in enumerate(times.counts):
                if count:
                    yield (row.route, pool, name, bucket), count


def _answers(counted: Mapping[_RouterKey, int], route: str, pool: Pool, percentile: int | None) -> Answers:
    """Of one route in one pool; with percentiles where there is a goal for them."""

    def tail(name: str) -> Tail | None:
        return None if percentile is None else _tail(_buckets(counted, route, pool, name), percentile)

    def of(counter: str) -> int:
        return counted.get((route, pool, counter, 0), 0)

    return Answers(
        ended=of("requests"),
        finished=of("finished"),
        refused=of("client_errors"),
        cancelled=of("cancelled"),
        measured=of("measured"),
        tokens=of("decode_tokens"),
        drafted=of("drafted"),
        accepted=of("accepted"),
        time_per_output_token=tail(_TPOT),
        time_to_first_token=tail(_TTFT),
    )


def _buckets(counted: Mapping[_RouterKey, int], route: str, pool: Pool, name: str) -> TimeBuckets:
    return TimeBuckets(tuple(counted.get((route, pool, name, bucket), 0) for bucket in range(len(NONE_TIMED.counts))))


def _summed(parts: Iterable[TimeBuckets]) -> TimeBuckets:
    total = NONE_TIMED
    for part in parts:
        total = total.plus(part)
    return total


def _tail(times: TimeBuckets, percentile: int) -> Tail | None:
    """The percentile, as far into its bucket as its rank is, as Prometheus' histogram_quantile does it."""
    bounds = times.percentile(percentile)
    if bounds is None:
        return None
    if bounds.high == float("inf"):
        return Tail(bounds.low / 1e6, times.total)
    above = times.over(bounds.low).least if bounds.low else times.total
    within = above - times.over(bounds.high).least
    rank = times.total * percentile / 100.0 - (times.total - above)
    return Tail((bounds.low + (bounds.high - bounds.low) * max(0.0, rank) / within) / 1e6, times.total)


def _batch(pages: Iterable[PodSeen], pool: Pool, curves: Curves) -> float | None:
    """Requests running a replica: now, by the pages; else of the last block, by the routers."""
    running = [page.running for page in pages if page.pool == pool and page.running is not None]
    return sum(running) / len(running) if running else curves.pool(pool).latest


def _predicted(
    curves: Curves,
    batches: Mapping[Pool, float | None],
    tokens_per_step: float | None,
    active: int | None,
    baseline_ready: int,
) -> Predicted | None:
    """Times per output token of baseline with the route's requests, and of speculation as it is, where both pools have
    run such batches."""
    base, spec = batches["baseline"], batches["speculative"]
    if base is None or spec is None or tokens_per_step is None or active is None or not baseline_ready:
        return None
    then, now = step_us(curves, "baseline", base + active / baseline_ready), step_us(curves, "speculative", spec)
    return None if then is None or now is None else Predicted(then / 1e6, now / tokens_per_step / 1e6)


def _tokens_per_step(route: RouteState) -> float | None:
    found = evidence.estimate(route.line("BreakEven").window)
    return None if found is None else 1.0 + found[0]


def _pod(
    guarding: Guarding,
    grown: Mapping[_PodKey, int],
    pod: ReadyPod,
    engine: EngineType,
    now: float,
) -> PodSeen | None:
    """None where the pod's page is missing or old."""
    page = guarding.pages.get(pod.uid)
    if page is None or not 0.0 <= now - page.at + 1.0 <= max(MIN_GAP_SECONDS, 2.5 * guarding.block_seconds):
        return None
    told = {counter: grown.get((pod.uid, counter), 0) for counter in page.counts}
    # SGLang's gauges keep their last value while nothing runs: what they say counts if something has moved.
    frozen = engine is EngineType.SGLANG and not told.get("generated")
    running, waiting = (None if frozen and gauge else gauge for gauge in (page.running, page.waiting))
    return PodSeen(
        uid=pod.uid,
        name=pod.name,
        pool=pod.pool,
        running=running,
        waiting=waiting,
        kv_used=None if frozen else page.kv_used,
        preempted=told.get("preempted"),
        trials=told.get("trials"),
        accepted=told.get("accepted"),
        first_trials=told.get("first_trials"),
        first_accepted=told.get("first_accepted"),
        life_trials=page.counts.get("trials"),
        life_accepted=page.counts.get("accepted"),
        age_seconds=None if page.started_at is None else now - page.started_at,
    )


def _outside_page(reading: EngineReading) -> LoadPage:
    """Of External pools: what is read of them anyhow."""
    counts = {"generated": reading.decode_tokens}
    if reading.speculative and reading.drafted >= reading.accepted and reading.drafted:
        counts |= {"trials": reading.drafted, "accepted": reading.accepted}
    return LoadPage(
        at=reading.at,
        started_at=reading.started_at,
        running=reading.running,
        waiting=reading.waiting,
        counts=counts,
    )

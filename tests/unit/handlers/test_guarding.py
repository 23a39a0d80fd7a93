"""From counters and pages to what guards see, and back to what becomes of routes."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from specfleet.api.conditions import Reason as ConditionReason
from specfleet.api.v1alpha1 import EngineType, SpecDeploymentSpec
from specfleet.cluster.endpoints import Endpoint
from specfleet.decision.curves import STREAMS, Curves, Timing
from specfleet.decision.guards import GUARDS
from specfleet.decision.measures import Answers, PodSeen, Seen, Slo, Tail
from specfleet.decision.reasons import Hold, Reason
from specfleet.decision.rule import Block, start, step
from specfleet.decision.types import Guard
from specfleet.decision.watch import Outcome
from specfleet.handlers.decide import configs, decide, hold_for, states_of
from specfleet.handlers.guarding import Guarding, ReadyPod, seen_block
from specfleet.handlers.guards import Guards
from specfleet.handlers.memory import Memory
from specfleet.handlers.outside import Outside
from specfleet.handlers.pods import PodRecord, Problem
from specfleet.handlers.seen import SeenPod, SeenPool
from specfleet.metrics.engine import EngineError, EngineReading
from specfleet.metrics.load import LoadPage
from specfleet.metrics.own import OperatorMetrics
from specfleet.percentiles import BOUNDS_US, TimeBuckets
from specfleet.routing.counters import RouteRow, RouterSample
from tests.unit.handlers.samples import owner, spec_of
from tests.unit.handlers.test_decide import NOW, state

BLOCK = 60.0
HALF = ReadyPod("u1", "pod-1", "speculative", NOW - 100.0)
PLAIN = ReadyPod("u2", "pod-2", "baseline", NOW - 900.0)


def spec(**changes: Any) -> SpecDeploymentSpec:
    found = spec_of(owner(**changes))
    assert isinstance(found, SpecDeploymentSpec)
    return found


def guarding() -> Guarding:
    return Guarding(BLOCK, NOW + BLOCK)


def sample(at: float, *rows: RouteRow) -> RouterSample:
    return RouterSample(at, NOW - 5000.0, rows, {}, {"chat": 3}, 0, 0)


def block(one: Guarding, of: SpecDeploymentSpec, now: float, *pods: ReadyPod, **more: Any) -> Seen:
    routes = {name: start(config, NOW) for name, config in configs(of).items()}
    given: dict[str, Any] = {"curves": Curves(), "suppressed": None, "by_router": True, **more}
    return seen_block(of, one, state(), routes, configs(of), {"chat": 3}, pods, now, **given)


def times(**buckets: int) -> TimeBuckets:
    """So many times in the bucket of that upper bound, by its place: `b16=3`."""
    counts = [0] * (len(BOUNDS_US) + 1)
    for place, count in buckets.items():
        counts[int(place[1:])] = count
    return TimeBuckets(tuple(counts))


def test_increments_of_answers_to_requests_that_were_meant_for_the_pool() -> None:
    one, of = guarding(), spec()
    before = RouteRow("chat", "ngram", "ngram", requests=10, finished=9)
    later = RouteRow(
        "chat",
        "ngram",
        "ngram",
        requests=20,
        finished=14,
        client_errors=3,
        cancelled=2,
        measured=4,
        decode_tokens=400,
        accepted=100,
        drafted=300,
    )
    others = (
        RouteRow("chat", "baseline", "ngram", requests=50, client_errors=50),
        RouteRow("chat", "ngram", "baseline", requests=50, client_errors=50),
        RouteRow("chat", "", "ngram", requests=50, client_errors=50),
        RouteRow("ineligible", "baseline", "baseline", requests=50, client_errors=50),
        RouteRow("code", "baseline", "baseline", requests=7, finished=7),
    )
    one.take_in({"r": sample(NOW, before)}, of)
    one.take_in({"r": sample(NOW + 30, later, *others)}, of)
    one.take_in({"r": sample(NOW + 30, replace(later, requests=900))}, of)  # the same sample
    seen = {route.name: route for route in block(one, of, NOW + BLOCK).routes}
    assert seen["chat"].speculative == Answers(10, 5, 3, 2, 4, 400, 300, 100)
    assert seen["chat"].baseline == Answers()
    assert seen["code"].baseline == Answers(7, 7)
    assert (seen["chat"].active, seen["code"].active) == (3, None)
    assert {route.name: route.speculative for route in block(one, of, NOW + 120).routes}["chat"] == Answers()


def test_a_missed_read_is_covered_by_the_next_and_a_router_that_is_gone_is_not() -> None:
    one, of = guarding(), spec()
    first = RouteRow("chat", "ngram", "ngram", requests=10)
    for uid in ("r", "gone"):
        one.take_in({uid: sample(NOW, first)}, of)
    one.take_in({}, of)
    one.answers.kept({"r"})
    for uid in ("r", "gone"):
        one.take_in({uid: sample(NOW + 60, replace(first, requests=15))}, of)
    chat = next(route for route in block(one, of, NOW + 61).routes if route.name == "chat")
    assert chat.speculative.ended == 5


def test_percentiles_are_read_off_the_buckets_of_the_block_as_histogram_quantile_does() -> None:
    of = spec(policy={"minAcceptancePercent": 30, "slo": {"timePerOutputToken": "40ms", "percentile": 90}})
    one = guarding()
    old = RouteRow("chat", "ngram", "ngram", stream_tpot_us=times(b40=1000))
    new = replace(old, stream_tpot_us=times(b40=1000, b10=80, b16=20), stream_ttft_us=times(b49=2))
    plain = RouteRow("code", "baseline", "baseline", stream_tpot_us=times(b10=1))
    also = RouteRow("chat", "baseline", "baseline", stream_tpot_us=times(b10=1), stream_ttft_us=times(b0=4))
    one.take_in({"r": sample(NOW, old)}, of)
    one.take_in({"r": sample(NOW + 30, new, plain, also)}, of)
    seen = block(one, of, NOW + BLOCK)
    chat = next(route for route in seen.routes if route.name == "chat")
    assert chat.slo == Slo(0.040, None, 90)
    low, high = BOUNDS_US[15] / 1e6, BOUNDS_US[16] / 1e6
    assert chat.speculative.time_per_output_token is not None
    assert chat.speculative.time_per_output_token.seconds == pytest.approx((low + high) / 2)
    assert chat.speculative.time_to_first_token == Tail(BOUNDS_US[48] / 1e6, 2)
    assert chat.baseline.time_to_first_token is not None
    assert chat.baseline.time_to_first_token.seconds == pytest.approx(0.0009)
    assert seen.baseline_tpot[90].requests == 2
    assert seen.baseline_ttft[90].requests == 4


def test_a_route_s_own_goals_go_before_the_general_ones() -> None:
    body = owner(policy={"minAcceptancePercent": 30, "slo": {"timeToFirstToken": "1s"}})
    body["spec"]["routing"]["routes"][0]["policy"] = {"slo": {"timePerOutputToken": "50ms"}}
    of = spec_of(body)
    found = {route.name: route.slo for route in block(guarding(), of, NOW).routes}
    assert found == {"code": Slo(0.050, None, 95), "chat": Slo(None, 1.0, 95)}
    assert all(route.slo is None for route in block(guarding(), spec(), NOW).routes)


def page(at: float, **counts: int) -> LoadPage:
    return LoadPage(at, NOW - 7200.0, 8, 2, 0.5, counts)


def test_a_pod_by_its_page() -> None:
    one = guarding()
    first = page(NOW, preempted=5, trials=100, accepted=60, first_trials=25, first_accepted=20, generated=10)
    one.look_at(first, "u1")
    one.look_at(replace(first, at=NOW + 30, counts={**first.counts, "trials": 140, "accepted": 70}), "u1")
    one.look_at(page(NOW - 500), "u2")  # old
    seen = block(one, spec(), NOW + 31, HALF, PLAIN, ReadyPod("u3", "pod-3", "baseline", None))
    assert seen.pods == (PodSeen("u1", "pod-1", "speculative", 8, 2, 0.5, 0, 40, 10, 0, 0, 140, 70, 7231.0),)
    assert seen.ready == {"speculative": 1, "baseline": 1}
    one.kept({"u2"})
    assert block(one, spec(), NOW + 40, HALF).pods == ()


def test_the_pool_is_new_since_its_oldest_pod_was_made() -> None:
    younger = HALF._replace(uid="u4", created=NOW - 50.0)
    assert block(guarding(), spec(), NOW, HALF, younger, PLAIN).renewed == NOW - 100.0
    assert block(guarding(), spec(), NOW, HALF, younger._replace(created=None)).renewed is None
    assert block(guarding(), spec(), NOW, PLAIN).renewed is None


def test_gauges_of_sglang_that_nothing_moves_are_not_believed_when_they_say_load() -> None:
    of = spec(
        engine={"type": "SGLang", "version": "0.5.13"},
        drafts=[{"name": "ngram", "mode": "NGram", "preflight": "Skip"}],
    )
    one = guarding()
    one.look_at(LoadPage(NOW, None, 8, 2, 0.95, {"generated": 100}), "u1")
    one.look_at(LoadPage(NOW, None, 0, 0, 0.95, {"generated": 100}), "u2")
    idle = block(one, of, NOW + 1, HALF, PLAIN).pods
    assert [(pod.running, pod.waiting, pod.kv_used) for pod in idle] == [(None, None, None), (0, 0, None)]
    one.look_at(LoadPage(NOW + 30, None, 8, 2, 0.95, {"generated": 101}), "u1")
    busy = block(one, of, NOW + 31, HALF).pods[0]
    assert (busy.running, busy.waiting, busy.kv_used, busy.age_seconds) == (8, 2, 0.95, None)


@pytest.mark.parametrize(
    ("mode", "learned"), [({"mode": "NGram"}, False), ({"mode": "EAGLE3", "model": "owner/head"}, True)]
)
def test_only_heads_and_models_draft_in_every_round(mode: dict[str, str], learned: bool) -> None:
    assert block(guarding(), spec(drafts=[{"name": "ngram", **mode}]), NOW).learned_draft is learned


def test_only_routes_under_enforce_and_auto_are_judged() -> None:
    body = owner()
    body["spec"]["routing"]["routes"][0]["speculation"] = "Never"
    assert [route.judged for route in block(guarding(), spec_of(body), NOW).routes] == [False, True]
    body["spec"]["policy"]["enforcement"] = "Observe"
    assert [route.judged for route in block(guarding(), spec_of(body), NOW).routes] == [False, False]


def test_routes_decided_together_get_what_stands_first_in_the_table() -> None:
    one = guarding()
    refused = Guard(off=Reason.REQUESTS_REFUSED, why="4xx.", explore=False, notes=("a",))
    slow = Guard(off=Reason.SLO_BREACHED, why="Slow.", notes=("a", "b"))
    one.outcome = Outcome(
        holds={"held": Hold.ENGINE_SUPPRESSED},
        guards={"refused": refused, "slow": slow, "held": Guard(), "calm": Guard()},
    )
    route = start(configs(spec())["chat"], NOW)
    assert one.of(["calm"], route) == one.of(["new"], route) == one.of([], route) == (None, Guard())
    assert one.of(["calm", "slow", "refused"], route) == (None, replace(refused, notes=("a", "b")))
    assert one.of(["held", "slow"], route) == (None, slow)
    assert one.of(["calm", "held"], route) == (Hold.ENGINE_SUPPRESSED, Guard())


def test_a_new_operator_explores_nothing_where_requests_were_refused() -> None:
    refused = replace(start(configs(spec())["chat"], NOW), cause=Reason.REQUESTS_REFUSED, told="4xx.")
    kept = Guard(stay_off=Reason.REQUESTS_REFUSED, explore=False, why="4xx.")
    assert guarding().of(["chat"], refused) == (None, kept)
    judged = guarding()
    judged.outcome = Outcome(guards={"chat": Guard()})
    assert judged.of(["chat"], refused) == (None, Guard())


def test_a_new_operator_frees_nothing_that_was_held_until_its_first_block() -> None:
    one, of = guarding(), spec()
    route = start(configs(of)["chat"], NOW)
    one.recall({"chat": "Overloaded", "code": "Pays"})
    one.recall({"code": "EngineSuppressed"})  # once
    assert one.of(["chat"], route) == (Hold.OVERLOADED, Guard())
    assert one.of(["code"], route) == (None, Guard())
    for _ in range(2):  # of the engines nothing is known yet
        one.close_block(block(one, of, one.next_block))
        assert one.of(["code"], route)[0] is Hold.OVERLOADED
    one.close_block(block(one, of, one.next_block))
    assert one.of(["chat"], route) == one.of(["code"], route) == (None, Guard())


def test_circumstances_hold_in_the_order_of_the_table_and_before_every_guard() -> None:
    unfit = Problem(ConditionReason.POOLS_OVERLAP, "both select one pod")
    worst = replace(state(speculative=0), unfit=unfit)
    found = [
        hold_for(worst, Hold.METRICS_UNAVAILABLE, True, upgrading=True),
        hold_for(worst, Hold.METRICS_UNAVAILABLE, True),
        hold_for(replace(worst, speculative=state().speculative), Hold.METRICS_UNAVAILABLE, True),
        hold_for(state(), Hold.METRICS_UNAVAILABLE, True),
        hold_for(state(), Hold.METRICS_UNAVAILABLE, False),
    ]
    assert found == [Hold(row.name) for row in GUARDS[: len(found)]]


def test_what_guards_say_reaches_the_decision() -> None:
    of = spec()
    one = guarding()
    one.outcome = Outcome(
        holds={"code": Hold.INSUFFICIENT_COVERAGE},
        guards={"chat": Guard(off=Reason.REQUESTS_REFUSED, why="4xx."), "code": Guard()},
    )
    states = states_of(of, {}, {}, NOW)
    decided = decide(of, states, {}, NOW + 400.0, None, {}, watched=one.of)
    assert (decided["chat"].verdict.pool, decided["chat"].verdict.reason) == ("baseline", Reason.REQUESTS_REFUSED)
    assert decided["code"].verdict.reason is Reason.INSUFFICIENT_COVERAGE
    held = decide(of, states, {}, NOW + 400.0, Hold.METRICS_UNAVAILABLE, {}, watched=one.of)
    assert {decision.verdict.reason for decision in held.values()} == {Reason.METRICS_UNAVAILABLE}


def measured() -> Curves:
    """Steps of 10 ms and 0.1 ms more a request in baseline, of 20 ms and 1 ms more under speculation, up to 40."""
    curves, at = Curves(), NOW - 7200.0
    for batch in range(0, 45, 5):
        for _ in range(5):
            at += 60.0
            for pool, ms in (("baseline", 10.0 + 0.1 * batch), ("speculative", 20.0 + batch)):
                timing = {STREAMS: Timing(us=1000.0 * ms * 5000.0, steps=5000.0, requests=100)}
                curves = curves.with_block(pool, at, 60.0, float(batch), timing)  # type: ignore[arg-type]
    return curves


def test_both_pools_times_with_the_load_are_predicted_from_their_curves() -> None:
    of, one = spec(), guarding()
    news = Block(at=NOW + 60.0, tokens=2000, accepted=1000, drafted=4000, requests=20, share=1.0)
    config = configs(of)["chat"]
    routes = {"chat": step(start(config, NOW), config, news, NOW + 60.0)[0], "code": start(config, NOW)}
    one.look_at(replace(page(NOW), running=10), "u1")
    one.look_at(replace(page(NOW), running=4), "u2")
    given: dict[str, Any] = {"curves": measured(), "suppressed": None, "by_router": True}
    active = {"chat": 6, "code": 6}
    seen = seen_block(of, one, state(), routes, configs(of), active, (HALF, PLAIN), NOW + 61.0, **given)
    chat, code = seen.routes
    assert chat.tokens_per_step == 2.0
    assert chat.predicted is not None
    assert chat.predicted.baseline_then == pytest.approx(0.011, rel=0.03)
    assert chat.predicted.speculation_now == pytest.approx(0.015, rel=0.03)
    assert code.predicted is None  # its tokens a step are not known
    beyond = seen_block(of, one, state(), routes, configs(of), {"chat": 4000}, (HALF, PLAIN), NOW + 61.0, **given)
    assert {route.predicted for route in beyond.routes} == {None}
    last = measured().with_block("baseline", NOW, 60.0, 10.0, {}).with_block("speculative", NOW, 60.0, 4.0, {})
    given |= {"curves": last}
    unread = seen_block(of, guarding(), state(), routes, configs(of), active, (), NOW + 61.0, **given)
    assert unread.routes[0].predicted is not None  # by the load of the last block


# --- reading


class Reader:
    """Stands for the engines' pages, by address."""

    def __init__(self) -> None:
        self.pages: dict[str, LoadPage] = {}
        self.asked: list[tuple[str, int, str]] = []
        self.begun = asyncio.Event()
        self.answering = asyncio.Event()
        self.answering.set()

    async def load(self, address: str, port: int, engine: EngineType, path: str, draft_tokens: int) -> LoadPage:
        self.asked.append((address, port, path))
        self.begun.set()
        await self.answering.wait()
        if address not in self.pages:
            raise EngineError("no answer")
        return self.pages[address]


def engine(
    uid: str, ip: str | None, pool: str = "ngram", *, ready: bool = True, component: str = "engine"
) -> PodRecord:
    return PodRecord(uid, f"pod-{uid}", "serving", "1", component, pool, ip, ready, False, None, None, created=NOW)


def guards(reader: Reader) -> tuple[Guards, OperatorMetrics]:
    metrics = OperatorMetrics()
    return Guards(reader, metrics), metrics  # type: ignore[arg-type]


async def rounds(one: Memory) -> None:
    """Until the round that is under way has ended."""
    assert one.guarding.reading is not None
    await one.guarding.reading


def memory() -> Memory:
    return Memory.new("uid-1", BLOCK, NOW)


async def test_pages_of_all_ready_pods_are_read_once_a_block_and_a_failing_one_is_left_alone() -> None:
    reader, one = Reader(), memory()
    edge, metrics = guards(reader)
    reader.pages["10.0.0.1"] = page(NOW)
    pods = [
        engine("a", "10.0.0.1"),
        engine("b", "10.0.0.2", "baseline"),
        engine("c", None),
        engine("d", "10.0.0.4", ready=False),
        engine("e", "10.0.0.5", component="router"),
    ]
    for now in (NOW, NOW + 1.0, NOW + 59.0):
        edge.follow(spec(), one, pods, now)
        await rounds(one)
    assert sorted(reader.asked) == [("10.0.0.1", 8000, "/metrics"), ("10.0.0.2", 8000, "/metrics")]
    assert set(one.guarding.pages) == {"a"}
    for now in (NOW + 60.0, NOW + 120.0, NOW + 299.0):
        edge.follow(spec(), one, pods, now)
        await rounds(one)
    assert [address for address, _, _ in reader.asked].count("10.0.0.2") == 1
    edge.follow(spec(), one, pods, NOW + 360.0)
    await rounds(one)
    assert [address for address, _, _ in reader.asked].count("10.0.0.2") == 2
    assert 'engine_readings_total{result="failed"} 2.0' in metrics.page().decode()
    del reader.pages["10.0.0.1"]
    edge.follow(spec(), one, pods, NOW + 420.0)
    await rounds(one)
    assert one.guarding.pages == {}
    edge.follow(spec(), one, [], NOW + 421.0)
    assert one.guarding.silent_until == {}


async def test_a_round_that_hangs_is_not_joined_by_another() -> None:
    reader, one = Reader(), memory()
    edge, _ = guards(reader)
    reader.answering.clear()
    edge.follow(spec(), one, [engine("a", "10.0.0.1")], NOW)
    await reader.begun.wait()
    edge.follow(spec(), one, [engine("a", "10.0.0.1")], NOW + 120.0)
    assert len(reader.asked) == 1
    reader.answering.set()
    await rounds(one)


@pytest.mark.parametrize(
    ("engine_spec", "port", "path"),
    [
        ({"type": "SGLang", "version": "0.5.13"}, 30000, "/metrics"),
        ({"type": "TensorRTLLM", "version": "1.4.0rc1"}, 8000, "/prometheus/metrics"),
    ],
)
async def test_the_page_of_each_engine(engine_spec: dict[str, str], port: int, path: str) -> None:
    reader, one = Reader(), memory()
    edge, _ = guards(reader)
    edge.follow(spec(engine=engine_spec), one, [engine("a", "10.0.0.1")], NOW)
    await rounds(one)
    assert reader.asked == [("10.0.0.1", port, path)]


def test_a_release_whose_page_tells_nothing_is_not_asked() -> None:
    one = memory()
    edge, _ = guards(Reader())
    edge.follow(spec(engine={"type": "TensorRTLLM", "version": "1.2.1"}), one, [engine("a", "10.0.0.1")], NOW)
    assert one.guarding.reading is None


def test_a_block_is_judged_when_it_is_due_and_rubbish_is_counted() -> None:
    one, of = memory(), spec()
    edge, metrics = guards(Reader())
    pods = [engine("a", "10.0.0.1"), engine("b", "10.0.0.2", "baseline"), engine("x", "10.0.0.3", "gone")]
    one.routes = states_of(of, {}, {}, NOW)
    one.samples = {"r": sample(NOW)}
    edge.look(of, one, state(), pods, NOW)
    rows = (
        RouteRow("chat", "ngram", "ngram", requests=20, client_errors=20),
        RouteRow("code", "ngram", "ngram", requests=-1),
    )
    one.samples = {"r": sample(NOW + 30, *rows)}
    edge.look(of, one, state(), pods, NOW + 30)
    assert one.guarding.outcome == Outcome()
    edge.look(of, one, state(), pods, NOW + 60)
    assert one.guarding.outcome.guards["chat"].off is Reason.REQUESTS_REFUSED
    assert one.guarding.next_block == NOW + 120
    assert 'samples_dropped_total{reason="NotACount"} 1.0' in metrics.page().decode()
    one.samples = {}
    edge.look(of, one, state(), pods, NOW + 300)
    assert one.guarding.next_block == NOW + 330


def test_nothing_is_judged_where_there_is_one_pool_only() -> None:
    one, of = memory(), spec()
    edge, _ = guards(Reader())
    alone = state()
    alone = replace(alone, baseline=replace(alone.baseline, absent=True))
    edge.look(of, one, alone, [], NOW + 60)
    assert one.guarding.next_block == NOW + 60


def seen_pod(uid: str, reading: EngineReading | None, *, ready: bool = True) -> SeenPod:
    endpoint = Endpoint(address="10.0.0.9", port=8000, pod=uid, uid=uid, ready=ready, leaving=False)
    return SeenPod(endpoint, reading=reading)


def reading(at: float, **counts: Any) -> EngineReading:
    figures: dict[str, Any] = {
        "engine": EngineType.VLLM,
        "started_at": NOW - 60.0,
        "decode_tokens": 100,
        "finished": 3,
        "rounds": 10,
        "drafted": 40,
        "accepted": 20,
        "tokens_a_round": None,
        "speculative": True,
        "running": 4,
        "waiting": 1,
    }
    return EngineReading(at=at, **{**figures, **counts})


def test_external_pools_tell_what_is_read_of_them_anyhow() -> None:
    body = owner(
        pools={
            "strategy": "External",
            "external": {
                "speculative": {"service": "fast", "port": 8000},
                "baseline": {"service": "plain", "port": 8000},
            },
        }
    )
    del body["spec"]["target"], body["spec"]["drafts"]
    of = spec_of(body)
    external = of.external
    assert external is not None
    assert external.speculative is not None
    assert external.baseline is not None
    one = memory()
    one.outside = Outside.new(None, BLOCK, NOW)
    edge, _ = guards(Reader())
    edge.follow(of, one, [engine("a", "10.0.0.1")], NOW)
    assert one.guarding.reading is None
    edge.look(of, one, state(), [], NOW)
    one.routes = states_of(of, {}, {}, NOW)
    for at, drafted in ((NOW, 40), (NOW + 30, 100), (NOW + 30, 900)):
        fast = (seen_pod("u1", reading(at, drafted=drafted)), seen_pod("u9", None, ready=False))
        one.outside.sight.seen = {
            of.draft.name: SeenPool(of.draft.name, external.speculative, pods=fast),
            "baseline": SeenPool("baseline", external.baseline, pods=(seen_pod("u2", reading(at, speculative=None)),)),
        }
        edge.look(of, one, state(), [], at)
    assert one.guarding.pages["u1"] == LoadPage(
        NOW + 30, NOW - 60.0, 4, 1, None, {"generated": 100, "trials": 100, "accepted": 20}
    )
    assert one.guarding.pages["u2"].counts == {"generated": 100}
    edge.look(of, one, state(), [], NOW + 61)
    assert one.guarding.outcome.silent == ()

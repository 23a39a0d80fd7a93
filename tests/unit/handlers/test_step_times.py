"""From the routers' counters to curves of step times, and to the break-even line of a route."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from specfleet.cluster.kinds import DEPLOYMENT
from specfleet.decision.break_even import MIN_POINTS, Estimate
from specfleet.decision.curves import STREAMS, Curves
from specfleet.decision.rule import Block, Pool, RouteState, start
from specfleet.handlers.decide import configs, decide
from specfleet.handlers.external import Assessment
from specfleet.handlers.fleet import Fleet
from specfleet.handlers.observed import OwnedRecord, owned_record
from specfleet.handlers.pods import PodRecord
from specfleet.handlers.status import Serving, route_status
from specfleet.handlers.step_times import CLASSES, StepTimes, measures, pool_keys
from specfleet.metrics.load import LoadPage
from specfleet.percentiles import BOUNDS_US, TimeBuckets
from specfleet.routing.counters import PROMPT_CLASSES, RouteRow, RouterSample, WholeAnswers
from tests.unit.handlers.samples import UID, deployment, owner, spec_of
from tests.unit.handlers.test_decide import health

NOW = 1_800_000_000.0
MEASURED = {"breakEven": {"source": "Measured"}, "initial": "Speculative"}
SPEC = spec_of(owner(policy=MEASURED))


def fleet(baseline: int = 1, speculative: int = 1, routers: int = 2, *, rolling: bool = False) -> Fleet:
    pods = tuple(router(f"r{n}") for n in range(routers))
    return Fleet(
        health("baseline", baseline), health("ngram", speculative, rolling=rolling), health("router"), pods, pods
    )


def router(uid: str) -> PodRecord:
    return PodRecord(
        uid=uid,
        name=uid,
        namespace="serving",
        resource_version="1",
        component="router",
        pool=None,
        ip="10.0.0.1",
        ready=True,
        deleting=False,
        routes_version=None,
        problem=None,
    )


class Traffic:
    """Two routers that count streams of both pools: `code` in baseline and `chat` in speculation."""

    def __init__(self, times: StepTimes, state: Fleet | None = None) -> None:
        self.times, self.state, self.now = times, state or fleet(), NOW
        self.rows: dict[tuple[str, str], dict[str, Any]] = {}

    def streams(self, route: str, pool: str, requests: int, tokens: int, ms_a_token: float) -> None:
        row = self.rows.setdefault((route, pool), {"us": 0, "tokens": 0, "requests": 0, "whole": [(0, 0, 0)] * 6})
        row["us"] += round(tokens * ms_a_token * 1000)
        row["tokens"] += tokens
        row["requests"] += requests

    def whole(self, route: str, pool: str, place: int, requests: int, tokens: int, ms_a_token: float) -> None:
        self.streams(route, pool, 0, 0, 0.0)
        found = list(self.rows[route, pool]["whole"])
        us, all_tokens, answers = found[place]
        found[place] = (us + round(tokens * ms_a_token * 1000), all_tokens + tokens, answers + requests)
        self.rows[route, pool]["whole"] = found

    def sample(self, active: dict[str, int], routes: dict[str, int]) -> RouterSample:
        return RouterSample(
            self.now,
            NOW - 3600,
            tuple(
                RouteRow(
                    route,
                    pool,
                    pool,
                    stream_decode_us=row["us"],
                    stream_decode_tokens=row["tokens"],
                    stream_tpot_us=TimeBuckets((row["requests"], *(0,) * len(BOUNDS_US))),
                    whole_by_prompt=tuple(WholeAnswers(*one) for one in row["whole"]),
                )
                for (route, pool), row in self.rows.items()
            ),
            active,
            routes,
            0,
            0,
        )

    def read(
        self,
        base: int,
        spec: int,
        *,
        only: tuple[str, ...] = ("r0", "r1"),
        elsewhere: dict[str, int] | None = None,
        pages: dict[Pool, list[LoadPage]] | None = None,
        seconds: float = 30.0,
    ) -> None:
        """Both routers are read: `base` and `spec` requests are in flight at each."""
        self.now += seconds
        one = self.sample({"baseline": base, "ngram": spec}, {"code": base, "chat": spec})
        samples = {uid: one if uid == "r0" else replace(one, rows=()) for uid in only}
        self.times.take_in(SPEC, self.state, samples, samples, elsewhere or {}, pages or {})

    def block(self, chat: float | None, *, held: bool = False) -> None:
        blocks = {} if chat is None else {"chat": yielded(self.now, chat)}
        self.times.close_block(SPEC, self.state, blocks, self.now, held=held)

    def minutes(self, count: int, base: int = 2, spec: int = 3, chat: float = 2.0, **how: Any) -> None:
        """Minutes in which `code` takes 10 ms a token and `chat` 8: 16 a step where a step yields two tokens."""
        for _ in range(count):
            self.streams("code", "baseline", 20, 4000, 10.0)
            self.streams("chat", "ngram", 20, 4000, 8.0)
            self.read(base, spec, **how)
            self.read(base, spec, **how)
            self.block(chat)


def yielded(at: float, steps: float) -> Block:
    return Block(at, 4000, round(4000 * (1 - 1 / steps)), 8000, 20, 1.0)


def new() -> StepTimes:
    return StepTimes(60.0, NOW + 60.0)


def test_a_step_s_time_is_that_of_its_tokens_together() -> None:
    traffic = Traffic(new())
    traffic.read(2, 3)  # counters that are seen first are a base
    traffic.minutes(5)
    curves = traffic.times.curves
    [base], [spec] = curves.baseline.curve().points, curves.speculative.curve().points
    assert base.step_us == pytest.approx(10_000, rel=0.005)
    assert spec.step_us == pytest.approx(16_000, rel=0.005)
    assert (base.requests, spec.requests) == (80, 80)  # the first block is one and a half long
    assert base.batch == pytest.approx(4.0, rel=0.02)
    assert curves.speculative.batch == pytest.approx(6.0, rel=0.001)


def test_routes_of_different_content_share_one_curve() -> None:
    traffic = Traffic(new())
    traffic.read(2, 3)
    for _ in range(5):
        traffic.streams("chat", "ngram", 20, 4000, 8.0)
        traffic.streams("code", "ngram", 20, 8000, 4.0)
        traffic.read(2, 3, seconds=60.0)
        blocks = {"chat": yielded(traffic.now, 2.0), "code": yielded(traffic.now, 4.0)}
        traffic.times.close_block(SPEC, traffic.state, blocks, traffic.now, held=False)
    [point] = traffic.times.curves.speculative.curve().points
    assert point.step_us == pytest.approx(16_000, rel=0.005)


def test_a_route_whose_tokens_a_step_are_not_known_is_left_out() -> None:
    traffic = Traffic(new())
    traffic.read(2, 3)
    for _ in range(6):
        traffic.streams("chat", "ngram", 20, 4000, 8.0)
        traffic.read(2, 3, seconds=60.0)
        traffic.block(None)
        traffic.streams("chat", "ngram", 20, 4000, 8.0)
        traffic.read(2, 3, seconds=60.0)
        nothing = {"chat": Block(traffic.now, 0, 0, 0, 0, 1.0)}
        traffic.times.close_block(SPEC, traffic.state, nothing, traffic.now, held=False)
    assert dict(traffic.times.curves.speculative.kinds) == {}
    assert traffic.times.curves.speculative.batch == pytest.approx(6.0, rel=0.001)


def test_routes_and_pools_of_other_names_and_failovers_are_passed_over() -> None:
    traffic = Traffic(new())
    traffic.read(2, 3)
    for _ in range(5):
        traffic.streams("ineligible", "baseline", 20, 4000, 10.0)
        traffic.streams("code", "other", 20, 4000, 10.0)
        traffic.read(2, 3, seconds=60.0)
        traffic.block(2.0)
    assert dict(traffic.times.curves.baseline.kinds) == {}
    row = RouteRow("code", "baseline", "ngram", stream_decode_us=10**9, stream_decode_tokens=10**5)
    sample = RouterSample(traffic.now + 60, NOW, (row,), {}, {}, 0, 0)
    traffic.times.take_in(SPEC, traffic.state, {"r0": sample}, {}, {}, {})
    assert traffic.times.counted.take() == {}


def test_the_batch_is_that_of_a_ready_replica_over_all_routers() -> None:
    traffic = Traffic(new(), fleet(baseline=2, speculative=3))
    traffic.minutes(5, base=3, spec=9)
    assert traffic.times.curves.baseline.batch == pytest.approx(3.0, rel=0.001)
    assert traffic.times.curves.speculative.batch == pytest.approx(6.0, rel=0.001)
    # A router that was not read carries as much as the other.
    half = Traffic(new(), fleet(baseline=2, speculative=3))
    half.minutes(5, base=3, spec=9, only=("r0",))
    assert half.times.curves.baseline.batch == pytest.approx(3.0, rel=0.001)
    # With most of them unread nothing is known.
    few = Traffic(new(), fleet(routers=3))
    few.minutes(5, only=("r0",))
    assert few.times.curves.baseline.batch is None
    away = Traffic(new())
    away.minutes(5, elsewhere={"baseline": 10})
    assert away.times.curves.baseline.batch == pytest.approx(14.0, rel=0.001)


def test_engines_that_tell_what_they_run_are_believed() -> None:
    pages: dict[Pool, list[LoadPage]] = {
        "baseline": [LoadPage(NOW, running=1), LoadPage(NOW, running=5)],
        "speculative": [LoadPage(NOW, running=7)],
    }
    traffic = Traffic(new(), fleet(baseline=2, speculative=2))
    traffic.minutes(5, pages=pages)
    assert traffic.times.curves.baseline.batch == pytest.approx(3.0, rel=0.001)
    assert traffic.times.curves.speculative.batch == pytest.approx(3.0, rel=0.001)  # one page of two: the routers'


def test_a_reading_counts_once() -> None:
    traffic = Traffic(new())
    traffic.read(2, 3)
    traffic.read(100, 100, seconds=0.0)
    traffic.read(2, 3)
    traffic.block(None)
    assert traffic.times.curves.baseline.batch == pytest.approx(4.0)


@pytest.mark.parametrize("state", [fleet(rolling=True), fleet(speculative=0)])
def test_a_pool_that_is_rolled_or_not_there_is_not_measured(state: Fleet) -> None:
    traffic = Traffic(new(), state)
    traffic.minutes(10)
    assert traffic.times.curves.speculative.batch is None
    assert len(traffic.times.curves.baseline.curve().points) > 0
    held = Traffic(new())
    held.read(2, 3)
    held.block(2.0, held=True)
    assert held.times.curves == Curves()


def test_whole_answers_are_kept_while_streams_are_few() -> None:
    traffic = Traffic(new())
    traffic.read(2, 3)
    for _ in range(10):
        traffic.whole("code", "baseline", 1, 20, 4000, 12.0)
        traffic.whole("chat", "ngram", 5, 20, 4000, 9.0)
        traffic.read(2, 3, seconds=60.0)
        traffic.block(2.0)
    curves = traffic.times.curves
    assert CLASSES == ("to128", "to512", "to2048", "to8192", "to32768", "longer")
    assert len(CLASSES) == len(PROMPT_CLASSES)
    assert [len(curves.baseline.curve(kind).points) for kind in (STREAMS, "to512", "longer")] == [0, 2, 0]
    assert [len(curves.speculative.curve(kind).points) for kind in (STREAMS, "to512", "longer")] == [0, 0, 2]
    traffic.minutes(5 * MIN_POINTS + 5)
    points = len(traffic.times.curves.baseline.curve("to512").points)
    for _ in range(10):
        traffic.whole("code", "baseline", 1, 20, 4000, 12.0)
        traffic.minutes(1)
    assert len(traffic.times.curves.baseline.curve("to512").points) == points


def measured_fleet() -> Traffic:
    traffic = Traffic(new())
    traffic.read(2, 3)
    traffic.minutes(60, base=3, spec=3)
    return traffic


def test_a_line_is_read_at_the_batch_of_the_pool_that_serves_the_route() -> None:
    traffic = measured_fleet()
    on = start(configs(SPEC)["chat"], NOW, "speculative")
    found = traffic.times.estimate(SPEC, traffic.state, on, ["chat"], traffic.now)
    assert found.certainty == "Known"
    assert found.batch == pytest.approx(6.0, rel=0.005)
    assert found.tokens_per_step == pytest.approx(1.6, rel=0.02)
    # One that would come back is read at what speculation would run with it.
    off = start(configs(SPEC)["chat"], NOW, "baseline")
    back = traffic.times.estimate(SPEC, traffic.state, off, ["chat"], traffic.now)
    assert back.batch == pytest.approx(12.0, rel=0.005)
    together = traffic.times.estimate(SPEC, traffic.state, off, ["chat", "code", "gone"], traffic.now)
    assert together.batch == pytest.approx(18.0, rel=0.005)
    nowhere = traffic.times.estimate(SPEC, fleet(speculative=0), off, ["chat"], traffic.now)
    assert nowhere.batch == pytest.approx(6.0, rel=0.005)


def test_drafts_that_cost_no_step_are_taken_to_pay_until_it_is_measured() -> None:
    off = start(configs(SPEC)["chat"], NOW, "baseline")
    assert new().estimate(SPEC, fleet(), off, ["chat"], NOW) == Estimate("Prior", 1.0)
    head = spec_of(owner(policy=MEASURED, drafts=[{"name": "eagle", "mode": "EAGLE3", "model": "o/d"}]))
    assert new().estimate(head, fleet(), off, ["chat"], NOW) == Estimate("Prior", None)
    assert new().estimate(head, fleet(), off, ["chat"], NOW, 1.28) == Estimate("Prior", 1.28)
    assert new().estimate(SPEC, fleet(), off, ["chat"], NOW, 1.28) == Estimate("Prior", 1.0)


def test_a_restart_and_a_set_clock_forget_no_curve() -> None:
    traffic = measured_fleet()
    text = traffic.times.curves.encode()
    other = new()
    other.recall(text)
    assert other.curves.encode() == text
    other.recall(None)  # once
    assert other.curves.encode() == text
    before = other.curves.baseline.curve().points[-1].minute
    other.clock_set(7200.0)
    assert other.curves.baseline.curve().points[-1].minute == before + 120
    other.retimed(30.0, NOW + 10_000.0)
    assert other.curves.baseline.curve().points[-1].minute == before + 120
    assert other.closed_at == NOW + 10_000.0 - 30.0


def test_a_route_that_is_gone_is_forgotten() -> None:
    traffic = measured_fleet()
    assert set(traffic.times.loads) == {"code", "chat"}
    one = spec_of(owner(policy=MEASURED, routing={"routes": [{"name": "chat"}]}))
    sample = RouterSample(traffic.now + 30, NOW, (), {}, {}, 0, 0)
    traffic.times.take_in(one, fleet(routers=1), {"r0": sample}, {"r0": sample}, {}, {})
    traffic.times.close_block(one, fleet(routers=1), {}, traffic.now + 30, held=False)
    assert set(traffic.times.loads) == {"chat"}


def record(pool: str, template: str | None, runs: str | None = None) -> OwnedRecord:
    found = owned_record(DEPLOYMENT, deployment(f"assistant-{pool}", "engine", pool))
    return replace(found, template=template, runs=runs)


def owned(base: str | None, spec: str | None, runs: str | None = None) -> dict[Any, OwnedRecord]:
    return {
        (DEPLOYMENT, "assistant-baseline"): record("baseline", base),
        (DEPLOYMENT, "assistant-ngram"): record("ngram", spec, runs),
    }


def test_times_are_kept_where_a_line_or_a_guard_needs_them() -> None:
    route = {"name": "chat", "policy": {"slo": {"timePerOutputToken": "40ms"}}}
    assert measures(SPEC)
    assert not measures(spec_of(owner()))
    assert measures(spec_of(owner(routing={"routes": [route]})))
    fixed = {"breakEven": {"source": "Fixed", "tokensPerStep": "1.6"}}
    assert not measures(spec_of(owner(policy=fixed)))
    assert measures(spec_of(owner(policy={**fixed, "slo": {"timeToFirstToken": "1s"}})))


def test_other_pods_are_told_apart() -> None:
    def keys(objects: dict[Any, OwnedRecord], spec: Any = SPEC, uid: str = UID) -> tuple[str, str]:
        return pool_keys("assistant", spec, uid, objects, None)

    first = keys(owned("a", "b"))
    assert keys(owned("a", "b")) == first
    assert keys(owned("a", "c"))[0] == first[0]
    assert keys(owned("a", "c"))[1] != first[1]
    assert keys(owned("a", "b", "{}"))[1] != first[1]
    h100 = spec_of(owner(policy=MEASURED, pools={"replicas": 2, "accelerator": {"product": "H100-80GB"}}))
    assert not set(keys(owned("a", "b"), h100)) & set(first)
    assert keys({}) == keys(owned("a", "b"), uid="somebody else's")
    assert Curves().keyed(*first).baseline.key == first[0]


def test_external_pods_are_told_apart_by_what_they_run() -> None:
    external = {"strategy": "External", "external": {"speculative": {"service": "a"}, "baseline": {"service": "b"}}}
    spec = spec_of(owner(policy=MEASURED, pools=external))

    def keys(outside: Assessment | None) -> tuple[str, str]:
        return pool_keys("assistant", spec, UID, {}, outside)

    class Seen:
        service, release = "a", "0.32.0"

    seen: Any = {"ngram": Seen()}
    known = keys(Assessment(pools=seen, draft_tokens=3))
    assert keys(None) != known
    assert keys(Assessment(pools=seen, draft_tokens=3)) == known
    assert keys(Assessment(pools=seen, draft_tokens=4))[1] != known[1]


def test_a_decision_carries_its_line_and_says_how_it_was_found() -> None:
    states: dict[str, RouteState] = {name: start(config, NOW) for name, config in configs(SPEC).items()}
    line = Estimate("Known", 1.6, (1.5, 1.7), 6.0, (4.0, 9.0), NOW)
    found = decide(SPEC, states, {}, NOW + 60, None, {}, lines={"chat": line})
    assert (found["chat"].line, found["code"].line) == (line, None)
    assert (found["chat"].config.break_even, found["chat"].config.certainty) == (1.6, "Known")
    assert found["chat"].state.line("BreakEven").value == 1.6
    assert "Break-even Known: 1.60 [1.50, 1.70] at 6 running requests a replica" in found["chat"].verdict.message
    assert found["code"].verdict.reason == "BreakEvenUnknown"
    both = decide(SPEC, states, {}, NOW + 60, None, {}, together=True, lines={"code": line, "chat": line})
    assert both["chat"].line == line
    assert both["chat"].name == "chat"


def told(line: Estimate | None, spec: Any = SPEC) -> Any:
    states = {name: start(config, NOW) for name, config in configs(spec).items()}
    lines = {} if line is None else {"chat": line}
    chat = decide(spec, states, {}, NOW + 60, None, {}, lines=lines)["chat"]
    shown = route_status(
        chat, None, "ngram", Serving(), None, applied_percent=100, has_routers=True, slow=False, now=NOW + 60
    ).break_even
    return None if shown is None else shown.model_dump(mode="json", by_alias=True, exclude_none=True)


def test_status_shows_the_line_in_force_and_how_it_was_found() -> None:
    assert told(Estimate("Known", 1.604, (1.5, 1.7), 6.04, (4.0, 9.0), NOW)) == {
        "tokensPerStep": "1.60",
        "state": "Known",
        "measured": "1.60",
        "interval": {"low": "1.50", "high": "1.70"},
        "batch": "6.0",
        "reach": {"low": "4.0", "high": "9.0"},
        "at": "2027-01-15T08:00:00Z",
    }
    assert told(Estimate("Prior", 1.0)) == {"tokensPerStep": "1.00", "state": "Prior"}
    assert told(Estimate("Prior", None)) == {"state": "Prior"}
    assert told(None) is None
    fixed = spec_of(owner(policy={"breakEven": {"source": "Fixed", "tokensPerStep": "1.6"}}))
    assert told(None, fixed) == {"tokensPerStep": "1.60", "state": "Fixed"}
    assert told(None, spec_of(owner())) is None


def test_a_router_that_misses_every_other_reading_is_counted_all_the_same() -> None:
    traffic = Traffic(new())
    for _ in range(12):
        traffic.streams("code", "baseline", 20, 4000, 10.0)
        traffic.read(2, 3, only=("r1",))
        traffic.read(2, 3)
        traffic.block(2.0)
    points = traffic.times.curves.baseline.curve().points
    assert [round(point.step_us / 1000.0) for point in points] == [10, 10]
    assert sum(point.requests for point in points) >= 180

"""The data rules, row by row, for each source and for what each engine counts: one table.

A step is a sample of one process: its time, steps, accepted tokens and requests so far. Sources turn it into what they
read, and that goes the whole way to the increments that decisions get.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from specfleet.api.v1alpha1 import EngineType, SpecDeploymentSpec
from specfleet.decision.curves import Curves
from specfleet.decision.measures import Seen
from specfleet.decision.reasons import Hold
from specfleet.decision.samples import Increment, Kind, Ledger
from specfleet.engines.counting import EngineCounting
from specfleet.handlers.decide import ALL_ROUTES, configs, route_totals, states_of
from specfleet.handlers.engine_counts import EngineCounts
from specfleet.handlers.guarding import Guarding, seen_block
from specfleet.metrics.engine import parse_page
from specfleet.routing.counters import RouterSample, parse_stats
from specfleet.routing.series import scraped
from tests.unit.handlers.samples import owner, spec_of
from tests.unit.handlers.test_decide import NOW, state

BLOCK, K = 60.0, 4
T = NOW
OLD = T - 7200.0


@dataclass(frozen=True)
class Step:
    """One sample. A value that is no whole number stands for what an ill source says of accepted tokens."""

    at: float
    steps: int = 0
    accepted: Any = 0
    requests: int = 0
    started_at: float = OLD
    source: str = "a"


@dataclass
class Source:
    """A ledger, and a way into it."""

    ledger: Ledger = field(default_factory=lambda: Ledger(BLOCK, T - 600.0))
    route: str = "chat"

    def observe(self, step: Step) -> None:
        """Read one sample. Raises ValueError where the edge would take it for no answer."""
        raise NotImplementedError

    def feed(self, *steps: Step) -> None:
        """As the edges do: what cannot be read is a missed read."""
        for step in steps:
            try:
                self.observe(step)
            except ValueError:
                continue

    def taken(self, now: float) -> tuple[Increment, set[Kind]]:
        """What decisions get of the route at `now`."""
        taken = self.ledger.take(now)
        return taken.increments.get(self.route, Increment()), {problem.kind for problem in taken.problems}


LABELS = {"route": "chat", "pool": "ngram", "intended": "ngram"}


def counters(step: Step) -> dict[str, Any]:
    decoded = step.steps + step.accepted if isinstance(step.accepted, int) else step.steps
    return {
        "decode_tokens": max(decoded, 0),
        "accepted": step.accepted,
        "drafted": step.steps * K,
        "measured": step.requests,
    }


class Direct(Source):
    """Routers' own counters."""

    @staticmethod
    def sample(step: Step) -> RouterSample:
        name = ".".join(f"{label}.{value}" for label, value in LABELS.items())
        stats = [{"name": f"specfleet.{one}.{name}", "value": value} for one, value in counters(step).items()]
        uptime = {"name": "server.uptime", "value": int(step.at - step.started_at)}
        return parse_stats(json.dumps({"stats": [uptime, *stats]}).encode(), step.at)

    def observe(self, step: Step) -> None:
        one = self.sample(step)
        self.ledger.observe(step.source, one.started_at, one.at, route_totals(one, "ngram"))


class Prometheus(Source):
    """The same as Prometheus has scraped it."""

    @staticmethod
    def sample(step: Step) -> RouterSample:
        labels = {"namespace": "serving", "pod": "assistant-router-1-x", **LABELS}
        series: list[dict[str, Any]] = [
            {"metric": {"__name__": f"specfleet_{one}", **labels}, "values": [(step.at, str(value))]}
            for one, value in counters(step).items()
        ]
        uptime = str(int(step.at - step.started_at))
        where = {"__name__": "specfleet_router_uptime", "namespace": "serving", "pod": "assistant-router-1-x"}
        series.append({"metric": where, "values": [(step.at, uptime)]})
        return scraped(series)["serving", "assistant-router-1-x"].samples[0]

    def observe(self, step: Step) -> None:
        one = self.sample(step)
        self.ledger.observe(step.source, one.started_at, one.at, route_totals(one, "ngram"))


@dataclass
class Pages(Source):
    """Engines' own pages."""

    engine: EngineType = EngineType.VLLM
    label: str | None = None
    counts: EngineCounts = field(init=False)

    def __post_init__(self) -> None:
        self.counts = EngineCounts(EngineCounting(8000, self.label, "", ""))
        self.route = "chat" if self.label else ALL_ROUTES

    def page(self, step: Step) -> dict[str, Any]:
        """Series and values."""
        raise NotImplementedError

    def observe(self, step: Step) -> None:
        lines = [f"{name} {value}" for name, value in self.page(step).items()]
        reading = parse_page("\n".join([*lines, ""]), step.at, self.engine, self.label)
        self.counts.take_in(step.source, reading, self.ledger, ("chat", "code"), K)


class VllmPages(Pages):
    """vLLM before 0.29."""

    def page(self, step: Step) -> dict[str, Any]:
        found = counters(step)
        return {
            "vllm:generation_tokens_total": found["decode_tokens"] + step.requests,
            "vllm:request_success_total": step.requests,
            "vllm:spec_decode_num_drafts_total": step.steps,
            "vllm:spec_decode_num_draft_tokens_total": found["drafted"],
            "vllm:spec_decode_num_accepted_tokens_total": step.accepted,
            "process_start_time_seconds": step.started_at,
        }


class SglangPages(Pages):
    """SGLang, by route: accepted is what was generated beyond a token a verification."""

    def page(self, step: Step) -> dict[str, Any]:
        good = isinstance(step.accepted, int) and 0 <= step.accepted < 2**60
        tokens = step.steps + step.accepted + step.requests if good else step.accepted
        return {
            'sglang:generation_tokens_total{route="chat"}': tokens,
            'sglang:num_requests_total{route="chat"}': step.requests,
            'sglang:spec_verify_calls_total{route="chat"}': step.steps,
        }


class TrtllmPages(Pages):
    """TensorRT-LLM from 1.3 on."""

    def page(self, step: Step) -> dict[str, Any]:
        found = counters(step)
        return {
            "trtllm_generation_tokens_total": found["decode_tokens"] + step.requests,
            "trtllm_request_success_total": step.requests,
            "trtllm_num_requests_running": 1,
            "trtllm_spec_decode_num_draft_tokens_total": found["drafted"],
            "trtllm_spec_decode_num_accepted_tokens_total": step.accepted,
            'trtllm_speculative_config_info{spec_enabled="True"}': 1,
        }


SOURCES: Mapping[str, Callable[[], Source]] = {
    "Direct": Direct,
    "Prometheus": Prometheus,
    "vLLM pages": VllmPages,
    "SGLang pages": lambda: SglangPages(engine=EngineType.SGLANG, label="route"),
    "TensorRT-LLM pages": lambda: TrtllmPages(engine=EngineType.TENSORRTLLM),
}
TELL_THEIR_START = ("Direct", "Prometheus", "vLLM pages")
ROUTERS = ("Direct", "Prometheus")

BASE = Step(T, 1000, 500, 10)
NEXT = Step(T + 30, 1100, 560, 11)
GREW = (160, 60, 400, 1)
NOTHING = (0, 0, 0, 0)


def grew(increment: Increment) -> tuple[int, int, int, int]:
    return increment.tokens, increment.accepted, increment.drafted, increment.requests


ROWS: Mapping[str, tuple[tuple[Step, ...], tuple[int, int, int, int]]] = {
    "a process seen first is a base": ((BASE,), NOTHING),
    "samples are subtracted": ((BASE, NEXT), GREW),
    "a missed sample is covered by the next": ((BASE, Step(T + 90, 1100, 560, 11)), GREW),
    "a gap is left out": ((BASE, Step(T + 121, 1100, 560, 11)), NOTHING),
    "a sample twice": ((BASE, NEXT, NEXT), GREW),
    "a sample late": ((BASE, NEXT, Step(T + 20, 1090, 550, 11)), GREW),
    "the clock set back": ((BASE, Step(T - 3600, 1100, 560, 11), Step(T - 3570, 1200, 620, 12)), GREW),
    "one counter fell": ((BASE, Step(T + 30, 1100, 400, 11)), NOTHING),
    "no traffic": ((BASE, Step(T + 30, 1000, 500, 10)), NOTHING),
    "more accepted than drafted": ((BASE, Step(T + 30, 1001, 600, 10)), NOTHING),
    "more than anybody serves": ((BASE, Step(T + 30, 2**52 // K, 500, 10)), NOTHING),
    "a process that is gone leaves what it counted": ((BASE, NEXT, Step(T + 31, 5, 1, 1, source="b")), GREW),
}


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("row", ROWS)
def test_rows(row: str, source: str) -> None:
    steps, expected = ROWS[row]
    one = SOURCES[source]()
    one.feed(*steps)
    if row == "more accepted than drafted" and source in ("SGLang pages", "TensorRT-LLM pages"):
        # These do not count acceptance itself, or count it at another time than tokens: it is cut to what can be.
        increment, _ = one.taken(steps[-1].at + 1)
        assert increment.accepted <= increment.drafted
        return
    assert grew(one.taken(steps[-1].at + 1)[0]) == expected


@pytest.mark.parametrize("source", ROUTERS)
def test_half_a_token_is_no_count(source: str) -> None:
    one = SOURCES[source]()
    one.feed(BASE, Step(T + 30, 1050, 510.5, 10), Step(T + 60, 1100, 560, 11))
    assert grew(one.taken(T + 61)[0]) == GREW


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("value", ["NaN", "+Inf", -1, 2**63], ids=str)
def test_what_is_no_count_is_left_out_and_the_next_sample_covers_it(source: str, value: Any) -> None:
    one = SOURCES[source]()
    one.feed(BASE, Step(T + 30, 1050, value, 10), Step(T + 60, 1100, 560, 11))
    increment, kinds = one.taken(T + 61)
    assert grew(increment) == GREW
    assert kinds <= {Kind.NOT_A_COUNT, Kind.LEAP, Kind.ACCEPTED_OVER_DRAFTED, Kind.COUNTER_FELL}


@pytest.mark.parametrize("source", TELL_THEIR_START)
def test_a_young_process_counts_from_its_start(source: str) -> None:
    one = SOURCES[source]()
    one.feed(Step(T, 100, 60, 1, started_at=T - 30))
    assert grew(one.taken(T + 1)[0]) == GREW


@pytest.mark.parametrize("source", SOURCES)
def test_a_restart_counts_from_zero(source: str) -> None:
    one = SOURCES[source]()
    one.feed(BASE, Step(T + 30, 100, 60, 1, started_at=T + 10))
    increment, kinds = one.taken(T + 31)
    assert grew(increment) == GREW
    assert kinds == {Kind.RESTART}


@pytest.mark.parametrize("source", SOURCES)
def test_fewer_than_half_of_the_ready_pods_hold_and_none_is_no_data(source: str) -> None:
    one = SOURCES[source]()
    one.feed(BASE)
    assert one.ledger.hold(T + 1, ["a"]) is None
    assert one.ledger.hold(T + 1, ["a", "b"]) is None
    assert one.ledger.hold(T + 1, ["a", "b", "c"]) is Hold.INSUFFICIENT_COVERAGE
    assert one.ledger.hold(T + 91, ["a"]) is Hold.METRICS_UNAVAILABLE


@pytest.mark.parametrize("source", SOURCES)
def test_an_outage_gives_no_block_and_a_new_base_after_it(source: str) -> None:
    one = SOURCES[source]()
    one.feed(BASE, NEXT)
    taken = one.ledger.take(T + 300)
    assert (dict(taken.increments), {problem.kind for problem in taken.problems}) == ({}, {Kind.STALE})
    one.feed(Step(T + 600, 9000, 4000, 90))
    increment, kinds = one.taken(T + 601)
    assert (grew(increment), kinds) == (GREW, {Kind.GAP})  # what was counted before it stays


@pytest.mark.parametrize("source", ["Direct", "Prometheus"])
def test_a_flood_of_routes_takes_bounded_room_and_known_ones_go_on(source: str) -> None:
    one = SOURCES[source]()
    one.feed(BASE)
    flood = {f"r{n}": totals for n in range(5000) for totals in route_totals(Direct.sample(NEXT), "ngram").values()}
    flood["chat"] = route_totals(Direct.sample(NEXT), "ngram")["chat"]
    one.ledger.observe("a", OLD, T + 30, flood)
    taken = one.ledger.take(T + 31)
    assert grew(taken.increments["chat"]) == GREW
    assert len(taken.increments) <= 257
    assert {problem.kind for problem in taken.problems} == {Kind.FLOOD}


def test_an_answer_in_part_counts_nothing_twice() -> None:
    """Prometheus lost one of a route's counters in one scrape: the row is left out, and the next scrape covers it."""
    one = Prometheus()
    one.feed(BASE)
    sample = Prometheus.sample(NEXT)
    assert sample.rows
    one.ledger.observe("a", OLD, T + 30, {})
    one.feed(Step(T + 60, 1100, 560, 11))
    assert grew(one.taken(T + 61)[0]) == GREW


def flat(mode: dict[str, str], source: type[Direct] | type[Prometheus]) -> Seen:
    spec: SpecDeploymentSpec = spec_of(owner(drafts=[{"name": "ngram", **mode}]))
    guarding = Guarding(BLOCK, T + BLOCK)
    guarding.take_in({"a": source.sample(Step(T, 0, 0, 0))}, spec)
    later = source.sample(Step(T + 30, 0, 0, 10))
    rows = tuple(replace(row, decode_tokens=1500) for row in later.rows)
    guarding.take_in({"a": replace(later, rows=rows)}, spec)
    routes = states_of(spec, {}, {}, T)
    seen = seen_block(
        spec,
        guarding,
        state(),
        routes,
        configs(spec),
        {},
        (),
        T + BLOCK,
        curves=Curves(),
        suppressed=None,
        by_router=True,
    )
    guarding.close_block(seen)
    held = set(guarding.outcome.holds.values())
    assert held == ({Hold.ENGINE_SUPPRESSED} if seen.learned_draft else set())
    return seen


@pytest.mark.parametrize("source", [Direct, Prometheus])
@pytest.mark.parametrize("mode", [{"mode": "EAGLE3", "model": "owner/head"}, {"mode": "NGram"}])
def test_tokens_without_drafts_hold_heads_and_are_evidence_against_lookup(
    mode: dict[str, str], source: type[Direct] | type[Prometheus]
) -> None:
    chat = next(route for route in flat(mode, source).routes if route.name == "chat")
    assert (chat.speculative.tokens, chat.speculative.drafted) == (1500, 0)


def test_gauges_of_sglang_count_nothing() -> None:
    """Its gauges keep their last value while nothing runs; nothing of a decision is read off them."""
    one = SglangPages(engine=EngineType.SGLANG, label="route")
    for at, length in ((T, 3.4), (T + 30, 1.1)):
        page = {
            **one.page(Step(at, 1000, 500, 10)),
            "sglang:spec_accept_length": length,
            "sglang:spec_accept_rate": 0.9,
        }
        lines = [f"{name} {value}" for name, value in page.items()]
        reading = parse_page("\n".join([*lines, ""]), at, EngineType.SGLANG, "route")
        one.counts.take_in("a", reading, one.ledger, ("chat",), K)
    assert grew(one.taken(T + 31)[0]) == NOTHING

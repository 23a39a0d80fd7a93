"""Engines that count, by route or for all routes together: what is read of their pages, decided by, and said."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest

from specfleet.api.conditions import Reason
from specfleet.api.v1alpha1 import DraftMode, EngineType, RoutePolicy, SpecDeployment, SpecDeploymentSpec
from specfleet.decision.reasons import Hold
from specfleet.engines.counting import engine_counting
from specfleet.handlers.conditions import Said
from specfleet.handlers.counting import Counter
from specfleet.handlers.fleet import fleet
from specfleet.handlers.memory import Memory
from specfleet.handlers.pods import PodRecord
from specfleet.handlers.sampling import sample
from specfleet.metrics.engine import EngineError, EngineReading, parse_page
from specfleet.metrics.own import OperatorMetrics

BLOCK = 60.0


def spec_of(engine: str = "SGLang", version: str = "0.5.23") -> SpecDeploymentSpec:
    return SpecDeployment.parse(
        {
            "metadata": {"name": "assistant", "namespace": "serving"},
            "spec": {
                "engine": {"type": engine, "version": version},
                "target": {"model": "owner/target"},
                "drafts": [{"name": "ngram", "mode": "NGram", "tokens": 4}],
                "pools": {"replicas": 2},
                "routing": {"routes": [{"name": "code", "match": [{"model": "coder"}]}, {"name": "chat"}]},
                "policy": {"minAcceptancePercent": 40},
            },
        }
    ).spec


def page(code: tuple[int, int, int], chat: tuple[int, int, int]) -> str:
    """Tokens, requests and verifications of two routes, as SGLang 0.5.13 and later writes them."""
    lines = []
    for route, (tokens, requests, verified) in {"code": code, "chat": chat}.items():
        labels = f'model_name="assistant",engine_type="unified",route="{route}"'
        lines += [
            f'sglang:generation_tokens_total{{{labels},is_streaming="false"}} {tokens}',
            f'sglang:num_requests_total{{{labels},is_streaming="false"}} {requests}',
        ]
        lines += [f"sglang:spec_verify_calls_total{{{labels}}} {verified}"] if verified else []
    return "\n".join(lines)


@dataclass
class Pages:
    """Answers with a page by address, at a time that the test sets."""

    at: float = 0.0
    pages: dict[str, str] = field(default_factory=dict)
    asked: list[tuple[str, int]] = field(default_factory=list)

    async def metrics(
        self, address: str, port: int, engine: EngineType, path: str = "/metrics", route_label: str | None = None
    ) -> EngineReading:
        self.asked.append((address, port))
        if address not in self.pages:
            raise EngineError("port 30000 answers no HTTP")
        return parse_page(self.pages[address], self.at, engine, route_label)


def pod(name: str, *, pool: str = "ngram", ready: bool = True) -> PodRecord:
    return PodRecord(
        uid=f"uid-{name}",
        name=name,
        namespace="serving",
        resource_version="1",
        component="engine",
        pool=pool,
        ip=f"10.0.0.{name[-1]}",
        ready=ready,
        deleting=False,
        routes_version=None,
        problem=None,
    )


async def followed(
    counter: Counter, pages: Pages, memory: Memory, pods: list[PodRecord], at: float, spec: SpecDeploymentSpec
) -> None:
    pages.at = at
    memory.next_sample = at
    counter.follow(spec, memory, pods, at)
    if memory.counts is not None and memory.counts.reading is not None:
        await memory.counts.reading


def counting(pages: Pages) -> tuple[Counter, Memory]:
    return Counter(pages, OperatorMetrics()), Memory.new("uid", BLOCK, 0.0)  # type: ignore[arg-type]


def test_two_routes_of_one_page_are_counted_apart() -> None:
    async def run() -> None:
        pages = Pages()
        counter, memory = counting(pages)
        spec = spec_of()
        pages.pages["10.0.0.1"] = page((0, 0, 0), (0, 0, 0))
        await followed(counter, pages, memory, [pod("a-1"), pod("b-2", pool="baseline")], 10.0, spec)
        # code: 400 decode tokens in 100 verifications; chat: 210 in 200.
        pages.pages["10.0.0.1"] = page((410, 10, 100), (230, 20, 200))
        await followed(counter, pages, memory, [pod("a-1")], 40.0, spec)

        taken = memory.ledger.take(60.0).increments
        assert (taken["code"].tokens, taken["code"].accepted, taken["code"].drafted) == (400, 300, 400)
        assert (taken["chat"].tokens, taken["chat"].accepted, taken["chat"].drafted) == (210, 10, 800)
        assert taken["code"].requests == 10
        assert pages.asked == [("10.0.0.1", 30000)] * 2
        assert memory.counts is not None
        assert memory.counts.said(memory.counts.hold(memory.ledger, 60.0)).reason is Reason.ENGINE_COUNTERS_READ

    asyncio.run(run())


def test_a_route_that_the_engine_meets_later_counts_from_nothing() -> None:
    async def run() -> None:
        pages = Pages()
        counter, memory = counting(pages)
        pages.pages["10.0.0.1"] = page((0, 0, 0), (110, 10, 50)).replace('route="code"', 'route=""')
        await followed(counter, pages, memory, [pod("a-1")], 10.0, spec_of())
        pages.pages["10.0.0.1"] = page((41, 1, 10), (110, 10, 50))
        await followed(counter, pages, memory, [pod("a-1")], 40.0, spec_of())

        taken = memory.ledger.take(60.0).increments
        assert (taken["code"].tokens, taken["code"].accepted) == (40, 30)
        assert taken["chat"].tokens == 0

    asyncio.run(run())


def test_an_engine_that_began_anew_is_not_subtracted() -> None:
    async def run() -> None:
        pages = Pages()
        counter, memory = counting(pages)
        for at, tokens in ((10.0, 0), (40.0, 1010), (70.0, 110), (100.0, 210)):
            pages.pages["10.0.0.1"] = page((tokens, tokens // 101, tokens // 4), (0, 0, 0))
            await followed(counter, pages, memory, [pod("a-1")], at, spec_of())

        taken = memory.ledger.take(120.0).increments
        assert 0 <= taken["code"].accepted <= taken["code"].drafted
        assert taken["code"].tokens <= 1000 + 208

    asyncio.run(run())


def test_a_page_that_cannot_be_read_holds_the_decision_and_says_whose_it_is() -> None:
    async def run() -> None:
        pages = Pages()
        counter, memory = counting(pages)
        await followed(counter, pages, memory, [pod("a-1")], 10.0, spec_of())

        assert memory.counts is not None
        hold = memory.counts.hold(memory.ledger, 10.0)
        said = memory.counts.said(hold)
        assert hold is Hold.METRICS_UNAVAILABLE
        assert said.reason is Reason.ENGINE_METRICS_UNREADABLE
        assert "Pod a-1: port 30000 answers no HTTP" in said.message

    asyncio.run(run())


@pytest.mark.parametrize("release", ["0.5.3", "0.5.9", "0.5.12"])
def test_gauges_alone_decide_nothing(release: str) -> None:
    """Before 0.5.13 there are gauges only; they stand still while the engine is idle, and their meaning changed."""

    async def run() -> None:
        pages = Pages()
        counter, memory = counting(pages)
        gauges = '\nsglang:spec_accept_length{model_name="m"} 3.1\nsglang:spec_accept_rate{model_name="m"} 1.03'
        for at, tokens in ((10.0, 11), (40.0, 411)):
            pages.pages["10.0.0.1"] = page((tokens, 10, 0), (0, 0, 0)) + gauges
            await followed(counter, pages, memory, [pod("a-1")], at, spec_of(version=release))

        assert memory.counts is not None
        hold = memory.counts.hold(memory.ledger, 60.0)
        assert hold is Hold.METRICS_UNAVAILABLE
        assert memory.counts.said(hold).reason is Reason.ENGINE_COUNTS_NOTHING
        assert "from release 0.5.13 on" in memory.counts.said(hold).message
        assert memory.ledger.take(60.0).increments == {}

    asyncio.run(run())


def test_a_pod_that_is_gone_leaves_what_it_counted() -> None:
    async def run() -> None:
        pages = Pages()
        counter, memory = counting(pages)
        for at, tokens in ((10.0, 0), (40.0, 101)):
            pages.pages["10.0.0.1"] = page((tokens, 1 if tokens else 0, tokens // 4), (0, 0, 0))
            await followed(counter, pages, memory, [pod("a-1")], at, spec_of())
        await followed(counter, pages, memory, [], 45.0, spec_of())

        assert memory.counts is not None
        assert memory.counts.readings == {}
        assert memory.ledger.take(60.0).increments["code"].tokens == 100

    asyncio.run(run())


def test_vllm_is_counted_by_the_routers() -> None:
    async def run() -> None:
        pages = Pages()
        counter, memory = counting(pages)
        await followed(counter, pages, memory, [pod("a-1")], 10.0, spec_of("vLLM", "0.32.0"))

        assert memory.counts is None
        assert pages.asked == []

    asyncio.run(run())
    assert engine_counting(spec_of("vLLM", "0.32.0")) is None


def vllm_page(tokens: int, requests: int, drafts: int, accepted: int) -> str:
    """Counters as vLLM writes them under speculation, of four tokens a draft."""
    labels = '{engine="0",model_name="assistant"}'
    counts = {
        "generation_tokens": tokens,
        "request_success": requests,
        "spec_decode_num_drafts": drafts,
        "spec_decode_num_draft_tokens": 4 * drafts,
        "spec_decode_num_accepted_tokens": accepted,
    }
    lines = [f"vllm:{name}_total{labels} {count}" for name, count in counts.items()]
    return "\n".join(["process_start_time_seconds 1.0", *lines])


def together_spec() -> SpecDeploymentSpec:
    """Two routes that the policy decides about, one of them by a line of its own, and one that a person decided."""
    spec = spec_of("vLLM", "0.28.0")
    own = RoutePolicy.model_validate({"minAcceptancePercent": 90})
    strict = spec.routing.routes[0].model_copy(update={"name": "strict", "policy": own})
    pinned = spec.routing.routes[0].model_copy(update={"name": "pinned", "speculation": "Never"})
    routing = spec.routing.model_copy(update={"routes": [strict, pinned, *spec.routing.routes]})
    return spec.model_copy(update={"routing": routing})


def test_one_count_of_an_engine_without_routes_is_that_of_every_route_of_the_policy() -> None:
    async def run() -> None:
        pages = Pages()
        counter, memory = counting(pages)
        spec = together_spec()
        for at, page_ in ((10.0, vllm_page(0, 0, 0, 0)), (40.0, vllm_page(410, 10, 100, 300))):
            pages.pages["10.0.0.1"] = page_
            await followed(counter, pages, memory, [pod("a-1"), pod("b-2", pool="baseline")], at, spec)
        state = fleet("assistant", spec, "uid", {}, [])
        await sample(memory, state, spec, None, OperatorMetrics(), 60.0)  # type: ignore[arg-type]

        assert memory.blocks.keys() == {"strict", "code", "chat"}
        assert {(block.tokens, block.accepted, block.drafted) for block in memory.blocks.values()} == {(400, 300, 400)}
        assert pages.asked == [("10.0.0.1", 8000)] * 2
        assert memory.counts is not None
        assert memory.counts.said(None) == Said(
            "True",
            Reason.ENGINE_COUNTERS_READ,
            "vLLM 0.28.0's answers carry no figures, which they do from 0.29.0 on: all routes are decided together, "
            "from the engines' own counters.",
        )

    asyncio.run(run())


def test_an_engine_of_which_no_page_counts_drafts_decides_nothing() -> None:
    async def run() -> None:
        pages = Pages()
        counter, memory = counting(pages)
        spec = spec_of("vLLM", "0.28.0")
        pages.pages["10.0.0.1"] = 'vllm:generation_tokens_total{model_name="m"} 9'
        await followed(counter, pages, memory, [pod("a-1")], 10.0, spec)

        assert memory.counts is not None
        hold = memory.counts.hold(memory.ledger, 10.0)
        assert hold is Hold.METRICS_UNAVAILABLE
        assert memory.counts.said(hold).reason is Reason.ENGINE_COUNTS_NOTHING

    asyncio.run(run())


def test_the_first_engine_of_vllm_is_not_asked_for_what_it_cannot_tell() -> None:
    async def run() -> None:
        pages = Pages()
        counter, memory = counting(pages)
        spec = spec_of("vLLM", "0.9.2")
        small = spec.draft.model_copy(update={"mode": DraftMode.DRAFT_MODEL, "model": "owner/small"})
        await followed(counter, pages, memory, [pod("a-1")], 10.0, spec.model_copy(update={"drafts": [small]}))

        assert memory.counts is not None
        said = memory.counts.said(memory.counts.hold(memory.ledger, 10.0))
        assert (said.status, said.reason) == ("False", Reason.ENGINE_COUNTS_NOTHING)
        assert "vLLM 0.9.2 does mode DraftModel on its V0 engine" in said.message
        assert pages.asked == []

    asyncio.run(run())


def test_another_count_starts_anew() -> None:
    """An upgrade to a release whose answers carry figures, or one that counts by route, continues no count."""

    async def run() -> None:
        pages = Pages()
        counter, memory = counting(pages)
        for spec in (spec_of("vLLM", "0.28.0"), spec_of(), spec_of("vLLM", "0.32.0")):
            ledger = memory.ledger
            await followed(counter, pages, memory, [pod("a-1")], 10.0, spec)
            assert memory.ledger is not ledger

    asyncio.run(run())


def trtllm_spec(
    version: str = "1.4.0rc1", mode: str = "EAGLE3", args: dict[str, str] | None = None
) -> SpecDeploymentSpec:
    draft = {"name": "ngram", "mode": mode, "tokens": 4, "args": args or {}}
    spec: dict[str, object] = {
        "engine": {"type": "TensorRTLLM", "version": version},
        "target": {"model": "owner/target"},
        "drafts": [draft | ({} if mode == "NGram" else {"model": "owner/head"})],
        "pools": {"replicas": 2},
        "policy": {"minAcceptancePercent": 40},
    }
    return SpecDeployment.parse({"metadata": {"name": "assistant"}, "spec": spec}).spec


def trtllm_page(tokens: int, requests: int, drafted: int) -> str:
    labels = 'model_name="assistant",engine_type="trtllm"'
    return "\n".join(
        [
            f"trtllm_generation_tokens_total{{{labels}}} {tokens}",
            f'trtllm_request_success_total{{{labels},finished_reason="stop"}} {requests}',
            f"trtllm_num_requests_running{{{labels}}} 1",
            f"trtllm_spec_decode_num_draft_tokens_total{{{labels}}} {drafted}",
            f"trtllm_spec_decode_num_accepted_tokens_total{{{labels}}} {drafted // 4}",
        ]
    )


GATE = {"acceptance_rate_window_size": "100", "acceptance_rate_threshold": "0.3"}


@pytest.mark.parametrize(
    ("mode", "args", "part"),
    [
        ("EAGLE3", {}, "look at the engine's log"),
        ("EAGLE3", GATE, "its own gate (acceptance_rate_threshold, acceptance_rate_window_size) holds until the pod"),
        ("EAGLE3", {"max_concurrency": "8"}, "let it draft nothing at large batches"),
        ("NGram", GATE, "its own gate"),
        ("NGram", {}, None),
    ],
)
def test_an_engine_that_drafts_no_more_is_said_to_be_suppressed(
    mode: str, args: dict[str, str], part: str | None
) -> None:
    """n-grams draft nothing where nothing repeats, which is no suppression unless the engine was told to stop."""

    async def run() -> None:
        pages = Pages()
        counter, memory = counting(pages)
        spec = trtllm_spec(mode=mode, args=args)
        for at, page_ in enumerate(
            (trtllm_page(1000, 10, 800), trtllm_page(1500, 15, 800), trtllm_page(2200, 20, 800))
        ):
            pages.pages["10.0.0.1"] = page_
            await followed(counter, pages, memory, [pod("a-1")], 10.0 + at, spec)
            assert memory.counts is not None
            counts = memory.counts
            if at < 2:
                assert counts.suppressed is None
        if part is None:
            assert counts.suppressed is None
            return
        assert counts.suppressed is not None
        assert "1 engine pod has drafted nothing for the last 1190 tokens" in counts.suppressed
        assert part in counts.suppressed
        # One of two pods that goes on drafting keeps speculation active; what is read says so.
        pages.pages["10.0.0.2"] = trtllm_page(100, 1, 80)
        await followed(counter, pages, memory, [pod("a-1"), pod("b-2")], 20.0, spec)
        assert counts.suppressed is None
        assert "drafted nothing for the last" in counts.said(None).message
        # It drafts again, or has been restarted.
        pages.pages["10.0.0.1"] = trtllm_page(10, 1, 8)
        await followed(counter, pages, memory, [pod("a-1")], 30.0, spec)
        assert counts.suppressed is None

    asyncio.run(run())


def test_a_release_that_counts_nothing_is_not_asked_and_says_since_when_it_would() -> None:
    async def run() -> None:
        pages = Pages()
        counter, memory = counting(pages)
        await followed(counter, pages, memory, [pod("a-1")], 10.0, trtllm_spec("1.2.1"))

        assert pages.asked == []
        assert memory.counts is not None
        said = memory.counts.said(memory.counts.hold(memory.ledger, 10.0))
        assert (said.status, said.reason) == ("False", Reason.ENGINE_COUNTS_NOTHING)
        assert "TensorRT-LLM 1.2.1 counts no drafts" in said.message
        assert "from 1.3.0rc13 on" in said.message

    asyncio.run(run())

"""Pages of engines that somebody else runs, and everything else that their port may answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from specfleet.api.v1alpha1 import EngineType
from specfleet.decision.samples import RouteTotals
from specfleet.metrics.engine import LIMIT_BYTES, EngineError, EngineReader, parse_page

VLLM_PAGE = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="chat"} 3.0
vllm:num_requests_running{engine="1",model_name="chat"} 2.0
vllm:num_requests_waiting{engine="0",model_name="chat"} 1.0
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="chat"} 700.0
vllm:generation_tokens_total{engine="1",model_name="chat"} 300.0
vllm:generation_tokens_created{engine="0",model_name="chat"} 1.7e+09
vllm:request_success_total{engine="0",finished_reason="stop",model_name="chat"} 6.0
vllm:request_success_total{engine="0",finished_reason="length",model_name="chat"} 4.0
vllm:request_success_total{engine="0",finished_reason="abort",model_name="chat"} 5.0
vllm:spec_decode_num_drafts_total{engine="0",model_name="chat"} 400.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="chat"} 1600.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="chat"} 595.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="chat",position="0"} 300.0
process_start_time_seconds 1.7e+09
"""
SGLANG_PAGE = """\
sglang:num_running_reqs{model_name="chat",tp_rank="0"} 4.0
sglang:num_queue_reqs{model_name="chat",tp_rank="0"} 2.0
sglang:spec_num_draft_tokens{model_name="chat",dp_rank="0"} 5.0
sglang:spec_num_draft_tokens{model_name="chat",dp_rank="1"} 5.0
sglang:generation_tokens_total{model_name="chat",is_streaming="true"} 1000.0
sglang:num_requests_total{model_name="chat"} 10.0
sglang:spec_verify_calls_total{model_name="chat"} 400.0
"""


def test_a_page_of_vllm_is_summed_over_its_ranks() -> None:
    read = parse_page(VLLM_PAGE, 50.0, EngineType.VLLM)
    assert (read.running, read.waiting, read.started_at, read.speculative) == (5, 1, 1.7e9, True)
    assert read.totals(4) == RouteTotals(tokens=990, accepted=590, drafted=1600, requests=10)


def test_a_recorded_page_of_vllm_is_read() -> None:
    # Samples of a pod that drafted n-grams, after 132 requests; help texts and histograms left out.
    recorded = (Path(__file__).parent / "pages" / "vllm-0.32.0.txt").read_text()
    read = parse_page(recorded, 50.0, EngineType.VLLM)
    assert (read.speculative, read.rounds, read.started_at) == (True, 1081, 1795998691.97)
    assert read.totals(4) == RouteTotals(tokens=5603 - 132, accepted=3118, drafted=4323, requests=132)


def test_what_the_end_of_answers_cuts_off_is_not_accepted() -> None:
    # 1,000 tokens of 10 requests in 400 rounds: 590 at most were accepted, though vLLM says 595.
    read = parse_page(VLLM_PAGE, 50.0, EngineType.VLLM)
    assert read.accepted == 595
    totals = read.totals(4)
    assert totals is not None
    assert totals.tokens - totals.accepted == 400


def test_a_page_without_speculation_has_nothing_to_decide_by() -> None:
    plain = "\n".join(line for line in VLLM_PAGE.splitlines() if "spec_decode" not in line) + "\n"
    read = parse_page(plain, 50.0, EngineType.VLLM)
    assert read.speculative is False
    assert read.totals(4) is None


def test_sglang_is_counted_by_its_verifications() -> None:
    read = parse_page(SGLANG_PAGE, 50.0, EngineType.SGLANG)
    assert (read.running, read.waiting, read.tokens_a_round) == (4, 2, 4)
    # 990 decode tokens in 400 steps, each of which drafted 4.
    assert read.totals(4) == RouteTotals(tokens=990, accepted=590, drafted=1600, requests=10)


def test_an_idle_sglang_has_counted_nothing_yet() -> None:
    idle = "sglang:generation_tokens_total 0\nsglang:num_running_reqs 0\n"
    read = parse_page(idle, 50.0, EngineType.SGLANG)
    assert read.totals(4) == RouteTotals(0, 0, 0, 0)
    assert read.speculative is None


def test_sglang_before_its_counter_of_verifications_cannot_be_decided_by() -> None:
    old = "\n".join(line for line in SGLANG_PAGE.splitlines() if "verify" not in line) + "\n"
    read = parse_page(old, 50.0, EngineType.SGLANG)
    assert read.speculative is True
    assert read.totals(4) is None


@pytest.mark.parametrize(
    ("page", "engine", "words"),
    [
        ("vllm:num_requests_running 1\n", EngineType.VLLM, "remove --disable-log-stats"),
        (SGLANG_PAGE, EngineType.VLLM, "write engine.type: SGLang"),
        (VLLM_PAGE, EngineType.SGLANG, "write engine.type: vLLM"),
        ("go_goroutines 5\n", EngineType.VLLM, "is not vLLM's page"),
        ("", EngineType.VLLM, "is not vLLM's page"),
        ("vllm:generation_tokens_total NaN\n", EngineType.VLLM, "expected a count"),
        ("vllm:generation_tokens_total -4\n", EngineType.VLLM, "expected a count"),
        ("vllm:generation_tokens_total{a= 4\n", EngineType.VLLM, "is no Prometheus text"),
    ],
)
def test_a_page_that_is_not_the_engines_says_what_to_do(page: str, engine: EngineType, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_page(page, 50.0, engine)


class Port:
    """A server whose answers a test sets."""

    def __init__(self) -> None:
        self.answer: dict[str, web.Response | str] = {}
        self.port = 0

    async def get(self, request: web.Request) -> web.StreamResponse:
        found = self.answer.get(request.path)
        if found == "endless":
            response = web.StreamResponse()
            await response.prepare(request)
            for _ in range(LIMIT_BYTES // 65536 + 8):
                await response.write(b"#" * 65536)
            return response
        return found if isinstance(found, web.Response) else web.Response(status=404)


@pytest.fixture
async def port() -> AsyncIterator[Port]:
    made = Port()
    app = web.Application()
    app.router.add_get("/{path:.*}", made.get)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    assert runner.addresses
    made.port = runner.addresses[0][1]
    yield made
    await runner.cleanup()


@pytest.fixture
async def reader() -> AsyncIterator[EngineReader]:
    async with aiohttp.ClientSession() as session:
        yield EngineReader(session)


def text(body: str, **more: Any) -> web.Response:
    return web.Response(text=body, **more)


async def test_a_page_is_read_over_http(port: Port, reader: EngineReader) -> None:
    port.answer["/metrics"] = text(VLLM_PAGE)
    read = await reader.metrics("127.0.0.1", port.port, EngineType.VLLM)
    assert read.finished == 10


@pytest.mark.parametrize(
    ("answer", "words", "unauthorized"),
    [
        (text("token=abc", status=401), "wants a key", True),
        (text("token=abc", status=403), "wants a key", True),
        (text("token=abc", status=404), "has no metrics page", False),
        (text("token=abc", status=302, headers={"Location": "http://127.0.0.1:1/"}), "answers 302", False),
        (text("<html>token=abc"), "a web page and no metrics", False),
        (text("token=abc", content_type="text/html"), "a web page and no metrics", False),
        (web.Response(body=b"\xff\xfe"), "is not vLLM's page", False),
        ("endless", "no engine's page is so long", False),
    ],
)
async def test_what_is_no_page_is_told_in_a_sentence_without_a_word_of_it(
    port: Port, reader: EngineReader, answer: web.Response | str, words: str, unauthorized: bool
) -> None:
    port.answer["/metrics"] = answer
    with pytest.raises(EngineError, match=words) as caught:
        await reader.metrics("127.0.0.1", port.port, EngineType.VLLM)
    assert caught.value.unauthorized is unauthorized
    assert "abc" not in str(caught.value)


async def test_a_port_that_nobody_listens_on_is_told(reader: EngineReader, unused_tcp_port: int) -> None:
    with pytest.raises(EngineError, match="answers no HTTP"):
        await reader.metrics("127.0.0.1", unused_tcp_port, EngineType.VLLM)


@pytest.mark.parametrize(
    ("answer", "release"),
    [
        (text('{"version": "0.32.0"}'), "0.32.0"),
        (text('{"version": "0.32.1.dev7+gabc"}'), "0.32.1.dev7+gabc"),
        (text('{"version": "my own <b>"}'), None),
        (text('{"version": 3}'), None),
        (text("[]"), None),
        (text("no JSON"), None),
        (text("", status=404), None),
    ],
)
async def test_the_release_is_what_the_engine_tells(
    port: Port, reader: EngineReader, answer: web.Response, release: str | None
) -> None:
    port.answer["/version"] = answer
    assert await reader.release("127.0.0.1", port.port) == release

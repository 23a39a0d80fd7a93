"""Reading routers over real HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web

from specfleet.metrics.direct import LIMIT_BYTES, RouterError, RouterReader

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Router:
    """A server on loopback whose answer the test sets."""

    def __init__(self) -> None:
        self.body: bytes = b""
        self.status = 200
        self.delay_seconds = 0.0
        self.asked: list[str] = []
        self.port = 0

    async def answer(self, request: web.Request) -> web.Response:
        self.asked.append(request.raw_path)
        await asyncio.sleep(self.delay_seconds)
        return web.Response(status=self.status, body=self.body)


@pytest_asyncio.fixture
async def router() -> AsyncIterator[Router]:
    one = Router()
    app = web.Application()
    app.router.add_get("/{tail:.*}", one.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    one.port = runner.addresses[0][1]
    yield one
    await runner.cleanup()


@pytest_asyncio.fixture
async def reader(router: Router) -> AsyncIterator[RouterReader]:
    async with aiohttp.ClientSession() as session:
        yield RouterReader(session, router.port)


async def test_counters_are_read_with_the_filter_as_it_is(router: Router, reader: RouterReader) -> None:
    router.body = (
        b'{"stats":[{"name":"server.uptime","value":7},'
        b'{"name":"specfleet.decode_tokens.route.chat.pool.ngram.intended.ngram","value":41}]}'
    )
    sample = await reader.sample("127.0.0.1")
    assert [(row.route, row.pool, row.decode_tokens) for row in sample.rows] == [("chat", "ngram", 41)]
    assert router.asked[0].startswith("/stats?format=json&filter=%5E%28")


async def test_what_is_served_is_read_for_the_speculative_pool(router: Router, reader: RouterReader) -> None:
    router.body = b'{"version":"v7","routes":{"chat":{"baseline":96,"ngram":4},"code":{"baseline":100,"ngram":0}}}'
    served = await reader.served("127.0.0.1", "ngram")
    assert served.version == "v7"
    assert served.speculative_percent == {"chat": 4, "code": 0}


@pytest.mark.parametrize("body", [b"", b"[]", b'{"version":"1"}', b'{"version":"1","routes":{"a":7}}', b"\xff"])
async def test_an_answer_of_another_shape_is_an_error_with_a_sentence(
    router: Router, reader: RouterReader, body: bytes
) -> None:
    router.body = body
    with pytest.raises(RouterError, match=r"router 127\.0\.0\.1: expected"):
        await reader.served("127.0.0.1", "ngram")
    with pytest.raises(RouterError, match=r"router 127\.0\.0\.1"):
        await reader.sample("127.0.0.1")


async def test_another_status_is_an_error(router: Router, reader: RouterReader) -> None:
    router.status = 503
    with pytest.raises(RouterError, match="found 503"):
        await reader.sample("127.0.0.1")


async def test_an_endless_answer_is_cut_off(router: Router, reader: RouterReader) -> None:
    router.body = b"x" * (LIMIT_BYTES + 10)
    with pytest.raises(RouterError, match="longer than"):
        await reader.sample("127.0.0.1")


async def test_a_router_that_hangs_costs_its_time_limit(
    router: Router, reader: RouterReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specfleet.metrics.direct.SERVED_TIMEOUT_SECONDS", 0.05)
    router.delay_seconds = 5.0
    with pytest.raises(RouterError):
        await reader.served("127.0.0.1", "ngram")


async def test_a_router_that_is_not_there_is_an_error(reader: RouterReader) -> None:
    with pytest.raises(RouterError, match=r"router 127\.0\.0\.9"):
        await reader.served("127.0.0.9", "ngram")

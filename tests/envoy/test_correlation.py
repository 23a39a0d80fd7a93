"""A request that failed can be found: its ids on the answer, in one line of the router's log, and in the engine's."""

from __future__ import annotations

import asyncio
import hashlib
import json
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.envoy.harness import LOOPBACK, Bed, bed, eventually, make_plan

CHAT_PATH = "/v1/chat/completions"
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"


def ids(mark: str) -> dict[str, str]:
    """What a client and the gateway before us send along."""
    return {"x-request-id": mark, "traceparent": PARENT, "x-tenant": "acme"}


def check(made: Bed, mark: str, echoed: str | None, status: int, **expected: Any) -> dict[str, Any]:
    """The one line on a request, after all that every line has to hold."""
    assert echoed == mark
    line = made.router.line(mark)
    known = {"requestId": mark, "traceId": TRACE, "tenant": "acme", "status": status, **expected}
    assert {key: line[key] for key in known} == known
    assert line["latencyMs"] >= 0
    return line


async def ask(
    client: aiohttp.ClientSession, made: Bed, mark: str, body: Any = None, path: str = CHAT_PATH, **headers: str
) -> tuple[int, str | None]:
    """Status and x-request-id of the answer to one POST; what comes of its body is read and dropped."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    data = body if hasattr(body, "__aiter__") or isinstance(body, bytes) else json.dumps(body or {"messages": []})
    async with client.post(made.router.url + path, data=data, headers={**ids(mark), **named}) as answer:
        with suppress(aiohttp.ClientPayloadError):
            await answer.read()
        return answer.status, answer.headers.get("x-request-id")


def address(made: Bed, pool: str) -> str:
    """Where the one engine of a pool listens."""
    engine = (made.baseline if pool == "baseline" else made.speculative)[0]
    return f"{engine.host}:{engine.port}"


@pytest.mark.parametrize(
    ("name", "status", "request_", "expected"),
    [
        ("unknown-path", 404, {"path": "/v1/embeddings"}, {"route": None, "host": None, "details": "direct_response"}),
        ("too-large", 413, {"body": b"x" * ((1 << 20) + 1)}, {"host": None, "details": "direct_response"}),
        ("not-json", 400, {"body": b"no json"}, {"route": "chat", "pool": "baseline", "intended": "baseline"}),
        (
            "ineligible",
            200,
            {"body": {"messages": [], "min_p": 0.1}, "x_route": "code"},
            {"route": "code", "countedAs": "ineligible", "pool": "baseline"},
        ),
        (
            "engine-failed",
            500,
            {"body": {"messages": [], "model": "assistant-code"}, "x_stub_status": "500"},
            {"route": "code", "pool": "ngram", "intended": "ngram", "model": "assistant-code", "attempts": 1},
        ),
        ("engine-refused", 400, {"body": {"stream_options": {}}}, {"route": "chat", "pool": "baseline"}),
    ],
)
async def test_an_error_carries_its_ids_and_is_one_line(
    shared: Bed, client: aiohttp.ClientSession, name: str, status: int, request_: dict[str, Any], expected: Any
) -> None:
    mark = f"error-{name}"
    found = await ask(client, shared, mark, **request_)
    assert found == (status, mark)
    line = check(shared, mark, found[1], status, flags="-", **expected)
    if line["pool"] is not None:
        assert line["host"] == address(shared, line["pool"])
        assert line["ttftMs"] >= 0


async def test_a_known_path_with_another_method(shared: Bed, client: aiohttp.ClientSession) -> None:
    async with client.get(shared.router.url + CHAT_PATH, headers=ids("error-method")) as answer:
        check(shared, "error-method", answer.headers["x-request-id"], 405, method="GET", path=CHAT_PATH)


async def test_a_chunked_body_over_the_limit(shared: Bed, client: aiohttp.ClientSession) -> None:
    async def pieces() -> Any:
        for _ in range(30):
            yield b"x" * 65536

    status, echoed = await ask(client, shared, "error-chunked", pieces())
    assert status == 413
    check(shared, "error-chunked", echoed, 413, pool=None, details="request_payload_too_large")


async def test_engines_that_hang_up(tmp_path: Path, client: aiohttp.ClientSession) -> None:
    with bed(tmp_path, baseline=0, speculative=2) as made:
        status, echoed = await ask(client, made, "error-reset", x_route="code", x_stub_die="before-headers")
        assert status == 503
        line = check(made, "error-reset", echoed, 503, route="code", pool="ngram", intended="ngram")
        assert line["flags"] == "URX,UC"
        assert line["attempts"] == sum(one.seen()["requests"] for one in made.speculative) > 1
        # Which pod to look at: the one that was asked last.
        assert line["host"] in {f"{one.host}:{one.port}" for one in made.speculative}


async def test_an_engine_that_dies_within_a_stream(shared: Bed, client: aiohttp.ClientSession) -> None:
    body = {"messages": [], "stream": True, "max_tokens": 40}
    status, echoed = await ask(client, shared, "error-stream", body, x_route="code", x_stub_die="mid-stream")
    assert status == 200
    line = check(shared, "error-stream", echoed, 200, route="code", pool="ngram", phase="body")
    assert line["flags"] != "-"
    assert line["host"] == address(shared, "ngram")


async def test_a_full_pool_and_one_without_engines(tmp_path: Path, client: aiohttp.ClientSession) -> None:
    with bed(tmp_path, make_plan(max_requests=1), baseline=0) as made:
        status, echoed = await ask(client, made, "error-no-pool", x_route="pinned")
        assert status == 503
        check(made, "error-no-pool", echoed, 503, route="pinned", flags="UH", host=None, intended="baseline")
        refused = {"messages": [], "min_p": 0.1}
        status, echoed = await ask(client, made, "error-ineligible", refused, x_route="code")
        assert status == 503
        check(made, "error-ineligible", echoed, 503, route="code", countedAs="ineligible", flags="UH", pool=None)
        slow = asyncio.create_task(ask(client, made, "slow", x_route="code", x_stub_prefill_ms="3000"))
        await asyncio.to_thread(eventually, "one request at work", lambda: made.speculative[0].seen()["running"] == 1)
        status, echoed = await ask(client, made, "error-full", x_route="code")
        assert status == 429
        check(made, "error-full", echoed, 429, route="code", flags="UO", intended="ngram")
        assert (await slow)[0] == 200


async def test_time_limits(tmp_path: Path, client: aiohttp.ClientSession) -> None:
    def sooner(text: str) -> str:
        return text.replace("idle_timeout: 3600s", "idle_timeout: 1s").replace(
            "request_timeout: 300s", "request_timeout: 1s"
        )

    with bed(tmp_path, edit=sooner) as made:
        status, echoed = await ask(client, made, "error-slow", x_route="code", x_stub_prefill_ms="30000")
        assert status == 504
        check(made, "error-slow", echoed, 504, route="code", flags="SI", host=address(made, "ngram"))

        async def dawdling() -> Any:
            yield b'{"messages":'
            await asyncio.sleep(10)
            yield b"[]}"

        status, echoed = await ask(client, made, "error-late", dawdling())
        assert status == 408
        check(made, "error-late", echoed, 408, pool=None, details="request_overall_timeout")


def raw(made: Bed, sent: bytes) -> tuple[int, dict[str, str]]:
    """Status and headers of the answer to bytes that no client library would send."""
    with socket.create_connection((LOOPBACK, made.router.data), timeout=10) as connection:
        connection.sendall(sent)
        got = b""
        while b"\r\n\r\n" not in got:
            more = connection.recv(65536)
            assert more, f"the connection ended after {got!r}"
            got += more
    head, *lines = got.partition(b"\r\n\r\n")[0].decode("latin-1").split("\r\n")
    return int(head.split()[1]), dict(line.lower().split(": ", 1) for line in lines)


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"NONSENSE\r\n\r\n", 400),
        (b"POST /v1/%2e%2e%2fsleep HTTP/1.1\r\nhost: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nhost: x\r\nx-large: " + b"a" * 70_000 + b"\r\n\r\n", 431),
    ],
)
def test_what_is_refused_before_its_head_is_read_has_an_id_of_the_routers(
    shared: Bed, sent: bytes, status: int
) -> None:
    found, headers = raw(shared, sent)
    assert found == status
    assert shared.router.line(headers["x-request-id"])["status"] == status


@pytest.mark.parametrize(
    "tenant",
    [
        b'"},{"forged":"line',
        b"back\\slash \\u0000 \\n",
        b"\xff\xfe\xc3(",
        "büro/東京".encode(),
        b"a" * 129,
        b"a" * 127 + "é".encode(),
        b"%DYNAMIC_METADATA(specfleet:model)%",
        b"<script>alert(1)</script>",
        b"tab\there",
        b"",
        b"a" * 8300,
    ],
)
def test_a_hostile_header_stays_one_field_of_one_line(shared: Bed, tenant: bytes) -> None:
    mark = f"hostile-{hashlib.sha256(tenant).hexdigest()[:8]}"
    head = f"GET {CHAT_PATH} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-request-id: {mark}\r\nx-tenant: ".encode()
    status, _ = raw(shared, head + tenant + b"\r\n\r\n")
    assert status == 405
    line = shared.router.line(mark)
    assert line["status"] == 405
    shown = line["tenant"]
    if not tenant or len(tenant) > 8192:
        assert shown is None
    else:
        assert len(shown.encode()) <= 4 * 128
        if tenant.isascii():
            assert shown == tenant[:128].decode()


def engine_ids(made: Bed) -> list[str]:
    """The request ids that arrived at engines, where the request asked to be kept."""
    seen = [one["headers"] for engine in made.engines for one in engine.seen()["seen"]]
    return [value for headers in seen for name, value in headers.items() if name.lower() == "x-request-id"]


@pytest.mark.parametrize("sent", [b"x" * 5000, b'"}\\,' * 40, b"\xff" * 200, b"a, b", b"\xc3\xa9t\xc3\xa9"])
def test_a_hostile_request_id_is_cut_and_is_the_same_everywhere(shared: Bed, sent: bytes) -> None:
    body = b'{"messages":[],"max_tokens":1}'
    head = (
        f"POST {CHAT_PATH} HTTP/1.1\r\nhost: x\r\nconnection: close\r\nx-stub-request-log: 1\r\n"
        f"content-length: {len(body)}\r\nx-request-id: "
    ).encode()
    status, headers = raw(shared, head + sent + b"\r\n\r\n" + body)
    assert status == 200
    cut = sent[:128].decode("latin-1")
    assert headers["x-request-id"] == cut.lower()
    assert cut.encode("latin-1").decode("utf-8", "surrogateescape") in engine_ids(shared)
    eventually(
        "the line",
        lambda: any(line["path"] == CHAT_PATH and line["bytesIn"] == len(body) for line in shared.router.log()),
    )
    text = (shared.router.directory / "access.log").read_bytes().decode("utf-8")
    assert all(len(json.loads(line)["requestId"].encode()) <= 4 * 128 for line in text.splitlines())


@pytest.mark.parametrize(
    ("sent", "trace"),
    [
        (PARENT, TRACE),
        (f"cc-{TRACE}-b7ad6b7169203331-01-what-the-future-brings", TRACE),
        (f"00-{TRACE[:-1]}-b7ad6b7169203331-01", None),
        (f"00-{TRACE.upper()}-b7ad6b7169203331-01", None),
        (f'00-{TRACE[:-1]}"-b7ad6b7169203331-01', None),
        ("x" * 5000, None),
    ],
)
async def test_only_a_trace_id_is_logged_of_a_traceparent(
    shared: Bed, client: aiohttp.ClientSession, sent: str, trace: str | None
) -> None:
    mark = f"trace-{hashlib.sha256(sent.encode()).hexdigest()[:8]}"
    await ask(client, shared, mark, path="/nothing", traceparent=sent)
    assert shared.router.line(mark)["traceId"] == trace


async def test_the_engine_gets_the_ids_of_the_client(shared: Bed, client: aiohttp.ClientSession) -> None:
    await ask(client, shared, "to-the-engine", x_route="code", x_stub_request_log="1", x_stub_status="500")
    arrived = [{k.lower(): v for k, v in one["headers"].items()} for one in shared.speculative[0].seen()["seen"]]
    (headers,) = [one for one in arrived if one["x-request-id"] == "to-the-engine"]
    assert headers["traceparent"] == PARENT


async def test_without_ids_the_router_makes_one_that_the_engine_gets(
    shared: Bed, client: aiohttp.ClientSession
) -> None:
    headers = {"x-stub-request-log": "1", "x-stub-status": "500"}
    async with client.post(shared.router.url + CHAT_PATH, json={"messages": []}, headers=headers) as answer:
        made = answer.headers["x-request-id"]
    line = shared.router.line(made)
    assert (line["status"], line["traceId"], line["tenant"]) == (500, None, None)
    assert made in engine_ids(shared)

"""Which request goes where, and what reaches the engine of it."""

from __future__ import annotations

import gzip
import json
import socket
from typing import Any

import aiohttp
import pytest

from tests.envoy.harness import LOOPBACK, Bed, eventually, get

CHAT_PATH = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": 'say "stream": true and {"tools": [1]}'}]


async def post(
    client: aiohttp.ClientSession, bed: Bed, body: Any, path: str = CHAT_PATH, **headers: str
) -> tuple[int, Any]:
    """Status and JSON of one request; `body` may be bytes."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with client.post(
        bed.router.url + path, data=data, headers={"content-type": "application/json", **named}
    ) as answer:
        raw = await answer.read()
        return answer.status, json.loads(raw) if raw else None


async def arrived(client: aiohttp.ClientSession, bed: Bed, body: Any, **headers: str) -> tuple[str, dict[str, Any]]:
    """The pool that got a request, and the request as it arrived there."""
    await post(
        client, bed, body, x_stub_request_log="1", x_request_id=(mark := f"mark-{id(body)}-{len(headers)}"), **headers
    )
    for pool, engines in (("baseline", bed.baseline), ("ngram", bed.speculative)):
        for engine in engines:
            for request in engine.seen()["seen"]:
                if {k.lower(): v for k, v in request["headers"].items()}["x-request-id"] == mark:
                    return pool, request
    raise AssertionError("the request reached no engine")


@pytest.mark.parametrize(
    ("body", "headers", "pool"),
    [
        ({"messages": MESSAGES}, {}, "baseline"),
        ({"messages": MESSAGES}, {"x_route": "code"}, "ngram"),
        ({"messages": MESSAGES}, {"x_route": "Code"}, "baseline"),
        ({"messages": MESSAGES, "model": "assistant-code"}, {}, "ngram"),
        ({"messages": MESSAGES, "response_format": {"type": "json_object"}}, {}, "ngram"),
        ({"messages": MESSAGES, "response_format": {"schema": {"type": "text"}, "type": "json_schema"}}, {}, "ngram"),
        ({"messages": MESSAGES, "response_format": {"type": "text"}}, {}, "baseline"),
        ({"messages": MESSAGES, "tools": [{"type": "function"}]}, {}, "ngram"),
        ({"messages": MESSAGES, "tools": []}, {}, "baseline"),
        ({"messages": MESSAGES, "tools": None}, {}, "baseline"),
        (b' {"messages":[],"t\\u006fols":[1]}\n', {}, "ngram"),
        (b'{"tools":[1],"messages":[],"tools":null}', {}, "baseline"),
        (b'\xef\xbb\xbf{"messages":[],"tools":[1]}', {}, "ngram"),
        (b'{"messages":[],"seed":123456789012345678901234567890,"tools":[1]}', {}, "ngram"),
    ],
)
async def test_a_request_goes_to_the_first_route_that_matches(
    shared: Bed, client: aiohttp.ClientSession, body: Any, headers: dict[str, str], pool: str
) -> None:
    assert (await arrived(client, shared, body, **headers))[0] == pool


@pytest.mark.parametrize(
    "body",
    [
        {"messages": MESSAGES, "min_p": 0.1},
        {"messages": MESSAGES, "logit_bias": {"5": 1}},
        {"messages": MESSAGES, "model": "assistant-code", "min_p": 0.1},
    ],
)
async def test_what_speculation_refuses_is_served_by_baseline(
    shared: Bed, client: aiohttp.ClientSession, body: dict[str, Any]
) -> None:
    before = shared.router.total("finished", route="ineligible", pool="baseline")
    mark = f"ineligible-{sorted(body)}"
    status, _ = await post(client, shared, body, x_route="code", x_request_id=mark)
    assert status == 200
    assert shared.router.total("finished", route="ineligible", pool="baseline") == before + 1
    last = shared.router.line(mark)
    assert (last["route"], last["countedAs"], last["pool"]) == ("code", "ineligible", "baseline")


@pytest.mark.parametrize("field", [{"min_p": 0}, {"min_p": 0.0}, {"min_p": None}, {"logit_bias": {}}])
async def test_a_refused_field_that_asks_for_nothing_speculates(
    shared: Bed, client: aiohttp.ClientSession, field: dict[str, Any]
) -> None:
    pool, _ = await arrived(client, shared, {"messages": MESSAGES, **field}, x_route="code")
    assert pool == "ngram"


async def test_an_alias_becomes_the_served_name_and_nothing_else_changes(
    shared: Bed, client: aiohttp.ClientSession
) -> None:
    sent = (
        b'{ "model" : "assistant\\u002dcode", "seed": 9007199254740993,  '
        b'"messages": [{"content":"\xc3\xa9", "role":"user"}] }'
    )
    _, request = await arrived(client, shared, sent)
    assert request["body"] == sent.decode().replace('"assistant\\u002dcode"', '"stub"')


async def test_an_alias_is_rewritten_on_whatever_route_the_request_takes(
    shared: Bed, client: aiohttp.ClientSession
) -> None:
    body = {"model": "assistant-code", "messages": [], "min_p": 0.5}
    pool, request = await arrived(client, shared, body, x_route="pinned")
    assert (pool, json.loads(request["body"])["model"]) == ("baseline", "stub")


@pytest.mark.parametrize("body", [b"not json", b"", b"[1,2]", b'{"messages":', b'{"a":1} trailing', b"\xff\xfe\x00"])
async def test_what_is_no_json_object_goes_untouched_to_the_last_route_and_the_engine_answers(
    shared: Bed, client: aiohttp.ClientSession, body: bytes
) -> None:
    before = shared.router.row("chat", "baseline", "baseline").client_errors
    status, answer = await post(client, shared, body)
    assert status == 400
    assert "error" in answer
    assert shared.router.row("chat", "baseline", "baseline").client_errors == before + 1


async def test_a_gzip_body_is_passed_on_as_it_is(shared: Bed, client: aiohttp.ClientSession) -> None:
    packed = gzip.compress(b'{"messages":[],"tools":[1]}')
    status, answer = await post(client, shared, packed, content_encoding="gzip", x_request_id="gzip-body")
    assert (status, answer["choices"][0]["finish_reason"]) == (200, "length")
    assert shared.router.line("gzip-body")["route"] == "chat"


async def test_headers_that_only_we_may_set_are_stripped(shared: Bed, client: aiohttp.ClientSession) -> None:
    forged = {
        "x_envoy_retry_on": "5xx",
        "x_envoy_upstream_rq_timeout_ms": "1",
        "x_specfleet_listener": "table",
        "x_specfleet_route": "code",
        "x_custom_labels": "a=b",
        "accept_encoding": "gzip",
    }
    _, request = await arrived(client, shared, {"messages": []}, **forged)
    names = {name.lower() for name in request["headers"]}
    assert not names & {name.replace("_", "-") for name in forged}
    assert not {name for name in names if name.startswith("x-envoy-")}


async def test_the_served_table_is_not_to_be_had_on_the_data_port(shared: Bed, client: aiohttp.ClientSession) -> None:
    for host in ("served", "specfleet", "127.0.0.1"):
        headers = {"host": host, "x-specfleet-listener": "table"}
        async with client.get(shared.router.url + "/served", headers=headers) as answer:
            assert answer.status == 404
    assert shared.router.served() == {
        "version": "v1",
        "routes": {
            "code": {"baseline": 0, "ngram": 100},
            "json": {"baseline": 0, "ngram": 100},
            "pinned": {"baseline": 100, "ngram": 0},
            "chat": {"baseline": 100, "ngram": 0},
        },
    }


@pytest.mark.parametrize(
    "path", ["/v1/load_lora_adapter", "/sleep", "/health", "/metrics", "/v1/../sleep", "/v1//models/x"]
)
async def test_other_paths_reach_no_engine(shared: Bed, client: aiohttp.ClientSession, path: str) -> None:
    before = sum(engine.seen()["requests"] for engine in shared.engines)
    status, answer = await post(client, shared, {}, path=path)
    assert status == 404
    assert answer["error"]["type"] == "invalid_request_error"
    assert sum(engine.seen()["requests"] for engine in shared.engines) == before


async def test_a_known_path_with_another_method_says_which_is_meant(shared: Bed, client: aiohttp.ClientSession) -> None:
    async with client.get(shared.router.url + CHAT_PATH) as answer:
        assert (answer.status, answer.headers["allow"]) == (405, "POST")
    async with client.get(shared.router.url + "/v1/models") as answer:
        assert (answer.status, (await answer.json())["data"][0]["id"]) == (200, "stub")


@pytest.mark.parametrize("path", [CHAT_PATH, "/v1/responses", "/v1/models"])
async def test_a_browser_may_ask_before_it_posts(shared: Bed, client: aiohttp.ClientSession, path: str) -> None:
    asked = {"origin": "https://app.example", "access-control-request-method": "POST"}
    async with client.options(shared.router.url + path, headers=asked) as answer:
        assert (answer.status, answer.headers["access-control-allow-origin"]) == (200, "*")


async def test_a_client_cannot_ask_for_the_table_on_the_endpoint(shared: Bed, client: aiohttp.ClientSession) -> None:
    async with client.get(shared.router.url + "/served", headers={"x-specfleet-listener": "table"}) as answer:
        assert answer.status == 404


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("host", ["host: endpoint\r\n", ""])
def test_http_1_0_is_answered_and_counted(shared: Bed, stream: bool, host: str) -> None:
    def counted() -> int:
        return shared.router.total("measured", route="chat")

    before = counted()
    body = json.dumps({"model": "stub", "messages": MESSAGES, "max_tokens": 4, "stream": stream})
    head = f"POST {CHAT_PATH} HTTP/1.0\r\n{host}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    with socket.create_connection((LOOPBACK, shared.router.data), timeout=10) as connection:
        connection.sendall((head + body).encode())
        got = b"".join(iter(lambda: connection.recv(65536), b"")).decode()
    status, _, rest = got.partition("\r\n")
    head, _, text = rest.partition("\r\n\r\n")
    assert status.split()[1] == "200"
    assert "transfer-encoding" not in head
    assert text.endswith("data: [DONE]\n\n") if stream else json.loads(text)["usage"]["completion_tokens"] == 4
    eventually("the answer is counted", lambda: counted() == before + 1)


@pytest.mark.parametrize("path", ["/quitquitquit", "/config_dump", "/", "/stats/recentlookups", "/healthcheck/fail"])
def test_the_read_only_port_forwards_nothing_else(shared: Bed, path: str) -> None:
    assert get(shared.router.read_url + path)[0] == 404


async def test_the_read_only_port_refuses_to_be_written_to(shared: Bed, client: aiohttp.ClientSession) -> None:
    for path in ("/stats", "/ready", "/served"):
        async with client.post(shared.router.read_url + path) as answer:
            assert answer.status == 404


@pytest.mark.parametrize("extra", [1, 3 << 20])
async def test_a_body_over_the_limit_is_refused_with_its_size(
    shared: Bed, client: aiohttp.ClientSession, extra: int
) -> None:
    limit = shared.plan.max_request_bytes
    body = b'{"messages":"' + b"x" * (limit + extra - 15) + b'"}'
    assert len(body) == limit + extra
    async with client.post(shared.router.url + CHAT_PATH, data=body) as answer:
        assert answer.status == 413
        assert str(limit) in (await answer.json())["error"]["message"]


@pytest.mark.parametrize("extra", [1, 300_000])
async def test_a_chunked_body_over_the_limit_is_refused_too(
    shared: Bed, client: aiohttp.ClientSession, extra: int
) -> None:
    async def pieces() -> Any:
        for _ in range(16):
            yield b"x" * 65536
        yield b"x" * extra

    async with client.post(shared.router.url + CHAT_PATH, data=pieces()) as answer:
        assert answer.status == 413
        assert (await answer.json())["error"]["code"] == "request_too_large"


async def test_a_stream_request_that_just_fits_is_served_though_asking_for_usage_makes_it_longer(
    shared: Bed, client: aiohttp.ClientSession
) -> None:
    head, tail = b'{"stream":true,"max_tokens":4,"messages":"', b'"}'
    body = head + b"x" * (shared.plan.max_request_bytes - len(head) - len(tail)) + tail
    async with client.post(shared.router.url + CHAT_PATH, data=body) as answer:
        text = await answer.text()
        assert answer.status == 200, text
        assert text.endswith("data: [DONE]\n\n")
        assert '"usage"' not in text


async def test_chunked_bodies_are_classified_and_edited_like_others(shared: Bed, client: aiohttp.ClientSession) -> None:
    async def pieces() -> Any:
        for piece in (b'{"stream":tr', b'ue,"max_tokens":4,"to', b'ols":[1],"messages":[]}'):
            yield piece

    before = shared.router.row("json", "ngram", "ngram").measured
    async with client.post(shared.router.url + CHAT_PATH, data=pieces()) as answer:
        assert (answer.status, (await answer.text()).count('"usage"')) == (200, 0)
    assert shared.router.row("json", "ngram", "ngram").measured == before + 1


async def test_every_request_is_one_line_with_its_ids_and_no_word_of_the_prompt(
    shared: Bed, client: aiohttp.ClientSession
) -> None:
    trace = "0af7651916cd43dd8448eb211c80319c"
    headers = {"traceparent": f"00-{trace}-b7ad6b7169203331-01", "x-tenant": "acme", "x-request-id": "my-own-id"}
    body = {"messages": [{"role": "user", "content": "SECRETPROMPT"}], "tools": [1], "max_tokens": 8}
    async with client.post(shared.router.url + CHAT_PATH, json=body, headers=headers) as answer:
        assert answer.headers["x-request-id"] == "my-own-id"
        await answer.read()
    last = shared.router.line("my-own-id")
    expected = {
        "requestId": "my-own-id",
        "traceId": trace,
        "tenant": "acme",
        "route": "json",
        "pool": "ngram",
        "intended": "ngram",
        "status": 200,
        "flags": "-",
        "completionTokens": 8,
        "routesVersion": "v1",
    }
    assert {key: last[key] for key in expected} == expected
    assert last["latencyMs"] >= last["ttftMs"] >= 0
    assert "SECRETPROMPT" not in (shared.router.directory / "access.log").read_text()

"""The keyed hash of a prompt in the access log: of the bytes that were sent, by a key that may be renewed."""

from __future__ import annotations

import hashlib
import hmac
import json
from pathlib import Path
from typing import Any

import aiohttp

from tests.envoy.harness import Bed, bed, make_plan

CHAT_PATH = "/v1/chat/completions"
KEY = bytes(range(256))[:48]


def expected(key: bytes, prompt: bytes) -> str:
    """What the manual says: anyone who has the key can find the lines of a prompt."""
    identity = hmac.new(key, b"key", hashlib.sha256).hexdigest()[:8]
    return f"{identity}:{hmac.new(key, prompt[:65536], hashlib.sha256).hexdigest()}"


async def logged(client: aiohttp.ClientSession, made: Bed, mark: str, body: bytes, path: str = CHAT_PATH) -> Any:
    """The hash in the line of one request."""
    headers = {"content-type": "application/json", "x-request-id": mark}
    async with client.post(made.router.url + path, data=body, headers=headers) as answer:
        await answer.read()
    return made.router.line(mark)["promptHash"]


async def test_equal_prompts_have_equal_hashes_and_no_prompt_is_logged(
    tmp_path: Path, client: aiohttp.ClientSession
) -> None:
    key = tmp_path / "key"
    key.write_bytes(KEY)
    with bed(tmp_path, make_plan(prompt_key=str(key))) as made:
        prompt = json.dumps([{"role": "user", "content": 'SECRETPROMPT "é" \\ []'}]).encode()
        first = b'{"model": "stub", "messages": ' + prompt + b', "max_tokens": 1}'
        again = b'{"stream":true,"max_tokens":2,"messages":' + prompt + b',"model":"assistant-code"}'
        assert await logged(client, made, "first", first) == expected(KEY, prompt)
        assert await logged(client, made, "again", again) == expected(KEY, prompt)
        long = b'"' + b"x" * 100_000 + b'"'
        assert await logged(client, made, "long", b'{"prompt":' + long + b"}", "/v1/completions") == expected(KEY, long)
        assert await logged(client, made, "none", b'{"model":"stub"}') is None
        assert await logged(client, made, "no-json", b"SECRETPROMPT") is None
        assert "SECRETPROMPT" not in (made.router.directory / "access.log").read_text()
        assert made.router.settled().lua_errors == 0


async def test_a_missing_key_costs_no_request_and_is_said(tmp_path: Path, client: aiohttp.ClientSession) -> None:
    with bed(tmp_path, make_plan(prompt_key=str(tmp_path / "no-such-key"))) as made:
        body = b'{"messages":[],"max_tokens":1}'
        assert await logged(client, made, "keyless", body) is None
        assert await logged(client, made, "keyless-too", body) is None
        assert made.router.line("keyless")["status"] == 200
        assert made.router.settled().lua_errors == 0
        said = (made.router.directory / "envoy.log").read_text()
        assert said.count("prompts are not hashed: nothing to read in") == 1


async def test_without_the_field_no_prompt_is_hashed(shared: Bed, client: aiohttp.ClientSession) -> None:
    assert await logged(client, shared, "unhashed", b'{"messages":[],"max_tokens":1}') is None

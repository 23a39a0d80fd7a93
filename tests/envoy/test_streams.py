"""Streams recorded from the real engine, through the real Envoy: a client sees what it would have seen."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from specfleet.routing.files import bootstrap_files
from tests.envoy.harness import ROOT, Bed, bed
from tests.stub.engine import decode, whole_figures, with_figures

RECORDINGS = ROOT / "tests/envoy/recordings"
NAMES = sorted(path.name.removesuffix(".usage.sse") for path in RECORDINGS.glob("*.usage.sse"))
MASKED = re.compile(rb'"(?:id|system_fingerprint)":"[^"]*",?|"created":\d+,?')
CODE = {"x-route": "code"}


def path_of(name: str) -> str:
    """The endpoint a recording came from."""
    return "/v1/chat/completions" if name.startswith("chat") else "/v1/completions"


def events(raw: bytes) -> list[bytes]:
    """The events of a stream, each with its end."""
    return [event + b"\n\n" for event in raw.split(b"\n\n")[:-1]]


def is_usage(event: bytes) -> bool:
    """Whether this is the event that only usage brings."""
    return event.startswith(b"data: {") and json.loads(event[6:])["choices"] == []


def masked(raw: bytes) -> bytes:
    """Without what differs between any two answers; the fingerprint moves into the usage event where there is one."""
    return MASKED.sub(b"", raw).replace(b",}", b"}")


async def replay(client: aiohttp.ClientSession, made: Bed, name: str, cut: int, **body: Any) -> bytes:
    """A recording through the router, in pieces of `cut` bytes."""
    headers = {**CODE, "x-stub-replay": name, "x-stub-cut": str(cut), "x-stub-step-ms": "0"}
    sent = {"stream": True, "messages": [], **body}
    async with client.post(made.router.url + path_of(name), json=sent, headers=headers) as answer:
        assert answer.status == 200
        return await answer.read()


def test_there_are_recordings() -> None:
    assert len(NAMES) >= 5


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("cut", [1, 3, 7, 13, 61, 191, 509, 4093, 1 << 20])
async def test_a_client_that_asked_for_no_usage_gets_every_other_byte(
    shared: Bed, client: aiohttp.ClientSession, name: str, cut: int
) -> None:
    recorded = (RECORDINGS / f"{name}.usage.sse").read_bytes()
    before = shared.router.row("code", "ngram", "ngram")
    got = await replay(client, shared, name, cut)
    assert got == b"".join(event for event in events(recorded) if not is_usage(event))
    after = shared.router.row("code", "ngram", "ngram")
    (usage,) = [json.loads(event[6:])["usage"] for event in events(recorded) if is_usage(event)]
    figures = decode(usage["completion_tokens"], 4, 0.5, seed=1)
    assert after.measured - before.measured == 1
    assert after.decode_tokens - before.decode_tokens == usage["completion_tokens"] - 1
    assert after.prompt_tokens - before.prompt_tokens == usage["prompt_tokens"]
    assert after.accepted - before.accepted == figures.accepted


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("cut", [1, 5, 17, 127, 1021, 1 << 20])
async def test_a_client_that_asked_for_usage_gets_the_stream_byte_for_byte(
    shared: Bed, client: aiohttp.ClientSession, name: str, cut: int
) -> None:
    got = await replay(client, shared, name, cut, stream_options={"include_usage": True})
    assert got == (RECORDINGS / f"{name}.usage.sse").read_bytes()


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}, {"continuous_usage_stats": True}])
async def test_stream_options_that_ask_for_no_usage_get_none(
    shared: Bed, client: aiohttp.ClientSession, options: dict[str, Any] | None
) -> None:
    before = shared.router.row("code", "ngram", "ngram").measured
    got = await replay(client, shared, "chat-code", 97, stream_options=options)
    assert b'"usage"' not in got
    assert got.endswith(b"data: [DONE]\n\n")
    assert shared.router.row("code", "ngram", "ngram").measured == before + 1


# With logprobs each event is slow to write, and the engine joins the tokens of a varying number of steps in one.
STEADY = [name for name in NAMES if name != "chat-logprobs"]


@pytest.mark.parametrize("name", STEADY)
def test_the_engine_sends_the_same_events_with_and_without_usage(name: str) -> None:
    plain = masked((RECORDINGS / f"{name}.plain.sse").read_bytes())
    usage = (RECORDINGS / f"{name}.usage.sse").read_bytes()
    assert plain == masked(b"".join(event for event in events(usage) if not is_usage(event)))


@pytest.mark.parametrize("name", [name for name in STEADY if name != "completion-stop"])
def test_the_stub_adds_the_figures_as_the_engine_does(name: str) -> None:
    real = [json.loads(event[6:]) for event in events((RECORDINGS / f"{name}.figures.sse").read_bytes())[:-1]]
    ours = with_figures((RECORDINGS / f"{name}.usage.sse").read_bytes(), 4)
    stub = [json.loads(event[6:]) for event in events(ours)[:-1]]
    assert [list(event) for event in real] == [list(event) for event in stub]
    added = [list(event["metrics"]["speculative_decoding"]) for event in (real[-1], stub[-1])]
    assert added[0] == added[1]


@pytest.mark.parametrize("name", [name for name in STEADY if name != "completion-stop"])
def test_the_stub_adds_the_figures_to_a_whole_answer_as_the_engine_does(name: str) -> None:
    real = json.loads((RECORDINGS / f"{name}.figures.json").read_bytes())["metrics"]
    stub = whole_figures(decode(40, 4, 0.5, seed=1), 4)
    assert list(real) == list(stub)
    assert list(real["speculative_decoding"]) == list(stub["speculative_decoding"])


def test_the_engine_gives_no_figures_where_a_stop_text_ended_the_answer() -> None:
    # vLLM finds a stop text outside its engine core, which then has no figures for the request: it stays unmeasured.
    assert b'"metrics"' not in (RECORDINGS / "completion-stop.figures.sse").read_bytes()
    assert json.loads((RECORDINGS / "completion-stop.figures.json").read_bytes())["metrics"] is None


@pytest.mark.parametrize("name", NAMES)
async def test_the_engines_own_figures_are_removed_from_the_usage_event(
    shared: Bed, client: aiohttp.ClientSession, name: str, tmp_path: Path
) -> None:
    # The stub replays what the engine sent under our flags as it is, so that its exact bytes meet the filter.
    recorded = (RECORDINGS / f"{name}.figures.sse").read_bytes()
    got = await replay(client, shared, f"{name}.figures", 23, stream_options={"include_usage": True})
    assert len(events(got)) == len(events(recorded))
    for theirs, event in zip(events(got), events(recorded), strict=True):
        if b'"metrics"' in event:
            document = json.loads(event[6:])
            del document["metrics"]
            assert (
                theirs == b"data: " + json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode() + b"\n\n"
            )
        else:
            assert theirs == event


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bed]:
    """A router whose filter fails on purpose, on a marked request and on a marked event."""
    lua = bootstrap_files()["filter.lua"]
    for place, fault in (
        (
            "local function classify(s, path, fleet)\n",
            'if find(s, "FAULT-REQUEST", 1, true) then error("injected") end\n',
        ),
        (
            "local function stream_step(stream, raw)\n",
            'if find(stream.rest .. raw, "gamma", 1, true) then error("injected") end\n',
        ),
        ("local function figures(s, keys)\n", 'if find(s, "chat.completion\\"", 1, true) then error("injected") end\n'),
    ):
        assert place in lua
        lua = lua.replace(place, place + fault)
    with bed(tmp_path_factory.mktemp("faulty"), lua=lua) as made:
        yield made


async def test_an_error_of_the_filter_passes_the_bytes_and_is_counted(
    faulty: Bed, client: aiohttp.ClientSession
) -> None:
    url = faulty.router.url + "/v1/chat/completions"
    errors = faulty.router.sample().lua_errors
    async with client.post(url, json={"messages": ["FAULT-REQUEST"], "tools": [1]}) as answer:
        assert (answer.status, len((await answer.json())["choices"])) == (200, 1)
    async with client.post(url, json={"messages": [], "stream": True, "max_tokens": 9}, headers=CODE) as answer:
        text = await answer.text()
    assert answer.status == 200
    assert text.endswith("data: [DONE]\n\n")
    parts = [json.loads(line[6:]) for line in text.split("\n\n")[:-2]]
    said = "".join(choice["delta"]["content"] for part in parts for choice in part["choices"])
    assert (said.startswith("alpha beta gamma delta"), said.count("alpha")) == (True, 1)
    async with client.post(url, json={"messages": [], "max_tokens": 9}, headers=CODE) as answer:
        assert (await answer.json())["usage"]["completion_tokens"] == 9
    sample = await asyncio.to_thread(faulty.router.sample)
    assert sample.lua_errors == errors + 3
    assert sum(row.measured for row in sample.rows if row.route == "code") == 0

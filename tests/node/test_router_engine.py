"""Real vLLM behind the real Envoy, without a node: the answers of the engine itself, its figures in our counters."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.envoy.harness import ENGINE_PORT, Dns, Router, eventually, get, loopback_host, make_plan
from tests.envoy.record import SCENARIOS, ask, engine

pytestmark = [pytest.mark.engine, pytest.mark.node]


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Router, str]]:
    """A router before one engine with speculation (route json), and the engine's own address."""
    host, dns = loopback_host(), Dns()
    dns.table = {"baseline.test": [], "ngram.test": [host]}
    router = Router(tmp_path_factory.mktemp("live"), dns, make_plan())
    flags = ("--per-request-spec-decode-metrics", "summary", "--enable-log-requests")
    with (
        (router.directory / "engine.log").open("wb") as log,
        engine(*flags, host=host, port=ENGINE_PORT, log=log) as url,
    ):
        try:
            router.start()
            router.await_healthy("ngram", 1)
            yield router, url
        finally:
            router.stop()
            dns.close()


def engine_counters(url: str) -> dict[str, int]:
    """vLLM's own counts of drafts."""
    text = get(f"{url}/metrics")[1].decode()
    found = re.findall(r"^vllm:spec_decode_num_(draft|accepted)_tokens_total\{[^}]*\} (\S+)$", text, re.MULTILINE)
    return {name: int(float(value)) for name, value in found}


def content(raw: bytes) -> tuple[str, list[Any], set[tuple[str, ...]]]:
    """Text, finish reasons and kinds of events of a stream."""
    assert raw.endswith(b"data: [DONE]\n\n")
    events = [json.loads(event[6:]) for event in raw.decode().split("\n\n")[:-2]]
    choices = [choice for event in events for choice in event["choices"]]
    text = "".join(choice.get("text") or choice.get("delta", {}).get("content") or "" for choice in choices)
    kinds = {tuple(sorted(set(event) - {"system_fingerprint"})) for event in events}
    return text, [choice["finish_reason"] for choice in choices if choice["finish_reason"]], kinds


@pytest.mark.parametrize("name", list(SCENARIOS))
@pytest.mark.parametrize("usage", [False, True])
def test_a_stream_says_the_same_with_and_without_the_router(live: tuple[Router, str], name: str, usage: bool) -> None:
    router, url = live
    path, body = SCENARIOS[name]
    # Route chat aims at baseline, where no engine is: the router hands it to the only one there is.
    asked = {**body, "stream": True, **({"stream_options": {"include_usage": True}} if usage else {})}
    direct, through = content(ask(url, path, asked)), content(ask(router.url, path, asked))
    assert through[:2] == direct[:2]
    # Asked for usage, the engine's own event holds the figures that our flag adds; the router takes them out.
    assert through[2] == {tuple(key for key in kind if key != "metrics") for kind in direct[2]}


def test_the_counters_are_the_engines_own(live: tuple[Router, str]) -> None:
    router, url = live
    path, body = SCENARIOS["chat-code"]
    engine_before, before = engine_counters(url), router.row("json", "ngram", "ngram")
    for stream in (True, False):
        answer = ask(router.url, path, {**body, "stream": stream, "response_format": {"type": "json_object"}})
        assert answer
    grown, after = engine_counters(url), router.row("json", "ngram", "ngram")
    assert after.measured - before.measured == 2
    assert after.drafted - before.drafted == grown["draft"] - engine_before["draft"]
    accepted = after.accepted - before.accepted
    # What the end of an answer cut off was accepted by the engine and is in no answer: at most k tokens each.
    assert 0 <= (grown["accepted"] - engine_before["accepted"]) - accepted <= 8
    assert accepted <= after.decode_tokens - before.decode_tokens - (after.rounds - before.rounds)
    assert after.stream_decode_us > before.stream_decode_us


def test_a_request_that_was_given_up_is_followed_from_the_clients_header_to_the_engines_log(
    live: tuple[Router, str],
) -> None:
    router, url = live
    trace = "0af7651916cd43dd8448eb211c80319c"
    headers = {"x-request-id": "incident-7", "traceparent": f"00-{trace}-b7ad6b7169203331-01", "x-tenant": "acme"}
    body = {"stream": True, "max_tokens": 900, "ignore_eos": True, "messages": [{"role": "user", "content": "SECRET"}]}
    client = http.client.HTTPConnection("127.0.0.1", router.data)
    client.request("POST", "/v1/chat/completions", json.dumps(body), {"content-type": "application/json", **headers})
    answer = client.getresponse()
    assert answer.headers["x-request-id"] == "incident-7"
    assert '"id":"chatcmpl-incident-7"' in answer.readline().decode()
    answer.close()
    client.close()
    line = router.line("incident-7")
    expected = {"traceId": trace, "tenant": "acme", "pool": "ngram", "flags": "DC", "host": url.removeprefix("http://")}
    assert {key: line[key] for key in expected} == expected
    log = router.directory / "engine.log"
    eventually("the engine to say so", lambda: "Request chatcmpl-incident-7 aborted." in log.read_text())
    assert "SECRET" not in log.read_text() + (router.directory / "access.log").read_text()

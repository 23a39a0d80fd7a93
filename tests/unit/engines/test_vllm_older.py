"""vLLM before 0.29: what each release is told, what it is refused, and with what alternative."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from specfleet.api.findings import Finding, FindingReason, Severity, errors
from specfleet.api.v1alpha1 import SpecDeployment
from specfleet.engines.drain import drain_command
from specfleet.engines.protocol import EngineFacts
from specfleet.engines.registry import engine_module

Document = dict[str, Any]
SMALL = {"mode": "DraftModel", "model": "owner/small"}
HEAD = {"mode": "EAGLE", "model": "owner/head"}
MTP = {"mode": "MTP", "tokens": 1}


def fleet(version: str, draft: Document | None = None, engine: Document | None = None, **target: int) -> SpecDeployment:
    """A SpecDeployment of one release; `target` is its parallelism."""
    spec: Document = {
        "engine": {"type": "vLLM", "version": version, **(engine or {})},
        "target": {"model": "owner/model", "parallelism": target},
        "drafts": [{"name": "draft", "mode": "NGram", **(draft or {})}],
        "pools": {"replicas": 2},
        "policy": {"minAcceptancePercent": 30},
    }
    return SpecDeployment.parse({"metadata": {"name": "assistant", "namespace": "serving"}, "spec": spec})


def findings(*args: Any, **parallelism: Any) -> list[Finding]:
    """What is found in `fleet(...)`."""
    one = fleet(*args, **parallelism)
    return engine_module(one.spec.engine.type).check(one)


def only_error(*args: Any, **parallelism: int) -> Finding:
    """The one error in `fleet(...)`."""
    (found,) = errors(findings(*args, **parallelism))
    return found


def facts(version: str, draft: Document | None = None, *, speculative: bool = True) -> EngineFacts:
    """What a pool of `fleet(...)` is made of."""
    one = fleet(version, draft)
    return engine_module(one.spec.engine.type).facts(one, speculative=speculative)


def config(version: str, draft: Document | None = None) -> Document:
    """The speculative config."""
    (text,) = [word for word in facts(version, draft).args if word.startswith("--speculative-config=")]
    found: Document = json.loads(text.partition("=")[2])
    return found


def env(version: str, draft: Document | None = None) -> dict[str, str | None]:
    """Variables of both pools, which are the same."""
    pools = [facts(version, draft, speculative=speculative).env for speculative in (False, True)]
    assert pools[0] == pools[1]
    return {one.name: one.value for one in pools[0]}


@pytest.mark.parametrize(
    ("version", "draft", "generation"),
    [
        ("0.8.5", {}, "1"),
        ("0.8.5", HEAD, "1"),
        ("0.8.5", {"mode": "Medusa", "model": "owner/heads"}, "0"),
        ("0.9.0", {"mode": "Medusa", "model": "owner/heads"}, "1"),
        ("0.9.2", SMALL, "0"),
        ("0.11.0", {}, "1"),
        ("0.11.1", {}, None),
        ("0.15.0", SMALL, None),
    ],
)
def test_both_pools_run_the_same_engine(version: str, draft: Document, generation: str | None) -> None:
    assert env(version, draft).get("VLLM_USE_V1") == generation


def test_the_engine_is_not_the_users_to_choose_where_there_are_two() -> None:
    wanted = {"env": [{"name": "VLLM_USE_V1", "value": "0"}]}

    assert only_error("0.10.2", {}, wanted).reason is FindingReason.OWNED_ENV
    assert findings("0.12.0", {}, wanted) == []


@pytest.mark.parametrize(("version", "keep", "idle"), [("0.9.0", None, 3), ("0.9.1", "120", 30)])
def test_routers_let_go_of_connections_before_the_engine_does(version: str, keep: str | None, idle: int) -> None:
    assert env(version).get("VLLM_HTTP_TIMEOUT_KEEP_ALIVE") == keep
    assert facts(version).idle_seconds == idle


@pytest.mark.parametrize(
    ("version", "refused"),
    [
        ("0.13.0", ()),
        ("0.14.0", ("min_tokens", "min_p", "logit_bias")),
        ("0.16.0", ("min_tokens", "min_p", "logit_bias")),
        ("0.17.0", ("min_p", "logit_bias")),
    ],
)
def test_what_a_release_refuses_under_speculation_goes_to_baseline(version: str, refused: tuple[str, ...]) -> None:
    assert facts(version).refused_fields == refused


def test_no_answer_carries_figures_and_no_flag_asks_for_them() -> None:
    for speculative in (False, True):
        old = facts("0.28.0", speculative=speculative)
        assert not old.figures_per_request
        assert not any("per-request" in word for word in old.args)
    assert facts("0.29.0").figures_per_request


@pytest.mark.parametrize(
    ("version", "name"), [("0.9.0", "deepseek_mtp"), ("0.10.2", "deepseek_mtp"), ("0.11.0", "mtp"), ("0.28.0", "mtp")]
)
def test_mtp_has_the_name_that_the_release_reads(version: str, name: str) -> None:
    assert config(version, MTP)["method"] == name


def test_the_first_engine_answers_with_logprobs_as_baseline_does() -> None:
    assert config("0.9.2", SMALL)["disable_logprobs"] is False
    assert "disable_logprobs" not in config("0.9.2")


def test_the_first_engine_counts_nothing_and_it_is_said_with_the_release_that_does() -> None:
    (found,) = findings("0.9.2", SMALL)

    assert (found.severity, found.reason) == (Severity.WARNING, FindingReason.NOTHING_TO_WATCH)
    assert "use vLLM 0.15.0 or newer, or write speculation: Always or Never" in found.message


@pytest.mark.parametrize(
    ("version", "draft", "engine", "parallelism", "reason", "words"),
    [
        ("0.14.1", SMALL, {}, {}, "ModeUnavailable", "use vLLM 0.15.0 or newer"),
        ("0.10.0", SMALL, {}, {}, "ModeUnavailable", "raises NotImplementedError"),
        ("0.15.1", HEAD, {}, {"pipeline": 2}, "InvalidValue", "or use vLLM 0.16.0 or newer"),
        ("0.8.5", {}, {}, {"pipeline": 2}, "InvalidValue", "write tensor parallelism instead"),
        ("0.9.2", SMALL, {}, {"data": 2}, "InvalidValue", "more replicas, or use vLLM 0.15.0 or newer"),
        ("0.9.2", SMALL, {"args": {"enable-lora": ""}}, {}, "ConflictingFlag", "or use vLLM 0.15.0 or newer"),
        ("0.12.0", {"args": {"disable_by_batch_size": "8"}}, {}, {}, "UnknownDraftArg", "the policy takes its place"),
        ("0.16.0", {"args": {"disable-by-batch-size": "8"}}, {}, {}, "UnknownDraftArg", "ignores it up to 0.16"),
        (
            "0.17.0",
            {"args": {"disable_by_batch_size": "8"}},
            {},
            {},
            "UnknownDraftArg",
            "it went after 0.16.0; the policy",
        ),
        (
            "0.23.0",
            {"args": {"num_speculative_tokens_per_batch_size": "[[1, 8, 4]]"}},
            {},
            {},
            "UnknownDraftArg",
            "it came with 0.24.0",
        ),
        (
            "0.24.0",
            {"args": {"num_speculative_tokens_per_batch_size": "[[1, 8, 4]]"}},
            {},
            {"data": 2},
            "InvalidDraftArg",
            "with data parallelism: remove one of the two",
        ),
        (
            "0.24.0",
            {**SMALL, "args": {"use_heterogeneous_vocab": "true"}},
            {},
            {},
            "UnknownDraftArg",
            "came with 0.25.0",
        ),
        ("0.20.2", {**HEAD, "args": {"speculative_token_tree": "[]"}}, {}, {}, "UnknownDraftArg", "drafts are chains"),
        ("0.9.2", {"args": {"acceptance_method": "x"}}, {}, {}, "UnknownDraftArg", "typical acceptance"),
        ("0.10.0", {**HEAD, "args": {"max_modle_len": "8"}}, {}, {}, "UnknownDraftArg", "did you mean max_model_len?"),
        (
            "0.19.0",
            {"args": {"rejection_sample_method": "synthetic"}, "allowLossy": True},
            {},
            {},
            "InvalidDraftArg",
            "synthetic goes with synthetic_acceptance_rate, found none",
        ),
        (
            "0.18.0",
            {"args": {"rejection_sample_method": "block"}},
            {},
            {},
            "InvalidDraftArg",
            "one of probabilistic, strict",
        ),
        ("0.17.0", {}, {"args": {"shutdown-timeout": "9"}}, {}, "UnknownFlag", "which came with 0.18.0: remove it"),
        (
            "0.28.0",
            {},
            {"args": {"per-request-spec-decode-metrics": "summary"}},
            {},
            "UnknownFlag",
            "which came with 0.29.0: remove it",
        ),
        (
            "0.28.0",
            {},
            {"args": {"disable-log-stats": ""}},
            {},
            "ConflictingFlag",
            "decisions rest on the engine's counters",
        ),
        ("0.18.0", {}, {"args": {"spec-tokens": "4"}}, {}, "UnknownFlag", "which came with 0.22.0: remove it"),
        ("0.19.0", {}, {"extraArgs": ["-sc={}"]}, {}, "OwnedFlag", "described by spec.drafts"),
        ("0.9.2", {}, {"args": {"speculative_conf": "{}"}}, {}, "OwnedFlag", "described by spec.drafts"),
        ("0.11.0", HEAD, {"args": {"async-scheduling": ""}}, {}, "ConflictingFlag", "or use vLLM 0.11.1 or newer"),
        ("0.13.0", HEAD, {"args": {"async-scheduling": ""}}, {}, "ConflictingFlag", "or use vLLM 0.14.0 or newer"),
        ("0.15.0", SMALL, {"args": {"async-scheduling": ""}}, {}, "ConflictingFlag", "or use vLLM 0.15.1 or newer"),
        ("0.12.0", {}, {"args": {"logits-processors": "a.b"}}, {}, "ConflictingFlag", "or use vLLM 0.32.0 or newer"),
        (
            "0.11.1",
            {"tokens": 4},
            {"args": {"enable-lora": "", "max-num-batched-tokens": "1024"}},
            {},
            "ConflictingFlag",
            "256 x 5 = 1280, found 1024",
        ),
        (
            "0.16.0",
            {},
            {"args": {"override-generation-config": '{"min_tokens": 4}'}},
            {},
            "ConflictingFlag",
            "refuses min_tokens under speculation",
        ),
    ],
)
def test_what_a_release_cannot_do_is_refused_with_what_it_can(
    version: str, draft: Document, engine: Document, parallelism: dict[str, int], reason: str, words: str
) -> None:
    found = only_error(version, draft, engine, **parallelism)

    assert found.reason == reason
    assert words in found.message


@pytest.mark.parametrize(
    ("version", "draft", "engine", "parallelism"),
    [
        ("0.14.0", HEAD, {"args": {"async-scheduling": ""}}, {}),
        ("0.15.1", SMALL, {"args": {"async-scheduling": ""}}, {}),
        ("0.11.0", {"tokens": 4}, {"args": {"enable-lora": "", "max-num-batched-tokens": "1024"}}, {}),
        ("0.17.0", {}, {"args": {"override-generation-config": '{"min_tokens": 4}'}}, {}),
        ("0.29.0", {}, {"args": {"disable-log-stats": ""}}, {}),
        (
            "0.19.1",
            {"allowLossy": True, "args": {"rejection_sample_method": "synthetic", "synthetic_acceptance_rate": "0.7"}},
            {},
            {},
        ),
        ("0.9.2", {**SMALL, "args": {"draft_tensor_parallel_size": "1"}}, {}, {"tensor": 2}),
        ("0.25.0", {**SMALL, "args": {"use_heterogeneous_vocab": "true"}}, {}, {}),
    ],
)
def test_what_a_release_can_do_is_not_refused(
    version: str, draft: Document, engine: Document, parallelism: dict[str, int]
) -> None:
    assert errors(findings(version, draft, engine, **parallelism)) == []


def test_pipeline_parallelism_is_a_warning_where_the_manual_is_silent() -> None:
    (found,) = findings("0.16.0", {}, {}, pipeline=2)

    assert (found.severity, found.reason) == (Severity.WARNING, FindingReason.UNTESTED_COMBINATION)


def test_tokens_by_batch_size_are_told_to_be_the_engines_own() -> None:
    (found,) = findings("0.24.0", {"args": {"num_speculative_tokens_per_batch_size": "[[1, 8, 4], [9, 64, 0]]"}})

    assert (found.severity, found.reason) == (Severity.WARNING, FindingReason.ENGINE_MANAGED)


# --- the end of a pod


@contextmanager
def engine_page(running: list[int]) -> Iterator[tuple[int, list[int]]]:
    """A metrics page with one number of running requests after another, the last one for ever; its port, and looks."""
    looks: list[int] = []

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            count = running[min(len(looks), len(running) - 1)]
            looks.append(count)
            labels = '{engine="0",model_name="a b"}'
            lines = [f"vllm:num_requests_running{labels} {count}.0", f"vllm:num_requests_waiting{labels} 0.0"]
            lines.append('vllm:num_requests_waiting_by_reason{reason="capacity"} 7.0')
            self.send_response(200)
            self.end_headers()
            self.wfile.write("\n".join(["# TYPE x gauge", *lines, ""]).encode())

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1], looks
    finally:
        server.shutdown()
        server.server_close()


def drained(port: int, most: int) -> float:
    """Runs the hook; seconds that it took."""
    gauge = "vllm:num_requests_(?:running|waiting)"
    command = drain_command(port=port, path="/metrics", gauge=gauge, leave_seconds=0, most_seconds=most)
    began = time.monotonic()
    subprocess.run([sys.executable, *command[1:]], check=True, timeout=30)
    return time.monotonic() - began


def test_a_pod_waits_for_requests_in_flight_and_no_longer() -> None:
    with engine_page([2, 1, 0]) as (port, looks):
        drained(port, 60)
        assert looks == [2, 1, 0]


def test_a_pod_waits_no_longer_than_its_grace_period() -> None:
    with engine_page([1]) as (port, looks):
        assert 2.0 <= drained(port, 2) < 10.0
        assert len(looks) >= 2


def test_only_releases_that_cannot_drain_get_the_hook() -> None:
    old, new = facts("0.17.1"), facts("0.18.0")

    assert old.drain is not None
    assert f"time.sleep({old.pre_stop_seconds})" in old.drain[-1]
    assert f"time.monotonic() + {old.shutdown_seconds}" in old.drain[-1]
    assert old.grace_seconds > old.pre_stop_seconds + old.shutdown_seconds
    assert new.drain is None
    assert f"--shutdown-timeout={new.shutdown_seconds}" in new.args

"""A fleet simulated by the second under the operator's own decisions, and the series that Prometheus has of it."""

from __future__ import annotations

import subprocess
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from specfleet.api.names import BASELINE_POOL
from specfleet.api.v1alpha1 import SpecDeploymentSpec
from specfleet.decision.rule import Room
from specfleet.decision.samples import Ledger
from specfleet.handlers.decide import blocks, decide, route_totals, states_of
from specfleet.routing.counters import RouteRow, RouterSample
from tests.testbed.api import prometheus_binary

DRAFT = "ngram"
BREAK_EVEN = 1.6
BASE_US = 10_000  # a token, without speculation
TOKENS = 100  # decode tokens a request
BLOCK_SECONDS = 60.0
OPERATOR_OFFSET = 17.0  # of the operator's blocks to those of a replay that begins with the history
SCRAPE_SECONDS = 30
_NO_LABEL = frozenset({"requests"})

Labels = tuple[tuple[str, str], ...]
Line = tuple[str, Labels, float, float]  # name, labels, value, time


@dataclass
class Router:
    """One router process: what it has counted since it started, by route and pool."""

    pod: str
    started_at: float
    rows: dict[tuple[str, str], dict[str, int]] = field(default_factory=lambda: defaultdict(lambda: defaultdict(int)))

    def count(self, route: str, pool: str, requests: int, tokens_per_step: float) -> None:
        """Finished streams of one second."""
        row = self.rows[route, pool]
        tokens = TOKENS * requests
        row["requests"] += requests
        row["stream_decode_tokens"] += tokens
        if pool == BASELINE_POOL:
            row["plain_measured"] += requests
            row["plain_decode_tokens"] += tokens
            row["stream_decode_us"] += BASE_US * tokens
            return
        accepted = round(tokens * (1.0 - 1.0 / tokens_per_step))
        row["measured"] += requests
        row["decode_tokens"] += tokens
        row["accepted"] += accepted
        row["drafted"] += 4 * (tokens - accepted)
        row["stream_decode_us"] += round(BASE_US * BREAK_EVEN / tokens_per_step) * tokens

    def sample(self, at: float) -> RouterSample:
        """What the operator reads of it."""
        rows = tuple(
            RouteRow(
                route,
                pool,
                pool,
                decode_tokens=row["decode_tokens"],
                accepted=row["accepted"],
                drafted=row["drafted"],
                measured=row["measured"],
            )
            for (route, pool), row in self.rows.items()
        )
        return RouterSample(at, self.started_at, rows, {}, {}, 0, 0)

    def lines(self, at: float, namespace: str) -> Iterator[Line]:
        """What Prometheus scrapes of it."""
        target = (("namespace", namespace), ("pod", self.pod), ("instance", f"{self.pod}:9902"))
        yield "specfleet_router_uptime", target, at - self.started_at, at
        for (route, pool), row in self.rows.items():
            place = (("route", route), ("pool", pool), ("intended", pool))
            for name, value in row.items():
                ended = (("code", "200"), ("flags", "-"), ("phase", "body")) if name in _NO_LABEL else ()
                yield f"specfleet_{name}", (*target, *place, *ended), value, at


@dataclass(frozen=True)
class History:
    """What was recorded, and what the operator did meanwhile: its switches by route, as (time, pool)."""

    lines: list[Line]
    switches: dict[str, list[tuple[float, str]]]


def operated(
    spec: SpecDeploymentSpec, quality: Mapping[str, list[tuple[float, float]]], begin: float, seconds: int
) -> History:
    """A fleet of two routers and an operator that reads them directly; two requests a second on each route.

    `quality` is tokens per step by route, as (from this second on, value). In the fifth hour a router restarts; in the
    eighth Prometheus scrapes nothing for ten minutes.
    """
    routers = [Router(f"assistant-router-5d8f7c9b6-{name}", begin - 3600.0) for name in ("x2x4z", "b7kq1")]
    ledger, states = Ledger(BLOCK_SECONDS, begin), states_of(spec, {}, {}, begin)
    lines: list[Line] = []
    switches: dict[str, list[tuple[float, str]]] = defaultdict(list)
    carried: dict[str, float] = defaultdict(float)
    for second in range(1, seconds + 1):
        at = begin + second
        if second == 4 * 3600 + 1234:
            routers[1] = Router(routers[1].pod, at)
        for route, spells in quality.items():
            x = next(value for since, value in reversed(spells) if second >= since)
            carried[route] += 2.0 * states[route].percent / 100.0
            speculative = int(carried[route])
            carried[route] -= speculative
            router = routers[second % 2]
            if speculative:
                router.count(route, DRAFT, speculative, x)
            if speculative < 2:
                router.count(route, BASELINE_POOL, 2 - speculative, x)
        if second % SCRAPE_SECONDS == 5 and not 7 * 3600 < second < 7 * 3600 + 600:
            lines += [line for router in routers for line in router.lines(at, "serving")]
        if (second - OPERATOR_OFFSET) % 30 == 0:
            for router in routers:
                totals = route_totals(router.sample(at), DRAFT)
                ledger.observe(router.pod, router.started_at, at, totals)
        if (second - OPERATOR_OFFSET) % BLOCK_SECONDS == 0:
            news = blocks(ledger.take(at).increments, states, at, BLOCK_SECONDS)
            decided = decide(spec, states, news, at, None, dict.fromkeys(states, Room()))
            states = {name: one.state for name, one in decided.items()}
            for name, one in decided.items():
                if one.verdict.switched:
                    switches[name].append((at, one.verdict.pool))
    return History(lines, dict(switches))


def engines(begin: float, seconds: int) -> Iterator[Line]:
    """vLLM's own counters of one pod with speculation (2.0 tokens a step) and one without; no router."""
    for second in range(0, seconds, SCRAPE_SECONDS):
        at, requests = begin + second, float(second)
        for pod, drafts, us in (("llm-spec-7d9f-aaaaa", True, 8_000), ("llm-6c5b-bbbbb", False, BASE_US)):
            target = (("namespace", "plain"), ("pod", pod), ("instance", f"{pod}:8000"))
            model = (*target, ("model_name", "llama"), ("engine", "0"))
            tokens = TOKENS * requests
            yield "process_start_time_seconds", target, begin - 9000.0, at
            yield "vllm:generation_tokens_total", model, tokens + requests, at
            yield "vllm:time_to_first_token_seconds_count", model, requests, at
            yield "vllm:request_success_total", (*model, ("finished_reason", "stop")), requests, at
            yield "vllm:request_success_total", (*model, ("finished_reason", "abort")), 0.0, at
            yield "vllm:request_generation_tokens_sum", model, tokens + requests, at
            yield "vllm:request_generation_tokens_count", model, requests, at
            yield "vllm:request_decode_time_seconds_sum", model, tokens * us / 1e6, at
            if drafts:
                yield "vllm:spec_decode_num_draft_tokens_total", model, 2.0 * tokens, at
                yield "vllm:spec_decode_num_accepted_tokens_total", model, tokens / 2.0, at


def others(begin: float, seconds: int) -> Iterator[Line]:
    """Engines that a replay cannot tell from: SGLang's, and vLLM's without speculation."""
    for second in range(0, seconds, SCRAPE_SECONDS):
        for pod, name in (
            ("grove.v1-aaaaa", "sglang:generation_tokens_total"),
            ("dull-aaaaa", "vllm:generation_tokens_total"),
        ):
            labels = (("namespace", "plain"), ("pod", pod), ("model_name", "llama"))
            yield name, labels, TOKENS * float(second), begin + second


def seldom(begin: float, seconds: int) -> Iterator[Line]:
    """A router that is scraped every five minutes."""
    router = Router("seldom-router-5d8f7c9b6-x2x4z", begin)
    for second in range(0, seconds, 300):
        router.count("chat", DRAFT, 60, 2.0)
        yield from router.lines(begin + second, "rare")


def blind(begin: float, seconds: int) -> Iterator[Line]:
    """A router whose engines give no figures: requests and nothing else; Envoy's own names."""
    target = (("namespace", "blind"), ("pod", "blind-router-5d8f7c9b6-x2x4z"))
    place = (("route", "chat"), ("pool", DRAFT), ("intended", DRAFT), ("code", "200"), ("flags", "-"))
    for second in range(0, seconds, SCRAPE_SECONDS):
        yield "envoy_server_uptime", target, 9000.0 + second, begin + second
        yield "envoy_specfleet_requests", (*target, *place), float(second), begin + second


def stored(lines: list[Line], directory: Path) -> None:
    """Make Prometheus' own blocks of the lines below `directory`/data, by its own tool."""
    series: dict[tuple[str, Labels], list[tuple[float, float]]] = defaultdict(list)
    for name, labels, value, at in lines:
        series[name, labels].append((at, value))
    text = directory / "history.om"
    with text.open("w") as file:
        for (name, labels), values in sorted(series.items()):
            inner = ",".join(f'{label}="{value}"' for label, value in labels)
            file.writelines(f"{name}{{{inner}}} {value} {at:.3f}\n" for at, value in values)
        file.write("# EOF\n")
    promtool = prometheus_binary().with_name("promtool")
    command: list[Any] = [promtool, "tsdb", "create-blocks-from", "openmetrics", text, directory / "data"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]

"""Reads the metrics page of an engine that somebody else runs, and the release that it tells.

Only what a decision needs is taken from a page, and nothing of it is ever shown: what a pod answers is its owner's.
A pod that does not answer, or with something else, costs only itself and gives one sentence.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NoReturn

import aiohttp
from prometheus_client.parser import text_string_to_metric_families
from yarl import URL

from specfleet.api.v1alpha1 import EngineType
from specfleet.decision.samples import RouteTotals
from specfleet.engines.external import EngineMetrics
from specfleet.metrics.load import LoadPage, parse_load

METRICS_PATH = "/metrics"
VERSION_PATH = "/version"
TIMEOUT_SECONDS = 3.0
LIMIT_BYTES = 4 * 1024 * 1024
READINGS_IN_FLIGHT = 32
_RELEASE = re.compile(r"[0-9]+\.[0-9]+[0-9A-Za-z.+-]{0,32}")
_STARTED = "process_start_time_seconds"

# The series that count, by engine. Sums over all labels: `engine` is a data-parallel rank, `model_name` a served name.
_VLLM = {
    "vllm:generation_tokens_total": "generation_tokens",
    "vllm:request_success_total": "finished",
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
    "vllm:spec_decode_num_drafts_total": "rounds",
    "vllm:spec_decode_num_draft_tokens_total": "drafted",
    "vllm:spec_decode_num_accepted_tokens_total": "accepted",
}
_SGLANG = {
    "sglang:generation_tokens_total": "generation_tokens",
    "sglang:num_requests_total": "finished",
    "sglang:num_running_reqs": "running",
    "sglang:num_queue_reqs": "waiting",
    "sglang:spec_verify_calls_total": "rounds",
    "sglang:spec_num_draft_tokens": "draft_tokens",
    "sglang:spec_accept_length": "accept_length",
}
# Requests and their tokens move when a request ends, drafts with each iteration.
_TRTLLM = {
    "trtllm_generation_tokens_total": "generation_tokens",
    "trtllm_request_success_total": "finished",
    "trtllm_num_requests_running": "running",
    "trtllm_num_requests_waiting": "waiting",
    "trtllm_spec_decode_num_draft_tokens_total": "drafted",
    "trtllm_spec_decode_num_accepted_tokens_total": "accepted",
    "trtllm_speculative_config_info": "configured",
}
_SERIES: dict[EngineType, dict[str, str]] = {
    EngineType.VLLM: _VLLM,
    EngineType.SGLANG: _SGLANG,
    EngineType.TENSORRTLLM: _TRTLLM,
}
_PREFIXES = {"vllm:": EngineType.VLLM, "sglang:": EngineType.SGLANG, "trtllm_": EngineType.TENSORRTLLM}
_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_SAME = frozenset({"draft_tokens", "accept_length"})  # settings and ratios of each rank
_BY_ROUTE = frozenset({"generation_tokens", "finished", "rounds"})
# These never end with a token: they would be subtracted as requests whose first token came of the prefill.
_NO_TOKEN = frozenset({"abort", "error", "cancelled"})


class EngineError(Exception):
    """A pod's page could not be used; the text is a sentence about what was asked and what to do.

    Attributes:
        unauthorized: the pod wants a key that the operator does not have.
    """

    def __init__(self, text: str, *, unauthorized: bool = False) -> None:
        super().__init__(text)
        self.unauthorized = unauthorized


@dataclass(frozen=True)
class EngineReading:
    """What one engine process has counted since it started.

    Attributes:
        at: seconds since the epoch of the reading; `started_at` of the process, where the page says so.
        decode_tokens: generated tokens less one a finished request, which the prefill yields.
        finished: requests that ended with a last token.
        rounds: vLLM: steps in which something was drafted. SGLang: verifications. None where the page has neither.
        drafted, accepted: draft tokens; SGLang counts neither, see `totals`.
        tokens_a_round: k, where the page tells it.
        speculative: whether the engine speculates; None where the page cannot tell.
        running, waiting: requests in it now.
        routes: generated tokens, finished requests and verifications by route, where the page tells routes apart.
    """

    engine: EngineType
    at: float
    started_at: float | None
    decode_tokens: int
    finished: int
    rounds: int | None
    drafted: int
    accepted: int
    tokens_a_round: int | None
    speculative: bool | None
    running: int
    waiting: int
    routes: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    def route_totals(self, draft_tokens: int) -> dict[str, RouteTotals] | None:
        """As `totals`, by route; None where the engine does not count what it accepts (SGLang before 0.5.13).

        A route without a verification of its own, where others have some, was answered by single tokens.
        """
        if self.totals(draft_tokens) is None:
            return None
        found = {}
        for route, counts in self.routes.items():
            finished, rounds = counts.get("finished", 0), counts.get("rounds", 0)
            tokens = max(0, counts.get("generation_tokens", 0) - finished)
            drafted = rounds * draft_tokens
            found[route] = RouteTotals(tokens, min(max(0, tokens - rounds), drafted), drafted, finished)
        return found

    def totals(self, draft_tokens: int) -> RouteTotals | None:
        """Cumulative counts as a decision takes them; None where the engine does not count what it accepts.

        vLLM counts what the end of an answer cuts off; it is left out as far as the rounds tell it, since each of them
        yields a token of its own. SGLang (0.5.13 and later) counts verifications: what was generated beyond one token
        each was accepted, of `draft_tokens` (k) drafted each time.
        """
        yielded = max(0, self.decode_tokens - (self.rounds or 0))
        if self.engine is EngineType.VLLM:
            # Without rounds it is the V0 engine (up to 0.9.2), which adds its running totals up anew with every look.
            if not self.speculative or self.rounds is None:
                return None
            return RouteTotals(self.decode_tokens, min(self.accepted, yielded), self.drafted, self.finished)
        if self.engine is EngineType.TENSORRTLLM:
            return self._trtllm_totals(draft_tokens)
        if self.rounds is None:
            # The series comes with the first verification, and counters move when a request ends.
            return None if self.finished else RouteTotals(0, 0, 0, 0)
        drafted = self.rounds * draft_tokens
        return RouteTotals(self.decode_tokens, min(yielded, drafted), drafted, self.finished)

    def _trtllm_totals(self, draft_tokens: int) -> RouteTotals | None:
        """Drafts are counted as they are made, tokens when their request ends: no more was accepted than fits them.

        Neither series is there before its first sample; whether nothing is drafted or nothing is counted is told by
        what else an iteration leaves on the page.
        """
        if not self.speculative:
            return None if self.finished else RouteTotals(0, 0, 0, 0)
        most = self.decode_tokens * draft_tokens // (draft_tokens + 1)
        return RouteTotals(self.decode_tokens, min(self.accepted, self.drafted, most), self.drafted, self.finished)

    def facts(self) -> EngineMetrics:
        """The same as facts of an external pod."""
        return EngineMetrics(
            running=self.running,
            waiting=self.waiting,
            output_tokens=self.decode_tokens + self.finished,
            speculative=bool(self.speculative),
            drafts=self.rounds or 0,
            draft_tokens=self.drafted,
            accepted_tokens=self.accepted,
            started_at=self.started_at,
        )


class EngineReader:
    """GETs on engine pods. The caller owns the session."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session
        self._slots = asyncio.Semaphore(READINGS_IN_FLIGHT)

    async def metrics(
        self, address: str, port: int, engine: EngineType, path: str = METRICS_PATH, route_label: str | None = None
    ) -> EngineReading:
        """The counters of the engine at `address` (an IP address). Raises EngineError."""
        where = f"port {port}{path}"
        raw, kind = await self._get(address, port, path)
        if kind == "text/html" or raw.lstrip()[:1] == b"<":
            raise EngineError(
                f"GET {where} answers a web page and no metrics: is the Service's port that of the engine? "
                "Write the engine's port in the Service, or annotate the pods with prometheus.io/port"
            )
        try:
            return parse_page(raw.decode(errors="replace"), time.time(), engine, route_label)
        except ValueError as error:
            raise EngineError(f"GET {where} {error}") from error

    async def page(self, address: str, port: int, path: str = METRICS_PATH) -> str:
        """The metrics page of the engine at `address` as it is. Raises EngineError."""
        raw, _ = await self._get(address, port, path)
        return raw.decode(errors="replace")

    async def load(self, address: str, port: int, engine: EngineType, path: str, draft_tokens: int) -> LoadPage:
        """What guards need of the engine at `address`; a page of something else tells nothing. Raises EngineError."""
        raw, _ = await self._get(address, port, path)
        return parse_load(raw, time.time(), engine, draft_tokens)

    async def release(self, address: str, port: int) -> str | None:
        """The release that the engine tells by GET /version (vLLM); None where it tells none."""
        try:
            raw, _ = await self._get(address, port, VERSION_PATH)
            told = json.loads(raw)["version"]
        except (EngineError, ValueError, KeyError, TypeError):
            return None
        found = _RELEASE.fullmatch(told) if isinstance(told, str) else None
        return found.group(0) if found else None

    async def _get(self, address: str, port: int, path: str) -> tuple[bytes, str]:
        host = f"[{address}]" if ":" in address else address
        try:
            async with (
                self._slots,
                self._session.get(
                    URL(f"http://{host}:{port}{path}", encoded=True),
                    timeout=aiohttp.ClientTimeout(total=TIMEOUT_SECONDS),
                    allow_redirects=False,
                ) as response,
            ):
                if response.status != 200:
                    _refuse(response.status, port, path)
                raw = await response.content.read(LIMIT_BYTES + 1)
                while len(raw) <= LIMIT_BYTES and (more := await response.content.read(LIMIT_BYTES)):
                    raw += more
        except TimeoutError as error:
            raise EngineError(
                f"port {port} gives no answer to GET {path} within {TIMEOUT_SECONDS:.0f} s: may the operator reach the "
                "pods (network policies)?"
            ) from error
        except (aiohttp.ClientError, OSError) as error:
            raise EngineError(
                f"port {port} answers no HTTP: is the Service's port that of the engine, and may the operator reach "
                "the pods? Metrics on another port are found by the pods' annotation prometheus.io/port"
            ) from error
        if len(raw) > LIMIT_BYTES:
            raise EngineError(
                f"GET port {port}{path} answers more than {LIMIT_BYTES} bytes: no engine's page is so long"
            )
        return raw, response.content_type


def _refuse(status: int, port: int, path: str) -> NoReturn:
    asked = f"GET port {port}{path}"
    if status in (401, 403):
        raise EngineError(
            f"{asked} answers {status}: it wants a key, and specfleet sends none. An engine's own key guards /v1 only; "
            f"let {path} through in what is before it",
            unauthorized=True,
        )
    if status == 404:
        raise EngineError(
            f"{asked} answers 404: this port has no metrics page. SGLang needs --enable-metrics; metrics on another "
            "port are found by the pods' annotation prometheus.io/port"
        )
    raise EngineError(f"{asked} answers {status}, expected 200")


def parse_page(text: str, at: float, engine: EngineType, route_label: str | None = None) -> EngineReading:
    """The figures of a Prometheus text page that arrived at `at` (seconds since the epoch).

    Args:
        route_label: the label of the counters that tells routes apart, where one does.

    Raises:
        ValueError: the page is not that engine's; the text completes "GET port 8000/metrics ...".
    """
    wanted = _SERIES[engine]
    values: dict[str, float] = {}
    routes: dict[str, dict[str, int]] = {}
    started = None
    pages: set[EngineType] = set()
    for line in text.splitlines():
        found = _NAME.match(line.removeprefix("# HELP ").removeprefix("# TYPE "))
        if found is None:
            continue
        name = found.group(0)
        pages |= {kind for prefix, kind in _PREFIXES.items() if name.startswith(prefix)}
        if line.startswith("#"):
            continue
        if name == _STARTED or name in wanted:
            for sample_name, labels, value in _samples(line):
                if sample_name == _STARTED:
                    started = value
                elif not _is_left_out(labels):
                    name_of = wanted[sample_name]
                    known = values.get(name_of, 0.0)
                    values[name_of] = max(known, value) if name_of in _SAME else known + value
                    if route_label is not None and labels.get(route_label) and name_of in _BY_ROUTE:
                        by_route = routes.setdefault(labels[route_label], {})
                        by_route[name_of] = by_route.get(name_of, 0) + int(value)
    if engine not in pages or (engine is not EngineType.TENSORRTLLM and "generation_tokens" not in values):
        raise ValueError(_other(engine, pages))
    return replace(_reading(engine, values, at, started), routes=routes)


def _samples(line: str) -> Iterator[tuple[str, Mapping[str, str], float]]:
    try:
        families = list(text_string_to_metric_families(line + "\n"))
    except (ValueError, KeyError, IndexError):
        # The parser's own words would show what the page holds.
        raise ValueError("is no Prometheus text") from None
    for sample in (one for family in families for one in family.samples):
        if not 0.0 <= sample.value < float("inf"):
            raise ValueError(f"says {sample.name} = {sample.value}, expected a count")
        yield sample.name, sample.labels, sample.value


def _is_left_out(labels: Mapping[str, str]) -> bool:
    """Requests without a token, and a speculative config that TensorRT-LLM tells to be none."""
    return labels.get("finished_reason") in _NO_TOKEN or labels.get("spec_enabled", "").lower() == "false"


def _other(engine: EngineType, pages: set[EngineType]) -> str:
    mine = next(prefix for prefix, kind in _PREFIXES.items() if kind is engine)
    if engine in pages:
        cure = "--disable-log-stats" if engine is EngineType.VLLM else "what switches them off"
        return f"has no counters of tokens: remove {cure} from the engine's arguments"
    other = next((kind for kind in _PREFIXES.values() if kind in pages), None)
    if other is not None:
        return f"is {other}'s page, and engine.type says {engine}: write engine.type: {other}"
    return (
        f"is not {engine}'s page (no series {mine}...): is the Service's port that of the engine? Metrics on another "
        "port are found by the pods' annotation prometheus.io/port"
    )


def _reading(engine: EngineType, values: Mapping[str, float], at: float, started: float | None) -> EngineReading:
    generated, finished = int(values.get("generation_tokens", 0.0)), int(values.get("finished", 0.0))
    rounds = int(values["rounds"]) if "rounds" in values else None
    speculative: bool | None
    if engine is EngineType.VLLM:
        # vLLM has these series exactly where it was started with a speculative config.
        speculative = "drafted" in values
    elif engine is EngineType.TENSORRTLLM:
        # The setting is told at the start; an engine whose iterations leave no load counts no drafts either.
        counts = "generation_tokens" in values or not finished
        configured = values.get("configured") and "running" in values
        speculative = True if counts and (values.get("drafted") or configured) else None
    else:
        # SGLang shows its counter of verifications after the first one, and gauges that are 0 without speculation.
        speculative = True if rounds or values.get("accept_length") or values.get("draft_tokens") else None
    return EngineReading(
        engine=engine,
        at=at,
        started_at=started,
        decode_tokens=max(0, generated - finished),
        finished=finished,
        rounds=rounds,
        drafted=int(values.get("drafted", 0.0)),
        accepted=int(values.get("accepted", 0.0)),
        # SGLang's number counts the root of the draft, which is no drafted token.
        tokens_a_round=max(1, int(values["draft_tokens"]) - 1) if values.get("draft_tokens") else None,
        speculative=speculative,
        running=int(values.get("running", 0.0)),
        waiting=int(values.get("waiting", 0.0)),
    )

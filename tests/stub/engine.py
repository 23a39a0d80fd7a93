"""An engine that speaks vLLM's API at a set pace, for everything that is not about vLLM itself.

Run it as `python -m tests.stub.engine --port 8000 ...` or as a single file. A decode step takes `--step-ms`, or by
`--step-curve` the longer the more requests run, and emits one token plus the accepted draft tokens; `--max-num-seqs`
requests run at once and the others wait. What it adds to an
answer is what vLLM 0.32 adds with `--per-request-spec-decode-metrics summary`, and only where vLLM does: with a
speculative config, on chat/completions and completions, for one answer.

Request headers steer it: x-stub-acceptance (0..1), x-stub-prefill-ms, x-stub-step-ms, x-stub-status (answer with this
status), x-stub-die (before-headers | after-headers | mid-stream), x-stub-replay (a recording), x-stub-cut (bytes in a
chunk), x-stub-request-log (keep the request for GET /stub/requests), x-stub-host (name the address that answers in a
header of this name).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from aiohttp import web

REFUSED_UNDER_SPECULATION = ("min_p", "logit_bias")
WORDS = ("alpha", " beta", " gamma", " delta", ' "quoted"', "\n", " usage", " é", "\\", " end.")


@dataclass(frozen=True)
class Config:
    """What one engine serves and how fast."""

    model: str = "stub"
    draft_tokens: int = 0
    """k; 0 serves without speculation."""
    step_ms: float = 5.0
    step_curve: tuple[tuple[float, float], ...] = ()
    """(running requests, milliseconds a step), ascending; straight lines between and beyond. Goes before `step_ms`."""
    prefill_ms: float = 5.0
    max_num_seqs: int = 64
    acceptance: float = 0.6
    acceptance_of: tuple[tuple[str, str, float], ...] = ()
    """(header, value, acceptance): what requests with this header get."""
    recordings: Path | None = None
    answer_status: int = 200
    """What every inference request gets where it is no 200: an engine that is up and refuses."""


@dataclass
class State:
    """What the engine has done since it started."""

    config: Config
    slots: asyncio.Semaphore
    running: int = 0
    waiting: int = 0
    requests: int = 0
    drafted: int = 0
    accepted: int = 0
    generated: int = 0
    seen: deque[dict[str, Any]] = field(default_factory=lambda: deque(maxlen=1000))


STATE = web.AppKey("state", State)


@dataclass
class Answer:
    """The decode steps of one answer, and the figures that come of them."""

    tokens: int
    steps: list[int]
    accepted: int
    drafted: int
    rounds: int
    histogram: list[int]
    """How many rounds accepted 0, 1, ... k."""


def decode(tokens: int, draft_tokens: int, acceptance: float, seed: int) -> Answer:
    """Split `tokens` into decode steps: prefill yields the first, each step one more and what it accepts."""
    rng = random.Random(seed)
    steps = [1] if tokens else []
    accepted = drafted = rounds = 0
    histogram = [0] * (draft_tokens + 1)
    left = tokens - 1
    while left > 0:
        taken = 0
        if draft_tokens:
            rounds += 1
            drafted += draft_tokens
            while taken < draft_tokens and taken < left - 1 and rng.random() < acceptance:
                taken += 1
            accepted += taken
            histogram[taken] += 1
        steps.append(1 + taken)
        left -= 1 + taken
    return Answer(tokens, steps, accepted, drafted, rounds, histogram)


TIMINGS = ("time_to_first_token_ms", "generation_time_ms", "queue_time_ms", "mean_itl_ms", "tokens_per_second")


def whole_figures(answer: Answer, draft_tokens: int) -> dict[str, Any]:
    """The `metrics` member of a whole answer, where vLLM 0.32 writes what it does not know as null."""
    spec = {
        **figures(answer, draft_tokens)["speculative_decoding"],
        "per_step_accepted": None,
        "per_step_drafted": None,
    }
    return {**dict.fromkeys(TIMINGS), "speculative_decoding": spec}


def figures(answer: Answer, draft_tokens: int) -> dict[str, Any]:
    """The `metrics` member of a stream's usage event as vLLM 0.32 writes it."""
    rounds = answer.rounds
    return {
        "speculative_decoding": {
            "mean_acceptance_length": 1 + answer.accepted / rounds if rounds else 1.0,
            "draft_acceptance_rate": answer.accepted / answer.drafted if answer.drafted else 0.0,
            "acceptance_histogram": answer.histogram,
            "num_spec_steps": rounds,
            "num_accepted_draft_tokens": answer.accepted,
            "num_draft_tokens": answer.drafted,
            "num_spec_tokens": draft_tokens,
        }
    }


def error(status: int, message: str, kind: str = "BadRequestError") -> web.Response:
    """An error in vLLM's shape."""
    document = {"error": {"message": message, "type": kind, "param": None, "code": status}}
    return web.json_response(document, status=status)


class Refused(Exception):
    """The request is answered with an error."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status


def parse(raw: bytes, config: Config) -> dict[str, Any]:
    """The request's body, or `Refused` with what vLLM would say."""
    try:
        body = json.loads(raw)
    except ValueError as problem:
        raise Refused(f"JSON decode error: {problem}") from problem
    if not isinstance(body, dict):
        raise Refused("Input should be a valid dictionary")
    if body.get("stream_options") is not None and not body.get("stream"):
        raise Refused("Stream options can only be defined when `stream=True`.")
    if body.get("model") not in (None, config.model):
        raise Refused(f"The model `{body['model']}` does not exist.", 404)
    if config.draft_tokens and any(body.get(name) for name in REFUSED_UNDER_SPECULATION):
        raise Refused("The min_p and logit_bias sampling parameters are not yet supported with speculative decoding.")
    return body


def acceptance(request: web.Request, config: Config) -> float:
    """Probability that the next draft token is accepted, for this request."""
    given = request.headers.get("x-stub-acceptance")
    if given is not None:
        return float(given)
    for name, value, rate in config.acceptance_of:
        if request.headers.get(name) == value:
            return rate
    return config.acceptance


def wire_usage(prompt: int, completion: int) -> dict[str, Any]:
    """The `usage` member."""
    return {"prompt_tokens": prompt, "total_tokens": prompt + completion, "completion_tokens": completion}


def prompt_tokens(body: dict[str, Any]) -> int:
    """A count that grows with the prompt, one token for four characters."""
    return 1 + len(json.dumps(body.get("messages", body.get("prompt", "")))) // 4


def dumps(document: dict[str, Any]) -> str:
    """JSON as the engine writes it: no spaces, text unescaped."""
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False)


async def inference(request: web.Request) -> web.StreamResponse:
    """POST /v1/chat/completions and /v1/completions."""
    state = request.app[STATE]
    raw = await request.read()
    state.requests += 1
    if "x-stub-request-log" in request.headers:
        state.seen.append(
            {"path": request.path, "headers": dict(request.headers), "body": raw.decode("utf-8", "replace")}
        )
    if "x-stub-status" in request.headers:
        return error(int(request.headers["x-stub-status"]), "as asked", "InternalServerError")
    if state.config.answer_status != 200:
        return error(state.config.answer_status, "as started", "ServiceUnavailable")
    if request.headers.get("x-stub-die") == "before-headers":
        _die(request)
    try:
        body = parse(raw, state.config)
    except Refused as refused:
        return error(refused.status, str(refused))
    state.waiting += 1
    async with state.slots:
        state.waiting -= 1
        state.running += 1
        try:
            if "x-stub-replay" in request.headers:
                return await replay(request, body)
            if body.get("stream"):
                return await stream(request, body)
            return await whole(request, body)
        finally:
            state.running -= 1


def _die(request: web.Request) -> None:
    if request.transport is not None:
        request.transport.abort()
    raise ConnectionResetError("as asked")


def _pace(request: web.Request, name: str, default_ms: float) -> float:
    return float(request.headers.get(f"x-stub-{name}-ms", default_ms)) / 1000


def on_curve(curve: Sequence[tuple[float, float]], running: float) -> float:
    """The value of a curve through two points or more; before the first it is level, after the last it goes on."""
    if running <= curve[0][0]:
        return curve[0][1]
    (x0, y0), (x1, y1) = next((pair for pair in pairwise(curve) if running <= pair[1][0]), (curve[-2], curve[-1]))
    return y0 + (y1 - y0) * (running - x0) / (x1 - x0)


async def _step(request: web.Request) -> None:
    """One decode step, as long as it takes with what runs now."""
    state = request.app[STATE]
    config = state.config
    default = on_curve(config.step_curve, state.running) if config.step_curve else config.step_ms
    await asyncio.sleep(_pace(request, "step", default))


def _answer(request: web.Request, body: dict[str, Any]) -> Answer:
    state = request.app[STATE]
    tokens = int(body.get("max_completion_tokens") or body.get("max_tokens") or 16)
    answer = decode(tokens, state.config.draft_tokens, acceptance(request, state.config), seed=state.requests)
    state.drafted += answer.drafted
    state.accepted += answer.accepted
    state.generated += answer.tokens
    return answer


def _head(request: web.Request, kind: str) -> dict[str, Any]:
    chat = request.path.endswith("chat/completions")
    config = request.app[STATE].config
    return {
        "id": f"{'chatcmpl' if chat else 'cmpl'}-{random.getrandbits(64):016x}",
        "object": kind if chat else "text_completion",
        "created": int(time.time()),
        "model": config.model,
    }


async def whole(request: web.Request, body: dict[str, Any]) -> web.Response:
    """An answer in one piece."""
    config = request.app[STATE].config
    answer = _answer(request, body)
    await asyncio.sleep(_pace(request, "prefill", config.prefill_ms))
    for _ in answer.steps:
        await _step(request)
    if request.headers.get("x-stub-die"):
        _die(request)
    count = int(body.get("n") or 1)
    text = "".join(WORDS[i % len(WORDS)] for i in range(answer.tokens))
    chat = request.path.endswith("chat/completions")
    content: dict[str, Any] = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
    document = {
        **_head(request, "chat.completion"),
        "choices": [{"index": i, **content, "logprobs": None, "finish_reason": "length"} for i in range(count)],
        "usage": wire_usage(prompt_tokens(body), answer.tokens * count),
    }
    document["metrics"] = whole_figures(answer, config.draft_tokens) if config.draft_tokens and count == 1 else None
    return web.Response(text=dumps(document), content_type="application/json")


async def stream(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    """An answer in events; headers go out before the first token, as the engine's do."""
    config = request.app[STATE].config
    answer = _answer(request, body)
    response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
    await response.prepare(request)
    die = request.headers.get("x-stub-die")
    await asyncio.sleep(_pace(request, "prefill", config.prefill_ms))
    if die == "after-headers":
        _die(request)
    head = _head(request, "chat.completion.chunk")
    chat = request.path.endswith("chat/completions")
    count = int(body.get("n") or 1)
    options = body.get("stream_options") or {}
    sent = 0
    for number, size in enumerate(answer.steps):
        if number:
            await _step(request)
        if die == "mid-stream" and number == len(answer.steps) // 2:
            _die(request)
        text = "".join(WORDS[(sent + i) % len(WORDS)] for i in range(size))
        sent += size
        finish = "length" if sent == answer.tokens else None
        for index in range(count):
            content: dict[str, Any] = {"delta": {"content": text}} if chat else {"text": text}
            choice = {"index": index, **content, "logprobs": None, "finish_reason": finish}
            await response.write(f"data: {dumps({**head, 'choices': [choice]})}\n\n".encode())
    if options.get("include_usage"):
        last = {**head, "choices": [], "usage": wire_usage(prompt_tokens(body), answer.tokens * count)}
        if config.draft_tokens and count == 1:
            last["metrics"] = figures(answer, config.draft_tokens)
        await response.write(f"data: {dumps(last)}\n\n".encode())
    await response.write(b"data: [DONE]\n\n")
    await response.write_eof()
    return response


async def replay(request: web.Request, body: dict[str, Any]) -> web.StreamResponse:
    """A stream recorded from the real engine without the figures, and what our engine flags add to it.

    NAME.figures is one recorded under our flags, and goes out as it is.
    """
    config = request.app[STATE].config
    if config.recordings is None:
        return error(400, "started without --recordings")
    name = Path(request.headers["x-stub-replay"]).name
    asked = bool((body.get("stream_options") or {}).get("include_usage"))
    exact = name.endswith(".figures")
    suffix = "" if exact else ".usage" if asked else ".plain"
    raw = (config.recordings / f"{name}{suffix}.sse").read_bytes()
    if asked and config.draft_tokens and not exact:
        raw = with_figures(raw, config.draft_tokens)
    response = web.StreamResponse(headers={"content-type": "text/event-stream; charset=utf-8"})
    await response.prepare(request)
    cut = int(request.headers.get("x-stub-cut", len(raw)))
    for start in range(0, len(raw), cut):
        await response.write(raw[start : start + cut])
        # A turn of the loop for each piece, so that pieces stay apart on the wire.
        await asyncio.sleep(_pace(request, "step", 0.0))
    await response.write_eof()
    return response


def with_figures(raw: bytes, draft_tokens: int) -> bytes:
    """Add the `metrics` member to the usage event of a recorded stream, where vLLM 0.32 writes it: at the end."""
    events = raw.split(b"\n\n")
    for position, event in enumerate(events):
        if event.startswith(b"data: {") and b'"choices":[]' in event and b'"usage":{' in event:
            usage = json.loads(event[6:])["usage"]
            answer = decode(usage["completion_tokens"], draft_tokens, 0.5, seed=1)
            member = dumps({"metrics": figures(answer, draft_tokens)})[1:-1]
            events[position] = event[:-1] + b"," + member.encode() + b"}"
    return b"\n\n".join(events)


async def models(request: web.Request) -> web.Response:
    """GET /v1/models."""
    config = request.app[STATE].config
    return web.json_response({"object": "list", "data": [{"id": config.model, "object": "model", "owned_by": "vllm"}]})


async def health(_: web.Request) -> web.Response:
    """GET /health: empty and 200."""
    return web.Response()


async def metrics(request: web.Request) -> web.Response:
    """GET /metrics: the few of vLLM's that anything here reads."""
    state = request.app[STATE]
    label = f'{{model_name="{state.config.model}",engine="0"}}'
    lines = [
        f"vllm:num_requests_running{label} {state.running}",
        f"vllm:num_requests_waiting{label} {state.waiting}",
        f"vllm:generation_tokens_total{label} {state.generated}",
    ]
    if state.config.draft_tokens:
        lines += [
            f"vllm:spec_decode_num_draft_tokens_total{label} {state.drafted}",
            f"vllm:spec_decode_num_accepted_tokens_total{label} {state.accepted}",
        ]
    return web.Response(text="\n".join(lines) + "\n")


async def preflight(request: web.Request) -> web.Response:
    """OPTIONS: what vLLM answers a browser with its default --allowed-origins."""
    allowed = {"access-control-allow-origin": "*", "access-control-allow-methods": "POST"}
    return web.Response(text="OK", headers=allowed)


async def seen(request: web.Request) -> web.Response:
    """GET /stub/requests: what arrived, for tests."""
    state = request.app[STATE]
    return web.json_response({"requests": state.requests, "running": state.running, "seen": list(state.seen)})


async def say_host(request: web.Request, response: web.StreamResponse) -> None:
    """Name the address that answers, where the client asks for it."""
    if "x-stub-host" in request.headers and request.transport is not None:
        response.headers["x-stub-host"] = request.transport.get_extra_info("sockname")[0]


def application(config: Config) -> web.Application:
    """The server, ready to run."""
    app = web.Application(client_max_size=1 << 30)
    app.on_response_prepare.append(say_host)
    app[STATE] = State(config, asyncio.Semaphore(config.max_num_seqs))
    app.add_routes(
        [
            web.post("/v1/chat/completions", inference),
            web.post("/v1/completions", inference),
            web.get("/v1/models", models),
            web.options("/v1/{path:.*}", preflight),
            web.get("/health", health),
            web.get("/metrics", metrics),
            web.get("/stub/requests", seen),
        ]
    )
    return app


def _acceptance_of(text: str) -> tuple[str, str, float]:
    name, _, rest = text.partition("=")
    value, _, rate = rest.partition(":")
    return name, value, float(rate)


def _curve(text: str) -> tuple[tuple[float, float], ...]:
    return tuple(sorted((float(running), float(ms)) for running, ms in json.loads(text)))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--host", default="0.0.0.0")
    made.add_argument("--port", type=int, default=8000)
    made.add_argument("--model", default="stub")
    made.add_argument("--draft-tokens", type=int, default=0)
    made.add_argument("--step-ms", type=float, default=5.0)
    made.add_argument("--step-curve", type=_curve, default=(), metavar="[[RUNNING, MS], ...]")
    made.add_argument("--prefill-ms", type=float, default=5.0)
    made.add_argument("--max-num-seqs", type=int, default=64)
    made.add_argument("--acceptance", type=float, default=0.6)
    made.add_argument("--acceptance-of", type=_acceptance_of, action="append", default=[], metavar="HEADER=VALUE:RATE")
    made.add_argument("--recordings", type=Path)
    made.add_argument("--answer-status", type=int, default=200, help="answer every inference request with this status")
    made.add_argument("--keep-alive-seconds", type=float, default=120.0, help="when an unused connection is closed")
    made.add_argument("--drain-seconds", type=float, default=60.0, help="how long SIGTERM waits for requests in flight")
    return made


def main() -> None:
    """Serve until SIGTERM, then finish what is in flight."""
    args = parser().parse_args()
    config = Config(
        model=args.model,
        draft_tokens=args.draft_tokens,
        step_ms=args.step_ms,
        step_curve=args.step_curve,
        prefill_ms=args.prefill_ms,
        max_num_seqs=args.max_num_seqs,
        acceptance=args.acceptance,
        acceptance_of=tuple(args.acceptance_of),
        recordings=args.recordings,
        answer_status=args.answer_status,
    )
    web.run_app(
        application(config),
        host=args.host,
        port=args.port,
        print=None,
        access_log=None,
        shutdown_timeout=args.drain_seconds,
        keepalive_timeout=args.keep_alive_seconds,
        handler_cancellation=True,
    )


if __name__ == "__main__":
    main()

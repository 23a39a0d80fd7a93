"""Mixed traffic: a few clients a route, each sending its next request when the last one was answered (closed loop)."""

from __future__ import annotations

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from tests.node.answers import BadAnswer, Content, IncompleteStream, read_stream, read_whole

CHAT = "/v1/chat/completions"
COMPLETIONS = "/v1/completions"
ANSWER_SECONDS = 180.0


@dataclass(frozen=True)
class Ask:
    """One request, `stream` and `stream_options` included in the body."""

    route: str
    body: dict[str, Any]
    headers: dict[str, str] = field(default_factory=dict)
    path: str = CHAT

    @property
    def stream(self) -> bool:
        """Whether the answer comes as server-sent events."""
        return bool(self.body.get("stream"))

    @property
    def usage_asked(self) -> bool:
        """Whether the client asked for the usage event."""
        return bool(self.body.get("stream_options", {}).get("include_usage"))


@dataclass(frozen=True)
class Answer:
    """What came of one request; times are `time.monotonic()` in seconds.

    Args:
        status: HTTP status; None where no response headers came.
        failure: what was wrong, None where nothing was.
        incomplete: a stream that ended before its `[DONE]`.
        first_byte_at: when the first bytes of the body came.
    """

    route: str
    stream: bool
    started_at: float
    ended_at: float
    status: int | None
    failure: str | None
    incomplete: bool = False
    content: Content | None = None
    first_byte_at: float | None = None

    @property
    def decode_ms(self) -> float | None:
        """Milliseconds from the first to the last token; None where the answer does not tell (whole answers)."""
        if not self.stream or self.first_byte_at is None or self.content is None:
            return None
        return (self.ended_at - self.first_byte_at) * 1000.0


async def ask(session: aiohttp.ClientSession, endpoint: str, request: Ask) -> Answer:
    """Send `request` and read its answer to the end. Never raises for what the other side did."""
    started = time.monotonic()
    status: int | None = None
    first: float | None = None
    received = bytearray()
    failure: str | None = None
    content: Content | None = None
    incomplete = False
    try:
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS, sock_connect=10)
        async with session.post(
            endpoint + request.path, json=request.body, headers=request.headers, timeout=timeout
        ) as response:
            status = response.status
            async for chunk in response.content.iter_any():
                if first is None:
                    first = time.monotonic()
                received += chunk
        if status != 200:
            failure = f"expected status 200, found {status}: {bytes(received[:200])!r}"
        elif request.stream:
            content = read_stream(bytes(received), usage_asked=request.usage_asked)
        else:
            content = read_whole(bytes(received))
    except IncompleteStream as error:
        failure, incomplete = str(error), True
    except BadAnswer as error:
        failure = str(error)
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        failure = f"{type(error).__name__}: {error}"
        incomplete = request.stream and status == 200
    return Answer(request.route, request.stream, started, time.monotonic(), status, failure, incomplete, content, first)


@dataclass
class Tally:
    """Counts the answers of all clients and keeps each route's newest for the moving figures.

    Args:
        keep: how many answers of a route are kept; None keeps all.
    """

    keep: int | None = 1000
    requests: dict[str, int] = field(default_factory=dict)
    failures: list[Answer] = field(default_factory=list)
    recent: dict[str, deque[Answer]] = field(default_factory=dict)

    def add(self, answer: Answer) -> None:
        """Count one answer."""
        self.requests[answer.route] = self.requests.get(answer.route, 0) + 1
        self.recent.setdefault(answer.route, deque(maxlen=self.keep)).append(answer)
        if answer.failure is not None:
            self.failures.append(answer)

    @property
    def total(self) -> int:
        """All answers."""
        return sum(self.requests.values())

    def ms_per_token(self, route: str, since: float) -> float | None:
        """Time per output token in ms of the streams begun after `since`, by the clients' clock.

        A ratio of sums over (first byte to end) and (tokens less the first one), so that long answers count by their
        length. None until a stream with usage has ended.
        """
        spent_ms = 0.0
        tokens = 0
        for answer in self.recent.get(route, ()):
            if answer.started_at < since or answer.content is None or answer.decode_ms is None:
                continue
            count = answer.content.completion_tokens
            if count is not None and count > 1:
                spent_ms += answer.decode_ms
                tokens += count - 1
        return spent_ms / tokens if tokens else None


@dataclass(frozen=True)
class Clients:
    """Clients of one kind of traffic.

    Args:
        count: how many of them.
        make: the request number n of one client, drawn with that client's generator.
    """

    count: int
    make: Callable[[random.Random, int], Ask]


class Traffic:
    """Clients that run until `stop`; then each ends its request at hand."""

    def __init__(self, endpoint: str, clients: Sequence[Clients], tally: Tally, *, seed: int = 1) -> None:
        self._endpoint = endpoint
        self._clients = clients
        self._tally = tally
        self._seed = seed
        self._stopped = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.in_flight = 0

    def move(self, endpoint: str) -> None:
        """Send what is not sent yet to another endpoint; what is under way ends where it is."""
        self._endpoint = endpoint

    async def __aenter__(self) -> Traffic:
        """Start all clients."""
        number = 0
        for group in self._clients:
            for _ in range(group.count):
                self._tasks.append(asyncio.create_task(self._client(group, number)))
                number += 1
        return self

    async def __aexit__(self, *_: object) -> None:
        """Let every client end its request at hand."""
        await self.stop()

    async def stop(self) -> None:
        """No new requests; returns when the last answer has come.

        Raises:
            Exception: a client of this generator broke (a fault of the test, not of the endpoint).
        """
        self._stopped.set()
        await asyncio.gather(*self._tasks)

    async def _client(self, group: Clients, number: int) -> None:
        draw = random.Random(f"{self._seed}-{number}")
        # Every other client keeps its connection, as SDKs do; the others meet both routers.
        connector = aiohttp.TCPConnector(force_close=number % 2 == 1)
        async with aiohttp.ClientSession(connector=connector) as session:
            count = 0
            while not self._stopped.is_set():
                request = group.make(draw, count)
                self.in_flight += 1
                answer = await ask(session, self._endpoint, request)
                self.in_flight -= 1
                self._tally.add(answer)
                count += 1
                if answer.failure is not None:
                    await asyncio.sleep(0.2)

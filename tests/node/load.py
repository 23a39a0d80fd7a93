"""Traffic beside a test: runs on a thread of its own while the test does things to the cluster."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

from tests.node.traffic import Ask, Clients, Tally, Traffic

START_SECONDS = 10.0


class Beside:
    """Something that runs on an event loop of its own thread, from `with` to its end."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error: BaseException | None = None

    async def _drive(self) -> None:
        """Set `_started`, and run until `_stop` was called and all is done."""
        raise NotImplementedError

    def _stop(self) -> None:
        """Have `_drive` come to its end."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        """Start the clients."""
        self._thread.start()
        assert self._started.wait(START_SECONDS), "the clients did not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End them; raises what broke in the generator itself."""
        self._stop()
        self._thread.join()
        if self._error is not None and error is None:
            raise self._error

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._drive())
        except Exception as error:
            self._error = error
        finally:
            self._loop.close()


class Load(Beside):
    """Clients that run from `with` to its end, when every answer has come. `tally` may be read meanwhile."""

    def __init__(self, endpoint: str, clients: Sequence[Clients]) -> None:
        super().__init__()
        self.tally = Tally(keep=None)
        self._endpoint = endpoint
        self._clients = clients
        self._ended: asyncio.Event | None = None
        self._traffic: Traffic | None = None

    def move(self, endpoint: str) -> None:
        """Send what is not sent yet to another endpoint."""
        assert self._traffic is not None
        self._loop.call_soon_threadsafe(self._traffic.move, endpoint)

    def _stop(self) -> None:
        assert self._ended is not None
        self._loop.call_soon_threadsafe(self._ended.set)

    async def _drive(self) -> None:
        self._ended = asyncio.Event()
        self._traffic = Traffic(self._endpoint, self._clients, self.tally)
        async with self._traffic:
            self._started.set()
            await self._ended.wait()


def clients(route: str, model: str, count: int, *, tokens: int = 20, headers: dict[str, str] | None = None) -> Clients:
    """Clients of one route of a stub fleet: streams and whole answers by turns."""

    def make(draw: random.Random, number: int) -> Ask:
        body: dict[str, Any] = {
            "model": model,
            "messages": [{"role": "user", "content": "x" * draw.randrange(10, 200)}],
            "max_tokens": tokens,
            "stream": number % 2 == 0,
        }
        return Ask(route, body, headers or {})

    return Clients(count, make)

"""The same traffic to two endpoints at once: each request goes to both, and the next one waits for both answers."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Sequence
from types import TracebackType

import aiohttp

from tests.node.load import START_SECONDS
from tests.node.traffic import Clients, Tally, ask


class TwinLoad:
    """Clients that run from `with` to its end, when every answer has come. One tally for each endpoint."""

    def __init__(self, endpoints: tuple[str, str], clients: Sequence[Clients], *, seed: int = 1) -> None:
        self.tallies = (Tally(keep=None), Tally(keep=None))
        self._endpoints = endpoints
        self._clients = tuple(clients)
        self._seed = seed
        self._loop = asyncio.new_event_loop()
        self._started = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error: BaseException | None = None

    @property
    def failures(self) -> list[str]:
        """What was wrong with answers of either."""
        return [one.failure or "" for tally in self.tallies for one in tally.failures]

    def change(self, clients: Sequence[Clients]) -> None:
        """Other requests from now on; as many groups, with as many clients each, as there are."""
        assert [one.count for one in clients] == [one.count for one in self._clients]
        self._clients = tuple(clients)

    def __enter__(self) -> TwinLoad:
        """Start the clients."""
        self._thread.start()
        assert self._started.wait(START_SECONDS), "the clients did not start"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End them; raises what broke in the generator itself."""
        self._stopping.set()
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

    async def _drive(self) -> None:
        tasks: list[asyncio.Task[None]] = []
        for group, clients in enumerate(self._clients):
            for _ in range(clients.count):
                tasks.append(asyncio.create_task(self._client(group, len(tasks))))
        self._started.set()
        await asyncio.gather(*tasks)

    async def _client(self, group: int, number: int) -> None:
        draw = random.Random(f"{self._seed}-{number}")
        # A new connection for each request, so that either endpoint's routers share the traffic alike.
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True)) as session:
            count = 0
            while not self._stopping.is_set():
                request = self._clients[group].make(draw, count)
                answers = await asyncio.gather(*(ask(session, endpoint, request) for endpoint in self._endpoints))
                for tally, answer in zip(self.tallies, answers, strict=True):
                    tally.add(answer)
                count += 1
                if any(answer.failure is not None for answer in answers):
                    await asyncio.sleep(0.2)

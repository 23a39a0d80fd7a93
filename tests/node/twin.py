"""The same traffic to two endpoints at once: each request goes to both, and the next one waits for both answers."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Sequence

import aiohttp

from tests.node.load import Beside
from tests.node.traffic import Clients, Tally, ask


class TwinLoad(Beside):
    """Clients that run from `with` to its end, when every answer has come. One tally for each endpoint."""

    def __init__(self, endpoints: tuple[str, str], clients: Sequence[Clients], *, seed: int = 1) -> None:
        super().__init__()
        self.tallies = (Tally(keep=None), Tally(keep=None))
        self._endpoints = endpoints
        self._clients = tuple(clients)
        self._seed = seed
        self._stopping = threading.Event()

    @property
    def failures(self) -> list[str]:
        """What was wrong with answers of either."""
        return [one.failure or "" for tally in self.tallies for one in tally.failures]

    def change(self, clients: Sequence[Clients]) -> None:
        """Other requests from now on; as many groups, with as many clients each, as there are."""
        assert [one.count for one in clients] == [one.count for one in self._clients]
        self._clients = tuple(clients)

    def _stop(self) -> None:
        self._stopping.set()

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

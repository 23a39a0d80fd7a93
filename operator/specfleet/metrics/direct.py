"""Reads routers directly: their counters, and what they really serve.

One router that does not answer costs only itself: each reading has its own time limit, and all go at once.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass

import aiohttp
from yarl import URL

from specfleet.routing.counters import STATS_PATH, RouterSample, parse_stats
from specfleet.routing.process import READ_PORT, SERVED_PATH

STATS_TIMEOUT_SECONDS = 3.0
SERVED_TIMEOUT_SECONDS = 1.0
LIMIT_BYTES = 4 * 1024 * 1024
READINGS_IN_FLIGHT = 64


class RouterError(Exception):
    """A router did not answer, or not with what was asked for."""


@dataclass(frozen=True)
class Served:
    """What one router says it serves: the version of its route table and the speculative percent of each route."""

    version: str
    speculative_percent: Mapping[str, int]


class RouterReader:
    """GETs on the routers' read-only port. The caller owns the session."""

    def __init__(self, session: aiohttp.ClientSession, port: int = READ_PORT) -> None:
        self._session = session
        self._port = port
        self._slots = asyncio.Semaphore(READINGS_IN_FLIGHT)

    async def sample(self, address: str) -> RouterSample:
        """The counters of the router at `address` (an IP address). Raises RouterError."""
        raw = await self._get(address, STATS_PATH, STATS_TIMEOUT_SECONDS)
        try:
            return parse_stats(raw, time.time())
        except ValueError as error:
            raise RouterError(f"router {address}: {error}") from error

    async def served(self, address: str, speculative_pool: str) -> Served:
        """What the router at `address` serves. Raises RouterError."""
        raw = await self._get(address, SERVED_PATH, SERVED_TIMEOUT_SECONDS)
        try:
            answer = json.loads(raw)
            shares = {str(route): int(pools.get(speculative_pool, 0)) for route, pools in answer["routes"].items()}
            return Served(str(answer["version"]), shares)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise RouterError(f"router {address}: expected its version and weights, found {raw[:80]!r}") from error

    async def _get(self, address: str, path: str, seconds: float) -> bytes:
        host = f"[{address}]" if ":" in address else address
        try:
            async with (
                self._slots,
                self._session.get(
                    URL(f"http://{host}:{self._port}{path}", encoded=True),
                    timeout=aiohttp.ClientTimeout(total=seconds),
                    allow_redirects=False,
                ) as response,
            ):
                raw = await response.content.read(LIMIT_BYTES + 1)
                while len(raw) <= LIMIT_BYTES and (more := await response.content.read(LIMIT_BYTES)):
                    raw += more
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise RouterError(f"router {address}: {error or type(error).__name__}") from error
        if response.status != 200:
            raise RouterError(f"router {address}: expected 200 for {path.partition('?')[0]}, found {response.status}")
        if len(raw) > LIMIT_BYTES:
            raise RouterError(f"router {address}: the answer is longer than {LIMIT_BYTES} bytes")
        return raw

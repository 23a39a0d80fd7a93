"""Asks routers what they really serve, until they serve what was decided or it is left to the ticks."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable

from specfleet.handlers.memory import Memory
from specfleet.handlers.pods import PodRecord
from specfleet.metrics.direct import RouterError, RouterReader

POLL_SECONDS = 0.1
POLL_LIMIT_SECONDS = 6.0


async def read_served(memory: Memory, routers: Iterable[PodRecord], draft: str, reader: RouterReader) -> None:
    """One reading of every router; one that does not answer counts as unknown."""
    await asyncio.gather(*(_read(memory, pod, draft, reader) for pod in routers))


async def poll_served(
    memory: Memory, routers: tuple[PodRecord, ...], draft: str, version: str, reader: RouterReader
) -> bool:
    """Read until every router serves `version`. False when the time is up; the ticks go on looking then."""
    end = time.monotonic() + POLL_LIMIT_SECONDS
    while True:
        await read_served(memory, routers, draft, reader)
        if memory.serving(routers, version).confirmed:
            return True
        if time.monotonic() >= end or memory.wanted_version != version:
            return False
        await asyncio.sleep(POLL_SECONDS)


async def _read(memory: Memory, pod: PodRecord, draft: str, reader: RouterReader) -> None:
    assert pod.ip is not None
    try:
        memory.served[pod.uid] = await reader.served(pod.ip, draft)
    except RouterError:
        memory.served.pop(pod.uid, None)

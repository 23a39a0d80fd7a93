"""What a process does that cannot be an operator: it says why at its probes for a while, and ends."""

from __future__ import annotations

import asyncio
import signal

from aiohttp import web

from specfleet.handlers.http import application
from specfleet.metrics.own import OperatorMetrics

SECONDS = 20.0


async def tell(sentence: str, host: str, port: int, seconds: float = SECONDS) -> None:
    """Answer probes with 503 and `sentence` for so long, or until SIGTERM. Raises OSError where the port is taken."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    problems = [sentence]
    runner = web.AppRunner(application(OperatorMetrics(), lambda: problems, lambda: problems), access_log=None)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        await asyncio.wait({asyncio.ensure_future(stop.wait())}, timeout=seconds)
    finally:
        await runner.cleanup()

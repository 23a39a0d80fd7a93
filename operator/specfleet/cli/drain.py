"""`specfleet drain`: stands beside Envoy in the router pod and lets no request be lost when the pod ends.

Envoy exits at SIGTERM without draining. So its container's preStop hook asks this program's one HTTP path, which
answers when the drain is over, and the drain is done here: on SIGTERM the health check fails, listeners drain
gracefully, and Envoy is ended when nothing is in flight any more or the limit is reached. It writes no file and needs
no privilege.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated

import aiohttp
import typer
from aiohttp import web

from specfleet.routing import process

Note = Callable[[str], None]

QUIET_POLLS = 3
"""How often in a row nothing must be in flight: a request that was just accepted is not yet counted."""
POLL_SECONDS = 0.5
HOOK_PATIENCE_SECONDS = 3.0
"""How long the hook waits for a drain to begin: where only Envoy's container is ended there will be none."""
_IN_FLIGHT = "/stats?format=json&filter=%5Ehttp%5C.router%5C.downstream_rq_active%24"


@dataclass(frozen=True)
class Drain:
    """What is drained, and how long."""

    admin: str = f"http://127.0.0.1:{process.ADMIN_PORT}"
    limit_seconds: float = process.DRAIN_LIMIT_SECONDS
    least_seconds: float = process.DRAIN_SECONDS
    """Endpoints take a moment to leave Services; until then new requests arrive and are served."""


class Envoy:
    """Envoy's admin interface, the few calls of it that a drain needs."""

    def __init__(self, session: aiohttp.ClientSession, admin: str) -> None:
        self._session = session
        self._admin = admin

    async def post(self, path: str) -> bool:
        """Whether Envoy took an order; False where it is gone."""
        try:
            async with self._session.post(self._admin + path) as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    async def in_flight(self) -> int | None:
        """Requests that clients wait for; None where Envoy does not answer."""
        try:
            async with self._session.get(self._admin + _IN_FLIGHT) as answer:
                stats = json.loads(await answer.read())["stats"]
                return sum(int(entry["value"]) for entry in stats if "name" in entry)
        except (aiohttp.ClientError, TimeoutError, ValueError, KeyError):
            return None


async def drain(
    envoy: Envoy,
    settings: Drain,
    note: Note,
    now: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> bool:
    """Drain Envoy and end it; whether nothing was in flight then."""
    start = now()
    if not await envoy.post("/healthcheck/fail"):
        note("Envoy does not answer: nothing to drain")
        return True
    await envoy.post("/drain_listeners?graceful&skip_exit")
    note("health check failed, listeners draining")
    quiet = 0
    left: int | None = 0
    while now() - start < settings.limit_seconds:
        left = await envoy.in_flight()
        if left is None:
            note("Envoy is gone")
            return True
        quiet = quiet + 1 if left == 0 else 0
        if quiet >= QUIET_POLLS and now() - start >= settings.least_seconds:
            break
        await sleep(POLL_SECONDS)
    seconds = now() - start
    if left:
        note(f"{left} requests are still in flight after {seconds:.0f} s, the limit: ending Envoy all the same")
    else:
        note(f"nothing in flight after {seconds:.0f} s: ending Envoy")
    await envoy.post("/quitquitquit")
    return not left


@dataclass
class _Progress:
    begun: asyncio.Event
    over: asyncio.Event


def _hook(progress: _Progress) -> Callable[[web.Request], Awaitable[web.Response]]:
    async def answer(_: web.Request) -> web.Response:
        """Envoy's preStop hook: answered when Envoy may be ended. Starts nothing, so anybody may ask."""
        try:
            async with asyncio.timeout(HOOK_PATIENCE_SECONDS):
                await progress.begun.wait()
        except TimeoutError:
            return web.Response(text="no drain was asked for\n")
        await progress.over.wait()
        return web.Response(text="drained\n")

    return answer


async def serve(settings: Drain, port: int, note: Note, host: str = "0.0.0.0") -> bool:  # noqa: S104 - the kubelet asks
    """Wait for SIGTERM or SIGINT, then drain; whether no request was cut off.

    Raises:
        OSError: the port is taken.
    """
    progress = _Progress(asyncio.Event(), asyncio.Event())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, progress.begun.set)
    app = web.Application()
    app.router.add_get(process.DRAINED_PATH, _hook(progress))
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=2.0)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    note(f"waiting for SIGTERM; {process.DRAINED_PATH} on port {port} answers after the drain")
    try:
        await progress.begun.wait()
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as session:
            clean = await drain(Envoy(session, settings.admin), settings, note)
        progress.over.set()
    finally:
        await runner.cleanup()
    return clean


def run(settings: Drain, port: int) -> int:
    """The command: 0 when nothing was cut off, else 1."""

    def note(text: str) -> None:
        sys.stderr.write(json.dumps({"time": time.time(), "component": "drain", "message": text}) + "\n")
        sys.stderr.flush()

    return 0 if asyncio.run(serve(settings, port, note)) else 1


def drain_command(
    limit_seconds: Annotated[
        float, typer.Option(min=0, help="How long to wait for requests in flight before Envoy is ended all the same.")
    ] = process.DRAIN_LIMIT_SECONDS,
    least_seconds: Annotated[
        float, typer.Option(min=0, help="How long to go on serving at least, while endpoints leave the Service.")
    ] = process.DRAIN_SECONDS,
    port: Annotated[
        int, typer.Option(min=1, max=65535, help="Port of /drained, which answers when the drain is over.")
    ] = process.DRAIN_PORT,
    admin: Annotated[str, typer.Option(help="Envoy's admin interface.")] = f"http://127.0.0.1:{process.ADMIN_PORT}",
) -> None:
    """Beside Envoy in the router pod: on SIGTERM drain it, then end it."""
    raise typer.Exit(run(Drain(admin, limit_seconds, least_seconds), port))

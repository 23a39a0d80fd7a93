"""The operator process: watches, queue, lease and HTTP port, wired together and ended together."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import kopf
from aiohttp import web

from specfleet.cluster.auth import Connection, connect, introduced, keep_fresh
from specfleet.cluster.client import ApiClient
from specfleet.cluster.errors import ApiError, ClusterError, NotLeadingError
from specfleet.cluster.gate import WriteGate
from specfleet.cluster.kinds import GROUP_VERSION, Kind
from specfleet.cluster.lease import Elector
from specfleet.cluster.watches import WatchHealth
from specfleet.handlers.counting import Counter
from specfleet.handlers.discovery import Discovery
from specfleet.handlers.guards import Guards
from specfleet.handlers.http import application
from specfleet.handlers.looking import Looker
from specfleet.handlers.monitors import Monitors
from specfleet.handlers.observed import Key, Observed
from specfleet.handlers.queue import DEBOUNCE_SECONDS, DueQueue
from specfleet.handlers.reconcile import Reconciler
from specfleet.handlers.rendering import Renderer
from specfleet.handlers.reporting import Reporter
from specfleet.handlers.scraped import Scraper
from specfleet.handlers.telling import Teller
from specfleet.handlers.watching import MANAGED, SERVER_TIMEOUT_SECONDS, registry
from specfleet.metrics.direct import RouterReader
from specfleet.metrics.engine import EngineReader
from specfleet.metrics.own import OperatorMetrics
from specfleet.metrics.prometheus import PrometheusSource
from specfleet.settings import PrometheusSettings

logger = logging.getLogger(__name__)
CRD_RETRY_SECONDS = 3.0
END_SECONDS = 5.0


@dataclass(frozen=True)
class Process:
    """How this process runs, beside the settings that all replicas share.

    Attributes:
        identity: name in the lease; no other process may have it.
        lease_namespace: of the Lease; empty is the pod's or context's own.
        namespaces: to watch; empty is all.
        router_port: read-only port of routers.
    """

    identity: str
    kubeconfig: Path | None = None
    lease_namespace: str = ""
    namespaces: tuple[str, ...] = ()
    host: str = "0.0.0.0"  # noqa: S104
    port: int = 8080
    router_port: int = 9902


class Operator:
    """One replica."""

    def __init__(
        self,
        process: Process,
        renderer: Renderer,
        gate: WriteGate | None = None,
        prometheus: PrometheusSettings | None = None,
    ) -> None:
        self._process = process
        self._renderer = renderer
        self._gate = gate or WriteGate()
        self._prometheus = prometheus or PrometheusSettings()
        self._metrics = OperatorMetrics()
        self._observed = Observed()
        self._health = WatchHealth(SERVER_TIMEOUT_SECONDS, self._relist_soon)
        self._leading = asyncio.Event()
        self._listed = asyncio.Event()
        self._watches_ended = asyncio.Event()
        self._crd_found = False
        self._relist: set[Kind] = set()
        self._relist_due = asyncio.Event()

    async def run(self) -> None:
        """Run until SIGTERM or SIGINT.

        Raises:
            ClusterError: the cluster cannot be used, or the lease is lost; the process must end with an error.
        """
        stop = asyncio.Event()
        _on_signals(stop)
        connection = introduced(await connect(self._process.kubeconfig), self._process.identity)
        async with self._sessions(connection) as (api_session, router_session), self._http():
            client = ApiClient(api_session, connection.server, self._gate, self._metrics.written)
            reader = RouterReader(router_session, self._process.router_port)
            await self._until(stop, client, connection, reader, EngineReader(router_session))

    async def _until(
        self,
        stop: asyncio.Event,
        client: ApiClient,
        connection: Connection,
        reader: RouterReader,
        engines: EngineReader,
    ) -> None:
        stopping = asyncio.create_task(stop.wait(), name="stop")
        if not await self._crd(client, stopping):
            return
        queue: DueQueue[Key] = DueQueue(
            lambda key: self._pass(reconciler, key),
            fatal=(NotLeadingError,),
            on_depth=self._metrics.queue_depth.set,
            on_error=self._failed,
        )
        source = PrometheusSource(queue.mark, lambda result: self._metrics.prometheus_queries.labels(result).inc())
        reconciler = Reconciler(
            client,
            self._observed,
            reader,
            self._renderer,
            self._metrics,
            Teller(client, self._process.identity),
            Looker(Discovery(client, engines), self._renderer, self._metrics, queue.mark),
            Scraper(source, self._prometheus),
            Counter(engines, self._metrics),
            Guards(engines, self._metrics),
            Reporter(engines),
            queue.mark,
        )
        monitors = Monitors(
            client, self._observed, self._process.namespaces, queue.mark, partial(self._kind, reconciler)
        )
        namespace = self._process.lease_namespace or connection.namespace
        elector = Elector(client, self._gate, namespace, "specfleet", self._process.identity, self._leading.set)
        kopf_stop, kopf_ready = asyncio.Event(), asyncio.Event()
        tasks = {
            asyncio.create_task(self._watches(queue, connection, kopf_stop, kopf_ready), name="watches"),
            asyncio.create_task(self._signals(stop, kopf_ready), name="signals"),
            asyncio.create_task(self._alive_watches(), name="watchdog"),
            asyncio.create_task(self._elected(elector), name="lease"),
            asyncio.create_task(self._work(queue, monitors), name="queue"),
            asyncio.create_task(monitors.run(), name="monitors"),
            asyncio.create_task(source.run(), name="prometheus"),
            asyncio.create_task(self._relisting(client, queue), name="relisting"),
        }
        try:
            done, _ = await asyncio.wait({stopping, *tasks}, return_when=asyncio.FIRST_COMPLETED)
            ended = [task for task in done if task is not stopping]
        finally:
            kopf_stop.set()
            watches = {task for task in tasks if task.get_name() == "watches"}
            await _cancelled(tasks - watches)
            stopping.cancel()
            await elector.release()
            self._gate.close()
            hung = await _ended(watches)
        problem = None if stop.is_set() else _problem(ended)
        if hung:
            # kopf's watchers can be deaf to cancellation, and the event loop would wait for them for ever.
            logger.error("%s; the watches do not end, so the process does", problem or "stopped")
            os._exit(1 if problem else 0)
        if problem is not None:
            raise problem

    async def _pass(self, reconciler: Reconciler, key: Key) -> float | None:
        started = time.monotonic()
        try:
            delay = await reconciler.reconcile(key)
        except BaseException:
            self._metrics.reconciles.labels("error").inc()
            raise
        finally:
            self._metrics.reconcile_seconds.observe(time.monotonic() - started)
        self._metrics.reconciles.labels("ok").inc()
        return delay

    def _failed(self, key: Key, error: Exception) -> None:
        if isinstance(error, ApiError) and (error.conflict or error.not_found):
            logger.info("%s/%s: %s; looking again", *key, error)
        elif isinstance(error, ClusterError):
            logger.warning("%s/%s: %s", *key, error)
        else:
            logger.error("%s/%s: unexpected error", *key, exc_info=error)

    async def _watches(
        self, queue: DueQueue[Key], connection: Connection, stop: asyncio.Event, ready: asyncio.Event
    ) -> None:
        made = registry(
            self._observed,
            lambda key: queue.mark(key, DEBOUNCE_SECONDS),
            connection,
            self._health,
            self._listed,
            self._watches_ended,
        )
        namespaces = self._process.namespaces
        await kopf.operator(
            registry=made,
            settings=kopf.OperatorSettings(),
            standalone=True,
            clusterwide=not namespaces,
            namespaces=namespaces,
            stop_flag=stop,
            ready_flag=ready,
        )

    async def _signals(self, stop: asyncio.Event, ready: asyncio.Event) -> None:
        """Take the signals back from kopf, which takes them as it starts and may be beyond hearing them later."""
        await ready.wait()
        _on_signals(stop)
        await asyncio.Event().wait()

    async def _alive_watches(self) -> None:
        """kopf gives up for good when a watch is refused as such, and may then hang in its own clearing up."""
        await self._watches_ended.wait()
        raise ClusterError(
            "the watches ended: the API server refuses one of them for good (the log says which); "
            "is the CustomResourceDefinition specdeployments.specfleet.dev still there, and every right?"
        )

    async def _elected(self, elector: Elector) -> None:
        await elector.run()

    def _kind(self, reconciler: Reconciler, there: bool) -> None:
        self._renderer.use_pod_monitors(there)
        reconciler.rerender()

    async def _work(self, queue: DueQueue[Key], monitors: Monitors) -> None:
        await self._leading.wait()
        await monitors.looked.wait()
        self._metrics.leader.set(1)
        if self._listed.is_set():
            # What was seen on standby; before that, each object is marked when all of them have been listed.
            for key in self._observed.deployments():
                queue.mark(key)
        await queue.run()

    async def _crd(self, client: ApiClient, stopping: asyncio.Task[bool]) -> bool:
        """Wait for the CRD: kopf would run on without ever noticing it. False where the process is to stop."""
        told = False
        while not self._crd_found:
            try:
                resources = (await client.read(GROUP_VERSION)).get("resources") or []
                self._crd_found = any(one.get("name") == "specdeployments" for one in resources)
            except ApiError as error:
                if not error.not_found:
                    raise
            if not self._crd_found:
                if not told:
                    logger.warning("waiting for the CustomResourceDefinition specdeployments.specfleet.dev: install it")
                told = True
                await asyncio.wait({stopping}, timeout=CRD_RETRY_SECONDS)
                if stopping.done():
                    return False
        return True

    def _relist_soon(self, kind: Kind) -> None:
        self._relist.add(kind)
        self._relist_due.set()

    async def _relisting(self, client: ApiClient, queue: DueQueue[Key]) -> None:
        """After kopf has listed a kind anew, drop what no longer exists: its lists say nothing about what is gone."""
        while True:
            await self._relist_due.wait()
            self._relist_due.clear()
            await asyncio.sleep(1.0)
            while self._relist:
                kind = self._relist.pop()
                for key in self._observed.relisted(kind, await self._alive(client, kind)):
                    queue.mark(key)

    async def _alive(self, client: ApiClient, kind: Kind) -> list[tuple[str, str, str]]:
        selector = {"labelSelector": MANAGED} if kind.kind != "SpecDeployment" else {}
        paths = [kind.path(namespace) for namespace in self._process.namespaces] or [kind.all_path]
        items = [item for path in paths for item in (await client.read(path, **selector)).get("items") or ()]
        return [(one["metadata"]["namespace"], one["metadata"]["name"], one["metadata"]["uid"]) for one in items]

    @contextlib.asynccontextmanager
    async def _sessions(
        self, connection: Connection
    ) -> AsyncIterator[tuple[aiohttp.ClientSession, aiohttp.ClientSession]]:
        routers = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=45))
        async with connection.session() as api, routers, keep_fresh(connection, api):
            yield api, routers

    @contextlib.asynccontextmanager
    async def _http(self) -> AsyncIterator[None]:
        runner = web.AppRunner(application(self._metrics, self._unhealthy, self._unready), access_log=None)
        await runner.setup()
        try:
            try:
                await web.TCPSite(runner, self._process.host, self._process.port).start()
            except OSError as error:
                raise ClusterError(
                    f"expected port {self._process.port} to be free for health and metrics, found: {error}"
                ) from error
            yield
        finally:
            await runner.cleanup()

    def _unhealthy(self) -> list[str]:
        silent = self._health.silent() if self._crd_found else []
        self._metrics.silent_watches.set(len(silent))
        problems = [f"the watch of {plural} is silent" for plural in silent]
        if self._gate.deadline is not None and not self._gate.open:
            problems.append("the lease's deadline has passed")
        return problems

    def _unready(self) -> list[str]:
        if not self._crd_found:
            return ["the CustomResourceDefinition specdeployments.specfleet.dev is not installed"]
        return [] if self._health.complete else ["not everything has been listed yet"]


def _on_signals(stop: asyncio.Event) -> None:
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)


def _problem(ended: Iterable[asyncio.Task[Any]]) -> BaseException:
    """Why the process ends, of tasks that all should have gone on; a task's own word says more than its mere end."""
    errors = [task.exception() for task in ended if not task.cancelled()]
    named = ", ".join(task.get_name() for task in ended)
    return next((one for one in errors if one is not None), ClusterError(f"the {named} ended unexpectedly"))


async def _cancelled(tasks: set[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _ended(watches: set[asyncio.Task[None]]) -> bool:
    """Whether kopf, which has been told to stop, would not end, by itself and then by force."""
    await asyncio.wait(watches, timeout=END_SECONDS)
    for task in watches:
        task.cancel()
    _, hung = await asyncio.wait(watches, timeout=END_SECONDS)
    return bool(hung)

"""Source Prometheus: in bulk, for all SpecDeployments that ask for it, what a Prometheus server has of their routers.

One task asks each server on a grid of times, all SpecDeployments of one interval at once; a reconcile takes what was
answered last and never waits for Prometheus. Times are those of the scrapes, so that old samples are seen as old.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar

from specfleet.api.conditions import Reason
from specfleet.metrics.promapi import Endpoint, PromApi, PrometheusError, Series
from specfleet.routing.counters import RouterSample
from specfleet.routing.series import diagnosis, diagnosis_query, scraped, selector

logger = logging.getLogger(__name__)
T = TypeVar("T")
Key = tuple[str, str]  # namespace and name of a SpecDeployment

SHARD_CHARACTERS = 500
"""Of the names in one query, some twenty of them: their answer has to fit into the bounds of one."""
BUCKET_SHARD_CHARACTERS = 200
"""The same where buckets are asked for too."""
GATHER_SECONDS = 0.05
SLACK_SECONDS = 2.0
DIAGNOSE_SECONDS = 60.0
SPREAD_SECONDS = 5.0
NEWS_A_SECOND = 100.0
FOREIGN_QUERIES = 8
"""At once, to servers that SpecDeployments name: somebody else's slow servers must not take all threads there are."""


@dataclass(frozen=True)
class Wanted:
    """What one SpecDeployment asks for: its server, how often, and how far back (a scrape interval at the least)."""

    endpoint: Endpoint
    interval_seconds: float
    window_seconds: float
    buckets: bool = False
    """Also the times of streams by bucket."""


@dataclass(frozen=True)
class Trouble:
    """Why there is nothing to decide by: the reason of condition MetricsAvailable, and a sentence without its end."""

    reason: Reason
    message: str


@dataclass(frozen=True)
class Reading:
    """The last answer: samples by the router's pod name, oldest first, and why none or not all of it can be used."""

    routers: Mapping[str, tuple[RouterSample, ...]]
    trouble: Trouble | None = None


@dataclass
class _Subscription:
    wanted: Wanted
    due: float
    reading: Reading | None = None
    answered: asyncio.Event = field(default_factory=asyncio.Event)


class PrometheusSource:
    """All subscriptions. `on_news(key, seconds)` is called when a new reading is there; it is to be looked at then."""

    def __init__(
        self,
        on_news: Callable[[Key, float], None],
        on_query: Callable[[str], None] = lambda result: None,
    ) -> None:
        self._on_news = on_news
        self._on_query = on_query
        self._subscriptions: dict[Key, _Subscription] = {}
        self._asking: dict[Endpoint, asyncio.Task[None]] = {}
        self._hanging: dict[Endpoint, asyncio.Future[Any]] = {}
        self._foreign = asyncio.Semaphore(FOREIGN_QUERIES)
        self._diagnosed: dict[Endpoint, tuple[float, Trouble]] = {}
        self._away: set[Endpoint] = set()  # did not answer last time
        self._wake = asyncio.Event()

    def want(self, key: Key, wanted: Wanted) -> None:
        """Go on asking for this SpecDeployment; what is new is asked for at once."""
        known = self._subscriptions.get(key)
        if known is None or known.wanted.endpoint != wanted.endpoint:
            self._subscriptions[key] = _Subscription(wanted, time.monotonic() + GATHER_SECONDS)
            self._wake.set()
        elif known.wanted != wanted:
            known.wanted = wanted
            known.due = min(known.due, _next(time.monotonic(), wanted.interval_seconds))
            self._wake.set()

    def forget(self, key: Key) -> None:
        """Ask no more."""
        gone = self._subscriptions.pop(key, None)
        if gone is not None and all(
            gone.wanted.endpoint != one.wanted.endpoint for one in self._subscriptions.values()
        ):
            self._away.discard(gone.wanted.endpoint)

    def reading(self, key: Key) -> Reading | None:
        """The last answer; None while there was none yet."""
        found = self._subscriptions.get(key)
        return found.reading if found is not None else None

    async def answered(self, key: Key, seconds: float) -> None:
        """Wait for the first answer, so long at most, and not for a server that is known to be away."""
        found = self._subscriptions.get(key)
        if found is not None and found.wanted.endpoint not in self._away:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await found.answered.wait()

    async def run(self) -> None:
        """Ask until cancelled."""
        try:
            while True:
                self._wake.clear()
                self._start_due(time.monotonic())
                pause = self._pause(time.monotonic())
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self._wake.wait()
        finally:
            for task in self._asking.values():
                task.cancel()

    def _pause(self, now: float) -> float | None:
        waits = [max(0.0, one.due - now) for one in self._subscriptions.values() if not self._busy(one.wanted.endpoint)]
        return min(waits, default=None)

    def _busy(self, endpoint: Endpoint) -> bool:
        return endpoint in self._asking

    def _start_due(self, now: float) -> None:
        due: dict[Endpoint, dict[Key, Wanted]] = defaultdict(dict)
        for key, one in self._subscriptions.items():
            if one.due <= now and not self._busy(one.wanted.endpoint):
                due[one.wanted.endpoint][key] = one.wanted
                one.due = _next(now, one.wanted.interval_seconds)
        for endpoint, wanted in due.items():
            task = asyncio.create_task(self.ask(endpoint, wanted), name=f"ask {endpoint.url}")
            self._asking[endpoint] = task
            task.add_done_callback(partial(self._asked, endpoint))

    def _asked(self, endpoint: Endpoint, task: asyncio.Task[None]) -> None:
        self._asking.pop(endpoint, None)
        self._wake.set()
        if not task.cancelled() and task.exception() is not None:
            logger.error("source Prometheus: unexpected error", exc_info=task.exception())

    async def ask(self, endpoint: Endpoint, wanted: Mapping[Key, Wanted]) -> None:
        """Ask for these now. A server that does not answer for some is not asked for the rest."""
        trouble: Trouble | None = None
        news: list[Key] = []
        plain, timed = ([key for key, one in wanted.items() if one.buckets is asked] for asked in (False, True))
        for keys in (*shards(plain), *shards(timed, BUCKET_SHARD_CHARACTERS)):
            readings: Mapping[Key, Reading] = {}
            if trouble is None or trouble.reason in (Reason.PROMETHEUS_PARTIAL, Reason.PROMETHEUS_FAILED):
                trouble = None
                try:
                    window = max(wanted[key].window_seconds for key in keys)
                    readings = await self._shard(endpoint, keys, window, buckets=wanted[keys[0]].buckets)
                except PrometheusError as error:
                    trouble = Trouble(error.reason, str(error))
                    logger.info("source Prometheus: %s", error)
                self._on_query("ok" if trouble is None else "failed")
                away = trouble is not None and trouble.reason is Reason.PROMETHEUS_UNREACHABLE
                (self._away.add if away else self._away.discard)(endpoint)
            for key in keys:
                found = self._subscriptions.get(key)
                if found is not None and found.wanted.endpoint == endpoint:
                    found.reading = readings[key] if trouble is None else Reading({}, trouble)
                    found.answered.set()
                    news.append(key)
        spread = min(SPREAD_SECONDS, len(news) / NEWS_A_SECOND)
        for place, key in enumerate(news):
            self._on_news(key, spread * place / len(news))

    async def _shard(
        self, endpoint: Endpoint, keys: list[Key], window_seconds: float, *, buckets: bool
    ) -> dict[Key, Reading]:
        namespaces, deployments = ({key[part] for key in keys} for part in (0, 1))
        found = await self._ask(endpoint, selector(namespaces, deployments, window_seconds, buckets=buckets), scraped)
        readings: dict[Key, Reading] = {}
        for key in keys:
            mine = {pod: one for (namespace, pod), one in found.items() if _routers_of(key, namespace, pod)}
            problem = next((f"of router {pod}, {one.problem}" for pod, one in mine.items() if one.problem), None)
            trouble = Trouble(Reason.SERIES_UNUSABLE, problem) if problem is not None else None
            readings[key] = Reading({pod: one.samples for pod, one in mine.items() if one.samples}, trouble)
        missing = [key for key, one in readings.items() if not one.routers and one.trouble is None]
        if missing:
            trouble = await self._diagnosis(endpoint)
            readings.update({key: replace(readings[key], trouble=trouble) for key in missing})
        return readings

    async def _diagnosis(self, endpoint: Endpoint) -> Trouble:
        """Why a server has nothing of some routers; not asked at each round, since the answer is a long one."""
        known = self._diagnosed.get(endpoint)
        if known is not None and time.monotonic() - known[0] < DIAGNOSE_SECONDS:
            return known[1]
        try:
            said = await self._ask(endpoint, diagnosis_query(), partial(diagnosis, where=endpoint.url))
        except PrometheusError as error:
            said = f"{endpoint.url} has no series of these routers (and why it cannot tell: {error})"
        found = Trouble(Reason.ROUTERS_NOT_SCRAPED, said)
        now = time.monotonic()
        self._diagnosed = {one: kept for one, kept in self._diagnosed.items() if now - kept[0] < DIAGNOSE_SECONDS}
        self._diagnosed[endpoint] = (now, found)
        return found

    async def _ask(self, endpoint: Endpoint, promql: str, read: Callable[[list[Series]], T]) -> T:
        """What `read` makes of one answer; ended for us after its time whatever the server does.

        Raises:
            PrometheusError: there is no answer, or none that can be read.
        """
        async with self._foreign if endpoint.credentials is None else contextlib.nullcontext():
            self._hanging = {one: answer for one, answer in self._hanging.items() if not answer.done()}
            if endpoint in self._hanging:
                # One thread a server at most: one that lets a request hang is not given another.
                raise PrometheusError(
                    Reason.PROMETHEUS_UNREACHABLE, f"a query to {endpoint.url} hangs and does not end"
                )
            answer = _in_thread(lambda: _query(endpoint, promql, read))
            done, _ = await asyncio.wait({answer}, timeout=endpoint.timeout_seconds + SLACK_SECONDS)
        if not done:
            logger.warning("source Prometheus: the query to %s is given up; its thread goes on", endpoint.url)
            self._hanging[endpoint] = answer
            raise PrometheusError(
                Reason.PROMETHEUS_UNREACHABLE, f"{endpoint.url} does not answer within {endpoint.timeout_seconds:g} s"
            )
        return answer.result()


def shards(keys: Iterable[Key], characters: int = SHARD_CHARACTERS) -> Iterator[list[Key]]:
    """Groups whose names fit into one query, neighbours by namespace together."""
    group: list[Key] = []
    namespaces: set[str] = set()
    length = 0
    for key in sorted(keys):
        more = len(key[1]) + 1 + (0 if key[0] in namespaces else len(key[0]) + 1)
        if group and length + more > characters:
            yield group
            group, namespaces, length = [], set(), 0
            more = len(key[0]) + len(key[1]) + 2
        group.append(key)
        namespaces.add(key[0])
        length += more
    if group:
        yield group


def _routers_of(key: Key, namespace: str, pod: str) -> bool:
    """Whether a pod is of this SpecDeployment's routers: NAME-router-REPLICASET-RANDOM.

    Kubernetes cuts what comes before the random part to 58 characters, and with a long NAME the last dash goes.
    """
    prefix = f"{key[1]}-router-"
    return namespace == key[0] and pod.startswith(prefix) and pod.removeprefix(prefix).count("-") <= 1


def _next(now: float, interval_seconds: float) -> float:
    """The next time on the grid, so that all with one interval fall due together."""
    return (now // interval_seconds + 1.0) * interval_seconds


def _query(endpoint: Endpoint, promql: str, read: Callable[[list[Series]], T]) -> T:
    with PromApi(endpoint) as api:
        series = api.query(promql)
        try:
            return read(series)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
            raise PrometheusError(
                Reason.PROMETHEUS_FAILED, f"{endpoint.url} answers series that cannot be read ({type(error).__name__})"
            ) from error


def _in_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """As `asyncio.to_thread`, in a daemon thread: neither the loop's end nor the process's waits for one that hangs."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()

    def done(result: T | None, error: BaseException | None) -> None:
        if future.cancelled():
            return
        if error is not None:
            future.set_exception(error)
            future.exception()  # somebody may have given up waiting for it
        else:
            future.set_result(result)  # type: ignore[arg-type]

    def run() -> None:
        result: T | None = None
        problem: BaseException | None = None
        try:
            result = work()
        except BaseException as error:
            problem = error
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(done, result, problem)

    threading.Thread(target=run, name="prometheus", daemon=True).start()
    return future

"""kopf's part: watches and their caches, by `on.event` and `index` alone. Nothing else of kopf leaves objects alone.

kopf's timers, daemons and change-detecting handlers put finalizers and annotations on objects; a SpecDeployment would
then hang after the operator is gone, and differ from Git.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import kopf

from specfleet.api.v1alpha1 import GROUP, PLURAL, VERSION
from specfleet.cluster.auth import Connection
from specfleet.cluster.kinds import SELECTED, SPEC_DEPLOYMENT, Kind
from specfleet.cluster.watches import WatchHealth
from specfleet.handlers.observed import Key, Observed

SERVER_TIMEOUT_SECONDS = 60
MANAGED = "app.kubernetes.io/managed-by=specfleet"


def registry(
    observed: Observed,
    mark: Callable[[Key], None],
    connection: Connection,
    health: WatchHealth,
    listed: asyncio.Event,
    ended: asyncio.Event,
) -> kopf.OperatorRegistry:
    """Handlers that fill `observed` and mark SpecDeployments as due.

    `listed` is set once everything is known, `ended` when kopf has given up or was told to stop.
    """
    made = kopf.OperatorRegistry()

    @kopf.on.login(registry=made)
    async def login(**_: Any) -> kopf.AiohttpSession:
        session = connection.session(health.trace())
        return kopf.AiohttpSession(server=connection.server, aiohttp_session=session)

    @kopf.on.startup(registry=made)
    async def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        configure_kopf(settings)

    @kopf.on.cleanup(registry=made)
    async def over(**_: Any) -> None:
        ended.set()

    def told(key: Key | None) -> None:
        listed.set()
        if key is not None:
            mark(key)

    _watch(made, SPEC_DEPLOYMENT, (GROUP, VERSION, PLURAL), observed.put_deployment, observed, told)
    for kind in SELECTED:
        put = observed.put_pod if kind.kind == "Pod" else _putter(observed, kind)
        _watch(made, kind, _selector(kind), put, observed, told)
    return made


def configure_kopf(settings: kopf.OperatorSettings) -> None:
    """Watches only: no events of kopf's own, no scanning, no peering, server-side selectors, finite watches."""
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.peering.standalone = True
    settings.watching.server_timeout = SERVER_TIMEOUT_SECONDS
    settings.watching.client_timeout = SERVER_TIMEOUT_SECONDS + 15
    settings.watching.connect_timeout = 10
    settings.watching.inactivity_timeout = SERVER_TIMEOUT_SECONDS + 10.0
    settings.queueing.idle_timeout = 1.0
    for kind in SELECTED:
        settings.watching.label_selectors[_selector(kind)] = MANAGED
    logging.getLogger("kopf").setLevel(logging.WARNING)


def _selector(kind: Kind) -> tuple[str, str, str]:
    group, _, version = kind.api_version.rpartition("/")
    return group, version, kind.plural


def _putter(observed: Observed, kind: Kind) -> Callable[[dict[str, Any]], Key | None]:
    return lambda body: observed.put_owned(kind, body)


def _watch(
    made: kopf.OperatorRegistry,
    kind: Kind,
    selector: tuple[str, str, str],
    put: Callable[[dict[str, Any]], Key | None],
    observed: Observed,
    told: Callable[[Key | None], None],
) -> None:
    """Watch one kind. The index holds nothing: being one, it makes kopf list every kind before any event handler."""
    news: dict[str, Key] = {}

    @kopf.index(*selector, id=f"seen-{kind.plural}", registry=made)
    async def seen(body: kopf.Body, uid: str, **_: Any) -> None:
        key = put(dict(body))
        if key is not None:
            news[uid] = key

    @kopf.on.event(*selector, id=f"event-{kind.plural}", registry=made)
    async def happened(event: kopf.RawEvent, uid: str, **_: Any) -> None:
        key = news.pop(uid, None)
        if event["type"] == "DELETED":
            key = observed.remove(kind, dict(event["object"]))
        told(key)

"""Tells a watch that has gone silent from one that has nothing to say, and notices when a kind is listed anew.

The API server ends each watch after its timeout, so a live watcher opens a new one at least that often. kopf can lose a
watcher without a word (its "zombie" watches); then the openings stop, and the liveness probe turns red.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from types import SimpleNamespace

import aiohttp

from specfleet.cluster.kinds import SELECTED, SPEC_DEPLOYMENT, Kind

WATCHED: tuple[Kind, ...] = (SPEC_DEPLOYMENT, *SELECTED)


class WatchHealth:
    """Times at which each kind's watch was opened last, as seen at the HTTP session.

    Args:
        timeout_seconds: for which the server keeps a watch open.
        on_relist: called with a kind whose objects are listed again after its first watch.
    """

    def __init__(
        self,
        timeout_seconds: float,
        on_relist: Callable[[Kind], None] = lambda kind: None,
        clock: Callable[[], float] = time.monotonic,
        kinds: Iterable[Kind] = WATCHED,
    ) -> None:
        self._silence_seconds = 2.0 * timeout_seconds + 15.0
        self._clock = clock
        self._on_relist = on_relist
        self._started = clock()
        self._kinds = tuple(kinds)
        self._opened: dict[Kind, float] = {}

    def trace(self) -> aiohttp.TraceConfig:
        """To be given to the session that kopf uses."""
        trace = aiohttp.TraceConfig()
        trace.on_request_start.append(self._on_request)
        return trace

    @property
    def complete(self) -> bool:
        """Whether every kind has been listed and is watched."""
        return len(self._opened) == len(self._kinds)

    def silent(self) -> list[str]:
        """Kinds whose watch has not been opened for longer than two timeouts."""
        now = self._clock()
        return [
            kind.plural for kind in self._kinds if now - self._opened.get(kind, self._started) > self._silence_seconds
        ]

    def requested(self, path: str, watch: bool) -> None:
        """A GET of a collection was sent."""
        kind = self._kind(path)
        if kind is None:
            return
        if watch:
            self._opened[kind] = self._clock()
        elif kind in self._opened:
            self._on_relist(kind)

    def _kind(self, path: str) -> Kind | None:
        for kind in self._kinds:
            if path.startswith(kind.prefix + "/") and path.endswith("/" + kind.plural):
                return kind
        return None

    async def _on_request(
        self, session: aiohttp.ClientSession, context: SimpleNamespace, params: aiohttp.TraceRequestStartParams
    ) -> None:
        if params.method == "GET":
            self.requested(params.url.path, "watch" in params.url.query)

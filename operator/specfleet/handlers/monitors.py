"""PodMonitors, a kind that a cluster may or may not have: noticed when it comes, looked at once a minute.

kopf would need a watch that is there from the start, and give up for good where the kind or the right is missing. An
edit of a PodMonitor costs at worst some samples, so a minute until it is put back is soon enough.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable

from specfleet.cluster.client import ApiClient, Manifest
from specfleet.cluster.errors import ApiError, ClusterError
from specfleet.cluster.kinds import POD_MONITOR
from specfleet.handlers.observed import Key, Observed
from specfleet.handlers.watching import MANAGED

logger = logging.getLogger(__name__)
LOOK_SECONDS = 60.0


class Monitors:
    """What is known of PodMonitors. `looked` is set when it has been tried for the first time.

    Args:
        namespaces: those that are watched; empty is all.
        mark: called with a SpecDeployment whose PodMonitor is not what it was.
        on_kind: called when the kind has come or gone, with whether it is there and may be used.
    """

    def __init__(
        self,
        client: ApiClient,
        observed: Observed,
        namespaces: Iterable[str],
        mark: Callable[[Key], None],
        on_kind: Callable[[bool], None],
    ) -> None:
        self._client = client
        self._observed = observed
        self._paths = [POD_MONITOR.path(namespace) for namespace in namespaces] or [POD_MONITOR.all_path]
        self._mark = mark
        self._on_kind = on_kind
        self._there = False
        self._denied = False
        self.looked = asyncio.Event()

    async def run(self) -> None:
        """Look until cancelled."""
        while True:
            try:
                await self._look()
            except ClusterError as error:
                logger.info("PodMonitors are not looked at: %s", error)
            self.looked.set()
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self) -> None:
        found = await self._list()
        if (found is not None) != self._there:
            self._there = found is not None
            logger.info("the kind PodMonitor is %s", "there" if self._there else "gone")
            self._on_kind(self._there)
        changed = [self._observed.put_owned(POD_MONITOR, body) for body in found or ()]
        alive = [(one["metadata"]["namespace"], one["metadata"]["name"], one["metadata"]["uid"]) for one in found or ()]
        changed += self._observed.relisted(POD_MONITOR, alive)
        for key in changed:
            if key is not None:
                self._mark(key)

    async def _list(self) -> list[Manifest] | None:
        """Ours; None where there is no such kind, or no right to it."""
        found: list[Manifest] = []
        for path in self._paths:
            try:
                items = (await self._client.read(path, labelSelector=MANAGED)).get("items") or ()
            except ApiError as error:
                if error.status not in (403, 404):
                    raise
                if error.status == 403 and not self._denied:
                    logger.warning("PodMonitors are left alone, since they may not be listed: %s", error)
                self._denied = error.status == 403
                return None
            # Items of a list carry neither apiVersion nor kind.
            found += [{"apiVersion": POD_MONITOR.api_version, "kind": POD_MONITOR.kind, **one} for one in items]
        return found

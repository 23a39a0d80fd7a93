"""Events on SpecDeployments: each switch once, whoever of the replicas tells it, and edits that were put back."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from specfleet.api.names import BASELINE_POOL
from specfleet.api.status import SpecDeploymentStatus, UpgradeStatus
from specfleet.cluster.client import ApiClient
from specfleet.cluster.errors import ApiError
from specfleet.cluster.events import event
from specfleet.handlers.carry_out import Corrected
from specfleet.handlers.memory import Memory
from specfleet.handlers.observed import Key

logger = logging.getLogger(__name__)
TELL_SECONDS = 600.0
MANY_FIELDS = 5
_WARNINGS = frozenset({"DriftCorrected", "UpgradeStuck"})


class Teller:
    """Posts events. An event that cannot be posted is logged and never holds anything up."""

    def __init__(self, client: ApiClient, instance: str) -> None:
        self._client = client
        self._instance = instance

    async def switches(
        self, key: Key, body: Mapping[str, Any], status: SpecDeploymentStatus, memory: Memory, now: float
    ) -> None:
        """Tell the newest switch of each route, unless it has been told.

        Read from the history in status: a switch that was committed just before a crash is told by the next process,
        and the event's name keeps it from being told twice.
        """
        for route in status.routes:
            if not route.history:
                continue
            last = route.history[-1]
            once = f"{route.name}/{last.at}/{last.pool}"
            at = _seconds(last.at)
            if once in memory.told or now - at > TELL_SECONDS:
                continue
            memory.told.add(once)
            reason = "SpeculationOff" if last.pool == BASELINE_POOL else "SpeculationOn"
            await self._post(key, body, reason, f"Route {route.name}: {last.message}", "Switch", at, once)

    async def upgraded(
        self,
        key: Key,
        body: Mapping[str, Any],
        before: UpgradeStatus | None,
        now_is: UpgradeStatus | None,
        now: float,
    ) -> None:
        """Tell what has become of an upgrade since status was written: a pool begins, hangs, or all is done."""
        generation = body["metadata"]["generation"]
        if now_is is None:
            if before is not None and before.state != "Waiting":  # else it was withdrawn before it began
                note = f"Upgrade done: {before.changes}. All pods carry it."
                await self._post(key, body, "UpgradeFinished", note, "Upgrade", now, f"{generation}/{before.changes}")
            return
        was = (None, None, None) if before is None else (before.state, before.pool, before.changes)
        if now_is.state == "Waiting" or was == (now_is.state, now_is.pool, now_is.changes):
            return
        reason = "UpgradeStuck" if now_is.state == "Stuck" else "UpgradeRolling"
        once = f"{generation}/{now_is.pool}/{now_is.changes}"
        await self._post(key, body, reason, f"Upgrade, {now_is.changes}. {now_is.message}", "Upgrade", now, once)

    async def corrected(self, key: Key, body: Mapping[str, Any], what: Corrected, now: float) -> None:
        """Tell that somebody's edit of an owned object was put back."""
        fields = ", ".join(what.fields[:MANY_FIELDS]) or "fields"
        more = f" and {len(what.fields) - MANY_FIELDS} more" if len(what.fields) > MANY_FIELDS else ""
        note = f"{what.what}: {fields}{more} put back; change the SpecDeployment instead."
        await self._post(key, body, "DriftCorrected", note, "Apply", now, f"{what.what}/{what.version}")

    async def _post(
        self, key: Key, body: Mapping[str, Any], reason: str, note: str, action: str, at: float, once: str
    ) -> None:
        made = event(
            namespace=key[0],
            name=key[1],
            uid=str(body["metadata"]["uid"]),
            reason=reason,
            note=note,
            action=action,
            at=at,
            instance=self._instance,
            once=once,
            kind="Warning" if reason in _WARNINGS else "Normal",
        )
        try:
            await self._client.post_event(made)
        except ApiError as error:
            logger.warning("event %s of %s/%s is not posted: %s", reason, *key, error)


def _seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()

"""One leader among the replicas, by a Lease, judged on the monotonic clock.

Own code, because the election in the client library compares wall clocks of two machines and goes on leading after a
connection error (decision 0402). The numbers: a leader renews every 2 s and stops writing 6 s after its last renewal
was sent; another replica takes over 10 s after it last saw the lease change, so at most 14 s after a leader died.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from specfleet.cluster.client import ApiClient, Manifest
from specfleet.cluster.errors import ApiError, ClusterError, NotLeadingError
from specfleet.cluster.gate import WriteGate
from specfleet.cluster.kinds import LEASE

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Timing:
    """Seconds. `deadline` plus the gate's grace must stay below `lease`."""

    lease: float = 10.0
    deadline: float = 6.0
    retry: float = 2.0


class Elector:
    """Takes, renews and releases one Lease, and moves the gate's deadline.

    `identity` must belong to this process alone. `run` never returns; it raises `NotLeadingError` once leadership is
    lost, and the process must then end.
    """

    def __init__(
        self,
        client: ApiClient,
        gate: WriteGate,
        namespace: str,
        name: str,
        identity: str,
        on_leading: Callable[[], None],
        timing: Timing | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._gate = gate
        self._path = (namespace, name)
        self._identity = identity
        self._on_leading = on_leading
        self._timing = timing or Timing()
        self._clock = clock
        self._seen: tuple[str, float] | None = None  # the record's fingerprint and when it was first seen
        self._live: Manifest | None = None

    @property
    def leading(self) -> bool:
        """Whether this replica may write now."""
        return self._gate.open

    async def run(self) -> None:
        """Stand by until the lease can be taken, then renew it until that fails."""
        while True:
            if await self._try():
                break
            await asyncio.sleep(self._timing.retry)
        logger.info("leading as %s", self._identity)
        self._on_leading()
        while True:
            await asyncio.sleep(self._timing.retry)
            await self._renewed()

    async def release(self) -> None:
        """Give the lease back, so that another replica need not wait for it to run out."""
        if not self._gate.open or self._live is None:
            return
        self._gate.close()
        body = self._record(self._live, holder="")
        try:
            await self._client.send_unfenced("PUT", LEASE.path(*self._path), body)
        except ClusterError as error:
            logger.warning("the lease could not be released: %s", error)

    async def _renewed(self) -> None:
        while not await self._try():
            deadline = self._gate.deadline
            if deadline is None or self._clock() >= deadline:
                self._gate.close()
                raise NotLeadingError("the lease could not be renewed in time: another replica may lead now")
            await asyncio.sleep(min(0.5, self._timing.retry))

    async def _try(self) -> bool:
        """One attempt to take or renew. Raises `NotLeadingError` where a leader finds another holder."""
        sent = self._clock()
        try:
            live = self._live if self._live is not None else await self._client.get(LEASE, *self._path)
            if not self._may_take(live):
                self._lost_if_leading(live)
                return False
            sent = self._clock()
            await self._put(live)
        except NotLeadingError:
            raise
        except ApiError as error:
            self._live = None
            logger.log(logging.DEBUG if error.conflict else logging.WARNING, "lease: %s", error)
            return False
        except ClusterError as error:
            self._live = None
            logger.warning("lease: %s", error)
            return False
        self._gate.extend(sent + self._timing.deadline)
        return True

    def _lost_if_leading(self, live: Manifest | None) -> None:
        if self._gate.deadline is None:
            return
        self._gate.close()
        holder = ((live or {}).get("spec") or {}).get("holderIdentity")
        raise NotLeadingError(f"the lease is held by {holder!r} now")

    def _may_take(self, live: Manifest | None) -> bool:
        if live is None:
            return True
        spec = live.get("spec") or {}
        holder = spec.get("holderIdentity") or ""
        fingerprint = f"{live['metadata'].get('resourceVersion')}"
        if self._seen is None or self._seen[0] != fingerprint:
            self._seen = (fingerprint, self._clock())
        if not holder:
            return True
        if holder == self._identity:
            return True
        return self._gate.deadline is None and self._run_out()

    def _run_out(self) -> bool:
        return self._seen is not None and self._clock() - self._seen[1] >= self._timing.lease

    async def _put(self, live: Manifest | None) -> None:
        namespace, name = self._path
        if live is None:
            body: Manifest = {
                "apiVersion": LEASE.api_version,
                "kind": LEASE.kind,
                "metadata": {"name": name, "namespace": namespace},
            }
            answer = await self._client.send_unfenced("POST", LEASE.path(namespace), self._record(body, self._identity))
        else:
            answer = await self._client.send_unfenced(
                "PUT", LEASE.path(namespace, name), self._record(live, self._identity)
            )
        self._live = answer

    def _record(self, live: Manifest, holder: str) -> Manifest:
        spec: dict[str, Any] = dict(live.get("spec") or {})
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        if holder and spec.get("holderIdentity") != holder:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = int(spec.get("leaseTransitions") or 0) + ("holderIdentity" in spec)
        spec.update(holderIdentity=holder, renewTime=now, leaseDurationSeconds=max(1, round(self._timing.lease)))
        return {**live, "spec": spec}

"""A small asynchronous client: reads go straight through, writes pass the gate.

Bare aiohttp, because per request the generated client takes nearly three times the CPU (decision 0401).
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from typing import Any

import aiohttp

from specfleet.api.names import FIELD_MANAGER
from specfleet.cluster.errors import ApiError, ClusterError
from specfleet.cluster.gate import WriteGate
from specfleet.cluster.kinds import EVENT, POD, Kind

Manifest = dict[str, Any]
WriteObserver = Callable[[str, str, int, float], None]  # verb, kind, HTTP status (0: none came), seconds
READ_TIMEOUT_SECONDS = 15.0
WRITES_IN_FLIGHT = 16


class ApiClient:
    """Requests to one API server.

    All methods raise `ApiError` where the server refuses and `ClusterError` where it does not answer; writes raise
    `NotLeadingError` where the gate is shut.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        server: str,
        gate: WriteGate,
        observe: WriteObserver = lambda verb, kind, status, seconds: None,
    ) -> None:
        self._session = session
        self._server = server
        self._gate = gate
        self._observe = observe
        self._slots = asyncio.Semaphore(WRITES_IN_FLIGHT)

    async def get(self, kind: Kind, namespace: str, name: str) -> Manifest | None:
        """The object, or None where there is none."""
        try:
            return await self.read(kind.path(namespace, name))
        except ApiError as error:
            if error.not_found:
                return None
            raise

    async def read(self, path: str, **params: str) -> Manifest:
        """GET of any path."""
        return await self._send("GET", path, params, None, {}, READ_TIMEOUT_SECONDS)

    async def apply(self, kind: Kind, manifest: Manifest, *, force: bool = True) -> Manifest:
        """Server-side apply as field manager `specfleet`; returns the live object.

        With `force` False another manager's field is a conflict: for objects that are believed not to exist.
        """
        meta = manifest["metadata"]
        params = {"fieldManager": FIELD_MANAGER, "force": "true" if force else "false"}
        path = kind.path(meta["namespace"], meta["name"])
        return await self._write("apply", kind, path, params, manifest, "application/apply-patch+yaml")

    async def replace_status(self, kind: Kind, body: Manifest, status: Manifest) -> Manifest:
        """Write the whole status, if the object still has the resourceVersion of `body`; else a conflict."""
        meta = body["metadata"]
        patch = [
            {"op": "add", "path": "/metadata/resourceVersion", "value": meta["resourceVersion"]},
            {"op": "add", "path": "/status", "value": status},
        ]
        path = kind.path(meta["namespace"], meta["name"], "status")
        params = {"fieldManager": FIELD_MANAGER}
        return await self._write("status", kind, path, params, patch, "application/json-patch+json")

    async def scale(self, kind: Kind, namespace: str, name: str, uid: str, replicas: int) -> Manifest:
        """Set the replicas of exactly the workload with this uid, and nothing else of it."""
        patch = {"metadata": {"uid": uid}, "spec": {"replicas": replicas}}
        params = {"fieldManager": FIELD_MANAGER}
        path = kind.path(namespace, name)
        return await self._write("scale", kind, path, params, patch, "application/merge-patch+json")

    async def annotate_pod(self, namespace: str, name: str, annotation: str, value: str) -> Manifest:
        """Set one annotation of a pod."""
        patch = {"metadata": {"annotations": {annotation: value}}}
        params = {"fieldManager": FIELD_MANAGER}
        return await self._write(
            "annotate", POD, POD.path(namespace, name), params, patch, "application/merge-patch+json"
        )

    async def annotate(self, kind: Kind, body: Manifest, annotations: Mapping[str, str | None]) -> Manifest:
        """Set or (None) remove annotations, if the object still has the resourceVersion of `body`; else a conflict."""
        meta = body["metadata"]
        patch = {"metadata": {"resourceVersion": meta["resourceVersion"], "annotations": dict(annotations)}}
        path = kind.path(meta["namespace"], meta["name"])
        params = {"fieldManager": FIELD_MANAGER}
        return await self._write("annotate", kind, path, params, patch, "application/merge-patch+json")

    async def delete(self, kind: Kind, namespace: str, name: str, uid: str) -> None:
        """Delete exactly the object with this uid; one that is gone already is no error."""
        options = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        try:
            await self._write("delete", kind, kind.path(namespace, name), {}, options, "application/json")
        except ApiError as error:
            if not error.not_found and not error.conflict:
                raise

    async def post_event(self, event: Manifest) -> None:
        """Create an event; one of that name that exists already is no error."""
        try:
            path = EVENT.path(event["metadata"]["namespace"])
            await self._write("create", EVENT, path, {"fieldManager": FIELD_MANAGER}, event, "application/json")
        except ApiError as error:
            if not error.conflict:
                raise

    async def _write(
        self, verb: str, kind: Kind, path: str, params: dict[str, str], body: Any, content_type: str
    ) -> Manifest:
        method = {"delete": "DELETE", "create": "POST"}.get(verb, "PATCH")
        data = json.dumps(body, separators=(",", ":")).encode()
        async with self._slots:
            started = time.monotonic()
            status = 0
            try:
                seconds = self._gate.admit()
                answer = await self._send(method, path, params, data, {"Content-Type": content_type}, seconds)
                status = 200
            except ApiError as error:
                status = error.status
                raise
            finally:
                self._observe(verb, kind.kind, status, time.monotonic() - started)
        return answer

    async def send_unfenced(self, method: str, path: str, body: Manifest) -> Manifest:
        """A write that needs no lease because it is about the lease."""
        data = json.dumps(body).encode()
        return await self._send(method, path, {}, data, {"Content-Type": "application/json"}, 4.0)

    async def _send(
        self,
        method: str,
        path: str,
        params: dict[str, str],
        data: bytes | None,
        headers: dict[str, str],
        seconds: float,
    ) -> Manifest:
        timeout = aiohttp.ClientTimeout(total=seconds)
        try:
            async with self._session.request(
                method, self._server + path, params=params, data=data, headers=headers, timeout=timeout
            ) as response:
                raw = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            what = str(error) or type(error).__name__
            raise ClusterError(f"expected an answer of the API server {self._server}, found: {what}") from error
        parsed = _parsed(raw)
        if response.status >= 400:
            raise ApiError.of(response.status, parsed)
        if not isinstance(parsed, dict):
            raise ClusterError(f"expected a JSON object from {self._server}{path}, found {raw[:80]!r}")
        return parsed


def _parsed(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return raw[:200].decode(errors="replace")

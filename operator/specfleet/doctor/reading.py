"""The edge of the doctor: reads what checks ask for. It sends GETs and access reviews, which persist nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp
from yarl import URL

from specfleet.cluster.auth import Connection
from specfleet.cluster.errors import ApiError, ClusterError
from specfleet.doctor.examine import Check, examine
from specfleet.doctor.facts import Facts, Get, Listing, Log, May, Page, PageAnswer, Query, Right, Scope, Unread
from specfleet.doctor.findings import Report

READ_SECONDS = 15.0
PAGE_SECONDS = 5.0
PAGE_BYTES = 64 * 1024
LOG_LINES = 20
ITEMS_A_PAGE = 500
IN_FLIGHT = 8
_NAMES_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_REVIEWS = "/apis/authorization.k8s.io/v1"


async def diagnose(connection: Connection, scope: Scope, checks: Iterable[tuple[str, Check]]) -> Report:
    """Examine the cluster.

    Raises:
        ClusterError: it cannot be reached, or does not know who asks.
    """
    made = list(checks)
    async with connection.session() as session, aiohttp.ClientSession() as outside:
        reader = Reader(session, outside, connection.server)
        await reader.reach()
        answers: dict[Query, Any] = {}
        times: dict[Query, datetime] = {}
        while True:
            facts = Facts(scope, reader.now, answers, times)
            report = examine(facts, made)
            if report is not None:
                return report
            for query, (answer, at) in (await reader.read(facts.missing)).items():
                answers[query], times[query] = answer, at


class Reader:
    """Answers queries; what cannot be answered becomes `Unread`, never an exception.

    `now` is the API server's clock: leases are judged by it, and not by the clock of whoever asks.
    """

    def __init__(self, session: aiohttp.ClientSession, outside: aiohttp.ClientSession, server: str) -> None:
        self._session = session
        self._outside = outside
        self._server = server
        self._slots = asyncio.Semaphore(IN_FLIGHT)
        self.now = datetime.now(UTC)

    async def reach(self) -> None:
        """Raises ClusterError where there is no answer, or the credentials are refused."""
        try:
            await self._json("GET", "/version")
        except ApiError as refused:
            if refused.status == 401:
                raise ClusterError(
                    f"the API server {self._server} does not accept the credentials (401): log in again, or name "
                    "another context with --context"
                ) from refused
            if not refused.forbidden:
                raise

    async def read(self, queries: Iterable[Query]) -> dict[Query, tuple[Any, datetime]]:
        """One answer a query, and when it was given."""
        wanted = list(queries)
        return dict(zip(wanted, await asyncio.gather(*(self._timed(query) for query in wanted)), strict=True))

    async def _timed(self, query: Query) -> tuple[Any, datetime]:
        async with self._slots:
            return await self._answer(query), self.now

    async def _answer(self, query: Query) -> Any:
        try:
            match query:
                case Get(path):
                    return await self._object(path)
                case Listing():
                    return await self._listing(query)
                case May(right, account):
                    return await self._review(right, account)
                case Log():
                    return await self._log(query)
                case Page(url):
                    return await self._page(url)
        except ApiError as refused:
            said = " ".join(refused.message.split()) or f"{refused.status} {refused.reason}".strip()
            return Unread(said)
        except ClusterError as error:
            return Unread(str(error))

    async def _object(self, path: str) -> Any:
        try:
            return await self._json("GET", path)
        except ApiError as refused:
            if refused.not_found:
                return None
            raise

    async def _listing(self, query: Listing) -> tuple[Any, ...]:
        params = {"limit": str(ITEMS_A_PAGE)}
        if query.labels:
            params["labelSelector"] = query.labels
        if query.fields:
            params["fieldSelector"] = query.fields
        headers = {"Accept": _NAMES_ONLY} if query.names_only else {}
        items: list[Any] = []
        while True:
            try:
                answer = await self._json("GET", query.path, params=params, headers=headers)
            except ApiError as refused:
                if refused.not_found:
                    return ()
                raise
            items += answer.get("items") or ()
            more = (answer.get("metadata") or {}).get("continue")
            if not more:
                return tuple(items)
            params["continue"] = more

    async def _review(self, right: Right, account: str) -> bool:
        attributes = {
            "group": right.group,
            "resource": right.resource,
            "verb": right.verb,
            "namespace": right.namespace,
            "name": right.name,
            "subresource": right.subresource,
        }
        spec: dict[str, Any] = {"resourceAttributes": {key: value for key, value in attributes.items() if value}}
        kind = "SelfSubjectAccessReview"
        if account:
            kind = "SubjectAccessReview"
            spec |= {"user": account, "groups": _groups(account)}
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": kind, "spec": spec}
        answer = await self._json("POST", f"{_REVIEWS}/{kind.lower()}s", body=body)
        return bool((answer.get("status") or {}).get("allowed"))

    async def _log(self, query: Log) -> str:
        path = f"/api/v1/namespaces/{query.namespace}/pods/{query.pod}/log"
        params = {"container": query.container, "tailLines": str(LOG_LINES)}
        if query.previous:
            params["previous"] = "true"
        return (await self._raw("GET", path, params=params)).decode(errors="replace")

    async def _page(self, url: str) -> PageAnswer:
        """Of the API server (its proxy to a Service) where the URL is a path, else of somebody else."""
        session, whole = (self._session, self._server + url) if url.startswith("/") else (self._outside, url)
        timeout = aiohttp.ClientTimeout(total=PAGE_SECONDS)
        try:
            async with session.get(URL(whole), timeout=timeout, allow_redirects=False) as response:
                raw = await response.content.read(PAGE_BYTES)
                return PageAnswer(response.status, response.content_type, raw.decode(errors="replace"))
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            return PageAnswer(0, "", str(error) or f"no answer within {PAGE_SECONDS:.0f} s")

    async def _json(
        self,
        method: str,
        path: str,
        *,
        params: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
        body: Any = None,
    ) -> dict[str, Any]:
        raw = await self._raw(method, path, params=params, headers=headers, body=body)
        try:
            parsed = json.loads(raw)
        except ValueError:
            parsed = None
        if not isinstance(parsed, dict):
            raise ClusterError(f"expected a JSON object from {self._server}{path}, found {raw[:80]!r}")
        return parsed

    async def _raw(
        self,
        method: str,
        path: str,
        *,
        params: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
        body: Any = None,
    ) -> bytes:
        timeout = aiohttp.ClientTimeout(total=READ_SECONDS)
        try:
            async with self._session.request(
                method, self._server + path, params=params, headers=headers, json=body, timeout=timeout
            ) as response:
                raw = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            what = str(error) or f"no answer within {READ_SECONDS:.0f} s"
            raise ClusterError(f"expected an answer of the API server {self._server}, found: {what}") from error
        self._keep_time(response)
        if response.status >= 400:
            raise ApiError.of(response.status, _parsed(raw))
        return raw

    def _keep_time(self, response: aiohttp.ClientResponse) -> None:
        try:
            self.now = parsedate_to_datetime(response.headers["Date"])
        except (KeyError, ValueError):
            return


def _groups(account: str) -> list[str]:
    groups = ["system:authenticated"]
    if account.startswith("system:serviceaccount:"):
        groups += ["system:serviceaccounts", f"system:serviceaccounts:{account.split(':')[2]}"]
    return groups


def _parsed(raw: bytes) -> Any:
    try:
        return json.loads(raw)
    except ValueError:
        return raw[:200].decode(errors="replace")

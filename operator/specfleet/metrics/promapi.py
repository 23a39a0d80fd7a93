"""One Prometheus server, asked with bounds: of time, of size, and of where credentials go.

The requests are prometheus-api-client's, which blocks: call from a thread. What it leaves out (a limit for an answer's
size and for its whole time, warnings of a partial answer, an answer that is no JSON) is held by the session below it.
"""

from __future__ import annotations

import contextlib
import io
import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypedDict, cast

from specfleet.api.conditions import Reason

if TYPE_CHECKING:
    import requests
    from prometheus_api_client import PrometheusConnect

CONNECT_SECONDS = 5.0
CHUNK_BYTES = 65536
SAID_CHARACTERS = 160
_FOREIGN_ANSWERS = threading.RLock()


class PrometheusError(Exception):
    """A query failed. `reason` is that of condition MetricsAvailable, the text a sentence without a full stop."""

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class Credentials:
    """Files with what Prometheus asks for; read anew for each `PromApi`, so that a renewed Secret is taken up.

    Either a bearer token or name and password; `username` stands for a file with it. `ca_file` replaces the
    authorities that are trusted by default.
    """

    bearer_token_file: Path | None = None
    username: str | None = None
    username_file: Path | None = None
    password_file: Path | None = None
    ca_file: Path | None = None


@dataclass(frozen=True)
class Endpoint:
    """Where a Prometheus server is, and the bounds of one query: the whole time in seconds, and bytes of its answer.

    `credentials` are those of the administrator's address, however many they are, and None for an address that somebody
    else wrote; what that one says in an error is not passed on.
    """

    url: str
    credentials: Credentials | None = None
    timeout_seconds: float = 10.0
    limit_bytes: int = 16 * 1024 * 1024


class Series(TypedDict):
    """One series of an answer: its labels, name included, and pairs of time (epoch seconds) and value (a text)."""

    metric: dict[str, str]
    values: list[tuple[float, str]]


class PromApi:
    """Queries of one server over one session; a context manager. All methods block, and raise PrometheusError.

    JSON can take twenty times its size in memory once it is read. From the first answer of a server that somebody else
    named until the context ends, no other thread reads such an answer: take what is needed of it, and leave.
    """

    def __init__(self, endpoint: Endpoint) -> None:
        # Imported where it is used: without kopf, which brings most of it along, it costs 20 MiB and 0.2 s.
        from prometheus_api_client import PrometheusConnect
        from urllib3.util.retry import Retry

        self._endpoint = endpoint
        self._turn = contextlib.ExitStack()
        headers, auth = _proof(endpoint.credentials)
        self._session = _session(endpoint, self._await_turn)
        self._client: PrometheusConnect = PrometheusConnect(
            endpoint.url.rstrip("/"), headers=headers, auth=auth, session=self._session, retry=Retry(0, read=False)
        )

    def query(self, promql: str) -> list[Series]:
        """The series of an instant query whose answer is a matrix: a selector with a range, such as `up[3m]`."""
        answer = self._client.custom_query(promql, params=self._limits())
        return _matrix(answer, self._endpoint)

    def query_range(self, promql: str, start: float, end: float, step_seconds: int) -> list[Series]:
        """The series of a range query from `start` to `end` (epoch seconds)."""
        answer = self._client.custom_query_range(
            promql,
            datetime.fromtimestamp(start, UTC),
            datetime.fromtimestamp(end, UTC),
            f"{step_seconds}s",
            params=self._limits(),
        )
        return _matrix(answer, self._endpoint)

    def _await_turn(self) -> None:
        if self._endpoint.credentials is None:
            self._turn.enter_context(_FOREIGN_ANSWERS)

    def _limits(self) -> dict[str, str]:
        # The server stops too, rather than finish what nobody waits for.
        return {"timeout": f"{max(1, int(self._endpoint.timeout_seconds))}s"}

    def __enter__(self) -> PromApi:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._turn.close()
        self._session.close()


def _proof(credentials: Credentials | None) -> tuple[dict[str, str], tuple[str, str] | None]:
    """Headers and basic-auth pair from the files as they are now."""
    if credentials is None:
        return {}, None
    if credentials.bearer_token_file is not None:
        return {"Authorization": f"Bearer {_line_of(credentials.bearer_token_file)}"}, None
    name = credentials.username
    if credentials.username_file is not None:
        name = _line_of(credentials.username_file)
    if name is not None and credentials.password_file is not None:
        return {}, (name, _line_of(credentials.password_file))
    return {}, None


def _line_of(file: Path) -> str:
    try:
        text = file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as error:
        what = error.strerror if isinstance(error, OSError) else "it is no text"
        raise PrometheusError(
            Reason.PROMETHEUS_UNAUTHORIZED, f"the credentials file {file} cannot be read ({what})"
        ) from None
    if not text or "\n" in text or not text.isprintable():
        raise PrometheusError(Reason.PROMETHEUS_UNAUTHORIZED, f"the credentials file {file} does not hold one line")
    return text


def _session(endpoint: Endpoint, before_reading: Callable[[], None]) -> requests.Session:
    import requests
    from urllib3.exceptions import HTTPError

    class Answer(requests.Response):
        """A whole answer, its JSON read once."""

        document: Any = None

        def json(self, **_: Any) -> Any:
            return self.document

    class Bounded(requests.Session):
        """No environment (proxies, netrc), no redirects; every answer read within the endpoint's bounds."""

        def send(self, request: requests.PreparedRequest, **options: Any) -> requests.Response:
            deadline = time.monotonic() + endpoint.timeout_seconds
            options["timeout"] = (min(CONNECT_SECONDS, endpoint.timeout_seconds), endpoint.timeout_seconds)
            options.update(stream=True, allow_redirects=False)
            try:
                with super().send(request, **options) as response:
                    body = _body(response.raw, deadline, endpoint)
            except (requests.RequestException, HTTPError, OSError) as error:
                raise PrometheusError(Reason.PROMETHEUS_UNREACHABLE, _unreachable(endpoint, error)) from None
            before_reading()
            answer = Answer()
            answer.status_code, answer.url, answer.raw = response.status_code, request.url or "", io.BytesIO(body)
            answer.document = _document(response.status_code, response.headers, body, endpoint)
            return answer

    session = Bounded()
    session.trust_env = False
    ca_file = endpoint.credentials.ca_file if endpoint.credentials is not None else None
    if ca_file is not None:
        if not ca_file.is_file():
            raise PrometheusError(Reason.PROMETHEUS_UNREACHABLE, f"expected certificates in {ca_file}, found no file")
        session.verify = str(ca_file)
    return session


def _body(raw: Any, deadline: float, endpoint: Endpoint) -> bytes:
    parts, size = [], 0
    while chunk := raw.read1(CHUNK_BYTES, decode_content=True):
        parts.append(chunk)
        size += len(chunk)
        if size > endpoint.limit_bytes:
            raise PrometheusError(
                Reason.PROMETHEUS_FAILED, f"the answer of {endpoint.url} is longer than {endpoint.limit_bytes} bytes"
            )
        if time.monotonic() > deadline:
            raise TimeoutError
    return b"".join(parts)


def _unreachable(endpoint: Endpoint, error: Exception) -> str:
    import requests
    from urllib3.exceptions import ReadTimeoutError

    where = endpoint.url
    if isinstance(error, requests.exceptions.SSLError):
        return f"TLS with {where} fails: the certificate is not trusted or not for this name; set prometheus.caFile"
    if isinstance(error, (requests.Timeout, ReadTimeoutError, TimeoutError)):
        return f"{where} does not answer within {endpoint.timeout_seconds:g} s"
    text = str(error)
    if "NameResolution" in text or "Name or service not known" in text:
        return f"the name in {where} cannot be resolved"
    if "refused" in text:
        return f"{where} refuses the connection"
    return f"the connection to {where} fails ({type(error).__name__})"


def _document(status: int, headers: Mapping[str, str], body: bytes, endpoint: Endpoint) -> Any:
    """The JSON of an answer that can be decided by."""
    where = endpoint.url
    if status in (401, 403):
        proof = endpoint.credentials
        offered = proof is not None and (proof.bearer_token_file or proof.username_file) is not None
        hint = "it refuses the credentials of the operator's settings" if offered else "it asks for credentials"
        raise PrometheusError(Reason.PROMETHEUS_UNAUTHORIZED, f"{where} answers {status}: {hint}")
    if status in (301, 302, 303, 307, 308):
        raise PrometheusError(
            Reason.PROMETHEUS_FAILED, f"{where} answers {status}, a redirect: write the address that it leads to"
        )
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        document = None
    if status != 200:
        said = document.get("error") if isinstance(document, dict) else None
        # What an address of somebody else's choice answers is not shown to them by way of the status.
        tail = f": {_line(said)}" if isinstance(said, str) and endpoint.credentials is not None else ""
        raise PrometheusError(Reason.PROMETHEUS_FAILED, f"{where} answers {status}{tail}")
    if not isinstance(document, dict) or document.get("status") != "success":
        kind = "HTML" if "html" in headers.get("Content-Type", "") or body.lstrip()[:1] == b"<" else "something else"
        raise PrometheusError(
            Reason.PROMETHEUS_FAILED, f"expected the JSON of a Prometheus API below {where}, found {kind}"
        )
    if document.get("warnings"):
        first = document["warnings"][0] if isinstance(document["warnings"], list) else ""
        tail = f": {_line(first)}" if isinstance(first, str) and first and endpoint.credentials is not None else ""
        raise PrometheusError(Reason.PROMETHEUS_PARTIAL, f"{where} warns that its answer is partial{tail}")
    if not isinstance(document.get("data"), dict) or not isinstance(document["data"].get("result"), list):
        raise PrometheusError(Reason.PROMETHEUS_FAILED, f"the answer of {where} holds no data.result")
    return document


def _line(text: str) -> str:
    return " ".join(text.split())[:SAID_CHARACTERS]


def _matrix(answer: list[Any], endpoint: Endpoint) -> list[Series]:
    for series in answer:
        if (
            not isinstance(series, dict)
            or not isinstance(series.get("metric"), dict)
            or not isinstance(series.get("values"), list)
        ):
            raise PrometheusError(
                Reason.PROMETHEUS_FAILED,
                f"expected series with values from {endpoint.url}, found {type(series).__name__}",
            )
    return cast("list[Series]", answer)

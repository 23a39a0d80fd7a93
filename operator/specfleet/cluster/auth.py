"""How to reach the API server: a pod's service account, or a kubeconfig as kubectl reads it."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import aiohttp
import kopf

from specfleet.cluster.errors import ClusterError

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
TOKEN_REFRESH_SECONDS = 60.0


@dataclass(frozen=True)
class Connection:
    """Where the API server is and how to prove who we are.

    Attributes:
        server: URL without a path.
        headers: sent with each request.
        namespace: of the context or the pod; `default` where neither says.
        token_file: re-read by `keep_fresh`, since service-account tokens expire within the hour.
    """

    server: str
    tls: ssl.SSLContext | None
    headers: dict[str, str]
    namespace: str
    proxy: str | None = None
    token_file: Path | None = None

    def session(self, *traces: aiohttp.TraceConfig) -> aiohttp.ClientSession:
        """A new HTTP session; the caller closes it. Nothing waits for a free connection inside of it."""
        connector = aiohttp.TCPConnector(limit=0, ssl=self.tls if self.tls is not None else True)
        return aiohttp.ClientSession(
            connector=connector, headers=self.headers, trace_configs=list(traces), proxy=self.proxy
        )


def introduced(connection: Connection, identity: str) -> Connection:
    """The connection with a User-Agent that names this process: audit logs then tell the replicas apart."""
    agent = f"specfleet/{version('specfleet')} ({identity})"
    return replace(connection, headers={**connection.headers, "User-Agent": agent})


async def connect(kubeconfig: Path | None = None, context: str | None = None) -> Connection:
    """The connection that `kubeconfig` describes; without one the pod's, else that of $KUBECONFIG or ~/.kube/config.

    Args:
        context: of the kubeconfig; None is its current one.

    Raises:
        ClusterError: there is no usable configuration.
    """
    if kubeconfig is None and context is None and (SERVICE_ACCOUNT / "token").is_file():
        return _in_cluster()
    return await _from_kubeconfig(kubeconfig, context)


def _in_cluster() -> Connection:
    info = kopf.login_with_service_account(settings=kopf.OperatorSettings())
    if info is None:
        raise ClusterError(f"expected a service-account token in {SERVICE_ACCOUNT}, found none")
    return Connection(
        server=info.server,
        tls=info.as_ssl_context(),
        headers=info.as_http_headers(),
        namespace=info.default_namespace or "default",
        token_file=SERVICE_ACCOUNT / "token",
    )


async def _from_kubeconfig(path: Path | None, context: str | None) -> Connection:
    # Imported here: the client library takes 50 MiB, and a pod never reads a kubeconfig.
    from kubernetes.aio import client
    from kubernetes.aio.config import ConfigException, list_kube_config_contexts, load_kube_config

    file = None if path is None else str(path)
    where = str(path) if path is not None else "$KUBECONFIG or ~/.kube/config"
    logging.getLogger("kubernetes").setLevel(logging.ERROR)  # it warns of what the error below says
    configuration = client.Configuration()
    try:
        contexts, active = list_kube_config_contexts(config_file=file)  # type: ignore[no-untyped-call]
        if context is not None:
            active = next((one for one in contexts if one["name"] == context), None)
            if active is None:
                raise _no_context(context, where, contexts)
        await load_kube_config(  # type: ignore[no-untyped-call]
            config_file=file, context=context, client_configuration=configuration
        )
    except (ConfigException, OSError, ValueError, TypeError, AttributeError, KeyError) as error:
        raise ClusterError(
            f"expected a kubeconfig with a current context in {where}, found none that can be read ({error}): "
            "name one with --kubeconfig"
        ) from error
    token = configuration.api_key.get("BearerToken") or configuration.api_key.get("authorization")
    return Connection(
        server=str(configuration.host).rstrip("/"),
        tls=_tls(configuration) if str(configuration.host).startswith("https") else None,
        headers={"Authorization": str(token)} if token else {},
        namespace=str((active.get("context") or {}).get("namespace") or "default"),
        proxy=configuration.proxy or None,
    )


def _no_context(context: str, where: str, contexts: Iterable[Mapping[str, object]]) -> ClusterError:
    known = ", ".join(str(one["name"]) for one in contexts) or "none"
    return ClusterError(f"expected a context {context} in {where}, found {known}: name one of them with --context")


def _tls(configuration: object) -> ssl.SSLContext:
    ca, cert, key = (getattr(configuration, name) for name in ("ssl_ca_cert", "cert_file", "key_file"))
    try:
        context = ssl.create_default_context(cafile=ca or None)
        if cert:
            context.load_cert_chain(cert, key or None)
    except OSError as error:
        raise ClusterError(f"expected readable certificates in the kubeconfig: {error}") from error
    if not getattr(configuration, "verify_ssl", True):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


@contextlib.asynccontextmanager
async def keep_fresh(connection: Connection, *sessions: aiohttp.ClientSession) -> AsyncIterator[None]:
    """While inside, put the renewed service-account token into the sessions' headers."""
    task = asyncio.create_task(_refresh(connection, sessions)) if connection.token_file is not None else None
    try:
        yield
    finally:
        if task is not None:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task


async def _refresh(connection: Connection, sessions: tuple[aiohttp.ClientSession, ...]) -> None:
    token_file = connection.token_file
    while token_file is not None:
        await asyncio.sleep(TOKEN_REFRESH_SECONDS)
        with contextlib.suppress(OSError):
            token = (await asyncio.to_thread(token_file.read_text)).strip()
            for session in sessions:
                session.headers["Authorization"] = f"Bearer {token}"

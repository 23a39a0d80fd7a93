"""`specfleet run`: the operator."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import sys
import uuid
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from specfleet.cluster.errors import ClusterError
from specfleet.handlers.operator import Operator, Process
from specfleet.handlers.rendered import SpecRenderer
from specfleet.settings import SETTINGS_FILE, SettingsProblem, load_settings


def run_command(
    settings: Annotated[
        Path | None, typer.Option("--settings", help=f"Settings file. Default: {SETTINGS_FILE}, if it is there.")
    ] = None,
    kubeconfig: Annotated[
        Path | None, typer.Option(help="Kubeconfig. Default: the pod's service account, else as kubectl.")
    ] = None,
    namespace: Annotated[
        list[str] | None,
        typer.Option("--namespace", "-n", help="Namespace to watch; may be repeated. Default: watch_namespaces."),
    ] = None,
    lease_namespace: Annotated[
        str, typer.Option(envvar="POD_NAMESPACE", help="Namespace of the Lease. Default: the pod's or context's.")
    ] = "",
    host: Annotated[str, typer.Option(envvar="SPECFLEET_HTTP_HOST", help="Address of health and metrics.")] = "0.0.0.0",  # noqa: S104
    port: Annotated[int, typer.Option(envvar="SPECFLEET_HTTP_PORT", help="Port of health and metrics.")] = 8080,
    router_port: Annotated[
        int, typer.Option(envvar="SPECFLEET_ROUTER_PORT", help="Port at which routers are read.")
    ] = 9902,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
) -> None:
    """Run the operator until SIGTERM."""
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    for noisy in ("kopf", "asyncio", "aiohttp"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    try:
        loaded = load_settings(settings)
    except SettingsProblem as problem:
        _end(str(problem), 2)
    name = os.environ.get("POD_NAME") or socket.gethostname()
    process = Process(
        # A restarted container has its pod's name; only the suffix tells the two processes apart.
        identity=f"{name}_{uuid.uuid4().hex[:8]}",
        kubeconfig=kubeconfig,
        lease_namespace=lease_namespace,
        namespaces=tuple(namespace or loaded.watch_namespaces),
        host=host,
        port=port,
        router_port=router_port,
    )
    try:
        asyncio.run(Operator(process, SpecRenderer(loaded), prometheus=loaded.prometheus).run())
    except ClusterError as error:
        _end(str(error), 1)


def _end(sentence: str, code: int) -> NoReturn:
    typer.echo(f"specfleet run: {sentence}", err=True)
    raise typer.Exit(code)

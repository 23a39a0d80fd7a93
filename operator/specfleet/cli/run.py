"""`specfleet run`: the operator."""

from __future__ import annotations

import asyncio
import contextlib
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
from specfleet.handlers.refusal import tell
from specfleet.handlers.rendered import SpecRenderer
from specfleet.settings import SETTINGS_FILE, OperatorSettings, SettingsProblem, load_settings


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
    loaded = _settings_or_end(settings, host, port)
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


def _settings_or_end(file: Path | None, host: str, port: int) -> OperatorSettings:
    """The settings, if they and the files that they name can be used.

    In a pod the probes say what is wrong before the process ends: its last line is then in `kubectl describe pod`, and
    the restarts that follow come at the pace at which a person can read.
    """
    try:
        loaded = load_settings(file)
        missing = next(loaded.missing_files(), None)
        if missing is not None:
            raise SettingsProblem(f"settings: {missing}")
    except SettingsProblem as problem:
        sentence = str(problem)
    else:
        return loaded
    typer.echo(f"specfleet run: {sentence}", err=True)
    if os.environ.get("POD_NAME"):
        with contextlib.suppress(OSError):
            asyncio.run(tell(sentence, host, port))
    raise typer.Exit(2)


def _end(sentence: str, code: int) -> NoReturn:
    typer.echo(f"specfleet run: {sentence}", err=True)
    raise typer.Exit(code)

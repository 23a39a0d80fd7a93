"""`specfleet doctor`: what is wrong with a cluster before the operator is installed, and with the operator after."""

from __future__ import annotations

import asyncio
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from typing import Annotated

import typer

from specfleet.cluster.auth import connect
from specfleet.cluster.errors import ClusterError
from specfleet.doctor.checks import CHECKS
from specfleet.doctor.facts import Scope
from specfleet.doctor.findings import Report
from specfleet.doctor.reading import diagnose
from specfleet.doctor.report import json_text, text

OPERATOR_NAMESPACE = "specfleet-system"


class Output(StrEnum):
    """How to print."""

    TEXT = "text"
    JSON = "json"


def doctor_command(
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", "-n", help="Look at the fleets of this namespace only. Default: all namespaces."),
    ] = None,
    operator_namespace: Annotated[
        str, typer.Option(help="Where the operator is, or would be installed.")
    ] = OPERATOR_NAMESPACE,
    kubeconfig: Annotated[Path | None, typer.Option(help="Kubeconfig. Default: as kubectl.")] = None,
    context: Annotated[str | None, typer.Option(help="Context of the kubeconfig. Default: the current one.")] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="Text, or JSON for programs.")] = Output.TEXT,
    verbose: Annotated[
        bool, typer.Option("--verbose", "-v", help="Also say what was looked at without a finding.")
    ] = False,
) -> None:
    """Find what is wrong: before an install, and with the operator and its fleets after it.

    Nothing is written. Each finding says what was found, what was expected and what to do. The exit status is 0 without
    errors, 1 with some, and 2 where the cluster cannot be reached.
    """
    try:
        report, where = asyncio.run(_examined(namespace, operator_namespace, kubeconfig, context))
    except ClusterError as problem:
        typer.echo(f"specfleet doctor: {problem}", err=True)
        raise typer.Exit(2) from None
    shown = json_text(report, where) if output is Output.JSON else "\n".join(text(report, where, verbose=verbose))
    typer.echo(shown)
    if report.errors:
        raise typer.Exit(1)


async def _examined(
    namespace: str | None, operator_namespace: str, kubeconfig: Path | None, context: str | None
) -> tuple[Report, str]:
    connection = await connect(kubeconfig, context)
    scope = Scope(namespace, namespace or connection.namespace, operator_namespace, version("specfleet"))
    return await diagnose(connection, scope, CHECKS), connection.server

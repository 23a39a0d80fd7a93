"""`specfleet preflight`: whether drafts fit their targets, from the models' files and without a cluster."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from specfleet.api.findings import Severity
from specfleet.cli.documents import display_name, read_documents
from specfleet.cli.validate import SettingsOption, settings_or_end, text_or_end
from specfleet.preflight.job import opener, run_job
from specfleet.preflight.reading import run_preflight
from specfleet.preflight.request import PreflightRequest, preflight_request
from specfleet.preflight.verdict import Outcome, Verdict
from specfleet.render.validate import validate_document
from specfleet.settings import OperatorSettings

CANNOT_READ = 2
UNKNOWN = 3


class Output(StrEnum):
    """Form of the answer."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True)
class _Asked:
    name: str
    request: PreflightRequest | None


def preflight_command(
    filename: Annotated[
        list[str] | None, typer.Option("--filename", "-f", help="YAML file; - is standard input. May be repeated.")
    ] = None,
    models: Annotated[
        Path | None,
        typer.Option(
            "--models",
            help="Directory with the models' files: DIR/owner/name, DIR/<path of the model>, or a cache of the "
            "Hub's tools. Without it paths are read as they are, and other models from the Hub.",
        ),
    ] = None,
    cache: Annotated[
        Path | None, typer.Option("--cache", help="Directory that keeps what was read from the Hub, by commit.")
    ] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="Form of the answer.")] = Output.TEXT,
    settings: SettingsOption = None,
    job: Annotated[bool, typer.Option("--job", help="Run as the container of a preflight Job.", hidden=True)] = False,
) -> None:
    """Check whether the draft of each SpecDeployment fits its target, before an accelerator is taken.

    Reads config.json, tokenizer and generation files, and of weights the safetensors headers; runs no code of a model.
    HF_TOKEN and HF_ENDPOINT count. Each finding is one line: level, check and message, separated by tabs; then comes
    the outcome. The exit status is 0 where every draft fits (or there is nothing to check), 1 where one does not, 2
    where the input cannot be read or is invalid, and 3 where something could not be looked at.
    """
    if job:
        raise typer.Exit(run_job(os.environ))
    if not filename:
        typer.echo("specfleet preflight: name a file with -f", err=True)
        raise typer.Exit(CANNOT_READ)
    if models is not None and not models.is_dir():
        typer.echo(f"specfleet preflight: --models {models} is no directory", err=True)
        raise typer.Exit(CANNOT_READ)
    judged_by = settings_or_end("preflight", settings)
    asked = [one for file in filename for one in _asked(text_or_end("preflight", file), judged_by)]
    if not asked:
        typer.echo("specfleet preflight: the input holds no SpecDeployment", err=True)
        raise typer.Exit(CANNOT_READ)
    source = opener(os.environ, models, cache)
    answers = [(one, None if one.request is None else run_preflight(one.request, source)) for one in asked]
    if output is Output.JSON:
        typer.echo(json.dumps([_as_json(one, verdict) for one, verdict in answers], indent=2))
    else:
        for one, verdict in answers:
            _tell(one, verdict)
    outcomes = {verdict.outcome for _, verdict in answers if verdict is not None}
    if Outcome.FAILED in outcomes:
        raise typer.Exit(1)
    if Outcome.UNKNOWN in outcomes:
        raise typer.Exit(UNKNOWN)


def _asked(text: str, settings: OperatorSettings) -> list[_Asked]:
    read = read_documents(text)
    problems = [finding.line() for finding in read.findings]
    asked = []
    for document in read.documents:
        deployment, findings = validate_document(document, settings)
        wrong = [one.line() for one in findings if one.severity is Severity.ERROR]
        problems += wrong
        if deployment is not None and not wrong:
            asked.append(_Asked(display_name(document), preflight_request(deployment)))
    if problems:
        for line in problems:
            typer.echo(line, err=True)
        raise typer.Exit(CANNOT_READ)
    return asked


def _tell(one: _Asked, verdict: Verdict | None) -> None:
    if verdict is None:
        typer.echo(f"{one.name}\tNothing to check: External pools, or a mode that drafts without a checkpoint")
        return
    for finding in verdict.findings:
        typer.echo(finding.line())
    typer.echo(f"{one.name}\t{verdict.outcome}")


def _as_json(one: _Asked, verdict: Verdict | None) -> dict[str, Any]:
    if verdict is None:
        return {"name": one.name, "outcome": "NothingToCheck", "findings": []}
    return {"name": one.name, **verdict.as_dict()}

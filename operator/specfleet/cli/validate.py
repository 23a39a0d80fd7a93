"""`specfleet validate`: what is wrong with SpecDeployments, without a cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from specfleet.api.findings import Finding, FindingReason, Severity, warning
from specfleet.api.v1alpha1 import KIND
from specfleet.cli.documents import InputProblem, display_name, read_documents, read_text
from specfleet.render.validate import validate_document
from specfleet.settings import SETTINGS_FILE, OperatorSettings, SettingsProblem, load_settings

FileOption = Annotated[
    list[str], typer.Option("--filename", "-f", help="YAML file; - is standard input. May be repeated.")
]
SettingsOption = Annotated[
    Path | None,
    typer.Option("--settings", help=f"Operator settings to judge by. Default: {SETTINGS_FILE}, if it is there."),
]


def validate_command(
    filename: FileOption,
    strict: Annotated[bool, typer.Option("--strict", help="Warnings count as errors for the exit status.")] = False,
    settings: SettingsOption = None,
) -> None:
    """Check SpecDeployments without a cluster.

    Each finding is one line: severity, reason, path and message, separated by tabs. The exit status is 0 without errors
    (with --strict: without findings), 1 with some, and 2 where the input or the settings cannot be read.
    """
    judged_by = settings_or_end("validate", settings)
    found: list[Finding] = []
    for file in filename:
        found += file_findings(text_or_end("validate", file), judged_by)
    for finding in found:
        typer.echo(finding.line())
    if any(strict or finding.severity is Severity.ERROR for finding in found):
        raise typer.Exit(1)


def file_findings(text: str, settings: OperatorSettings) -> list[Finding]:
    """All findings about the SpecDeployments in a text; with several of them, paths begin with the object's name."""
    read = read_documents(text)
    found = list(read.findings)
    for document in read.documents:
        _, own = validate_document(document, settings)
        if len(read.documents) > 1:
            own = [replace(finding, path=f"{display_name(document)}:{finding.path}") for finding in own]
        found += own
    if not read.documents and not read.findings:
        found.append(
            warning(
                FindingReason.NOTHING_FOUND,
                "",
                f"expected a {KIND}, found none ({read.others} objects of other kinds): is it the right file?",
            )
        )
    return found


def settings_or_end(command: str, file: Path | None) -> OperatorSettings:
    """The settings to judge by; ends the program with a sentence where they cannot be read."""
    try:
        return load_settings(file)
    except SettingsProblem as problem:
        typer.echo(f"specfleet {command}: {problem}", err=True)
        raise typer.Exit(2) from None


def text_or_end(command: str, file: str) -> str:
    """The text of the input; ends the program with a sentence where it cannot be read."""
    try:
        return read_text(file)
    except InputProblem as problem:
        typer.echo(f"specfleet {command}: {problem}", err=True)
        raise typer.Exit(2) from None

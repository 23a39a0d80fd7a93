"""`specfleet render`: all objects of SpecDeployments as YAML, without a cluster."""

from __future__ import annotations

from typing import Annotated, Any

import typer
import yaml

from specfleet.api.findings import Severity
from specfleet.cli.documents import read_documents
from specfleet.cli.validate import FileOption, SettingsOption, file_findings, settings_or_end, text_or_end
from specfleet.render.objects import render_all
from specfleet.render.validate import validate_document


def render_command(
    filename: FileOption,
    settings: SettingsOption = None,
    with_pod_monitor: Annotated[
        bool, typer.Option("--pod-monitor", help="As in a cluster that has the kind PodMonitor.")
    ] = False,
) -> None:
    """Show all objects that specfleet would apply, as YAML.

    The order is that of writing, owner references are left out, and routes have the share of speculation that they
    start with. Findings go to standard error; with an error nothing is rendered and the exit status is 1.
    """
    judged_by = settings_or_end("render", settings)
    texts = [text_or_end("render", file) for file in filename]
    found = [finding for text in texts for finding in file_findings(text, judged_by)]
    for finding in found:
        typer.echo(finding.line(), err=True)
    if any(finding.severity is Severity.ERROR for finding in found):
        raise typer.Exit(1)
    manifests: list[dict[str, Any]] = []
    for text in texts:
        for document in read_documents(text).documents:
            deployment, _ = validate_document(document, judged_by)
            assert deployment is not None
            manifests += render_all(deployment, judged_by, with_pod_monitor=with_pod_monitor)
    typer.echo(manifest_yaml(manifests), nl=False)


class _Dumper(yaml.SafeDumper):
    """Writes values in full, and text of several lines as a block."""

    def ignore_aliases(self, data: object) -> bool:
        return True


# Line breaks of YAML beside the newline: only in double quotes do they come back as they were.
_OTHER_BREAKS = frozenset("\x85\u2028\u2029")


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    style = '"' if _OTHER_BREAKS & set(value) else "|" if "\n" in value else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _text)


def manifest_yaml(manifests: list[dict[str, Any]]) -> str:
    """The objects as YAML documents, keys in the order in which they were built."""
    return yaml.dump_all(manifests, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True, explicit_start=True)

"""`specfleet engines`: what each engine release can draft with, from the tables that validation and rendering use."""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import StrEnum
from typing import Annotated, Any

import typer
from packaging.version import Version

from specfleet.api.v1alpha1 import EngineType
from specfleet.engines import sglang_tables, trtllm_tables
from specfleet.engines.capabilities import CapabilityTable, Mode, capabilities, runs_text
from specfleet.engines.release import Minor, parse_version
from specfleet.engines.sglang_tables import SGLangMode, SGLangTable
from specfleet.engines.trtllm_tables import TrtllmMode, TrtllmTable
from specfleet.engines.vllm_tables import NEWEST, OLDEST


class Output(StrEnum):
    """How to print."""

    TEXT = "text"
    JSON = "json"


def engines_command(
    release: Annotated[
        str | None,
        typer.Option("--release", "-r", help="Only what it can do: vLLM 0.32, SGLang 0.5.20, TensorRT-LLM 1.2.1."),
    ] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="Text, or JSON for programs.")] = Output.TEXT,
) -> None:
    """Say which draft modes each engine release has, what each needs, takes and cannot be combined with."""
    documents = _documents_or_end(release)
    if output is Output.JSON:
        typer.echo(json.dumps(documents, indent=2))
        return
    typer.echo("\n\n".join("\n".join(_lines(document)) for document in documents))


def _documents_or_end(text: str | None) -> list[dict[str, Any]]:
    """The tables of all engines, or of the one whose release was asked for: they count differently."""
    vllm, sglang, trtllm = capabilities(EngineType.VLLM), sglang_tables.table(), trtllm_tables.table()
    if text is None:
        return [_document(vllm, None), _sglang_document(sglang, None), _trtllm_document(trtllm, None)]
    version = parse_version(text)
    parts = len(version.release) if version is not None else 0
    if version is not None and OLDEST.release[:parts] <= version.release and Minor.of(version) <= NEWEST:
        return [_document(vllm, vllm.read(version))]
    if version is not None and sglang.releases[0] <= version <= sglang.newest:
        return [_sglang_document(sglang, sglang.nearest(version))]
    if version is not None and trtllm_tables.OLDEST <= version <= trtllm.newest:
        return [_trtllm_document(trtllm, version)]
    what = f"{text} is not among the releases that are rendered" if version is not None else f"{text!r} is no release"
    typer.echo(
        f"specfleet engines: {what}: write one of vLLM from {OLDEST} to {NEWEST}, of SGLang from "
        f"{sglang.releases[0]} to {sglang.newest}, or of TensorRT-LLM from {trtllm_tables.OLDEST} to {trtllm.newest}",
        err=True,
    )
    raise typer.Exit(2)


def _document(table: CapabilityTable, release: Version | None) -> dict[str, Any]:
    modes = [mode for mode in table.modes if release is None or table.method(mode.mode, release) is not None]
    return {
        "engine": str(table.engine),
        "rendered": [str(OLDEST), str(NEWEST)],
        "release": str(release) if release is not None else None,
        "modes": [_mode(table, mode, release) for mode in modes],
        "refusedFields": [
            {"since": _bound(row.releases.since), "until": _bound(row.releases.until), "fields": list(row.fields)}
            for row in table.refused_fields
            if release is None or release in row.releases
        ],
        "notOffered": dict(table.not_offered),
        "attribution": table.attribution,
        "metrics": table.metrics,
        "notes": list(table.notes),
        "sources": list(table.sources),
    }


def _sglang_document(table: SGLangTable, release: Version | None) -> dict[str, Any]:
    modes = [mode for mode in table.modes if release is None or mode.mode in table.available(release)]
    return {
        "engine": str(EngineType.SGLANG),
        "rendered": [str(table.releases[0]), str(table.newest)],
        "release": _bound(release),
        "modes": [_sglang_mode(table, mode, release) for mode in modes],
        "refusedFields": [],
        "notOffered": {},
        "attribution": table.attribution,
        "metrics": table.metrics,
        "notes": list(table.notes),
        "sources": list(table.sources),
    }


def _sglang_mode(table: SGLangTable, mode: SGLangMode, release: Version | None) -> dict[str, Any]:
    return {
        "mode": str(mode.mode),
        "method": mode.algorithm,
        "releases": runs_text(table.having(mode.mode), table.facts.releases),
        "checkpoint": str(mode.checkpoint),
        "package": None,
        "needs": list(mode.needs),
        "args": list(table.args_of(mode.mode, release)) if release is not None else sorted(mode.args),
        "conflictingFlags": [
            {
                "flag": conflict.flag if conflict.value is None else f"{conflict.flag}={conflict.value}",
                "since": _bound(conflict.since),
                "until": _bound(conflict.until),
                "why": conflict.why,
            }
            for conflict in mode.conflicts
            if release is None or conflict.holds(release)
        ],
        "lookahead": None,
        "firstEngine": [],
        "unusable": [],
        "sources": list(mode.sources),
    }


def _trtllm_document(table: TrtllmTable, release: Version | None) -> dict[str, Any]:
    modes = [mode for mode in table.modes if release is None or table.type_of(mode.mode, release) is not None]
    return {
        "engine": str(EngineType.TENSORRTLLM),
        "rendered": [str(trtllm_tables.OLDEST), str(table.newest)],
        "release": _bound(release),
        "modes": [_trtllm_mode(table, mode, release) for mode in modes],
        "refusedFields": [],
        "notOffered": dict(table.not_offered),
        "attribution": table.attribution,
        "metrics": table.metrics,
        "notes": [*table.notes, *(f"Weak: {one}" for one in table.weak)],
        "sources": list(table.sources),
    }


def _trtllm_mode(table: TrtllmTable, mode: TrtllmMode, release: Version | None) -> dict[str, Any]:
    order = table.sections["types"].read
    return {
        "mode": str(mode.mode),
        "method": table.type_of(mode.mode, release or table.newest),
        "releases": runs_text(table.having(mode.mode), order),
        "checkpoint": str(mode.checkpoint),
        "package": None,
        "needs": [*mode.needs, *(f"weak: {one}" for one in mode.weak)],
        "args": list(table.args_of(mode.mode, release))
        if release is not None
        else sorted({*mode.args, *table.common_args}),
        "conflictingFlags": [],
        "lookahead": None,
        "firstEngine": [],
        "unusable": [],
        "sources": list(mode.sources),
    }


def _bound(release: Version | None) -> str | None:
    return str(release) if release is not None else None


def _mode(table: CapabilityTable, mode: Mode, release: Version | None) -> dict[str, Any]:
    return {
        "mode": str(mode.mode),
        "method": table.method(mode.mode, release or table.facts.releases[-1]) or mode.methods[0],
        "releases": runs_text(table.having(mode.mode), table.facts.releases),
        "checkpoint": str(mode.checkpoint),
        "package": mode.package or None,
        "needs": list(mode.needs),
        "args": list(table.args_of(mode.mode, release))
        if release is not None
        else sorted(mode.args | table.common_args),
        "conflictingFlags": [
            {
                "flag": flag.name,
                "since": _bound(flag.releases.since),
                "until": _bound(flag.releases.until),
                "why": flag.why,
            }
            for flag in mode.flags
            if release is None or release in flag.releases
        ],
        "lookahead": mode.lookahead,
        "firstEngine": [
            {"since": _bound(span.since), "until": _bound(span.until)}
            for span in (mode.first_engine,)
            if span is not None and (release is None or release in span)
        ],
        "unusable": [
            {"since": _bound(one.releases.since), "until": _bound(one.releases.until), "why": one.why}
            for one in mode.unusable
        ],
        "sources": list(mode.sources),
    }


def _lines(document: dict[str, Any]) -> Iterator[str]:
    first, last = document["rendered"]
    yield f"{document['engine']} {document['release'] or f'{first} to {last} are rendered'}"
    for mode in document["modes"]:
        yield ""
        yield f"{mode['mode']}  method {mode['method']}, {mode['releases']}"
        yield from (f"  needs {need}" for need in mode["needs"])
        for span in mode["firstEngine"]:
            until = f" up to {span['until']}" if document["release"] is None else ""
            yield f"  on the V0 engine only{until}, whose counters tell no acceptance"
        for flag in mode["conflictingFlags"]:
            until = f" up to {flag['until']}" if flag["until"] and document["release"] is None else ""
            yield f"  not with --{flag['flag']}{until}: {document['engine']} {flag['why']}"
        yield f"  drafts[].args: {', '.join(mode['args']) or 'none'}"
    yield ""
    for row in document["refusedFields"]:
        span = " to ".join(bound for bound in (row["since"], row["until"]) if bound)
        yield f"Answered with 400 under speculation ({span}{'' if row['until'] else ' and later'}): " + ", ".join(
            row["fields"]
        )
    yield from document["notes"]

"""`python -m tools.engine_facts read [ENGINE [RELEASE ...]]` and `... diff ENGINE OLD NEW`: see `docs/contributing`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer
from packaging.version import InvalidVersion, Version

from specfleet.api.v1alpha1 import EngineType
from specfleet.engines import facts as product
from specfleet.engines.facts import EngineFactTable, WheelSource, engine_facts
from tools.engine_facts import sglang, vllm
from tools.engine_facts.tables import Facts, by_release, differences, table_text
from tools.engine_facts.wheels import NoWheel, Sources, find

FOLDER = Path(product.__file__).parent
READERS: dict[EngineType, tuple[str, Callable[[Sources], Facts]]] = {
    EngineType.VLLM: (vllm.PACKAGE, vllm.read),
    EngineType.SGLANG: (sglang.PACKAGE, sglang.read),
}

Uv = Annotated[Path, typer.Option("--uv", envvar="UV", help="The program uv.")]
app = typer.Typer(add_completion=False, no_args_is_help=True, help="Facts of released engines, from their wheels.")
Engine = Annotated[EngineType, typer.Argument(case_sensitive=False)]


def _release(engine: EngineType, release: str, uv: Path) -> tuple[WheelSource, Facts]:
    package, read = READERS[engine]
    try:
        wheel = find(package, release, uv)
        return WheelSource(wheel.file, wheel.sha256), read(Sources(wheel))
    except (NoWheel, SyntaxError, ValueError) as problem:
        return WheelSource(missing=str(problem)), {}


def _version(text: str) -> Version:
    try:
        return Version(text)
    except InvalidVersion:
        raise typer.BadParameter(f"expected a release such as 0.33.0, found {text!r}") from None


def _known(engine: EngineType) -> EngineFactTable:
    if not (FOLDER / product.DATA_FILES[engine]).exists():
        return EngineFactTable({}, {})
    return engine_facts(engine)


@app.command("read")
def read_command(
    engines: Annotated[list[EngineType] | None, typer.Option("--engine", case_sensitive=False)] = None,
    releases: Annotated[
        list[str] | None, typer.Option("--release", help="Add or renew these; default: renew all.")
    ] = None,
    uv: Uv = Path("uv"),
) -> None:
    """Reads releases from the package index into the data files."""
    for engine in engines or list(READERS):
        table = _known(engine)
        sources, facts = dict(table.sources), by_release(table)
        for release in [_version(text) for text in releases or ()] or sorted(table.sources):
            text = str(release)
            source, found = _release(engine, text, uv)
            if source.missing and release in facts:
                raise typer.BadParameter(f"{engine} {text} is known and cannot be read now: {source.missing}")
            sources[release] = source
            if not source.missing:
                facts[release] = found
            counts = ", ".join(f"{len(rows)} {section}" for section, rows in found.items())
            typer.echo(f"{engine} {text}: {source.missing or counts}")
        path = FOLDER / product.DATA_FILES[engine]
        path.write_text(table_text(READERS[engine][0], sources, facts), encoding="utf-8")


@app.command("diff")
def diff_command(engine: Engine, old: str, new: str, uv: Uv = Path("uv")) -> None:
    """Says what changed between two releases; one that is not in the data file is read from the package index."""
    found = []
    table = _known(engine)
    for text in (old, new):
        facts = by_release(table).get(_version(text))
        if facts is None:
            source, facts = _release(engine, text, uv)
            if source.missing:
                raise typer.BadParameter(f"{engine} {text}: {source.missing}")
        found.append(facts)
    for line in differences(*found):
        typer.echo(line)


if __name__ == "__main__":
    app()

"""`specfleet`, also found as `kubectl specfleet`. Each command's module is imported when it is used."""

from __future__ import annotations

import importlib
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

COMMANDS = (
    "validate",
    "preflight",
    "plan",
    "render",
    "engines",
    "adopt",
    "explain",
    "off",
    "on",
    "auto",
    "replay",
    "doctor",
    "run",
    "drain",
)
"""Command NAME is `NAME_command` in `specfleet.cli.NAME`, or in the module that `_MODULES` names."""
_MODULES = {"off": "by_hand", "on": "by_hand", "auto": "by_hand"}


class _LazyCommands(TyperGroup):
    """Imports a command with its module: `render` must not wait for the operator's libraries."""

    def list_commands(self, ctx: Any) -> list[str]:
        """All commands, in the order of the help."""
        return list(COMMANDS)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name, or None."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"specfleet.cli.{_MODULES.get(cmd_name, cmd_name)}")
        single = typer.Typer(add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
        single.command(cmd_name)(getattr(module, f"{cmd_name}_command"))
        return typer.main.get_command(single)


app = typer.Typer(
    cls=_LazyCommands,
    help="Speculative-decoding serving fleets on Kubernetes: speculation on where it pays, off where it does not.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"specfleet {version('specfleet')}")
        raise typer.Exit


@app.callback()
def _options(
    show_version: Annotated[
        bool, typer.Option("--version", help="Show the version and end.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    """Options before the command."""


def main() -> None:
    """Entry point of `specfleet` and `kubectl-specfleet`: errors are one line on standard error, never a trace."""
    called = Path(sys.argv[0]).name
    try:
        app(prog_name="kubectl specfleet" if called == "kubectl-specfleet" else "specfleet")
    except BrokenPipeError:
        # The reader (head, say) has gone; Python would complain once more when it closes standard output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except Exception as unexpected:
        if os.environ.get("SPECFLEET_DEBUG"):
            raise
        said = " ".join(str(unexpected).split())
        print(
            f"specfleet: unexpected {type(unexpected).__name__}: {said} (SPECFLEET_DEBUG=1 shows where)",
            file=sys.stderr,
        )
        sys.exit(70)

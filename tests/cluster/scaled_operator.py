"""The operator with shorter patience, for tests: limits that are minutes are a few seconds."""

from __future__ import annotations

import typer

from specfleet.cli.run import run_command
from specfleet.decision import samples
from specfleet.handlers import monitors

STALE_SECONDS = 4.0
GAP_SECONDS = 6.0

if __name__ == "__main__":
    samples.MIN_STALE_SECONDS = STALE_SECONDS
    samples.MIN_GAP_SECONDS = GAP_SECONDS
    monitors.LOOK_SECONDS = 1.0
    typer.run(run_command)

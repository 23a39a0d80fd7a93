"""Configuration files from the templates beside this package."""

from __future__ import annotations

from pathlib import Path
from string import Template

from tests.testbed.paths import TEMPLATES


def filled(name: str, **values: str | Path) -> str:
    """The template `name` with its `$placeholders` filled in; every one needs a value."""
    return Template((TEMPLATES / name).read_text()).substitute(values)


def write_template(name: str, directory: Path, **values: str | Path) -> Path:
    """Write the filled template to `directory` under its own name; returns the file."""
    target = directory / name
    target.write_text(filled(name, **values))
    return target

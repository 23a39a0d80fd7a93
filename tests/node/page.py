"""A page of the manual as a script: its `console` blocks are run as they stand, and answer as they say.

In a block, `$ ` begins a command, `> ` goes on with it, and what follows is its output. `...` on a line of its own
stands for any lines, at the end of a line for the rest of it. Figures, ages and the random ends of pod names may
differ; every other character may not.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

COMMAND_SECONDS = 960.0
ELISION = "..."

_POD_SUFFIX = re.compile(r"-[a-z0-9]{6,10}-[a-z0-9]{5}\b")
_DURATION = re.compile(r"\b(?:\d+(?:\.\d+)?[dhms])+\b")
_FIGURE = re.compile(r"\d+(?:[.:]\d+)*")


class PageError(AssertionError):
    """The page and the world differ; the text says where and how."""


@dataclass(frozen=True)
class Step:
    """One command of a page.

    Args:
        section: the heading above it.
        block: which of the page's blocks it stands in.
        line: its line in the page.
        expected: its output as the page shows it.
    """

    section: str
    block: int
    line: int
    command: str
    expected: tuple[str, ...]


def steps(page: Path) -> list[Step]:
    """All commands of a page in their order."""
    return list(_steps(page.read_text().splitlines()))


def _steps(lines: list[str]) -> Iterator[Step]:
    section, fence, block = "", "", 0
    command: list[str] = []
    expected: list[str] = []
    begun = 0
    for number, line in enumerate(lines, start=1):
        if line.startswith("```"):
            if command:
                yield Step(section, block, begun, "\n".join(command), tuple(expected))
            command, expected = [], []
            fence = "" if fence else line[3:].strip() or "text"
            block += 1
        elif not fence and line.startswith("#"):
            section = line.lstrip("# ").strip()
        elif fence == "console" and line.startswith("$ "):
            if command:
                yield Step(section, block, begun, "\n".join(command), tuple(expected))
            command, expected, begun = [line[2:]], [], number
        elif fence == "console" and line.startswith("> ") and not expected:
            command.append(line[2:])
        elif fence == "console":
            if not command:
                raise PageError(f"line {number}: expected a command ($ ...) before output, found {line!r}")
            expected.append(line)


def run(step: Step, directory: Path, env: Mapping[str, str]) -> str:
    """Run one command as bash does, in `directory`; returns what it printed, both streams.

    Raises:
        PageError: it failed, or printed something else than the page says.
    """
    ended = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", step.command],
        cwd=directory,
        env={**os.environ, **env},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=COMMAND_SECONDS,
        check=False,
    )
    where = f"line {step.line}, `{step.command}`"
    if ended.returncode != 0:
        raise PageError(f"{where} ended with {ended.returncode}:\n{ended.stdout}")
    if not says(step.expected, ended.stdout):
        shown = "\n".join(step.expected)
        raise PageError(f"{where}: the page says\n{shown}\n--- and it printed\n{ended.stdout}")
    return ended.stdout


def says(expected: tuple[str, ...], found: str) -> bool:
    """Whether an output is what the page shows, figures aside."""
    wanted = ""
    for line in expected:
        if line.strip() == ELISION:
            wanted += r"(?:.*\n)*?"
        elif line.endswith(f" {ELISION}"):
            wanted += re.escape(plain(line.removesuffix(ELISION))) + r".*\n"
        else:
            wanted += re.escape(plain(line)) + r"\n"
    lines = [plain(line) for line in found.splitlines()]
    return re.fullmatch(wanted, "".join(f"{line}\n" for line in lines)) is not None


def plain(line: str) -> str:
    """A line without its figures, ages, pod suffixes and column widths."""
    line = _POD_SUFFIX.sub("-POD", line)
    line = _DURATION.sub("TIME", line)
    return " ".join(_FIGURE.sub("N", line).split())

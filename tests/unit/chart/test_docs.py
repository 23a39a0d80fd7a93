"""The manual holds together: links lead somewhere, commands exist, examples are valid, dependencies are explained."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.chart.helm import REPOSITORY
from tests.unit.chart.pages import PAGES, examples

NAMES = [str(page.relative_to(REPOSITORY)) for page in PAGES]


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_lead_to_files_that_exist(page: Path) -> None:
    targets = re.findall(r"\]\(([^)\s]+)\)", prose(page))
    local = [target.partition("#")[0] for target in targets if "://" not in target and not target.startswith("#")]

    assert [target for target in local if not (page.parent / target).exists()] == []


def test_every_page_of_the_manual_is_reached_from_its_index() -> None:
    index = REPOSITORY / "docs" / "index.md"
    reached = {(index.parent / target).resolve() for target in re.findall(r"\]\(([^)#\s]+)", index.read_text())}
    manual = set((REPOSITORY / "docs").glob("**/*.md")) - {index}
    decisions = set((REPOSITORY / "docs" / "decisions").glob("*.md"))

    missing = {str(page.relative_to(index.parent)) for page in manual - decisions - reached}
    assert missing == set(), "add a line for each to docs/index.md"
    assert index.parent / "decisions" in reached


def test_make_targets_that_pages_name_exist() -> None:
    targets = set(re.findall(r"^([a-z.-]+):", (REPOSITORY / "Makefile").read_text(), flags=re.MULTILINE))
    named = {name for page in PAGES for name in re.findall(r"`make ([a-z.-]+)", page.read_text())}

    assert named - targets == set()


@pytest.mark.parametrize(("page", "example"), list(examples()), ids=[page for page, _ in examples()])
def test_the_command_line_finds_nothing_in_an_example(page: str, example: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "example.yaml"
    file.write_text(yaml.safe_dump(example))
    program = Path(sys.executable).with_name("specfleet")

    ended = subprocess.run([program, "validate", "--strict", "-f", file], capture_output=True, text=True, check=False)

    assert (ended.returncode, ended.stdout) == (0, ""), ended.stderr


def test_the_readme_has_a_whole_example() -> None:
    assert "README.md" in {page for page, _ in examples()}


def test_every_dependency_has_its_reason() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    wanted = [
        *project["project"]["dependencies"],
        *(name for group in project["dependency-groups"].values() for name in group),
        *project["build-system"]["requires"],
    ]
    names = {re.split(r"[\[<>=]", requirement)[0] for requirement in wanted}
    rows = re.findall(r"^\| (.+?) \|", (REPOSITORY / "docs/decisions/0002-dependencies.md").read_text(), re.MULTILINE)
    explained = {re.split(r"\[", name)[0].strip() for row in rows for name in row.split(",")}

    assert names - explained == set()
    assert explained - names - {"package", "---", "uv"} == set()


def test_decisions_are_numbered_once_each() -> None:
    numbers = [path.name[:4] for path in (REPOSITORY / "docs" / "decisions").glob("*.md")]

    assert len(numbers) == len(set(numbers))


def test_tests_that_need_the_engine_lie_where_a_phase_of_make_test_runs_them() -> None:
    tests = REPOSITORY / "tests"
    needing = {path for path in tests.glob("**/*.py") if "mark.engine" in path.read_text()} - {Path(__file__)}

    assert [path for path in needing if path.relative_to(tests).parts[0] not in ("render", "node")] == []

"""Changes the rule in small ways, one at a time, and sees that its unit tests notice each: `make mutation`.

mutmut makes the changes and runs the tests, in a directory of its own: it wants the package at the root. What it leaves
there is read back here, since its own listing names mutants by number, and a number moves with every edit.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from tools.mutation.equivalents import Equivalent, read_equivalents
from tools.mutation.mutants import Mutant, read_mutants

ROOT = Path(__file__).parents[2]
LIST = Path(__file__).with_name("equivalents.yaml")
DECISION = "specfleet/decision"
MODULES = ("rule", "evidence", "message")
MOST_SURVIVE = 0.05


def prepare(work: Path, modules: list[str]) -> None:
    """A fresh copy of what mutmut needs, with its settings. Property tests are left out: they take chance for proof."""
    shutil.rmtree(work, ignore_errors=True)
    junk = shutil.ignore_patterns("__pycache__", "*.pyc")
    shutil.copytree(ROOT / "operator" / "specfleet", work / "specfleet", ignore=junk)
    shutil.copytree(ROOT / "tests" / "unit" / "decision", work / "tests" / "unit" / "decision", ignore=junk)
    shutil.copytree(ROOT / "docs" / "reference", work / "docs" / "reference")
    settings = {
        "source_paths": [f"{DECISION}/{module}.py" for module in modules],
        "pytest_add_cli_args_test_selection": ["tests/unit/decision"],
        "pytest_add_cli_args": ["-m", "not hypothesis"],
        "also_copy": ["docs", "specfleet"],
        "use_git_change_detection": ["false"],
    }
    lines = ["[mutmut]"]
    for name, values in settings.items():
        lines += [f"{name} =", *(f"    {value}" for value in values)]
    # Pytest would take the settings of the directories above, and the package that they name.
    lines += ["[tool:pytest]", "addopts = --import-mode=importlib"]
    (work / "setup.cfg").write_text("\n".join(lines) + "\n")


def judged(mutants: list[Mutant], known: list[Equivalent]) -> tuple[list[Mutant], list[Equivalent]]:
    """The survivors that nobody has shown to be equivalent, and the entries of the list that no survivor needs."""
    left = list(known)
    unknown = []
    for mutant in mutants:
        if mutant.killed:
            continue
        entry = next((one for one in left if one.explains(mutant)), None)
        if entry is None:
            unknown.append(mutant)
        else:
            left.remove(entry)
    return unknown, left


def main() -> int:
    """Run, report and answer 0 where each survivor is known to be equivalent and they are few."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutation", description=main.__doc__)
    parser.add_argument("modules", nargs="*", default=list(MODULES), help="modules of specfleet.decision")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "mutation", help="directory, made anew")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    parser.add_argument("--read-only", action="store_true", help="judge what an earlier run left in the directory")
    asked = parser.parse_args()
    known = [one for one in read_equivalents(LIST) if one.module in asked.modules]
    if not asked.read_only:
        prepare(asked.work, asked.modules)
        command = [sys.executable, "-m", "mutmut", "run", "--max-children", str(asked.jobs)]
        subprocess.run(command, cwd=asked.work, check=True)  # noqa: S603 no words of others in it
    mutants = [mutant for module in asked.modules for mutant in read_mutants(asked.work / "mutants", DECISION, module)]
    return report(mutants, *judged(mutants, known))


def report(mutants: list[Mutant], unknown: list[Mutant], unneeded: list[Equivalent]) -> int:
    """Print the figures and what is wrong; 0 where nothing is."""
    for mutant in unknown:
        print(f"\n{mutant.status}: {mutant.function}\n{mutant.diff}", end="")
    for entry in unneeded:
        print(
            f"\nlisted as equivalent, but it was killed or is not made any more: {entry.function}\n{entry.diff}", end=""
        )
    survivors = [mutant for mutant in mutants if not mutant.killed]
    share = len(survivors) / len(mutants) if mutants else 1.0
    print(
        f"\n{len(mutants)} mutants, {len(mutants) - len(survivors)} killed, {len(survivors)} survive "
        f"({100.0 * share:.1f} %), {len(survivors) - len(unknown)} of them shown to be equivalent."
    )
    if unknown or unneeded:
        print(
            f"{len(unknown)} survivors are not in tools/mutation/equivalents.yaml, {len(unneeded)} entries there are "
            "not needed: write a test that notices the change, or add the mutant with the reason why nobody can."
        )
    if share > MOST_SURVIVE:
        print(f"More than {100.0 * MOST_SURVIVE:.0f} % survive: write the code so that fewer changes mean nothing.")
    return 1 if unknown or unneeded or share > MOST_SURVIVE else 0


if __name__ == "__main__":
    sys.exit(main())

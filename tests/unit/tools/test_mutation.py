"""What `make mutation` makes of mutmut's results: each mutant named by its change, and judged by the list."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tools.mutation.__main__ import LIST, judged, report
from tools.mutation.equivalents import Equivalent, read_equivalents
from tools.mutation.mutants import Mutant, read_mutants

MUTATED = '''
def x_over__mutmut_orig(a, b):
    """Whether a is over b."""
    return (
        a > b
    )


def x_over__mutmut_1(a, b):
    """Whether a is over b."""
    return (
        a >= b
    )


class Line:
    def xǁLineǁis_set__mutmut_orig(self):
        return self.value is not None

    def xǁLineǁis_set__mutmut_1(self):
        return self.value is None
'''


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A directory as mutmut 3 leaves it."""
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "lines.py").write_text(MUTATED)
    codes = {"pkg.lines.x_over__mutmut_1": 0, "pkg.lines.xǁLineǁis_set__mutmut_1": 1}
    (tmp_path / "pkg" / "lines.py.meta").write_text(json.dumps({"exit_code_by_key": codes}))
    return tmp_path


SURVIVOR = Mutant("lines.over", "-return a > b\n+return a >= b\n", "survived")


def test_a_mutant_is_its_function_and_the_change_on_one_line(results: Path) -> None:
    assert list(read_mutants(results, "pkg", "lines")) == [
        SURVIVOR,
        Mutant("lines.Line.is_set", "-return self.value is not None\n+return self.value is None\n", "killed"),
    ]


@pytest.mark.parametrize(
    ("code", "killed"), [(1, True), (3, True), (36, True), (0, False), (33, False), (None, False), (-11, False)]
)
def test_only_a_test_that_fails_or_never_ends_kills(results: Path, code: int | None, killed: bool) -> None:
    meta = results / "pkg" / "lines.py.meta"
    meta.write_text(json.dumps({"exit_code_by_key": {"pkg.lines.x_over__mutmut_1": code}}))
    [mutant] = read_mutants(results, "pkg", "lines")
    assert mutant.killed is killed


def test_a_survivor_fails_unless_it_is_listed_and_an_entry_counts_once(capsys: pytest.CaptureFixture[str]) -> None:
    killed = [Mutant("lines.over", f"-a\n+{n}\n", "killed") for n in range(60)]
    entry = Equivalent("lines.over", SURVIVOR.diff, "for no reason")
    assert judged([SURVIVOR, SURVIVOR], [entry]) == ([SURVIVOR], [])
    assert report([SURVIVOR, *killed], *judged([SURVIVOR], [])) == 1
    assert "survived: lines.over\n-return a > b\n+return a >= b" in capsys.readouterr().out
    assert report([SURVIVOR, *killed], *judged([SURVIVOR], [entry])) == 0
    assert "61 mutants, 60 killed, 1 survive (1.6 %), 1 of them shown to be equivalent." in capsys.readouterr().out


def test_an_entry_that_nothing_needs_fails(capsys: pytest.CaptureFixture[str]) -> None:
    killed = Mutant("lines.over", SURVIVOR.diff, "killed")
    assert report([killed], *judged([killed], [Equivalent("lines.over", SURVIVOR.diff, "for no reason")])) == 1
    assert "listed as equivalent, but it was killed or is not made any more: lines.over" in capsys.readouterr().out


def test_more_than_a_twentieth_fails_also_where_all_are_listed() -> None:
    killed = [Mutant("lines.over", f"-a\n+{n}\n", "killed") for n in range(18)]
    entry = Equivalent("lines.over", SURVIVOR.diff, "for no reason")
    assert report([SURVIVOR, *killed], *judged([SURVIVOR], [entry])) == 1
    assert report([SURVIVOR, *killed, killed[0]], *judged([SURVIVOR], [entry])) == 0
    assert report([], [], []) == 1


def test_the_list_gives_a_reason_of_one_line_for_each(tmp_path: Path) -> None:
    assert all(one.reason for one in read_equivalents(LIST))
    bare = tmp_path / "list.yaml"
    bare.write_text("- {function: lines.over, diff: '-a', reason: ''}\n")
    with pytest.raises(ValueError, match="expected function, diff and a reason of one line"):
        read_equivalents(bare)

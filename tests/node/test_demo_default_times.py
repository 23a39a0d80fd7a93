"""The demo's outcome with the block and the dwell that a real fleet has: a switch takes five minutes at least."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.node.test_smoke import shown

pytestmark = pytest.mark.node


def test_the_demos_outcome_is_the_same_with_the_default_block_and_dwell(tmp_path: Path) -> None:
    said = shown(tmp_path, "--default-times", "--switch-seconds", "1500", "--stay-seconds", "120")
    assert "block and dwell are the defaults" in said

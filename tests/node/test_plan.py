"""The KV plan beside what real vLLM counts: Gemma 3, whose layers are of two kinds, in both pools."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.node import planned
from tests.node.conftest import Fleet
from tests.testbed import api

pytestmark = pytest.mark.node


def test_the_plan_agrees_with_the_running_engine(real_fleet: Fleet, tmp_path: Path) -> None:
    target = real_fleet.body()["spec"]["target"]["model"]
    planned.agree(planned.plans(real_fleet, tmp_path, {target: api.model_dir()}))

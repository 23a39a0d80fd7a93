"""What the chart renders, whole, against files that a reviewer can read.

After a wanted change: `python -m tests.unit.chart.test_golden` writes them anew.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.unit.chart.helm import rendered

HERE = Path(__file__).parent
CASES = sorted(path.stem for path in (HERE / "values").glob("*.yaml"))


def rendered_text(case: str) -> str:
    """The objects for `values/CASE.yaml`, in the order Helm renders them."""
    values = yaml.safe_load((HERE / "values" / f"{case}.yaml").read_text())
    return yaml.safe_dump_all(rendered(values), sort_keys=False, width=120)


@pytest.mark.parametrize("case", CASES)
def test_chart_renders_the_golden_objects(case: str) -> None:
    assert rendered_text(case) == (HERE / "golden" / f"{case}.yaml").read_text()


if __name__ == "__main__":
    for name in CASES:
        (HERE / "golden" / f"{name}.yaml").write_text(rendered_text(name))

"""The page of conditions and the code's table are one."""

from __future__ import annotations

from pathlib import Path

from specfleet.api.conditions import markdown_tables
from specfleet.metrics.own import OperatorMetrics

DOCS = Path(__file__).resolve().parents[3] / "docs" / "reference"


def test_the_page_has_the_tables_of_the_code() -> None:
    assert markdown_tables() in (DOCS / "conditions.md").read_text()


def test_the_metrics_page_names_every_series() -> None:
    page = (DOCS / "metrics.md").read_text()
    families = {family.name for family in OperatorMetrics().registry.collect()}
    assert {name for name in families if name not in page} == set()

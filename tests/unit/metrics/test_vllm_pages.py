"""vLLM's pages by release, as `record_vllm.py` wrote them with each release's own definitions.

Each page has 30 requests of 41 tokens; of V1, 400 drafts of 4 tokens of which 2 were accepted.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from specfleet.api.v1alpha1 import EngineType
from specfleet.decision.samples import RouteTotals
from specfleet.metrics.engine import EngineReading, parse_page

PAGES = Path(__file__).with_name("pages")
V1 = ["0.8.5", "0.9.2", "0.12.0", "0.28.0"]


def read(name: str, **replaced: str) -> EngineReading:
    """A release's page."""
    text = (PAGES / f"vllm-{name}.txt").read_text()
    for old, new in replaced.items():
        text = text.replace(old, new)
    return parse_page(text, 50.0, EngineType.VLLM)


@pytest.mark.parametrize("release", V1)
def test_the_v1_engine_counts_alike_in_every_release(release: str) -> None:
    page = read(release)

    assert page.totals(4) == RouteTotals(tokens=1200, accepted=800, drafted=1600, requests=30)
    assert (page.running, page.waiting, page.rounds, page.speculative) == (2, 1, 400, True)


def test_the_v0_engine_counts_nothing_that_can_be_decided_by() -> None:
    """Its counters hold 2,000 accepted tokens where 800 were, and 1,200 were generated."""
    page = read("0.9.2-v0")

    assert (page.accepted, page.decode_tokens) == (2000, 1200)
    assert page.speculative is True
    assert page.totals(4) is None


def test_without_speculation_there_is_no_series_of_drafts_and_nothing_is_counted() -> None:
    page = read("0.12.0", spec_decode="other")

    assert page.speculative is False
    assert page.totals(4) is None

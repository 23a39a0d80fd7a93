"""SGLang's pages by release, as `record_sglang.py` wrote them with each release's own collectors.

On each page route code has 10 requests of 41 tokens in 10 verifications, route chat 20 of 41 in 36.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from specfleet.api.v1alpha1 import EngineType
from specfleet.decision.samples import RouteTotals
from specfleet.metrics.engine import EngineReading, parse_page

PAGES = Path(__file__).with_name("pages")
COUNTING = ["0.5.13", "0.5.23"]
BEFORE = ["0.5.3", "0.5.9"]
# The scheduler's gauges, as log_stats sets them from rank 0; each release means another rate by the same name.
GAUGES = """
sglang:spec_accept_length{engine_type="unified",model_name="assistant",pp_rank="0",tp_rank="0"} 3.2
sglang:spec_accept_rate{engine_type="unified",model_name="assistant",pp_rank="0",tp_rank="0"} RATE
sglang:num_running_reqs{engine_type="unified",model_name="assistant",pp_rank="0",tp_rank="0"} 0.0
"""


def read(release: str, more: str = "") -> EngineReading:
    """A release's page, with lines added to it."""
    return parse_page((PAGES / f"sglang-{release}.txt").read_text() + more, 50.0, EngineType.SGLANG, "route")


@pytest.mark.parametrize("release", COUNTING)
def test_generated_tokens_and_verifications_give_each_routes_acceptance(release: str) -> None:
    # code: 400 decode tokens in 100 verifications of 4 drafted; chat: 800 in 720.
    assert read(release).route_totals(4) == {
        "code": RouteTotals(400, 300, 400, 10),
        "chat": RouteTotals(800, 80, 2880, 20),
    }


@pytest.mark.parametrize("release", COUNTING)
def test_all_routes_together_are_what_the_routes_are(release: str) -> None:
    page = read(release)
    routes = page.route_totals(4)

    assert routes is not None
    assert page.totals(4) == RouteTotals(1200, 380, 3280, 30)
    assert sum(one.tokens for one in routes.values()) == 1200


@pytest.mark.parametrize("rate", ["0.05", "0.9", "1.03"])
@pytest.mark.parametrize("release", BEFORE)
def test_before_the_counter_no_gauge_stands_in_for_it(release: str, rate: str) -> None:
    """(accepted + bonus)/(verifications x (steps + 1)) in 0.5.3, over the draft tokens from 0.5.5 on, and above 1."""
    page = read(release, GAUGES.replace("RATE", rate))

    assert page.speculative is True
    assert page.totals(4) is None
    assert page.route_totals(4) is None


@pytest.mark.parametrize("release", COUNTING)
def test_a_gauge_that_stands_still_changes_nothing(release: str) -> None:
    assert read(release, GAUGES.replace("RATE", "0.95")).route_totals(4) == read(release).route_totals(4)


def test_requests_without_a_route_are_of_none() -> None:
    page = (PAGES / "sglang-0.5.23.txt").read_text().replace('route="chat"', 'route=""')
    found = parse_page(page, 50.0, EngineType.SGLANG, "route").route_totals(4)

    assert found is not None
    assert set(found) == {"code"}


def test_aborted_drafts_never_accept_more_than_was_drafted() -> None:
    """An answer cut short, or a tree: what was generated beyond one a verification is at most k each."""
    found = read("0.5.23").route_totals(1)

    assert found is not None
    assert found["code"] == RouteTotals(400, 100, 100, 10)

"""TensorRT-LLM's pages, declared as its source declares them (`record_trtllm.py`), and what is read of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from specfleet.api.v1alpha1 import EngineType
from specfleet.decision.samples import RouteTotals
from specfleet.metrics.engine import EngineReading, parse_page
from tests.unit.metrics.record_trtllm import Pages, recorded, speculating

PAGES = Path(__file__).with_name("pages")


def read(text: str) -> EngineReading:
    return parse_page(text, 50.0, EngineType.TENSORRTLLM)


def page(name: str) -> EngineReading:
    return read((PAGES / f"trtllm-{name}.txt").read_text())


def test_the_committed_pages_are_what_is_recorded() -> None:
    assert {name: (PAGES / f"{name}.txt").read_text() for name in recorded()} == recorded()


def test_drafts_and_tokens_give_one_count_for_all_routes() -> None:
    reading = page("speculating")

    assert reading.speculative is True
    assert reading.totals(4) == RouteTotals(tokens=800, accepted=480, drafted=1280, requests=20)
    assert reading.routes == {}


def test_counters_by_position_are_not_added_to_those_of_all_positions() -> None:
    assert page("speculating").drafted == 1280


def test_a_process_that_has_answered_nothing_yet_is_at_zero() -> None:
    reading = page("fresh")

    assert (reading.decode_tokens, reading.finished) == (0, 0)
    assert reading.totals(4) == RouteTotals(0, 0, 0, 0)


def test_before_the_counters_nothing_is_told_and_nothing_is_zero() -> None:
    reading = page("before-counters")

    assert reading.finished == 1
    assert reading.totals(4) is None


def test_an_engine_that_says_that_it_does_not_speculate_has_no_count() -> None:
    assert page("baseline").speculative is None
    assert page("baseline").totals(4) is None


def test_drafts_of_requests_under_way_are_never_more_than_ended_ones_can_have_had() -> None:
    """Iterations count at once, tokens with the end of their request: 4 of 5 tokens at most were drafted ones."""
    one = Pages(counts=True, speculative=True)
    for _ in range(100):
        one.iterate(drafted=4, accepted=4, running=8)
    one.finish(tokens=51)

    assert read(one.text()).totals(4) == RouteTotals(50, 40, 400, 1)


def test_a_configured_engine_that_drafted_nothing_at_all_has_counted_no_drafts() -> None:
    one = Pages(counts=True, speculative=True)
    one.iterate(drafted=0, accepted=0)
    one.finish(tokens=51)

    assert read(one.text()).totals(4) == RouteTotals(50, 0, 0, 1)


def test_without_statistics_of_iterations_no_drafts_are_unknown_not_none() -> None:
    one = Pages(counts=True, speculative=True)
    one.finish(tokens=51)

    assert read(one.text()).totals(4) is None


def test_requests_that_were_cancelled_are_not_taken_for_one_with_a_first_token() -> None:
    one = speculating()
    one.finish(tokens=0, reason="cancelled")

    assert read(one.text()).totals(4) == page("speculating").totals(4)


@pytest.mark.parametrize(
    ("text", "engine", "part"),
    [
        (
            "vllm:generation_tokens_total 5\n",
            EngineType.TENSORRTLLM,
            "is vLLM's page, and engine.type says TensorRTLLM",
        ),
        ("trtllm_request_success_total 5\n", EngineType.VLLM, "is TensorRTLLM's page, and engine.type says vLLM"),
        ("go_goroutines 5\n", EngineType.TENSORRTLLM, "no series trtllm_..."),
        ('[{"iter": 1, "specDecodingStats": {}}]', EngineType.TENSORRTLLM, "no series trtllm_..."),
    ],
    ids=["vllm", "trtllm", "other", "iteration statistics as JSON"],
)
def test_another_page_is_told_from_it(text: str, engine: EngineType, part: str) -> None:
    with pytest.raises(ValueError, match="page") as caught:
        parse_page(text, 50.0, engine)

    assert part in str(caught.value)

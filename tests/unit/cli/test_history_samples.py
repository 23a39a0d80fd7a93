"""From the series of a Prometheus answer to samples of processes."""

from __future__ import annotations

import random

import pytest

from specfleet.cli.history.recorded import Grid, Sample, samples
from specfleet.decision.samples import RouteTotals
from specfleet.metrics.promapi import Series

POD = {"namespace": "serving", "pod": "assistant-router-5d8f7c9b6-x2x4z"}
PLACE = {"route": "chat", "pool": "ngram", "intended": "ngram"}
COUNTS = {"measured": 30, "decode_tokens": 3000, "accepted": 1000, "drafted": 8000}


def series(name: str, values: list[tuple[float, str]], **labels: str) -> Series:
    return {"metric": {"__name__": name, **POD, **labels}, "values": values}


def answer(times: list[float], **labels: str) -> list[Series]:
    """Scrapes of a router that counts `COUNTS` from each to the next."""
    found = [series("specfleet_router_uptime", [(at, str(at)) for at in times], **labels)]
    for name, count in COUNTS.items():
        values = [(at, str(count * number)) for number, at in enumerate(times)]
        found.append(series(f"specfleet_{name}", values, **PLACE, **labels))
    return found


def totals(found: list[Sample]) -> list[RouteTotals]:
    return [one.counts["chat", "speculative"].totals for one in found]


def test_series_come_back_as_scrapes_in_whatever_order_they_are_answered() -> None:
    times = [30.0, 60.0, 90.0]
    shuffled = answer(times)
    random.Random(1).shuffle(shuffled)
    found = samples(shuffled, "router", after=30.0)
    assert [one.at for one in found] == [60.0, 90.0]
    assert totals(found) == [RouteTotals(3000, 1000, 8000, 30), RouteTotals(6000, 2000, 16000, 60)]
    assert [one.started_at for one in found] == [0.0, 0.0]


def test_two_jobs_that_scrape_one_router_are_not_added_up() -> None:
    times = [30.0, 60.0, 90.0]
    twice = answer(times, job="pods") + answer(times, job="podmonitor")
    assert totals(samples(twice, "router", after=0.0)) == totals(samples(answer(times), "router", after=0.0))


@pytest.mark.parametrize("text", ["NaN", "+Inf", "-Inf"])
def test_what_is_no_number_is_no_sample(text: str) -> None:
    broken = [*answer([30.0]), series("specfleet_accepted", [(60.0, text)], **PLACE)]
    assert [one.at for one in samples(broken, "router", after=0.0)] == [30.0]


def test_an_answer_that_came_from_another_pool_than_was_meant_is_no_evidence() -> None:
    elsewhere = series("specfleet_accepted", [(30.0, "7")], **{**PLACE, "pool": "baseline"})
    assert totals(samples([*answer([30.0, 60.0]), elsewhere], "router", after=0.0))[0].accepted == 0


def test_a_process_that_tells_no_start_counts_from_zero_after_its_counters_fell() -> None:
    def scrape(at: float, count: int) -> list[Series]:
        counters = [series(f"specfleet_{name}", [(at, str(one * count))], **PLACE) for name, one in COUNTS.items()]
        return [*counters, series("specfleet_requests", [(at, str(30 * count))], code="200", **PLACE)]

    grid = Grid(begin=60.0, block_seconds=60.0)
    counted = []
    for at, count in ((30.0, 100), (60.0, 101), (90.0, 102), (120.0, 1), (150.0, 2), (180.0, 3)):
        for blocks, _ in grid.fed(samples(scrape(at, count), "router", after=0.0), at):
            block = blocks["chat"].block
            counted.append(None if block is None else block.requests)
    assert counted == [60, 60]
    assert grid.dropped["Restart"] == 1

"""What a route under Observe is told that the rule would have done."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specfleet.decision.report import Report, observed, sentence
from specfleet.decision.rule import Block, Pool, RouteConfig, start, step

DAY = 1_764_374_400.0  # midnight
CONFIG = RouteConfig(initial="speculative", enforce=False, break_even=1.6)


def minute(at: float, tokens_per_step: float) -> Block:
    accepted = round(6000 * (1.0 - 1.0 / tokens_per_step))
    return Block(at=at, tokens=6000, accepted=accepted, drafted=4 * (6000 - accepted), requests=30, share=1.0)


def watched(figures: list[float], config: RouteConfig = CONFIG) -> tuple[Report | None, list[tuple[float, Pool]]]:
    """The last report, and where the rule would have had the route from each time on."""
    state, report, places = start(config, DAY), None, [(DAY, config.initial)]
    report = observed(None, state, config, DAY)
    for number, x in enumerate(figures, start=1):
        now = DAY + 60.0 * number
        state, verdict = step(state, config, minute(now, x), now)
        report = observed(report, state, config, now)
        places.append((now, verdict.wanted_pool))
    return report, places


def test_a_route_that_would_have_gone_off_says_when_and_for_how_much_of_its_time() -> None:
    report, _ = watched([2.2] * 547 + [1.1] * 73)
    assert report is not None
    assert sentence(report, "speculative", DAY + 620 * 60.0) == (
        "Would have gone off at 09:12; 11 % of this route's time since 00:00 off."
    )


def test_a_route_that_would_have_come_back_keeps_the_time_it_was_off() -> None:
    report, places = watched([2.2] * 60 + [1.1] * 60 + [2.2] * 120)
    assert report is not None
    off = sum(later - at for (at, pool), (later, _) in pairwise(places) if pool == "baseline")
    assert report.would_be == "speculative"
    assert report.off_seconds == off > 0.0
    assert "come back on" in sentence(report, "speculative", DAY + 86_400.0)
    assert "2 switches" in sentence(report, "speculative", DAY + 86_400.0)


def test_a_route_that_pays_would_have_switched_nothing() -> None:
    report, _ = watched([2.2] * 60)
    assert report is not None
    assert sentence(report, "speculative", DAY + 3600.0) == (
        "Would have switched nothing since 00:00: on all the time."
    )


def test_a_route_that_never_speculated_says_what_would_bring_figures() -> None:
    report, _ = watched([], replace(CONFIG, initial="baseline"))
    assert report is not None
    assert "initial: Speculative" in sentence(report, "baseline", DAY + 60.0)


@pytest.mark.parametrize(
    "config",
    [replace(CONFIG, enforce=True), replace(CONFIG, override="Never"), replace(CONFIG, break_even=None)],
)
def test_where_the_rule_acts_or_has_nothing_to_say_there_is_no_report(config: RouteConfig) -> None:
    before = Report(since=DAY, policy="breakEven 1.6", would_be="speculative")
    assert observed(before, start(config, DAY), config, DAY + 60.0) is None


def test_another_line_in_the_policy_begins_a_new_report() -> None:
    report, _ = watched([1.1] * 20)
    assert report is not None
    assert report.switches == 1
    other = replace(CONFIG, break_even=1.05)
    after = observed(report, start(other, DAY), other, DAY + 2000.0)
    assert after == Report(since=DAY + 2000.0, policy="breakEven 1.05", would_be="speculative")


@given(st.lists(st.tuples(st.sampled_from([1.05, 1.5, 1.65, 3.0]), st.integers(1, 40)), max_size=12))
@settings(max_examples=60, deadline=None)
def test_the_share_is_the_time_that_the_rule_had_the_route_off(spells: list[tuple[float, int]]) -> None:
    report, places = watched([x for x, minutes in spells for _ in range(minutes)])
    assert report is not None
    end = places[-1][0]
    off = sum(later - at for (at, pool), (later, _) in pairwise(places) if pool == "baseline")
    assert report.off_share(end) == pytest.approx(off / (end - DAY) if end > DAY else 0.0)
    assert report.switches == sum(a != b for (_, a), (_, b) in pairwise(places))

"""What share of a route's prompt tokens explores."""

from __future__ import annotations

import math

import pytest

from specfleet.handlers.prefill import FADE_SECONDS, Prefill
from specfleet.routing.counters import RouteRow, RouterSample

NOW = 1_800_000_000.0


def sample(at: float, *rows: tuple[str, str, int]) -> RouterSample:
    """One router's counts of prompt tokens by route and pool."""
    found = tuple(RouteRow(route, pool, pool, prompt_tokens=tokens) for route, pool, tokens in rows)
    return RouterSample(at, NOW - 60, found, {}, {}, 0, 0)


def looked(prefill: Prefill, at: float, base: int, spec: int, exploring: tuple[str, ...] = ("chat",)) -> float | None:
    """The share after a look at one router with these counts of route chat."""
    prefill.look({"a": sample(at, ("chat", "baseline", base), ("chat", "ngram", spec))}, exploring, at)
    return prefill.share("chat", "ngram")


def test_it_is_the_share_of_what_was_counted_since_the_first_look() -> None:
    prefill = Prefill()
    assert looked(prefill, NOW, 1000, 1000) is None
    assert looked(prefill, NOW + 30, 1900, 1100) == pytest.approx(0.1)
    assert looked(prefill, NOW + 60, 1900, 1100) == pytest.approx(0.1)


def test_routers_add_up_and_a_request_that_failed_over_counts_where_it_was_answered() -> None:
    prefill = Prefill()
    over = RouteRow("chat", "ngram", "baseline", prompt_tokens=300)
    for at, scale in ((NOW, 0), (NOW + 30, 1)):
        rows = (("chat", "baseline", 600 * scale), ("chat", "ngram", 100 * scale), ("code", "ngram", 9000 * scale))
        one = sample(at, *rows)
        rest = RouterSample(at, NOW - 60, (over,) if scale else (), {}, {}, 0, 0)
        prefill.look({"a": one, "b": rest}, ["chat"], at)
    assert prefill.share("chat", "ngram") == pytest.approx(0.4)
    assert prefill.share("code", "ngram") is None


def test_a_router_that_was_not_read_once_goes_on_from_its_last_sample() -> None:
    prefill = Prefill()
    looked(prefill, NOW, 0, 0)
    prefill.look({}, ["chat"], NOW + 30)
    assert looked(prefill, NOW + 60, 900, 100) == pytest.approx(0.1)


def test_what_was_counted_fades_within_an_hour() -> None:
    prefill = Prefill()
    looked(prefill, NOW, 0, 0)
    looked(prefill, NOW + 30, 0, 1000)
    prefill.look({}, ["chat"], NOW + 30 + FADE_SECONDS)
    looked(prefill, NOW + 60 + FADE_SECONDS, 0, 1000)
    found = looked(prefill, NOW + 90 + FADE_SECONDS, 1000, 1000)
    assert found == pytest.approx(1 / (1 + math.exp(1 + 60 / FADE_SECONDS)), rel=1e-3)


def test_a_route_that_comes_back_begins_anew() -> None:
    prefill = Prefill()
    looked(prefill, NOW, 0, 0)
    assert looked(prefill, NOW + 30, 500, 500) == pytest.approx(0.5)
    assert looked(prefill, NOW + 60, 500, 5000, exploring=()) is None
    assert looked(prefill, NOW + 90, 600, 5000) == 0.0

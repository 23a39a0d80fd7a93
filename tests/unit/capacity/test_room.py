"""Whether a pool has room for a route, as a switch asks it."""

from __future__ import annotations

import pytest

from specfleet.capacity.room import HeadRoom, room

LIMITS = {"baseline": 128, "ngram": 128}


def ask(
    *active: dict[str, int],
    route: int = 0,
    limits: dict[str, int] = LIMITS,
    baseline_ready: bool = True,
    speculative_ready: bool = True,
) -> HeadRoom:
    return room(
        active,
        route,
        limits,
        baseline_ready=baseline_ready,
        speculative_ready=speculative_ready,
        speculative_pool="ngram",
    )


def test_idle_pools_have_room() -> None:
    assert ask({}) == HeadRoom(to_baseline=True, to_speculation=True)


@pytest.mark.parametrize(("route", "fits"), [(28, True), (29, False)])
def test_the_receivers_requests_and_the_routes_must_fit_its_breaker(route: int, fits: bool) -> None:
    answer = ask({"baseline": 60, "ngram": 40}, {"baseline": 40, "ngram": 20}, route=route)
    assert answer == HeadRoom(to_baseline=fits, to_speculation=True)


def test_a_pool_without_a_ready_pod_has_no_room_while_the_other_serves() -> None:
    assert ask({}, baseline_ready=False) == HeadRoom(to_baseline=False, to_speculation=True)
    assert ask({}, speculative_ready=False) == HeadRoom(to_baseline=True, to_speculation=False)


def test_a_pool_without_a_breaker_has_room() -> None:
    assert ask({"baseline": 10_000}, route=10_000, limits={"ngram": 128}) == HeadRoom(True, False)

"""Routers that cannot be read, or lie, while requests run: nothing moves, the condition says why, and it goes on later.

Readings are stale after 4 s here instead of 90 s. In all of it the drafts of route chat are bad, which would switch it
off within seconds if it were seen, and those of route code are good.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.api import Body, eventually
from tests.cluster.envoy_router import EnvoyRouter, Lie
from tests.cluster.live_fleet import BAD, EXPLORES, QUICK, LiveFleet, Requests

pytestmark = pytest.mark.cluster

SCALED = (str(Path(__file__).with_name("scaled_operator.py")),)
LOOK_SECONDS = 5.0
"""A look is five blocks: as many decide once chat is seen."""


def while_nothing_moves(fleet: LiveFleet, requests: Requests, seconds: float = LOOK_SECONDS) -> None:
    """For that long, and for 20 requests at least, every router serves what it served."""
    answered, until = requests.total + 20, time.monotonic() + seconds
    while time.monotonic() < until or requests.total < answered:
        assert fleet.shares("chat") == fleet.shares("code") == {100}
        time.sleep(0.5)
    for route in ("chat", "code"):
        assert fleet.world.route(route)["history"] == []


def mended(fleet: LiveFleet) -> None:
    """Read again: chat goes off, once, and code stays."""
    fleet.world.until("MetricsAvailable", "True", "RoutersRead")
    fleet.serve("chat", EXPLORES)
    assert fleet.shares("code") == {100}
    eventually("it is told", lambda: fleet.world.route("chat")["phase"] == "Exploring")
    assert [one["pool"] for one in fleet.world.route("chat")["history"]] == ["baseline"]
    assert fleet.world.route("code")["history"] == []
    assert fleet.world.condition("Ready")["status"] == "True"


def silent(routers: list[EnvoyRouter], on: bool) -> None:
    for router in routers:
        router.silent = on


def slow(routers: list[EnvoyRouter], on: bool) -> None:
    for router in routers:
        router.slow_seconds = 5.0 if on else 0.0


def mostly_silent(routers: list[EnvoyRouter], on: bool) -> None:
    silent(routers[1:], on)


@pytest.mark.parametrize(
    ("spoil", "routers", "reason"),
    [
        (silent, 2, "RoutersUnreachable"),
        pytest.param(slow, 2, "RoutersUnreachable", marks=pytest.mark.faults),
        pytest.param(mostly_silent, 3, "InsufficientCoverage", marks=pytest.mark.faults),
    ],
)
def test_routers_that_are_silent_slow_or_mostly_silent_move_nothing(
    fleet: LiveFleet, spoil: Callable[[list[EnvoyRouter], bool], None], routers: int, reason: str
) -> None:
    world = fleet.world
    world.create(policy=QUICK)
    world.start(SCALED, environment={"SPECFLEET_ROUTER__REPLICAS": str(routers)})
    fleet.settled()
    assert len(fleet.routers) == routers
    spoil(fleet.routers, True)
    said = world.until("MetricsAvailable", "False", reason)
    assert "the last decision holds" in said["message"]
    with fleet.traffic(chat=BAD) as requests:
        while_nothing_moves(fleet, requests)
        chat = world.route("chat")
        assert (chat["pool"], chat["phase"], chat["speculativePercent"]["served"]) == ("ngram", "Held", 100)
        assert world.condition("Ready")["status"] == "True"
        spoil(fleet.routers, False)
        mended(fleet)
    assert requests.failures == []


@pytest.mark.faults
def test_one_silent_router_of_three_holds_nothing(fleet: LiveFleet) -> None:
    world = fleet.world
    world.create(policy=QUICK)
    world.start(SCALED, environment={"SPECFLEET_ROUTER__REPLICAS": "3"})
    fleet.settled()
    silent(fleet.routers[:1], True)
    with fleet.traffic(chat=BAD) as requests:
        fleet.serve("chat", EXPLORES)
        assert fleet.shares("code") == {100}
        requests.go_on()
    assert [one["pool"] for one in world.route("chat")["history"]] == ["baseline"]
    assert requests.failures == []


def of_figures(change: Callable[[int], Any]) -> Lie:
    """Changes each counter of answers that were measured."""

    def lie(stats: list[Body]) -> list[Body]:
        figures = ("measured", "decode_tokens", "accepted", "drafted")
        return [
            {**one, "value": change(one["value"])}
            if any(one.get("name", "").startswith(f"specfleet.{name}.") for name in figures)
            else one
            for one in stats
        ]

    return lie


def flood(stats: list[Body]) -> list[Body]:
    """Counters of routes that nobody has heard of, 5 MB of them."""
    label = "specfleet.requests.route.r{}.pool.ngram.intended.ngram.code.200.flags.-.phase.end"
    return [*stats, *({"name": label.format(number), "value": number} for number in range(50_000))]


def leap(stats: list[Body]) -> list[Body]:
    """2^63 more drafted and decoded of 2^63 more answers, and not one accepted: what nobody could have served."""
    figures = ("measured", "decode_tokens", "drafted")
    return [
        {**one, "value": one["value"] + 2**63}
        if any(one.get("name", "").startswith(f"specfleet.{name}.") for name in figures)
        else one
        for one in stats
    ]


LIES: list[tuple[str, Lie, tuple[str, ...]]] = [
    ("no number", of_figures(lambda value: float("nan")), ("RoutersUnreachable",)),
    ("infinite", of_figures(lambda value: float("inf")), ("RoutersUnreachable",)),
    ("negative", of_figures(lambda value: -value - 1), ("RoutersUnreachable",)),
    ("a text", of_figures(str), ("RoutersUnreachable",)),
    ("falling", of_figures(lambda value: 10**9 - int(10 * time.monotonic())), ("FiguresImplausible",)),
    ("a flood of labels", flood, ("RoutersUnreachable",)),
]


def test_routers_that_lie_move_nothing(fleet: LiveFleet) -> None:
    world = fleet.world
    world.create(policy=QUICK)
    world.start(SCALED)
    fleet.settled()
    with fleet.traffic(chat=BAD) as requests:
        for what, lie, reasons in LIES:
            for router in fleet.routers:
                router.lie = lie
            eventually(
                f"{what} is told",
                lambda reasons=reasons: world.condition("MetricsAvailable")["reason"] in reasons,  # type: ignore[misc]
            )
            while_nothing_moves(fleet, requests, seconds=2.0)
        for router in fleet.routers:
            router.lie = None
        mended(fleet)
    assert requests.failures == []


@pytest.mark.faults
def test_counters_that_leap_by_more_than_anybody_serves_move_nothing(fleet: LiveFleet) -> None:
    world = fleet.world
    world.create(policy=QUICK)
    world.start(SCALED)
    fleet.settled()
    with fleet.traffic() as requests:
        eventually(
            "both routes are measured", lambda: all(one["acceptancePercent"] for one in world.status()["routes"])
        )
        for router in fleet.routers:
            router.lie = leap
        world.until("MetricsAvailable", "False", "FiguresImplausible")
        while_nothing_moves(fleet, requests)
        for router in fleet.routers:
            router.lie = None
        world.until("MetricsAvailable", "True", "RoutersRead")
        while_nothing_moves(fleet, requests, 3.0)
    assert requests.failures == []

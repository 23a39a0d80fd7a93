"""Somebody wipes or falsifies the status in a dwell, while requests run; an operator remembers it, or none does."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import pytest

from tests.cluster.api import Body, eventually
from tests.cluster.conftest import World
from tests.cluster.live_fleet import BAD, EXPLORES, GOOD, QUICK, LiveFleet, Requests

pytestmark = pytest.mark.cluster


def stays(fleet: LiveFleet, requests: Requests, seconds: float = 3.0) -> None:
    """For that long, and 20 requests, chat explores at every router, and code speculates."""
    until, answered = time.monotonic() + seconds, requests.total + 20
    while time.monotonic() < until or requests.total < answered:
        assert fleet.shares("chat") <= set(EXPLORES)
        assert fleet.shares("code") == {100}
        time.sleep(0.2)


def told(status: Body) -> list[tuple[object, ...]]:
    """What of a status must not get lost."""
    return [
        (one["name"], one["pool"], one["since"], [switch["at"] for switch in one["history"]])
        for one in status.get("routes") or ()
    ]


def write(world: World, status: object) -> None:
    """What a person does with the status subresource."""
    world.api.patch("SpecDeployment", world.namespace, "assistant", {"status": status}, "status")


def test_a_wiped_status_is_put_back_and_without_anybody_who_remembers_traffic_stays(fleet: LiveFleet) -> None:
    world = fleet.world
    world.create(policy=QUICK)
    operator = world.start()
    fleet.settled()
    with fleet.traffic(chat=BAD) as requests:
        fleet.serve("chat", EXPLORES)
        eventually("it is told", lambda: world.route("chat")["phase"] == "Exploring")
        before = told(world.status())
        falsified = [{**one, "pool": "ngram", "history": [], "state": "x"} for one in world.status()["routes"]]
        for status in (None, {"routes": None, "conditions": None}, {"routes": falsified}):
            write(world, status)
            eventually("it is put back", lambda: told(world.status()) == before and world.condition("Ready"))
            stays(fleet, requests, 1.0)
        assert world.condition("Ready")["status"] == "True"
    assert requests.failures == []

    operator.kill()
    world.api.delete("Lease", world.namespace, "specfleet")
    write(world, None)
    assert "routes" not in world.status()
    wiped = datetime.now(UTC)
    with fleet.traffic(chat=GOOD) as requests:
        world.start()
        world.until("Ready", "True")
        stays(fleet, requests, 4.0)
        chat, code = world.route("chat"), world.route("code")
        assert (chat["pool"], chat["history"], code["pool"], code["history"]) == ("baseline", [], "ngram", [])
        # Its dwell begins anew; that is longer than it was, never shorter.
        assert datetime.fromisoformat(chat["since"]).timestamp() >= int(wiped.timestamp())
        assert world.condition("MetricsAvailable")["status"] == "True"
    assert requests.failures == []


@pytest.mark.faults
def test_with_no_router_that_answers_a_forgotten_route_stays_by_the_files(fleet: LiveFleet) -> None:
    world = fleet.world
    world.create(policy={**QUICK, "initial": "Baseline"})
    operator = world.start()
    fleet.settled()
    world.speculation("chat", "Always")
    fleet.serve("chat", 100)
    world.speculation("chat", "Auto")
    fleet.serve("chat", EXPLORES)
    world.edit({"policy": {"initial": "Speculative"}})
    world.until("Valid", "True")
    operator.kill()
    world.api.delete("Lease", world.namespace, "specfleet")
    write(world, None)
    for router in fleet.routers:
        router.silent = True
    with fleet.traffic() as requests:
        world.start()
        said = world.until("MetricsAvailable", "False", "RoutersUnreachable")
        assert "the last decision holds" in said["message"]
        requests.go_on()
        assert fleet.shares("chat") <= set(EXPLORES)
        assert world.route("chat")["pool"] == "baseline"
    assert requests.failures == []

"""A thousand routes go bad at once, beside a fleet with requests: each is switched off once, served so and told."""

from __future__ import annotations

import json
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cluster.api import Body, eventually
from tests.cluster.conftest import EXAMPLE, World
from tests.cluster.live_fleet import QUICK, LiveFleet
from tests.cluster.operator_process import OperatorProcess
from tests.cluster.routers import Router

pytestmark = [pytest.mark.cluster, pytest.mark.faults]

ROUTES = 1000
OF_ONE = 32
"""The most routes of a SpecDeployment."""
BLOCK_SECONDS = 10
SETTLE_SECONDS = 240.0


def manifests() -> list[Body]:
    """As many SpecDeployments as a thousand routes take, the last with fewer."""
    found = []
    for first in range(0, ROUTES, OF_ONE):
        body = json.loads(json.dumps(EXAMPLE))
        body["metadata"]["name"] = f"many-{first // OF_ONE}"
        count = min(OF_ONE, ROUTES - first)
        named = [
            {"name": f"r{number}", "match": [{"header": {"name": "x-route", "value": f"r{number}"}}]}
            for number in range(count - 1)
        ]
        body["spec"]["routing"]["routes"] = [*named, {"name": "chat"}]
        body["spec"]["policy"] |= {"block": f"{BLOCK_SECONDS}s", "dwell": f"{2 * BLOCK_SECONDS}s"}
        found.append(body)
    return found


def all_of(world: World) -> list[Body]:
    """The many, without the one that has requests."""
    return [
        one for one in world.api.list("SpecDeployment", world.namespace) if one["metadata"]["name"].startswith("many-")
    ]


def routes_of(bodies: list[Body]) -> list[Body]:
    return [route for body in bodies for route in (body.get("status") or {}).get("routes") or ()]


def settled(world: World) -> bool:
    """Whether every route of every SpecDeployment is served as meant."""
    routes = routes_of(all_of(world))
    return len(routes) == ROUTES and all(
        one["speculativePercent"].get("served") == one["speculativePercent"]["intended"] and one["phase"] != "Moving"
        for one in routes
    )


def count(routers: list[Router], good: set[str]) -> None:
    """A block's worth of finished answers of every route at every router; poor ones, but for the routes in `good`."""
    for router in routers:
        for route in (router.served or {"routes": {}})["routes"]:
            accepted = 900 if route in good else 30
            router.count(route, "ngram", measured=30, decode_tokens=1500 + accepted, accepted=accepted, drafted=1200)


def cpu_seconds(operator: OperatorProcess) -> float:
    """What the process has used so far."""
    fields = Path(f"/proc/{operator.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def go_bad(world: World, operator: OperatorProcess, good: set[str], expected: int) -> None:
    """Count until all bad routes are off, and print how long that took."""
    begun, used = time.monotonic(), cpu_seconds(operator)
    seen: list[tuple[float, int]] = []

    def off() -> bool:
        count(world.routers, good)
        found = sum(one["pool"] == "baseline" for one in routes_of(all_of(world)))
        seen.append((time.monotonic() - begun, found))
        time.sleep(BLOCK_SECONDS / 4.0)
        return bool(found >= expected)

    eventually("all bad routes are off", off, SETTLE_SECONDS)
    first, last = next(at for at, found in seen if found), seen[-1][0]
    blocks = last / BLOCK_SECONDS
    print(
        f"{expected} routes: first off after {first:.0f} s, last after {last:.0f} s, in blocks of {BLOCK_SECONDS} s; "
        f"{(cpu_seconds(operator) - used) / blocks:.2f} s of CPU a block, switches included"
    )


def test_a_thousand_routes_that_go_bad_at_once_are_each_switched_once(fleet: LiveFleet) -> None:
    world, bodies = fleet.world, manifests()
    world.create(policy=QUICK)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda body: world.api.create("SpecDeployment", world.namespace, body), bodies))
    operator = world.start()
    eventually("all routes are served", lambda: settled(world), SETTLE_SECONDS)
    fleet.settled()
    good = {"r0", "r1"}
    expected = ROUTES - len(good) * len(bodies)
    with fleet.traffic() as requests:
        go_bad(world, operator, good, expected)
        eventually("all of it is served", lambda: settled(world), SETTLE_SECONDS)
        requests.go_on()
        assert fleet.shares("chat") == fleet.shares("code") == {100}
    assert requests.failures == []
    for body in all_of(world):
        for route in body["status"]["routes"]:
            pools = [one["pool"] for one in route.get("history") or ()]
            assert pools == ([] if route["name"] in good else ["baseline"]), (body["metadata"]["name"], route)
        ready = {one["type"]: one["status"] for one in body["status"]["conditions"]}
        assert (ready["Ready"], ready["MetricsAvailable"], ready["Moving"]) == ("True", "True", "False")
    for router in world.routers:
        for route, pools in (router.served or {})["routes"].items():
            assert pools["ngram"] == 100 if route in good else pools["ngram"] <= 10, route
    eventually("each switch is told", lambda: len(world.events("SpeculationOff")) >= expected, 60.0)
    assert len(world.events("SpeculationOff")) == expected

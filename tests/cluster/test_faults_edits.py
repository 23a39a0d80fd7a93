"""The SpecDeployment is edited in a dwell, while requests run: each edit does what it says, and moves nothing else."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tests.cluster.api import eventually
from tests.cluster.live_fleet import BAD, EXPLORES, LiveFleet, Requests

pytestmark = pytest.mark.cluster

POLICY = {"minAcceptancePercent": 30, "initial": "Speculative", "block": "1s", "dwell": "16s"}
CODE = {"name": "code", "match": [{"header": {"name": "x-route", "value": "code"}}]}
JSON = {"name": "json", "match": [{"header": {"name": "x-route", "value": "json"}}]}


def routes(*names: dict[str, Any]) -> dict[str, Any]:
    """An edit of the routes."""
    return {"routing": {"routes": list(names)}}


def in_force(fleet: LiveFleet, requests: Requests, **shares: set[int]) -> None:
    """Wait until the last edit is in force and every router serves it; from then on these are the shares."""
    world = fleet.world
    world.until("Reconciling", "False", "UpToDate")
    eventually("it is served", lambda: world.condition("Moving")["reason"] == "Settled")
    served = [set((router.served or {})["routes"]) for router in fleet.routers]
    assert served == [set(shares)] * len(served)
    until, answered = time.monotonic() + 1.5, requests.total + 10
    while time.monotonic() < until or requests.total < answered:
        for route, share in shares.items():
            assert fleet.shares(route) <= share, route
        time.sleep(0.2)


def test_edits_in_a_dwell_move_what_they_say_and_nothing_else(fleet: LiveFleet) -> None:
    world = fleet.world
    world.create(policy=POLICY, pools={"replicas": 4})  # with one pod a pool, another k would leave none for a moment
    world.start()
    fleet.settled()
    off, on = set(EXPLORES), {100}
    with fleet.traffic(chat=BAD) as requests:
        fleet.serve("chat", EXPLORES)
        eventually("it is told", lambda: world.route("chat")["phase"] == "Exploring")
        since = world.route("chat")["since"]

        world.edit({"policy": {"minAcceptancePercent": 5}})
        in_force(fleet, requests, code=on, chat=off)
        world.edit(routes(CODE, JSON, {"name": "chat"}))
        in_force(fleet, requests, code=on, json=on, chat=off)
        world.edit(routes(JSON, CODE, {"name": "chat"}))
        in_force(fleet, requests, code=on, json=on, chat=off)
        world.edit({**routes(CODE, {"name": "chat"}), "policy": {"minAcceptancePercent": 30}})
        in_force(fleet, requests, code=on, chat=off)
        world.edit({"drafts": [{"name": "ngram", "mode": "NGram", "tokens": 3}]})
        in_force(fleet, requests, code=on, chat=off)
        assert world.route("chat")["since"] == since
        assert [one["pool"] for one in world.route("chat")["history"]] == ["baseline"]
        assert world.route("code")["history"] == []

        # A name is all that is known of a route: under another one it begins where the policy has new routes begin.
        world.edit(routes(CODE, {"name": "talk"}))
        in_force(fleet, requests, code=on, talk=on)
        assert world.route("talk")["history"] == []
    assert requests.failures == []

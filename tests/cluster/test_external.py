"""External pools: what a team runs already is watched, counted and decided about, and never written."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.api import eventually
from tests.cluster.conftest import World
from tests.cluster.engines import Team
from tests.cluster.test_operator_switch import config_map_percent

pytestmark = pytest.mark.cluster


@pytest.fixture
def team(world: World) -> Iterator[Team]:
    """A team with its engines; nothing is in the cluster yet."""
    one = Team(world)
    try:
        yield one
    finally:
        one.close()


def test_in_observe_only_the_router_is_made_and_enforce_makes_the_switch(world: World, team: Team) -> None:
    team.serves(replicas=2)
    before = eventually("pods are there", lambda: v if len(v := team.versions()) == 8 else None)
    team.adopt()
    world.start()
    world.settled()
    ours = [
        f"{kind} {one['metadata']['name']}"
        for kind in ("Deployment", "Service", "ConfigMap", "ServiceAccount", "PodDisruptionBudget")
        for one in world.api.list(kind, world.namespace)
        if (one["metadata"].get("labels") or {}).get("app.kubernetes.io/managed-by") == "specfleet"
    ]
    assert sorted(ours) == [
        "ConfigMap assistant-router",
        "ConfigMap assistant-routes",
        "Deployment assistant-router",
        "PodDisruptionBudget assistant-router",
        "Service assistant",
        "ServiceAccount assistant-pods",
    ]
    status = world.status()
    assert status["pools"] == [
        {"name": "baseline", "desired": 2, "ready": 2, "release": "0.32.0", "source": "External"},
        {"name": "speculative", "desired": 2, "ready": 2, "release": "0.32.0", "source": "External"},
    ]
    assert status["attribution"] == "Router"
    assert {one["pool"] for one in status["routes"]} == {"speculative"}

    def counted() -> bool:
        for router in world.routers:
            router.count("chat", "speculative", measured=30, decode_tokens=1530, accepted=30, drafted=1200)
            router.count("code", "speculative", measured=30, decode_tokens=1500, accepted=900, drafted=1200)
        return "Observe would choose baseline" in world.route("chat")["message"]

    eventually("Observe would switch", counted, 90.0)
    assert world.route("chat")["pool"] == "speculative"
    assert config_map_percent(world, "chat", "speculative") == 100
    world.edit({"policy": {"enforcement": "Enforce"}})
    eventually("chat is switched", lambda: world.route("chat")["pool"] == "baseline")
    eventually("and served so", lambda: world.route("chat")["speculativePercent"].get("served", 100) <= 10)
    assert world.route("code")["pool"] == "speculative"
    assert team.versions() == before

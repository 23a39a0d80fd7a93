"""Upgrades on a real API server, with its own Deployment controller: one pool at a time, the other one carries."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.cluster.api import Body, eventually
from tests.cluster.conftest import World

pytestmark = pytest.mark.cluster

OLD, NEW = "v0.32.0", "v0.33.0"
POOLS = ("ngram", "baseline")


class Fleet:
    """What the kubelet says of engine pods, and what was seen of them.

    Attributes:
        starting: whether a pod of this pool and image tag is not ready yet.
        down: pools that once had no ready pod, while the other had none either.
        seen: image tags of ready pods by pool, whenever that changed.
    """

    def __init__(self, world: World) -> None:
        self._world = world
        self.starting: Callable[[str, str], bool] = lambda pool, tag: False
        world.kubelet.trouble = self._trouble

    def _trouble(self, pod: Body) -> Body | None:
        pool = pod["metadata"]["labels"].get("specfleet.dev/pool")
        if pool is None or not self.starting(pool, tag_of(pod["spec"])):
            return None
        return self._world.kubelet.unready(state={"waiting": {"reason": "ContainerCreating"}})

    def template(self, pool: str) -> Body:
        """The pod template of a pool's Deployment."""
        found = self._world.api.get("Deployment", self._world.namespace, f"assistant-{pool}")
        assert found is not None
        return dict(found["spec"]["template"])

    def tags(self) -> dict[str, str]:
        """Image tag of each pool's template."""
        return {pool: tag_of(self.template(pool)["spec"]) for pool in POOLS}

    def replicas(self, pool: str) -> int:
        """Replicas of a pool's Deployment."""
        found = self._world.api.get("Deployment", self._world.namespace, f"assistant-{pool}")
        assert found is not None
        return int(found["spec"]["replicas"])


def tag_of(pod: Body) -> str:
    return str(pod["containers"][0]["image"]).rpartition(":")[2]


@pytest.fixture
def fleet(world: World) -> Fleet:
    return Fleet(world)


def release(version: str) -> Body:
    return {"engine": {"version": version}}


def upgrade_of(world: World) -> Body:
    found: Body = world.status().get("upgrade") or {}
    return found


def notes(world: World, reason: str) -> list[str]:
    return [one["note"] for one in world.events(reason)]


def test_a_release_goes_to_one_pool_and_then_to_the_other(world: World, fleet: Fleet) -> None:
    world.create()
    world.start()
    world.settled()
    fleet.starting = lambda pool, tag: tag == NEW
    world.edit(release("0.33.0"))
    eventually("the speculative pool has the new template", lambda: fleet.tags()["ngram"] == NEW)
    said = eventually("status names both pools", lambda: one if (one := upgrade_of(world)).get("next") else None)
    assert (said["state"], said["pool"], said["next"]) == ("Rolling", "ngram", "baseline")
    assert said["changes"] == "release 0.32.0 -> 0.33.0"
    world.until("Reconciling", "True", "RollingOut")
    assert "baseline carries on its old template and is next" in world.condition("Reconciling")["message"]
    eventually("switches are held", lambda: world.route("chat")["reason"] == "RolloutInProgress")
    world.served("chat", 0)
    assert "Pool baseline serves all routes." in world.condition("Ready")["message"]
    assert fleet.tags() == {"ngram": NEW, "baseline": OLD}
    fleet.starting = lambda pool, tag: tag == NEW and pool == "baseline"
    eventually("baseline is next", lambda: fleet.tags()["baseline"] == NEW)
    eventually("the other pool has everything", lambda: world.route("chat")["speculativePercent"].get("served") == 100)
    assert upgrade_of(world)["pool"] == "baseline"
    fleet.starting = lambda pool, tag: False
    world.settled()
    eventually("status is done with it", lambda: not upgrade_of(world))
    eventually("it is told", lambda: world.events("UpgradeFinished"))
    assert notes(world, "UpgradeFinished") == ["Upgrade done: release 0.32.0 -> 0.33.0. All pods carry it."]
    assert len(notes(world, "UpgradeRolling")) == 2

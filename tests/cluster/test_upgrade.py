"""Upgrades on a real API server, with its own Deployment controller: one pool at a time, the other one carries."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster.api import Body, eventually
from tests.cluster.conftest import World
from tests.cluster.test_preflight import Containers
from tests.cluster.test_preflight import spec as compared
from tests.unit.preflight.models import CONFIG, tokenizer, write

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


def test_a_killed_operator_is_followed_at_the_same_place(world: World, fleet: Fleet) -> None:
    world.create()
    first = world.start()
    world.settled()
    fleet.starting = lambda pool, tag: tag == NEW
    world.edit({**release("0.33.0"), "drafts": [{"name": "ngram", "mode": "NGram", "tokens": 5}]})
    eventually("the first pool has begun", lambda: fleet.tags()["ngram"] == NEW)
    first.kill()
    second = world.start()
    eventually("the second operator leads", second.leading)
    eventually("it has looked at it", lambda: 'reconciles_total{result="ok"}' in second.get("/metrics"))
    assert fleet.tags() == {"ngram": NEW, "baseline": OLD}
    assert upgrade_of(world)["changes"] == "release 0.32.0 -> 0.33.0, tokens 4 -> 5"
    fleet.starting = lambda pool, tag: tag == NEW and pool == "baseline"
    eventually("baseline is next", lambda: fleet.tags()["baseline"] == NEW)
    second.stop()  # gives the lease up: the next one need not wait for it
    third = world.start()
    eventually("the third operator leads", third.leading)
    fleet.starting = lambda pool, tag: False
    eventually("status is done with it", lambda: not upgrade_of(world))
    world.settled()
    eventually("it is told once", lambda: world.events("UpgradeFinished"))
    assert notes(world, "UpgradeFinished") == [
        "Upgrade done: release 0.32.0 -> 0.33.0, tokens 4 -> 5. All pods carry it."
    ]


def test_a_release_that_does_not_come_up_stops_at_the_first_pool_and_an_edit_back_mends_it(
    world: World, fleet: Fleet
) -> None:
    world.create()
    world.start()
    world.settled()
    before = fleet.template("baseline")
    waiting = {"waiting": {"reason": "ErrImagePull", "message": "no such tag"}}

    def trouble(pod: Body) -> Body | None:
        return world.kubelet.unready(state=waiting) if tag_of(pod["spec"]) == NEW else None

    world.kubelet.trouble = trouble
    world.edit(release("0.33.0"))
    said = world.until("Ready", "False", "ImageNotAvailable")
    assert "Pool ngram: 0 of 1 ready" in said["message"]
    assert "Pool baseline serves all routes." in said["message"]
    world.served("chat", 0)
    # Who has to carry everything may be given more pods, without the new template.
    world.edit({"pools": {"replicas": 3, "minBaseline": 2}})
    eventually("baseline has two replicas", lambda: fleet.replicas("baseline") == 2)
    assert fleet.template("baseline") == before
    assert upgrade_of(world)["next"] == "baseline"
    world.edit(release("0.32.0"))
    world.settled()
    world.served("chat", 100)
    assert fleet.template("baseline") == before
    eventually("status is done with it", lambda: not upgrade_of(world))
    assert any(one.startswith("Upgrade, release 0.33.0 -> 0.32.0.") for one in notes(world, "UpgradeRolling"))


def test_no_pool_is_rolled_while_routers_take_over_new_weights(world: World, fleet: Fleet) -> None:
    world.create()
    world.start()
    world.settled()
    world.kubelet.syncing = False
    world.speculation("chat", "Never")
    eventually("the route is on its way", lambda: world.route("chat")["phase"] == "Moving")
    before = fleet.template("ngram")
    world.edit({"drafts": [{"name": "ngram", "mode": "NGram", "tokens": 5}]})
    said = eventually(
        "the upgrade waits", lambda: one if (one := upgrade_of(world)).get("state") == "Waiting" else None
    )
    assert said["message"] == "Pool ngram waits: routers are taking over what was decided last."
    assert fleet.template("ngram") == before
    world.kubelet.syncing = True
    world.served("chat", 0)
    eventually("now it rolls", lambda: fleet.template("ngram") != before)
    world.settled()


def test_baseline_alone_is_rolled_by_a_pod_more_and_only_when_the_draft_is_refused_again(
    world: World, tmp_path: Path
) -> None:
    containers = Containers(world, tmp_path)
    models = tmp_path / "models"
    write(models / "target", None, tokenizer())
    write(models / "small", CONFIG | {"hidden_size": 32}, tokenizer(special={"<s>": 5, "</s>": 6, "<|eom_id|>": 7}))
    world.create(**compared(models))
    world.start()
    world.until("Stalled", "True", "DraftIncompatible")

    def baseline() -> Body:
        return dict((world.api.get("Deployment", world.namespace, "assistant-baseline") or {})["spec"])

    eventually("it has its pod", lambda: "Pool baseline serves" in world.condition("Ready")["message"])
    assert baseline()["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    world.edit(release("0.33.0"))
    eventually("baseline has the new release", lambda: tag_of(baseline()["template"]["spec"]) == NEW)
    assert len(containers.pods) == 2, "the pair was compared anew before baseline was touched"
    world.until("DraftCompatible", "False", "DraftIncompatible")
    eventually("status is done with it", lambda: not upgrade_of(world))


def test_a_claim_for_one_node_is_refused_before_a_pool_is_made(world: World, fleet: Fleet) -> None:
    path = f"/api/v1/namespaces/{world.namespace}/persistentvolumeclaims"

    def claim(name: str, mode: str) -> None:
        spec = {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}}
        world.api.request("POST", path, {"metadata": {"name": name}, "spec": spec})

    claim("one", "ReadWriteOnce")
    claim("many", "ReadWriteMany")
    pools: Body = {"replicas": 2, "storage": {"cache": {"persistentVolumeClaim": "one"}}}
    world.create(pools=pools)
    world.start()
    said = world.until("Valid", "False", "ClaimNotShared")
    assert "the claim one is ReadWriteOnce" in said["message"]
    assert "accessModes [ReadWriteMany]" in said["message"]
    assert world.condition("Stalled")["status"] == "True"
    assert world.api.list("Deployment", world.namespace) == []
    world.edit({"pools": {"storage": {"cache": {"persistentVolumeClaim": "many"}}}})
    world.settled()
    for pool in POOLS:
        volumes = fleet.template(pool)["spec"]["volumes"]
        assert {"name": "cache", "persistentVolumeClaim": {"claimName": "many"}} in volumes

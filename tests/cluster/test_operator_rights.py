"""What the operator can do with the least rights, and without the one that may be left out."""

from __future__ import annotations

import dataclasses

import pytest

from tests.cluster.api import eventually
from tests.cluster.conftest import World
from tests.cluster.rights import PATCH_PODS, RULES, grant, kubeconfig_of_service_account
from tests.cluster.test_operator_switch import config_map_percent

pytestmark = pytest.mark.cluster


def limited(world: World) -> World:
    """The same world for an operator that is a service account."""
    target = world.directory / "operator.kubeconfig"
    config = kubeconfig_of_service_account(world.api, world.kubeconfig, world.namespace, target)
    return dataclasses.replace(world, kubeconfig=config)


def test_the_documented_rights_suffice(world: World) -> None:
    grant(world.api, world.namespace, [*RULES, PATCH_PODS])
    world.create()
    operator = limited(world).start()
    world.settled()
    world.speculation("chat", "Never")
    world.served("chat", 0)
    world.edit({"drafts": [{"name": "lookup", "mode": "NGram"}]})
    eventually(
        "the old pool is pruned", lambda: world.api.get("Deployment", world.namespace, "assistant-ngram") is None
    )
    assert eventually("the switch is told", lambda: world.events("SpeculationOff"))
    assert "forbidden" not in operator.log.read_text()
    assert operator.stop() == 0


def test_without_the_right_to_annotate_pods_a_switch_takes_its_time_and_status_says_so(world: World) -> None:
    grant(world.api, world.namespace, RULES)
    world.create()
    limited(world).start()
    world.settled()
    world.speculation("chat", "Never")
    eventually("the files say so", lambda: config_map_percent(world, "chat") == 0)
    chat = eventually(
        "status says that it takes longer",
        lambda: world.route("chat") if "within 90 s" in world.route("chat")["message"] else None,
    )
    assert (chat["pool"], chat["phase"]) == ("baseline", "Moving")
    assert chat["speculativePercent"] == {"intended": 0, "served": 100}
    assert world.condition("Moving")["status"] == "True"
    routes = world.api.get("ConfigMap", world.namespace, "assistant-routes")
    assert routes is not None
    for router in world.routers:  # the kubelet's own, slow sync
        router.load(routes["data"])
    world.served("chat", 0)
    assert "within 90 s" not in world.route("chat")["message"]
    assert world.condition("Moving")["status"] == "False"

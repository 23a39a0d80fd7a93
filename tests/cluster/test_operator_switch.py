"""Switches on a real API server: in order, once, and finished by whoever comes next."""

from __future__ import annotations

from pathlib import Path

import pytest

from specfleet.decision.trend import points
from tests.cluster.api import eventually
from tests.cluster.conftest import World
from tests.cluster.routers import served_of

pytestmark = pytest.mark.cluster

FAULTY = str(Path(__file__).with_name("faulty_operator.py"))
EXIT = 86
# Edited to Never, a route costs: status, event, ConfigMap, two pods' annotations, and status again once it is served.
STEPS = [
    (1, "before"),
    (1, "after"),
    (2, "after"),
    (3, "before"),
    (3, "after"),
    (4, "after"),
    (5, "after"),
    (6, "before"),
]


def config_map_percent(world: World, route: str, pool: str = "ngram") -> int:
    """What the routes file says."""
    found = world.api.get("ConfigMap", world.namespace, "assistant-routes")
    assert found is not None
    return int(served_of(found["data"])["routes"][route][pool])


def test_an_edit_of_speculation_acts_at_once_and_is_told(world: World) -> None:
    world.create()
    world.start()
    world.settled()
    world.speculation("chat", "Never")
    world.served("chat", 0)
    chat, code = world.route("chat"), world.route("code")
    assert (chat["pool"], chat["phase"], chat["reason"]) == ("baseline", "Settled", "OverrideNever")
    assert (code["pool"], code["speculativePercent"]["served"]) == ("ngram", 100)
    assert [one["pool"] for one in chat["history"]] == ["baseline"]
    assert world.status()["summary"]["mode"] == "1/2 speculative"
    assert config_map_percent(world, "chat") == 0
    told = eventually("an event tells it", lambda: world.events("SpeculationOff"))
    assert len(told) == 1
    assert told[0]["note"].startswith("Route chat:")
    world.speculation("chat", "Always")
    world.served("chat", 100)
    assert [one["pool"] for one in world.route("chat")["history"]] == ["baseline", "ngram"]
    assert len(eventually("an event tells it", lambda: world.events("SpeculationOn"))) == 1


def test_ready_does_not_flicker_during_a_switch(world: World) -> None:
    world.create()
    world.start()
    world.settled()
    since = world.condition("Ready")["lastTransitionTime"]
    reconciling = world.condition("Reconciling")["lastTransitionTime"]
    for value, percent in (("Never", 0), ("Always", 100), ("Never", 0)):
        world.speculation("chat", value)
        world.served("chat", percent)
    assert world.condition("Ready")["status"] == "True"
    assert world.condition("Ready")["lastTransitionTime"] == since
    assert world.condition("Reconciling")["lastTransitionTime"] == reconciling


@pytest.mark.parametrize(("nth", "moment"), STEPS)
def test_killed_between_two_steps_of_a_switch_the_next_operator_ends_it_once(
    world: World, tmp_path: Path, nth: int, moment: str
) -> None:
    armed = tmp_path / "armed"
    world.create()
    faulty = world.start((FAULTY, str(armed), str(nth), moment))
    world.settled()
    armed.touch()
    world.speculation("chat", "Never")
    assert faulty.process.wait(30) == EXIT
    world.api.delete("Lease", world.namespace, "specfleet")  # the next one need not wait for it to run out
    world.start(wait=False)
    world.served("chat", 0)
    chat = world.route("chat")
    assert (chat["pool"], chat["phase"]) == ("baseline", "Settled")
    assert len(chat["history"]) == 1
    assert world.route("code")["history"] == []
    assert config_map_percent(world, "chat") == 0
    assert all((router.served or {})["routes"]["chat"]["ngram"] == 0 for router in world.routers)
    assert len(eventually("it is told", lambda: world.events("SpeculationOff"))) == 1


def test_poor_acceptance_moves_the_route_to_baseline_and_leaves_the_other(world: World) -> None:
    world.create()
    world.start()
    world.settled()

    def counted() -> bool:
        for router in world.routers:
            router.count("chat", "ngram", measured=30, decode_tokens=1530, accepted=30, drafted=1200)
            router.count("code", "ngram", measured=30, decode_tokens=1500, accepted=900, drafted=1200)
        return bool(world.route("chat")["pool"] == "baseline")

    eventually("chat is served by baseline", counted, 90.0)
    eventually("explored, not more", lambda: world.route("chat")["speculativePercent"].get("served", 100) <= 10)
    chat, code = world.route("chat"), world.route("code")
    assert chat["reason"] == "BelowAcceptance"
    assert chat["acceptancePercent"] < 10
    assert len(chat["history"]) == 1
    assert (code["pool"], code["history"]) == ("ngram", [])
    assert world.condition("SpeculationActive")["status"] == "True"
    # The same switch is an event, an entry of the history and a metric; the next write of status adds to the trend.
    (event,) = eventually("it is told", lambda: world.events("SpeculationOff"))
    assert "chat" in event["note"]
    assert chat["history"][0]["reason"] == "BelowAcceptance"
    metrics = world.operators[0].get("/metrics")
    labels = f'deployment="assistant",namespace="{world.namespace}",pool="baseline"'
    assert f"specfleet_operator_switches_total{{{labels}}} 1.0" in metrics
    assert points(chat["trend"])


def test_unreachable_routers_hold_every_decision(world: World) -> None:
    world.create()
    world.kubelet.syncing = True
    world.start()
    world.settled()
    operator = world.operators[0]
    assert operator.stop() == 0
    for router in world.routers:
        router.close()
    world.start()
    said = world.until("MetricsAvailable", "False", "RoutersUnreachable")
    assert "decision holds" in said["message"]
    chat = world.route("chat")
    assert (chat["pool"], chat["phase"], chat["reason"]) == ("ngram", "Held", "MetricsUnavailable")
    assert chat["speculativePercent"]["intended"] == 100
    assert "served" not in chat["speculativePercent"]
    assert world.condition("Ready")["status"] == "True"


def test_a_person_s_override_acts_while_routers_are_not_read(world: World) -> None:
    world.create()
    world.start()
    world.settled()
    for router in world.routers:
        router.close()
    world.speculation("chat", "Never")
    eventually("the decision is made", lambda: world.route("chat")["pool"] == "baseline")
    eventually("the files say so", lambda: config_map_percent(world, "chat") == 0)


def test_a_pool_without_a_ready_pod_gets_no_traffic_and_the_decision_stays(world: World) -> None:
    world.create()
    world.start()
    world.settled()
    world.kubelet.trouble = lambda pod: (
        world.kubelet.unready(state={"waiting": {"reason": "ImagePullBackOff", "message": "not found"}})
        if pod["metadata"]["labels"].get("specfleet.dev/pool") == "ngram"
        else None
    )
    eventually("weights avoid the pool", lambda: config_map_percent(world, "chat") == 0)
    chat = eventually(
        "routers serve it",
        lambda: world.route("chat") if world.route("chat")["speculativePercent"].get("served") == 0 else None,
    )
    assert (chat["pool"], chat["reason"]) == ("ngram", "NoReadyPods")
    assert chat["speculativePercent"]["intended"] == 100
    ready = world.condition("Ready")
    assert (ready["status"], ready["reason"]) == ("False", "ImageNotAvailable")
    assert "Pool ngram: 0 of 1 ready" in ready["message"]
    assert "Pool baseline serves all routes." in ready["message"]
    assert world.condition("SpeculationActive")["reason"] == "SpeculativePoolNotReady"
    world.kubelet.trouble = lambda pod: None
    world.served("chat", 100)
    world.until("Ready", "True")
    assert world.route("chat")["history"] == []


def test_a_switch_waits_for_room_and_is_made_when_there_is(world: World) -> None:
    world.create()
    world.start()
    world.settled()
    for router in world.routers:
        router.counters["cluster.hosts-baseline.upstream_rq_active"] = 100_000
        router.counters["specfleet.active.route.chat"] = 5
    world.speculation("chat", "Never")
    waits = world.until("CapacitySufficient", "False", "NoRoomToMove")
    assert "chat" in waits["message"]
    chat = world.route("chat")
    assert (chat["pool"], chat["phase"], chat["speculativePercent"]["served"]) == ("ngram", "Held", 100)
    for router in world.routers:
        router.counters["cluster.hosts-baseline.upstream_rq_active"] = 0
    world.served("chat", 0)
    assert world.condition("CapacitySufficient")["status"] == "True"

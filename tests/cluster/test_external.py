"""External pools: what a team runs already is watched, counted and decided about, and never written."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.api import eventually
from tests.cluster.conftest import World
from tests.cluster.engines import BARE_ARGS, PLAIN_ARGS, SPECULATIVE_ARGS, Team, own_address
from tests.cluster.rights import PATCH_PODS, RULES, grant
from tests.cluster.test_operator_rights import limited
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
    team.pods_are_ready(4)
    before = team.written()
    assert len(before) == 8  # two Deployments, two Services, four pods
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
        return bool("Observe would choose baseline" in world.route("chat")["message"])

    eventually("Observe would switch", counted, 90.0)
    assert world.route("chat")["pool"] == "speculative"
    assert config_map_percent(world, "chat", "speculative") == 100
    world.edit({"policy": {"enforcement": "Enforce"}})
    eventually("chat is switched", lambda: world.route("chat")["pool"] == "baseline")
    eventually("and served so", lambda: world.route("chat")["speculativePercent"].get("served", 100) <= 10)
    assert world.route("code")["pool"] == "speculative"
    assert team.written() == before


def test_engines_too_old_for_figures_are_counted_themselves_and_all_routes_move_together(
    world: World, team: Team
) -> None:
    team.deployment("fast", team.speculative, BARE_ARGS, image="vllm/vllm-openai:v0.28.1")
    team.deployment("plain", team.baseline, PLAIN_ARGS, image="vllm/vllm-openai:v0.28.1")
    team.service("fast", team.speculative.port)
    team.service("plain", team.baseline.port)
    routes = [
        {"name": "code", "match": [{"header": {"name": "x-route", "value": "code"}}]},
        {"name": "fixed", "match": [{"tools": True}], "speculation": "Always"},
        {"name": "chat"},
    ]
    policy = {"minAcceptancePercent": 30, "initial": "Speculative", "block": "2s", "dwell": "20s"}
    team.adopt(routing={"routes": routes}, policy=policy)
    world.start()
    world.settled()
    assert world.status()["attribution"] == "Deployment"
    said = world.until("MetricsAvailable", "True", "EngineCountersRead")
    assert "vLLM 0.28.1 has no figures per request (0.29.0 has): all routes are decided together" in said["message"]

    def counted() -> bool:
        team.speculative.count(requests=30, steps=1500, accepted=30)
        return bool(world.route("chat")["pool"] == "baseline")

    eventually("chat is served by baseline", counted, 90.0)
    chat, code, fixed = (world.route(name) for name in ("chat", "code", "fixed"))
    assert (chat["reason"], code["reason"]) == ("BelowAcceptance", "BelowAcceptance")
    assert (code["pool"], code["since"]) == ("baseline", chat["since"])
    assert [len(one["history"]) for one in (chat, code, fixed)] == [1, 1, 0]
    assert fixed["pool"] == "speculative"
    assert chat["acceptancePercent"] < 10
    assert "coveragePercent" not in chat["evidence"]
    assert len(eventually("both are told", lambda: e if len(e := world.events("SpeculationOff")) == 2 else None)) == 2


def test_a_rollout_of_the_team_s_freezes_evidence_and_ends_with_it(world: World, team: Team) -> None:
    team.serves()
    team.adopt(policy={"minAcceptancePercent": 30, "initial": "Speculative", "block": "2s"})
    world.start()
    world.settled()
    image = "vllm/vllm-openai:v0.32.1"
    address = own_address()
    starting = world.kubelet.unready() | {"podIP": address, "podIPs": [{"ip": address}]}
    world.kubelet.trouble = lambda pod: starting if pod["spec"]["containers"][0]["image"] == image else None
    container = {"name": "vllm", "image": image}
    world.api.strategic(
        "Deployment", world.namespace, "fast", {"spec": {"template": {"spec": {"containers": [container]}}}}
    )
    chat = eventually(
        "evidence is frozen",
        lambda: one if (one := world.route("chat"))["reason"] == "RolloutInProgress" else None,
    )
    assert (chat["phase"], chat["pool"], chat["speculativePercent"]["intended"]) == ("Held", "speculative", 100)
    assert world.condition("Ready")["status"] == "True"
    assert world.condition("Stalled")["status"] == "False"
    world.kubelet.trouble = lambda pod: None
    eventually("it goes on", lambda: world.route("chat")["phase"] == "Settled")
    eventually(
        "the new release shows",
        lambda: {one["release"] for one in world.status()["pools"] if one["name"] == "speculative"} == {"0.32.1"},
    )


def test_a_switch_waits_where_the_engines_are_full_with_the_team_s_own_traffic(world: World, team: Team) -> None:
    team.serves()
    team.adopt(policy={"minAcceptancePercent": 30, "initial": "Speculative", "block": "2s"})
    team.baseline.counters["num_requests_running"] = 7
    world.start()
    world.settled()
    for router in world.routers:
        router.counters["specfleet.active.route.chat"] = 1
        router.counters["cluster.hosts-speculative.upstream_rq_active"] = 1
    world.speculation("chat", "Never")
    world.until("CapacitySufficient", "False", "NoRoomToMove")
    assert world.route("chat")["pool"] == "speculative"
    team.baseline.counters["num_requests_running"] = 2
    world.served("chat", 0)
    assert world.condition("CapacitySufficient")["status"] == "True"


def test_one_pool_alone_gives_figures_and_moves_nothing(world: World, team: Team) -> None:
    team.deployment("fast", team.speculative, SPECULATIVE_ARGS)
    team.service("fast", team.speculative.port)
    policy = {"minAcceptancePercent": 30, "enforcement": "Observe", "block": "2s"}
    team.adopt(pools={"strategy": "External", "external": {"speculative": {"service": "fast"}}}, policy=policy)
    world.start()
    world.settled()
    assert [one["name"] for one in world.status()["pools"]] == ["speculative"]
    assert world.condition("Ready")["message"] == "Pool speculative and the router serve."

    def counted() -> bool:
        for router in world.routers:
            router.count("chat", "speculative", measured=30, decode_tokens=1530, accepted=30, drafted=1200)
        return bool(world.route("chat").get("acceptancePercent", 100) < 10)

    eventually("figures are there", counted)
    assert {one["pool"] for one in world.status()["routes"]} == {"speculative"}


def test_the_documented_rights_suffice_for_external_pools(world: World, team: Team) -> None:
    grant(world.api, world.namespace, [*RULES, PATCH_PODS])
    team.serves()
    team.adopt()
    operator = limited(world).start()
    world.settled()
    assert "forbidden" not in operator.log.read_text()


def test_without_the_right_to_list_endpoints_the_status_names_it(world: World, team: Team) -> None:
    grant(world.api, world.namespace, [one for one in RULES if one["resources"] != ["endpointslices"]])
    team.serves()
    team.adopt()
    limited(world).start()
    said = world.until("Ready", "False", "EndpointsNotReadable")
    assert "list on endpointslices" in said["message"]

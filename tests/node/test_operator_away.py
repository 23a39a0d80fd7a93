"""The operator is not in the path of a request, and a crash of it changes no decision."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.node import routers
from tests.node.conftest import Fleet, Serve
from tests.node.install import RELEASE, SYSTEM_NAMESPACE
from tests.node.kube import Kube, Manifest, ready_pods, wait_for
from tests.node.load import Load, clients
from tests.node.processes import kill
from tests.node.stub_fleet import DRAFT

pytestmark = pytest.mark.node

ROUTES = [
    {"name": "code", "match": [{"header": {"name": "x-route", "value": "code"}}]},
    {"name": "chat"},
]
POLICY = {
    "initial": "Speculative",
    "minAcceptancePercent": 30,
    "breakEven": {"source": "Fixed", "tokensPerStep": "1.50"},
    "block": "2s",
    "dwell": "10s",
}
GOOD = {"x-route": "code", "x-stub-acceptance": "0.9"}
BAD = {"x-stub-acceptance": "0.02"}
OPERATOR_PROGRAM = "specfleet run"
EXPLORATION = range(11)


def operator_pods(kube: Kube) -> list[Manifest]:
    return kube.select("pods", SYSTEM_NAMESPACE, "app.kubernetes.io/name=specfleet")


def chat_is_off(fleet: Fleet) -> bool:
    return bool(fleet.route("chat")["pool"] == "baseline")


@pytest.fixture
def operator_back(kube: Kube) -> Iterator[None]:
    yield
    kube.kubectl("scale", "deployment", RELEASE, "-n", SYSTEM_NAMESPACE, "--replicas=1")
    kube.kubectl("rollout", "status", f"deployment/{RELEASE}", "-n", SYSTEM_NAMESPACE, "--timeout=180s", seconds=190)


@pytest.mark.parametrize("seconds_after_commit", [0.0, 0.3])
def test_a_crash_within_a_switch_ends_in_the_same_state_without_a_second_switch(
    kube: Kube, serve: Serve, seconds_after_commit: float
) -> None:
    fleet = serve(routes=ROUTES, policy=POLICY)
    traffic = [clients("code", fleet.name, 2, headers=GOOD), clients("chat", fleet.name, 4, headers=BAD)]
    with Load(fleet.endpoint, traffic) as load:
        wait_for("chat to be decided", lambda: chat_is_off(fleet), seconds=180, every=0.05)
        time.sleep(seconds_after_commit)
        assert kill(operator_pods(kube), OPERATOR_PROGRAM) > 0

        wait_for(
            "the routers to serve the switch",
            lambda: routers.all_serve(kube, fleet.name, fleet.namespace, "chat", DRAFT, EXPLORATION),
            seconds=120,
        )
        wait_for("the operator to be back", lambda: ready_pods(operator_pods(kube)) or None, seconds=120)
        requests = load.tally.total
        wait_for("more requests under the new operator", lambda: load.tally.total > requests + 60, seconds=120)
        after = fleet.route("chat")

    assert after["pool"] == "baseline"
    assert len(after["history"]) == 1
    assert fleet.route("code")["pool"] == DRAFT
    assert fleet.route("code").get("history", []) == []
    assert load.tally.failures == []


@pytest.mark.usefixtures("operator_back")
def test_traffic_goes_on_without_any_operator(kube: Kube, serve: Serve) -> None:
    fleet = serve(routes=ROUTES, policy=POLICY)
    kube.kubectl("scale", "deployment", RELEASE, "-n", SYSTEM_NAMESPACE, "--replicas=0")
    wait_for("the operator to be gone", lambda: not operator_pods(kube) or None, seconds=120)
    version = {routers.served(one)["version"] for one in routers.addresses(kube, fleet.name, fleet.namespace)}

    with Load(fleet.endpoint, [clients("chat", fleet.name, 4, headers=BAD)]) as load:
        wait_for("100 answers", lambda: load.tally.total >= 100, seconds=120)

    assert load.tally.failures == []
    now = {routers.served(one)["version"] for one in routers.addresses(kube, fleet.name, fleet.namespace)}
    assert now == version

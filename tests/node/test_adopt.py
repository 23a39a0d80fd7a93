"""docs/adopt.md, step by step: a team's own vLLM pair is watched and then decided for, without a restart of a pod or a
failed request."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.node import adopted, page, routers
from tests.node.adopted import NAMESPACE
from tests.node.install import REPOSITORY
from tests.node.kube import Kube, wait_for
from tests.node.load import Load
from tests.node.prometheus import during
from tests.testbed import api

pytestmark = pytest.mark.node

PAGE = REPOSITORY / "docs" / "adopt.md"
NAME = "assistant-fleet"
SPECULATIVE = "ngram"
ROUTES = ("code", "json", "chat")
EXPLORATION = range(11)
STAY_SECONDS = 30.0


class Reader:
    """Somebody who follows the page, one block after the other."""

    def __init__(self, kube: Kube, directory: Path) -> None:
        self.left = page.steps(PAGE)
        self._directory = directory
        programs = [REPOSITORY / ".venv" / "bin", api.kubectl_binary().parent]
        path = ":".join(str(one) for one in programs)
        self._env = {"KUBECONFIG": str(kube.kubeconfig), "PATH": f"{path}:/usr/bin:/bin", "NO_COLOR": "1"}

    def follow(self, section: str) -> None:
        """Run the steps of the page's next block, which is expected to stand in that section."""
        assert self.left, f"the page has no steps left for section {section!r}"
        first = self.left[0]
        assert first.section == section, f"the page's next block is in section {first.section!r}, not in {section!r}"
        while self.left and self.left[0].block == first.block:
            step = self.left.pop(0)
            print(f"$ {step.command}")
            print(page.run(step, self._directory, self._env))


def fleet(kube: Kube) -> dict[str, dict[str, Any]]:
    """The routes of the adopted fleet's status by name."""
    found = kube.get("specdeployment", NAME, NAMESPACE)
    assert found is not None
    return {one["name"]: one for one in found["status"].get("routes", [])}


def kind_names(created: set[str]) -> set[str]:
    """`kind/name` without API groups and the random ends that ReplicaSets, pods and EndpointSlices have."""
    plain = {re.sub(r"\.[a-z0-9.]+/", "/", one) for one in created}
    plain = {re.sub(r"^(replicaset/.*-router)-[a-z0-9]+$", r"\1", one) for one in plain}
    plain = {re.sub(r"^(pod/.*-router)-[a-z0-9]+-[a-z0-9]+$", r"\1", one) for one in plain}
    return {re.sub(r"^(endpointslice/.*)-[a-z0-9]{5}$", r"\1", one) for one in plain}


ROUTER_ONLY = {
    f"specdeployment/{NAME}",
    f"serviceaccount/{NAME}-pods",
    f"configmap/{NAME}-router",
    f"configmap/{NAME}-routes",
    f"service/{NAME}",
    f"endpoints/{NAME}",
    f"endpointslice/{NAME}",
    f"poddisruptionbudget/{NAME}-router",
    f"deployment/{NAME}-router",
    f"replicaset/{NAME}-router",
    f"pod/{NAME}-router",
}


def created_since(kube: Kube, before: set[str]) -> set[str]:
    """What is in the namespace now and was not before."""
    return kind_names(adopted.inventory(kube) - before)


def report(kube: Kube, route: str) -> dict[str, Any]:
    """What the rule would have done with a route, as the status says it."""
    found: dict[str, Any] = fleet(kube).get(route, {}).get("report") or {}
    return found


def answers(load: Load, count: int) -> None:
    """Wait for that many answers more."""
    wanted = load.tally.total + count
    wait_for(f"{count} answers more", lambda: load.tally.total >= wanted or None, seconds=600)


def all_speculative(kube: Kube) -> bool:
    """Whether every router sends all of every route to speculation."""
    return all(
        percent == {"baseline": 0, "ngram": 100}
        for address in routers.addresses(kube, NAME, NAMESPACE)
        for percent in routers.served(address)["routes"].values()
    )


@pytest.mark.usefixtures("team")
def test_the_page(kube: Kube, operator: str, tmp_path: Path) -> None:
    assert operator
    adopted.example_files(tmp_path)
    reader = Reader(kube, tmp_path)

    reader.follow("What runs here")
    their_service = adopted.endpoint(kube, adopted.SPECULATIVE)
    with Load(their_service, adopted.clients()) as load:
        answers(load, 4)
        before, objects = adopted.theirs(kube), adopted.inventory(kube)
        reader.follow("Look")
        assert created_since(kube, objects) == set()
        reader.follow("Add headless Services")
        objects = adopted.inventory(kube)
        reader.follow("Observe")
        assert created_since(kube, objects) == ROUTER_ONLY
        reader.follow("Observe")

        reader.follow("Move the clients")
        load.move(adopted.endpoint(kube, NAME))
        reader.follow("Name the routes")
        wait_for("chat to be off by the rule", partial(would_be_off, kube, "chat"), seconds=900, every=2.0)
        for route in ("code", "json"):
            wait_for(f"{route} to pay", partial(pays, kube, route), seconds=600, every=2.0)
        reader.follow("Read what it would do")
        assert all_speculative(kube)
        assert {name: route["pool"] for name, route in fleet(kube).items()} == dict.fromkeys(ROUTES, SPECULATIVE)
        assert created_since(kube, objects) == ROUTER_ONLY
        assert not would_be_off(kube, "code")
        assert not would_be_off(kube, "json")

        reader.follow("Enforce")
        wait_for("chat to go to baseline", partial(served_by, kube, "chat", "baseline"), seconds=900, every=2.0)
        wait_for("the routers to serve it", partial(only_explores, kube, "chat"), seconds=60)
        during(STAY_SECONDS, partial(others_stay, kube))
        reader.follow("Enforce")

        load.move(their_service)
        answers(load, 8)
        reader.follow("Go back")
    print(f"requests: {load.tally.requests}")
    assert reader.left == []
    assert load.tally.failures == []
    assert adopted.theirs(kube) == before
    assert created_since(kube, objects) == set()


def would_be_off(kube: Kube, route: str) -> bool | None:
    return report(kube, route).get("wouldBe") == "baseline" or None


def pays(kube: Kube, route: str) -> bool | None:
    return fleet(kube)[route]["reason"] == "Pays" or None


def served_by(kube: Kube, route: str, pool: str) -> bool | None:
    return fleet(kube)[route]["pool"] == pool or None


def only_explores(kube: Kube, route: str) -> bool | None:
    return routers.all_serve(kube, NAME, NAMESPACE, route, SPECULATIVE, EXPLORATION) or None


def others_stay(kube: Kube) -> None:
    pools = {name: route["pool"] for name, route in fleet(kube).items()}
    assert pools == {"chat": "baseline", "code": SPECULATIVE, "json": SPECULATIVE}

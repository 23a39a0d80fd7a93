"""An upgrade under load: a pool of one pod is away while it rolls, and no request notices."""

from __future__ import annotations

import pytest

from tests.node.conftest import Fleet, Serve, say
from tests.node.install import pods_of
from tests.node.kube import Kube, wait_for
from tests.node.load import Load, clients
from tests.node.stub_fleet import DRAFT

pytestmark = pytest.mark.node

POOLS = (DRAFT, "baseline")
LONG_ENOUGH = 300.0
"""A pod serves for 45 s after it has left the Service, and its successor waits for its accelerator meanwhile."""


def engines(kube: Kube, fleet: Fleet) -> dict[str, set[str]]:
    """Names of the pods of each pool that are not about to end."""
    found: dict[str, set[str]] = {pool: set() for pool in POOLS}
    for pod in pods_of(kube, fleet.name, fleet.namespace):
        pool = pod["metadata"]["labels"].get("specfleet.dev/pool")
        if pool in found and "deletionTimestamp" not in pod["metadata"]:
            found[pool].add(pod["metadata"]["name"])
    return found


def upgrade(fleet: Fleet) -> dict[str, str]:
    found: dict[str, str] = fleet.body()["status"].get("upgrade") or {}
    return found


def ready(fleet: Fleet) -> bool:
    conditions = fleet.body()["status"]["conditions"]
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def test_no_request_fails_while_both_pools_take_a_change_nor_while_one_that_fails_is_taken_back(
    kube: Kube, serve: Serve
) -> None:
    routes = [{"name": "fast", "match": [{"header": {"name": "x-route", "value": "fast"}}], "speculation": "Always"}]
    fleet = serve(routes=[*routes, {"name": "chat"}])
    first = engines(kube, fleet)
    traffic = [
        clients("fast", fleet.name, 8, headers={"x-route": "fast"}),
        clients("chat", fleet.name, 8),
    ]
    with Load(fleet.endpoint, traffic) as load:
        wait_for("100 answers", lambda: load.tally.total >= 100, seconds=120)
        kube.patch(
            "specdeployment",
            fleet.name,
            fleet.namespace,
            {"spec": {"engine": {"version": "0.33.0", "args": {"seed": "1"}}}},
        )
        wait_for("the first pool to roll", lambda: upgrade(fleet).get("pool") == DRAFT, seconds=60, every=0.2)
        assert upgrade(fleet)["changes"] == "release 0.32.0 -> 0.33.0, engine.args.seed none -> 1"
        wait_for("the second pool to roll", lambda: upgrade(fleet).get("pool") == "baseline", seconds=LONG_ENOUGH)
        half = engines(kube, fleet)
        assert half[DRAFT].isdisjoint(first[DRAFT])
        wait_for("the end of the upgrade", lambda: not upgrade(fleet) and ready(fleet), seconds=LONG_ENOUGH)
        second = engines(kube, fleet)
        assert second["baseline"].isdisjoint(first["baseline"])

        image = fleet.body()["spec"]["engine"]["image"]
        nowhere = {"spec": {"engine": {"image": "localhost:1/nothing:0.33.0"}}}
        kube.patch("specdeployment", fleet.name, fleet.namespace, nowhere)
        wait_for("the first pool to hang", lambda: not ready(fleet), seconds=120)
        wait_for(
            "the image to be named",
            lambda: any(one.get("reason") == "ImageNotAvailable" for one in fleet.body()["status"]["conditions"]),
            seconds=LONG_ENOUGH,
        )
        assert engines(kube, fleet)["baseline"] == second["baseline"]
        count = load.tally.total
        wait_for("baseline to carry everything", lambda: load.tally.total >= count + 100, seconds=60)
        kube.patch("specdeployment", fleet.name, fleet.namespace, {"spec": {"engine": {"image": image}}})
        wait_for("the pool to be back", lambda: not upgrade(fleet) and ready(fleet), seconds=LONG_ENOUGH)
        assert engines(kube, fleet)["baseline"] == second["baseline"]

    say(f"{load.tally.total} requests, {len(load.tally.failures)} failed")
    assert load.tally.failures == []
    assert load.tally.total > 500

"""The operator's objects on a real API server: applied, kept, pruned, and nobody else's touched."""

from __future__ import annotations

import time
from functools import partial

import pytest

from tests.cluster.api import OWNED, eventually, person_side
from tests.cluster.conftest import World

pytestmark = pytest.mark.cluster

EXPECTED = {
    "ServiceAccount": {"assistant-pods"},
    "ConfigMap": {"assistant-router", "assistant-routes"},
    "Service": {"assistant", "assistant-baseline", "assistant-ngram"},
    "PodDisruptionBudget": {"assistant-baseline", "assistant-ngram", "assistant-router"},
    "Deployment": {"assistant-baseline", "assistant-ngram", "assistant-router"},
}
QUIET_SECONDS = 8.0


def owned(world: World, uid: str) -> dict[str, set[str]]:
    """Names of all objects whose controller has this uid."""
    return {
        kind: {
            one["metadata"]["name"]
            for one in world.api.list(kind, world.namespace)
            if any(ref["uid"] == uid for ref in one["metadata"].get("ownerReferences") or ())
        }
        for kind in OWNED
    }


def labelled(world: World, service: str, label: str) -> bool:
    """Whether a Service has a label."""
    found = world.api.get("Service", world.namespace, service)
    return found is not None and label in found["metadata"]["labels"]


def test_everything_is_applied_then_nothing_more_is_written(world: World) -> None:
    before = world.create()
    world.start()
    world.settled()
    after = world.body()
    assert owned(world, after["metadata"]["uid"]) == EXPECTED
    assert person_side(after) == person_side(before)
    assert after["spec"] == before["spec"]
    for kind in OWNED:
        for one in world.api.list(kind, world.namespace):
            if one["metadata"]["name"].startswith("assistant"):
                assert "finalizers" not in one["metadata"], one["metadata"]["name"]
    assert {c["type"]: c["status"] for c in after["status"]["conditions"]} == {
        "Ready": "True",
        "Reconciling": "False",
        "Stalled": "False",
        "Valid": "True",
        "MetricsAvailable": "True",
        "SpeculationActive": "True",
        "CapacitySufficient": "True",
        "Moving": "False",
        "Overloaded": "Unknown",  # there are no engines here
    }
    assert after["status"]["observedGeneration"] == after["metadata"]["generation"]
    versions = world.versions()
    # A window in which nothing may happen: four blocks and as many readings of the routers.
    time.sleep(QUIET_SECONDS)
    assert world.versions() == versions


def test_a_restarted_operator_finds_all_as_it_left_it_and_writes_nothing(world: World) -> None:
    world.create()
    first = world.start()
    world.settled()
    assert first.stop() == 0
    versions = world.versions()
    second = world.start()
    eventually("the second operator leads", second.leading)
    eventually("it has looked at it", lambda: 'reconciles_total{result="ok"}' in second.get("/metrics"))
    time.sleep(3.0)
    assert world.versions() == versions


def test_an_edit_by_somebody_else_is_put_back_and_told(world: World) -> None:
    world.create()
    world.start()
    world.settled()
    world.api.patch("Deployment", world.namespace, "assistant-ngram", {"spec": {"replicas": 5}})
    eventually(
        "replicas are put back",
        lambda: (world.api.get("Deployment", world.namespace, "assistant-ngram") or {})["spec"]["replicas"] == 1,
    )
    told = eventually("an event tells it", lambda: world.events("DriftCorrected"))
    assert "Deployment assistant-ngram" in told[0]["note"]
    assert "spec.replicas" in told[0]["note"]
    assert told[0]["regarding"]["name"] == "assistant"
    for label in ("specfleet.dev/deployment", "app.kubernetes.io/managed-by"):
        world.api.patch("Service", world.namespace, "assistant", {"metadata": {"labels": {label: None}}})
        what = f"label {label}, by which the operator finds its objects, is put back"
        eventually(what, partial(labelled, world, "assistant", label))
    world.api.delete("ConfigMap", world.namespace, "assistant-router")
    eventually("a deleted object comes back", lambda: world.api.get("ConfigMap", world.namespace, "assistant-router"))


def test_edits_that_fall_into_a_pass_are_not_missed(world: World) -> None:
    world.create()
    world.start()
    world.settled()
    for _ in range(8):
        # Each change comes while the pass that the last one caused is still under way.
        for label in ("specfleet.dev/deployment", "app.kubernetes.io/managed-by"):
            world.api.patch("Service", world.namespace, "assistant", {"metadata": {"labels": {label: None}}})
            eventually(f"{label} is put back", partial(labelled, world, "assistant", label))
        world.api.delete("ConfigMap", world.namespace, "assistant-router")
        eventually("it comes back", lambda: world.api.get("ConfigMap", world.namespace, "assistant-router"))


def test_what_others_add_beside_our_fields_stays(world: World) -> None:
    world.create()
    world.start()
    world.settled()
    world.api.patch("Service", world.namespace, "assistant", {"metadata": {"labels": {"cost-centre": "7"}}})
    world.edit({"pools": {"replicas": 3}})
    eventually(
        "the new size is applied",
        lambda: (world.api.get("Deployment", world.namespace, "assistant-ngram") or {})["spec"]["replicas"] == 2,
    )
    service = world.api.get("Service", world.namespace, "assistant")
    assert service is not None
    assert service["metadata"]["labels"]["cost-centre"] == "7"


def test_an_object_of_that_name_that_is_not_ours_is_left_alone(world: World) -> None:
    taken = world.api.create(
        "Service",
        world.namespace,
        {"metadata": {"name": "assistant", "labels": {"app": "old"}}, "spec": {"ports": [{"port": 81}]}},
    )
    world.create()
    world.start()
    stalled = world.until("Stalled", "True", "NameTaken")
    assert "Service assistant" in stalled["message"]
    assert world.condition("Ready")["reason"] == "NameTaken"
    assert world.api.get("Service", world.namespace, "assistant") == taken
    assert world.api.list("Deployment", world.namespace) == []
    world.api.delete("Service", world.namespace, "assistant")
    world.settled()
    assert world.condition("Stalled")["status"] == "False"


def test_pruning_goes_by_owner_and_never_by_label(world: World) -> None:
    made = world.create()
    world.start()
    world.settled()
    ours = world.api.get("ConfigMap", world.namespace, "assistant-routes")
    assert ours is not None
    labels = ours["metadata"]["labels"]
    world.api.create(
        "ConfigMap", world.namespace, {"metadata": {"name": "stranger", "labels": labels}, "data": {"a": "b"}}
    )
    world.edit({"drafts": [{"name": "lookup", "mode": "NGram"}]})
    eventually(
        "the old pool is gone and the new one there",
        lambda: (
            owned(world, made["metadata"]["uid"])["Deployment"]
            == {"assistant-baseline", "assistant-lookup", "assistant-router"}
        ),
    )
    eventually(
        "its Service and budget went too",
        lambda: (
            owned(world, made["metadata"]["uid"])["Service"] == {"assistant", "assistant-baseline", "assistant-lookup"}
        ),
    )
    assert world.api.get("ConfigMap", world.namespace, "stranger") is not None


def test_deletion_takes_all_that_is_owned_and_nothing_hangs_without_an_operator(world: World) -> None:
    world.create()
    operator = world.start()
    world.settled()
    operator.kill()
    world.api.delete("SpecDeployment", world.namespace, "assistant")
    assert world.api.get("SpecDeployment", world.namespace, "assistant") is None
    eventually(
        "the garbage collector has taken everything",
        lambda: all(
            not one["metadata"]["name"].startswith("assistant")
            for kind in (*OWNED, "Pod")
            for one in world.api.list(kind, world.namespace)
        ),
    )


def test_a_policy_edit_rolls_no_pod(world: World) -> None:
    world.create()
    world.start()
    world.settled()
    pods = {one["metadata"]["uid"] for one in world.api.list("Pod", world.namespace)}
    templates = {
        one["metadata"]["name"]: one["metadata"]["generation"] for one in world.api.list("Deployment", world.namespace)
    }
    world.edit({"policy": {"minAcceptancePercent": 40, "exploration": {"maxPercent": 5}}})
    world.speculation("chat", "Never")
    world.served("chat", 0)
    assert world.condition("Ready")["status"] == "True"
    assert {one["metadata"]["uid"] for one in world.api.list("Pod", world.namespace)} == pods
    assert {
        one["metadata"]["name"]: one["metadata"]["generation"] for one in world.api.list("Deployment", world.namespace)
    } == templates

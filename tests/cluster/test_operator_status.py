"""What a person reads in status when something is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.api import Body, eventually
from tests.cluster.conftest import World

pytestmark = pytest.mark.cluster


def engine_trouble(world: World, pool: str, **container: Any) -> None:
    """Pods of one pool are in this state from now on."""

    def say(pod: Body) -> Body | None:
        labels = pod["metadata"]["labels"]
        return world.kubelet.unready(**container) if labels.get("specfleet.dev/pool") == pool else None

    world.kubelet.trouble = say


def test_at_first_sight_ready_is_unknown_and_it_is_in_progress(world: World) -> None:
    world.kubelet.trouble = lambda pod: world.kubelet.unready()
    made = world.create()
    assert made["status"]["observedGeneration"] == -1
    world.start()
    world.until("Reconciling", "True")
    assert world.condition("Ready")["status"] in ("Unknown", "False")
    assert world.condition("Stalled")["status"] == "False"


@pytest.mark.parametrize(
    ("container", "reason", "words"),
    [
        (
            {"state": {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "engine"'}}},
            "ImageNotAvailable",
            "image engine cannot be pulled (ImagePullBackOff)",
        ),
        (
            {
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {
                    "terminated": {
                        "exitCode": 1,
                        "reason": "Error",
                        "message": "Traceback\nValueError: no key hf_abcdefghijklmnop for you",
                    }
                },
            },
            "EngineCrashes",
            "ends with exit code 1: ValueError: no key *** for you",
        ),
        (
            {
                "state": {"waiting": {"reason": "CrashLoopBackOff"}},
                "lastState": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}},
            },
            "OutOfMemory",
            "killed for want of memory",
        ),
        (
            {"state": {"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "hf" not found'}}},
            "ConfigNotAvailable",
            'secret "hf" not found',
        ),
    ],
)
def test_a_pool_that_does_not_start_is_explained_and_the_other_serves(
    world: World, container: Body, reason: str, words: str
) -> None:
    engine_trouble(world, "ngram", **container)
    world.create()
    world.start()
    ready = world.until("Ready", "False", reason)
    eventually(
        "the other pool is said to serve",
        lambda: "Pool baseline serves all routes" in world.condition("Ready")["message"],
    )
    ready = world.condition("Ready")
    assert words in ready["message"]
    assert "hf_abcdefghijklmnop" not in str(world.body())
    assert world.condition("Stalled")["status"] == "False"


def test_a_quota_is_named(world: World) -> None:
    world.api.create("ResourceQuota", world.namespace, {"metadata": {"name": "small"}, "spec": {"hard": {"pods": "0"}}})
    eventually(
        "the quota is in force",
        lambda: (world.api.get("ResourceQuota", world.namespace, "small") or {}).get("status", {}).get("hard"),
    )
    world.create()
    world.start()
    ready = world.until("Ready", "False", "QuotaExceeded")
    assert "small" in ready["message"]
    assert world.condition("CapacitySufficient")["reason"] == "QuotaExceeded"


def test_an_invalid_spec_is_refused_and_what_runs_goes_on(world: World) -> None:
    world.create()
    world.start()
    world.settled()
    pods = {one["metadata"]["uid"] for one in world.api.list("Pod", world.namespace)}
    world.edit({"engine": {"version": "0.7.0"}})
    stalled = world.until("Stalled", "True", "SpecInvalid")
    valid = world.condition("Valid")
    assert (valid["status"], valid["reason"]) == ("False", "ReleaseTooOld")
    assert stalled["message"] == valid["message"]
    assert "goes on" in world.condition("Ready")["message"]
    assert {one["metadata"]["uid"] for one in world.api.list("Pod", world.namespace)} == pods
    world.edit({"engine": {"version": "0.32.0"}})
    world.settled()
    assert world.condition("Valid")["status"] == "True"
    assert world.condition("Stalled")["status"] == "False"


def test_a_spec_that_was_never_valid_renders_nothing(world: World) -> None:
    world.create(engine={"type": "vLLM", "version": "0.7.0"})
    world.start()
    world.until("Stalled", "True", "SpecInvalid")
    assert world.api.list("Deployment", world.namespace) == []
    assert world.condition("Reconciling")["status"] == "False"

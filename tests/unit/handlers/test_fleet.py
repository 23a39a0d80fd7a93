"""Readiness of the workloads in a sentence."""

from __future__ import annotations

from typing import Any

from specfleet.api.conditions import Reason
from specfleet.cluster.kinds import DEPLOYMENT
from specfleet.handlers.fleet import Fleet, fleet, readiness
from specfleet.handlers.observed import Observed
from tests.unit.handlers.samples import UID, deployment, owner, pod, spec_of

KEY = ("serving", "assistant")
WORKLOADS = (
    ("assistant-baseline", "engine", "baseline"),
    ("assistant-ngram", "engine", "ngram"),
    ("assistant-router", "router", None),
)


def observed(broken: str = "", uid: str = UID, workload: Any = None, **pod_status: Any) -> Fleet:
    store = Observed()
    for name, component, pool in WORKLOADS:
        replicas = 2 if pool is None else 1
        down = (workload or {"readyReplicas": 0, "conditions": []}) if name == broken else {}
        body = deployment(name, component, pool, replicas=replicas, **down)
        body["metadata"]["ownerReferences"][0]["uid"] = uid
        store.put_owned(DEPLOYMENT, body)
        for index in range(replicas):
            status = pod_status if name == broken else {}
            store.put_pod(pod(f"{name}-{index}", component, pool, ready=name != broken, **status))
    return fleet("assistant", spec_of(owner()), UID, store.owned(KEY), store.pods(KEY))


def test_all_serve() -> None:
    state = observed()
    assert state.ready
    assert state.rolled_out
    assert [router.name for router in state.routers] == ["assistant-router-0", "assistant-router-1"]
    assert readiness(state)[:2] == (True, Reason.AVAILABLE)


def test_one_pool_down_is_named_with_its_cause_and_the_other_said_to_serve() -> None:
    waiting = {"state": {"waiting": {"reason": "ErrImagePull", "message": "no such tag"}}}
    state = observed("assistant-ngram", containerStatuses=[{"name": "engine", "image": "e:9", **waiting}])
    ready, reason, message = readiness(state)
    assert (ready, reason) == (False, Reason.IMAGE_NOT_AVAILABLE)
    assert message == (
        "Pool ngram: 0 of 1 ready; image e:9 cannot be pulled (ErrImagePull): no such tag. "
        "Pool baseline serves all routes."
    )


def test_no_router_is_its_own_reason_and_no_pool_is_said_to_serve() -> None:
    ready, reason, message = readiness(observed("assistant-router"))
    assert (ready, reason) == (False, Reason.ROUTER_NOT_READY)
    assert message == "The router: 0 of 2 ready."


def test_a_deployment_of_that_name_that_is_not_ours_counts_for_nothing() -> None:
    assert not observed(uid="another").ready


def test_available_with_no_ready_pod_is_not_serving() -> None:
    # With one replica and maxUnavailable 1 Kubernetes calls a Deployment available that has no ready pod.
    store = Observed()
    store.put_owned(DEPLOYMENT, deployment("assistant-ngram", "engine", "ngram", readyReplicas=0))
    state = fleet("assistant", spec_of(owner()), UID, store.owned(KEY), store.pods(KEY))
    assert not state.speculative.serving


def test_old_pods_beside_new_ones_are_a_rollout() -> None:
    store = Observed()
    store.put_owned(DEPLOYMENT, deployment("assistant-ngram", "engine", "ngram", replicas=2, updatedReplicas=1))
    state = fleet("assistant", spec_of(owner()), UID, store.owned(KEY), store.pods(KEY))
    assert state.speculative.rolling
    assert not state.speculative.rolled_out


def test_a_pod_that_waits_for_a_volume_on_another_node_says_which_claim_and_what_to_do() -> None:
    def state(node: str, *claims: str) -> Fleet:
        store = Observed()
        for name, pool in (("assistant-baseline", "baseline"), ("assistant-ngram", "ngram")):
            store.put_owned(DEPLOYMENT, deployment(name, "engine", pool))
        waits = [{"type": kind, "status": "False"} for kind in ("Ready", "PodReadyToStartContainers")]
        store.put_pod({**pod("a", "engine", "baseline"), "spec": {"nodeName": "one"}})
        store.put_pod({**pod("b", "engine", "ngram", conditions=waits), "spec": {"nodeName": node}})
        found = (store.owned(KEY), store.pods(KEY))
        return fleet("assistant", spec_of(owner()), UID, *found, one_node_claims=claims)

    problem = state("two", "cache").speculative.problem
    assert problem is not None
    assert problem.reason is Reason.VOLUME_NOT_AVAILABLE
    assert problem.message.startswith("a pod waits for claim cache, which one node can have at a time: one has it.")
    assert "ReadWriteMany" in problem.message
    assert state("one", "cache").speculative.problem is None
    assert state("two").speculative.problem is None

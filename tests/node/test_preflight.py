"""A draft is compared with its target by a real Job before it gets a pod, and a Job that cannot run stops nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.node import recital, reciters, routers
from tests.node.conftest import Fleet
from tests.node.install import install_operator, pods_of
from tests.node.kube import Kube, Manifest, ready_pods, wait_for
from tests.node.load import Load
from tests.node.recital import OBSERVE, POOL, draft
from tests.testbed import api

pytestmark = pytest.mark.node

NAME = "compared"
LIMIT_SECONDS = 60
OTHER_SPECIAL = ("<pad>", "<bos>", "<|end|>")
NO_JOBS = "no-jobs"


@pytest.fixture
def hurried(kube: Kube, operator: str) -> Iterator[None]:
    """The operator gives up on preflights after a minute."""
    install_operator(kube, operator, settings={"preflightSeconds": str(LIMIT_SECONDS)})
    yield
    install_operator(kube, operator)


@contextmanager
def full_cluster(kube: Kube) -> Iterator[None]:
    """No node takes a pod that is not there yet."""
    node = api.ensure_node().name
    kube.kubectl("cordon", node)
    try:
        yield
    finally:
        kube.kubectl("uncordon", node)


@contextmanager
def no_jobs(kube: Kube, namespace: str) -> Iterator[None]:
    """A quota of the namespace that allows no Job."""
    metadata = {"name": NO_JOBS, "namespace": namespace}
    kube.apply(
        {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": {"hard": {"count/jobs.batch": "0"}}}
    )
    try:
        yield
    finally:
        kube.delete("resourcequota", NO_JOBS, namespace)


def pools_pods(fleet: Fleet, pool: str) -> list[Manifest]:
    """Pods of one pool."""
    pods = pods_of(fleet.kube, fleet.name, fleet.namespace)
    return [pod for pod in pods if pod["metadata"]["labels"].get("specfleet.dev/pool") == pool]


def serves_alone(fleet: Fleet) -> None:
    """Baseline answers every route, rightly, and there has been no speculative pod."""
    with Load(recital.endpoint(fleet), recital.clients(fleet.name, {"letters": 1, "digits": 1})) as load:
        wait_for("10 answers", lambda: load.tally.total >= 10 or None, seconds=120)
    recital.all_right(load)
    assert never_drafted(fleet)


def never_drafted(fleet: Fleet) -> bool:
    """Whether the pool that drafts has no Deployment, and no event tells of a pod that it had."""
    name = f"{fleet.name}-{POOL}"
    told = fleet.kube.kubectl("get", "events", "-n", fleet.namespace, "-o", "name")
    return fleet.kube.get("deployment", name, fleet.namespace) is None and f"event/{name}-" not in told


@pytest.mark.usefixtures("hurried")
def test_a_draft_is_compared_before_it_gets_a_pod(kube: Kube, namespace: str, tmp_path: Path) -> None:
    target, twin = reciters.target(tmp_path / "target"), reciters.reciter(tmp_path / "twin", reciters.onwards)
    other = reciters.byte_tokenizer(OTHER_SPECIAL, swapped="ef")
    foreign = reciters.reciter(tmp_path / "foreign", reciters.onwards, other)

    def wanted(checkpoint: Path, **more: Any) -> Manifest:
        return recital.manifest(NAME, namespace, target, draft("DraftModel", checkpoint, **more), OBSERVE)

    with recital.applied(kube, wanted(foreign)) as fleet:
        refused = recital.until(fleet, "DraftCompatible", "False", "DraftIncompatible")
        print(refused["message"])
        for told in ("4 of 259 tokens", '"<eos>" is 2', '"<|end|>" is missing', '"e" is 104'):
            assert told in refused["message"]
        stalled = recital.until(fleet, "Stalled", "True", "DraftIncompatible")
        assert '"<eos>"' in stalled["message"]
        wait_for("routers to reach baseline", lambda: routers.all_reach(kube, NAME, namespace, "baseline"), seconds=600)
        assert "Pool baseline serves" in recital.said(fleet, "Ready")["message"]
        serves_alone(fleet)

        with full_cluster(kube):
            kube.apply(wanted(twin))
            waiting = recital.until(fleet, "DraftCompatible", "Unknown", "PreflightRunning")
            serves_alone(fleet)
            late = recital.until(fleet, "DraftCompatible", "Unknown", "PreflightTimedOut", seconds=2 * LIMIT_SECONDS)
            print(waiting["message"], late["message"], sep="\n")
            assert "unschedulable" in late["message"]
        recital.until(fleet, "Reconciling", "False", seconds=600)
        recital.until(fleet, "Ready", "True", seconds=60)
        assert ready_pods(pools_pods(fleet, POOL))

        before = pool_spec(fleet)
        with no_jobs(kube, namespace):
            kube.apply(wanted(twin, tokens=3))
            wait_for("the quota to be told of", lambda: "quota" in told_of(fleet) or None, seconds=30)
            assert pool_spec(fleet) == before
            late = recital.until(fleet, "DraftCompatible", "Unknown", "PreflightTimedOut", seconds=2 * LIMIT_SECONDS)
            print(late["message"])
            assert "quota" in late["message"]
            wait_for("the pool to take the edit", lambda: pool_spec(fleet) != before or None, seconds=60)


def pool_spec(fleet: Fleet) -> Manifest:
    """The spec of the Deployment that drafts."""
    found = fleet.kube.get("deployment", f"{fleet.name}-{POOL}", fleet.namespace)
    assert found is not None
    spec: Manifest = found["spec"]
    return spec


def told_of(fleet: Fleet) -> str:
    """What DraftCompatible says now."""
    return str(recital.said(fleet, "DraftCompatible").get("message", ""))

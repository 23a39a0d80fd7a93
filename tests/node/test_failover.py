"""All speculative pods end at once, at a load that baseline alone carries."""

from __future__ import annotations

import pytest

from specfleet.routing.counters import RouteRow
from tests.node import routers
from tests.node.conftest import Fleet, Serve
from tests.node.install import pods_of
from tests.node.kube import Kube, wait_for
from tests.node.load import Load, clients
from tests.node.processes import kill
from tests.node.stub_fleet import DRAFT

pytestmark = pytest.mark.node

# Every draft token is accepted: the 20 decode tokens of an answer come in 4 steps of 5, so L is exactly 5, and one
# answer of baseline among them would show.
ALL_ACCEPTED = {"x-stub-acceptance": "1.0"}
TOKENS = 21
STEP_MS = 100.0
SAME_PACE = 0.25
"""Relative difference of the time per token that two runs on a busy machine may have; baseline's is 5 times as long."""


def test_no_request_is_lost_before_its_headers_and_the_figures_do_not_move(kube: Kube, serve: Serve) -> None:
    fleet = serve(routes=[{"name": "all", "speculation": "Always"}], replicas=4, step_ms=STEP_MS)
    wait_for(
        "the routers to speculate",
        lambda: routers.all_serve(kube, fleet.name, fleet.namespace, "all", DRAFT, range(100, 101)),
        seconds=60,
    )
    speculative = [
        pod
        for pod in pods_of(kube, fleet.name, fleet.namespace)
        if pod["metadata"]["labels"].get("specfleet.dev/pool") == DRAFT
    ]
    key = ("all", DRAFT, DRAFT)

    with Load(fleet.endpoint, [clients("all", fleet.name, 16, tokens=TOKENS, headers=ALL_ACCEPTED)]) as load:
        wait_for("100 answers", lambda: load.tally.total >= 100, seconds=120)
        before = routers.rows(kube, fleet.name, fleet.namespace)
        assert kill(speculative, "vllm.py") == len(speculative)
        # A container is back within a second of its first end: it is ended again until baseline has carried the load.
        wait_for(
            "50 answers by baseline",
            lambda: kill(speculative, "vllm.py") >= 0 and _by_baseline(kube, fleet) >= 50,
            seconds=60,
            every=0.2,
        )
        wait_for("the speculative pool to serve again", lambda: _more(kube, fleet, key, before, 50), seconds=180)

    after = routers.rows(kube, fleet.name, fleet.namespace)
    lost = [one for one in load.tally.failures if one.status is None or not one.incomplete]
    assert lost == [], "a request failed whose response headers had not been sent"
    counted = sum(
        row.aborted + row.lost_before_first_token for row in routers.since(before, after).values() if row.route == "all"
    )
    assert counted == len(load.tally.failures)

    assert routers.tokens_per_step(before[key]) == 5.0
    assert routers.tokens_per_step(after[key]) == 5.0
    grown = routers.since(before, after)[key]
    ratio = routers.stream_ms_per_token(grown) / routers.stream_ms_per_token(before[key])
    assert abs(ratio - 1.0) < SAME_PACE


def _by_baseline(kube: Kube, fleet: Fleet) -> int:
    rows = routers.rows(kube, fleet.name, fleet.namespace)
    return sum(row.finished for row in rows.values() if row.route == "all" and row.pool == "baseline")


def _more(kube: Kube, fleet: Fleet, key: routers.RowKey, before: dict[routers.RowKey, RouteRow], count: int) -> bool:
    now = routers.rows(kube, fleet.name, fleet.namespace)
    return now[key].finished >= before[key].finished + count

"""Ready is said once requests are answered: routers find pods by DNS and check their health before they use them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from specfleet.api.conditions import ConditionType, Reason
from specfleet.api.status import SpecDeploymentStatus
from specfleet.handlers.conditions import Said, Troubles, assess, conditions
from specfleet.handlers.fleet import Fleet
from specfleet.handlers.memory import Memory
from specfleet.routing.counters import RouterSample
from tests.unit.handlers.test_decide import NOW, state
from tests.unit.handlers.test_memory import router

A, B = router("a"), router("b")
BOTH = {"baseline": 1, "ngram": 1}


def fleet(baseline: int = 1, speculative: int = 1) -> Fleet:
    return replace(state(baseline, speculative), routers=(A, B))


def memory(**healthy: Mapping[str, int]) -> Memory:
    one = Memory.new("uid-1", 60.0, NOW)
    one.samples = {
        {"a": A, "b": B}[name].uid: RouterSample(NOW, NOW - 60, (), {}, {}, 0, 0, healthy=hosts)
        for name, hosts in healthy.items()
    }
    return one


def ready(before: SpecDeploymentStatus, *, connected: bool) -> Said:
    said = assess(
        fleet(),
        [],
        Said("True", "RoutersRead", "ok"),
        Troubles(),
        [],
        before,
        1,
        pending=False,
        rejected=False,
        no_room=[],
        connected=connected,
    )
    return said[ConditionType.READY]


@pytest.mark.parametrize(
    ("healthy", "connected"),
    [
        ({"a": BOTH, "b": BOTH}, True),
        ({"a": BOTH, "b": {"baseline": 1, "ngram": 0}}, False),
        ({"a": BOTH, "b": {"baseline": 0, "ngram": 0}}, False),
        ({"a": BOTH}, False),
        ({"a": BOTH, "b": {}}, True),
    ],
)
def test_every_router_has_to_reach_every_pool(healthy: dict[str, Mapping[str, int]], connected: bool) -> None:
    assert memory(**healthy).connected(fleet()) is connected


def test_a_pool_without_a_ready_pod_is_not_waited_for() -> None:
    only = {"baseline": 1, "ngram": 0}
    assert memory(a=only, b=only).connected(fleet(speculative=0))


def test_a_router_that_does_not_answer_is_not_waited_for() -> None:
    one = memory(a=BOTH)
    one.silent_until[B.uid] = NOW + 30
    assert one.connected(fleet())


def test_ready_waits_for_the_routers_and_is_not_taken_back_for_them() -> None:
    first = ready(SpecDeploymentStatus(), connected=False)
    assert (first.status, first.reason) == ("False", Reason.ROUTERS_CONNECTING)
    there = ready(SpecDeploymentStatus(), connected=True)
    assert there.status == "True"
    before = SpecDeploymentStatus(
        conditions=conditions({ConditionType.READY: there}, SpecDeploymentStatus(), 1, "2026-11-29T09:00:00Z")
    )
    assert ready(before, connected=False).status == "True"

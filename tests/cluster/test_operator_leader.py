"""Several replicas: one writes, and another takes over. Frozen ones are in test_faults_leader.py."""

from __future__ import annotations

import time

import pytest

from tests.cluster.api import eventually
from tests.cluster.conftest import World

pytestmark = pytest.mark.cluster

TAKE_OVER_SECONDS = 15.0


def test_two_replicas_one_leads_and_both_are_ready(world: World) -> None:
    world.create()
    first = world.start()
    eventually("the first leads", first.leading)
    second = world.start()
    world.settled()
    assert second.probe("/readyz") == 200
    assert second.probe("/healthz") == 200
    assert not second.leading()
    assert "api_writes_total" not in "".join(
        line for line in second.get("/metrics").splitlines() if not line.startswith("#")
    )
    assert first.stop() == 0
    eventually("a lease that was given back is taken at once", second.leading, 8.0)
    world.speculation("chat", "Never")
    world.served("chat", 0)


def test_a_killed_leader_is_followed_within_the_promised_time(world: World) -> None:
    world.create()
    first = world.start()
    eventually("the first leads", first.leading)
    second = world.start()
    world.settled()
    first.kill()
    killed = time.monotonic()
    eventually("the second leads", second.leading, TAKE_OVER_SECONDS + 5.0)
    assert time.monotonic() - killed <= TAKE_OVER_SECONDS
    world.speculation("chat", "Never")
    world.served("chat", 0)

"""Several replicas: one writes, another takes over, and one that was away too long writes nothing."""

from __future__ import annotations

import signal
import time

import pytest

from tests.cluster.api import eventually
from tests.cluster.conftest import World

pytestmark = pytest.mark.cluster

TAKE_OVER_SECONDS = 15.0


def holder(world: World) -> str:
    """Who holds the lease."""
    lease = world.api.get("Lease", world.namespace, "specfleet")
    return str(((lease or {}).get("spec") or {}).get("holderIdentity") or "")


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


def test_a_leader_that_was_frozen_past_its_deadline_writes_nothing_and_ends(world: World) -> None:
    world.create()
    first = world.start()
    eventually("the first leads", first.leading)
    second = world.start()
    world.settled()
    first.kill(signal.SIGSTOP)
    eventually("the second leads", second.leading, TAKE_OVER_SECONDS + 5.0)
    world.speculation("chat", "Never")
    world.served("chat", 0)
    versions = world.versions()
    first.kill(signal.SIGCONT)
    assert first.process.wait(20) != 0
    assert "lease" in first.log.read_text().splitlines()[-1]
    assert world.versions() == versions
    assert holder(world).startswith(second.log.stem)
    assert len(world.route("chat")["history"]) == 1

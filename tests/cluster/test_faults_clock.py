"""The clock of the operator's machine is set back an hour and forward again, while requests run."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from tests.cluster.api import eventually
from tests.cluster.live_fleet import BAD, EXPLORES, QUICK, LiveFleet
from tests.cluster.set_clock import SetClock, trusting

pytestmark = pytest.mark.cluster

HOUR = 3600
TAKE_OVER_SECONDS = 15.0


def test_an_hour_back_and_forward_moves_nothing_stops_nothing_and_costs_no_lease(
    fleet: LiveFleet, tmp_path: Path
) -> None:
    world, clock = fleet.world, SetClock(tmp_path)
    world.kubeconfig = trusting(world.kubeconfig, tmp_path / "trusting")
    world.create(policy=QUICK)
    leader = world.start(environment=clock.environment)
    eventually("the first leads", leader.leading)
    standby = world.start(environment=clock.environment)
    fleet.settled()
    with fleet.traffic(chat=BAD) as requests:
        clock.ahead(-HOUR)
        fleet.serve("chat", EXPLORES)  # decided after the clock was set: reading and counting go on
        assert fleet.shares("code") == {100}
        said = eventually("it is told", lambda: world.route("chat")["history"])
        assert datetime.now(UTC) - datetime.fromisoformat(said[0]["at"]) > timedelta(seconds=HOUR - 60)
        assert world.condition("MetricsAvailable")["status"] == "True"

        clock.ahead(0)
        until = time.monotonic() + 5.0
        while time.monotonic() < until:
            assert fleet.shares("chat") <= set(EXPLORES)
            assert fleet.shares("code") == {100}
            time.sleep(0.5)
        assert leader.leading()
        assert not standby.leading()
        assert world.condition("MetricsAvailable")["status"] == "True"

        clock.ahead(-HOUR)
        leader.kill()
        killed = time.monotonic()
        eventually("the standby leads", standby.leading, TAKE_OVER_SECONDS + 15.0)
        assert time.monotonic() - killed <= TAKE_OVER_SECONDS
        requests.go_on()
        assert fleet.shares("chat") <= set(EXPLORES)
    assert [one["pool"] for one in world.route("chat")["history"]] == ["baseline"]
    assert world.route("code")["history"] == []
    assert "the clock was set by -3600" in leader.log.read_text()
    assert requests.failures == []

"""Leaders that freeze or die while requests run: the next one takes over, no request fails, and nothing is lost.

Who wrote what is read from the API server's audit log, in which each replica has a name of its own.
"""

from __future__ import annotations

import os
import signal
import time
from datetime import UTC, datetime

import pytest

from tests.cluster.api import Body, eventually
from tests.cluster.conftest import World
from tests.cluster.live_fleet import BAD, EXPLORES, QUICK, LiveFleet
from tests.cluster.operator_process import OperatorProcess
from tests.testbed.api import ControlPlane
from tests.testbed.processes import Daemon

pytestmark = pytest.mark.cluster

TAKE_OVER_SECONDS = 15.0


def two(world: World) -> tuple[OperatorProcess, OperatorProcess]:
    """The leader and a standby."""
    leader = world.start()
    eventually("the first leads", leader.leading)
    return leader, world.start()


def of_others(writes: list[Body]) -> list[Body]:
    """Without the lease."""
    return [one for one in writes if one["objectRef"]["resource"] != "leases"]


def test_a_frozen_leader_is_replaced_in_time_and_writes_nothing_when_it_thaws(fleet: LiveFleet) -> None:
    world = fleet.world
    world.create(policy=QUICK)
    frozen, standby = two(world)
    fleet.settled()
    with fleet.traffic(chat=BAD) as requests:
        frozen.kill(signal.SIGSTOP)
        since = time.monotonic()
        eventually("the standby leads", standby.leading, TAKE_OVER_SECONDS + 15.0)
        assert time.monotonic() - since <= TAKE_OVER_SECONDS
        fleet.serve("chat", EXPLORES)  # the evidence that the frozen one would have acted on is not lost
        assert fleet.shares("code") == {100}
        written = len(world.writes(frozen))
        thawed = datetime.now(UTC).isoformat()
        frozen.kill(signal.SIGCONT)
        assert frozen.process.wait(20) != 0
        requests.go_on()
    after = [one for one in world.writes(frozen)[written:] if one["requestReceivedTimestamp"] >= thawed[:26]]
    assert of_others(world.writes(frozen)[written:]) == []
    assert [one["responseStatus"]["code"] for one in after if one["responseStatus"]["code"] < 400] == []
    assert "lease" in frozen.log.read_text().splitlines()[-1]
    assert of_others(world.writes(standby))
    assert [one["pool"] for one in world.route("chat")["history"]] == ["baseline"]
    assert world.route("code")["history"] == []
    assert len(eventually("it is told", lambda: world.events("SpeculationOff"))) == 1
    assert world.condition("Ready")["status"] == "True"
    assert requests.failures == []


@pytest.mark.faults
def test_while_the_api_server_hangs_nothing_moves_and_the_next_leader_goes_on(
    fleet: LiveFleet, api_server: ControlPlane
) -> None:
    world = fleet.world
    world.create(policy=QUICK)
    leader = world.start()
    fleet.settled()
    server = Daemon("kube-apiserver", api_server.state_dir).process
    assert server is not None
    with fleet.traffic(chat=BAD) as requests:
        os.kill(server.pid, signal.SIGSTOP)
        try:
            assert leader.process.wait(30) == 1
            requests.go_on(60)
            assert fleet.shares("chat") == fleet.shares("code") == {100}
        finally:
            os.kill(server.pid, signal.SIGCONT)
        assert "lease" in leader.log.read_text().splitlines()[-1]
        world.start()
        fleet.serve("chat", EXPLORES)
        assert fleet.shares("code") == {100}
    assert [one["pool"] for one in world.route("chat")["history"]] == ["baseline"]
    assert world.route("code")["history"] == []
    world.until("Ready", "True")
    assert requests.failures == []

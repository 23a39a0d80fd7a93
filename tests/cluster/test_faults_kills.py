"""The operator is killed at each step of a switch that evidence makes, while requests run; the next one ends it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.api import eventually
from tests.cluster.conftest import World
from tests.cluster.live_fleet import BAD, EXPLORES, GOOD, QUICK, LiveFleet

pytestmark = pytest.mark.cluster

FAULTY = str(Path(__file__).with_name("faulty_operator.py"))
EXIT = 86
# A switch-off: status, event, ConfigMap, the annotations of two pods, and status again once it is served.
OFF = [
    (1, "before"),
    (1, "after"),
    (2, "after"),
    (3, "before"),
    (3, "after"),
    (4, "after"),
    (5, "after"),
    (6, "before"),
]
# A switch-on has the same with 10 % of the traffic, and all but the event again for 50 and for 100 %.
ON = [(1, "after"), (3, "before"), (4, "after"), (7, "before"), (7, "after"), (9, "after"), (12, "before")]
IN_MAKE_TEST = (3, "before")


def dies(world: World, armed: Path, nth: int, moment: str, pool: str) -> None:
    """Start an operator that dies at the n-th write from the one that commits a switch to `pool` on."""
    armed.write_text(f'Z","pool":"{pool}"')
    world.start((FAULTY, str(armed), str(nth), moment))


def followed(world: World) -> None:
    """Wait for its death, and start another one that need not wait for the lease to run out."""
    assert world.operators[0].process.wait(90) == EXIT
    world.api.delete("Lease", world.namespace, "specfleet")
    world.start(wait=False)


@pytest.mark.parametrize(
    ("nth", "moment"),
    [pytest.param(*step, marks=() if step == IN_MAKE_TEST else (pytest.mark.faults,)) for step in OFF],
)
def test_a_switch_off_is_ended_once_and_costs_no_request(
    fleet: LiveFleet, tmp_path: Path, nth: int, moment: str
) -> None:
    world = fleet.world
    world.create(policy=QUICK)
    dies(world, tmp_path / "armed", nth, moment, "baseline")
    fleet.settled()
    with fleet.traffic(chat=BAD) as requests:
        followed(world)
        fleet.serve("chat", EXPLORES)
        assert fleet.shares("code") == {100}
        requests.go_on()
    chat = world.route("chat")
    assert (chat["pool"], chat["reason"]) == ("baseline", "BelowAcceptance")
    assert [one["pool"] for one in chat["history"]] == ["baseline"]
    assert world.route("code")["history"] == []
    assert len(eventually("it is told", lambda: world.events("SpeculationOff"))) == 1
    assert requests.failures == []


@pytest.mark.faults
@pytest.mark.parametrize(("nth", "moment"), ON)
def test_a_switch_on_is_ended_once_by_its_ramp_and_costs_no_request(
    fleet: LiveFleet, tmp_path: Path, nth: int, moment: str
) -> None:
    world = fleet.world
    world.create(policy={**QUICK, "initial": "Baseline", "exploration": {"maxPercent": 50}})
    dies(world, tmp_path / "armed", nth, moment, "ngram")
    fleet.settled()
    with fleet.traffic(code=BAD, chat=GOOD) as requests:
        followed(world)
        fleet.serve("chat", 100)
        assert fleet.shares("code") <= set(range(51))
        requests.go_on()
    chat = world.route("chat")
    assert (chat["pool"], chat["reason"]) == ("ngram", "Pays")
    assert [one["pool"] for one in chat["history"]] == ["ngram"]
    assert world.route("code")["history"] == []
    assert len(eventually("it is told", lambda: world.events("SpeculationOn"))) == 1
    assert requests.failures == []

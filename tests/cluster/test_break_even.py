"""A break-even line that nobody has written: measured on Envoys and engines, kept over a restart, and acted upon."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from tests.cluster.api import Body, eventually
from tests.cluster.conftest import World
from tests.cluster.live_fleet import BAD, EXPLORES, NAME, Engines, LiveFleet, Requests
from tests.node.load import Load, clients

pytestmark = pytest.mark.cluster

MEASURED = {"breakEven": {"source": "Measured"}, "initial": "Speculative", "block": "1s", "dwell": "8s"}
ROUTES: list[Body] = [
    {"name": "code", "match": [{"header": {"name": "x-route", "value": "code"}}], "speculation": "Never"},
    {"name": "chat"},
]
BASE_STEP_MS, SPEC_STEP_MS = "20", "40"
CLIENTS = 4


def paced(engines: Engines) -> None:
    """A step under speculation takes twice as long, whatever runs: two tokens a step pay."""
    for engine, step in ((engines.baseline, BASE_STEP_MS), (engines.speculative, SPEC_STEP_MS)):
        engine.kill()
        engine.options = (*engine.options, "--step-ms", step)
        engine.start()


@contextlib.contextmanager
def requests(fleet: LiveFleet) -> Any:
    """The same load on both pools, with drafts of which next to none is accepted."""
    headers = {"x-stub-acceptance": BAD}
    groups = [
        clients("code", NAME, CLIENTS, tokens=10, headers={**headers, "x-route": "code"}),
        clients("chat", NAME, CLIENTS, tokens=10, headers=headers),
    ]
    with contextlib.ExitStack() as stack:
        yield Requests([stack.enter_context(Load(router.url, groups)) for router in fleet.routers])


def line(world: World) -> Body:
    """What status says of the line of route chat."""
    found = world.route("chat")["breakEven"]
    assert isinstance(found, dict)
    return found


def test_a_line_is_measured_until_it_is_known_and_then_switches_a_route_off(fleet: LiveFleet, engines: Engines) -> None:
    world = fleet.world
    paced(engines)
    world.create(policy=MEASURED, routing={"routes": ROUTES})
    world.start()
    fleet.settled()
    chat = world.route("chat")
    assert (chat["pool"], chat["reason"]) == ("ngram", "BreakEvenUnknown")
    assert line(world) == {"state": "Prior", "tokensPerStep": "1.00"}  # n-gram drafts cost no step of their own
    assert "evidence" not in chat
    with requests(fleet) as traffic:
        fleet.serve("chat", EXPLORES)
        eventually("status tells it", lambda: world.route("chat")["pool"] == "baseline")
        assert traffic.failures == []
    chat = world.route("chat")
    assert chat["reason"] == "BelowBreakEven"
    (switch,) = chat["history"]
    assert "Break-even Known: " in switch["message"]
    measured = float(switch["message"].split("Break-even Known: ")[1].split(" ")[0])
    assert measured == pytest.approx(2.0, rel=0.1)
    assert "needed to pay" in switch["message"]
    found = line(world)
    assert found["state"] in ("Known", "Extrapolated")
    assert float(found["interval"]["low"]) <= 2.0 <= float(found["interval"]["high"])
    page = world.operators[0].get("/metrics")
    assert f'specfleet_route_break_even_tokens_per_step{{deployment="assistant",namespace="{world.namespace}"' in page
    # The next operator goes on with what was measured.
    assert world.operators[0].stop() == 0
    kept = world.status()["curves"]
    world.start()
    world.edit({"policy": {"dwell": "9s"}})
    eventually("it has been looked at", lambda: world.status()["observedGeneration"] == 2)
    assert line(world)["state"] in ("Known", "Extrapolated")
    assert world.status()["curves"].split(",streams,")[1:] == kept.split(",streams,")[1:]


def test_a_fleet_that_is_all_on_measures_baseline_in_its_calibration_window(fleet: LiveFleet, engines: Engines) -> None:
    world = fleet.world
    paced(engines)
    # Engines under speculation take twice as long: so they run what the others do.
    calibration = {"percent": 67, "window": {"start": "00:00", "duration": "24h"}}
    world.create(
        policy=MEASURED | {"breakEven": {"source": "Measured", "calibration": calibration}},
        routing={"routes": [{"name": "code", "match": ROUTES[0]["match"]}, {"name": "chat"}]},
    )
    world.start()
    fleet.settled()
    fleet.serve("chat", 33)
    fleet.serve("code", 33)
    for route in ("chat", "code"):
        assert "Calibrating: 67 % go to baseline until " in world.route(route)["message"]
    with requests(fleet) as traffic:
        eventually("status tells it", lambda: world.route("chat")["pool"] == "baseline", 120.0)
        assert traffic.failures == []
    (switch,) = world.route("chat")["history"]
    measured = float(switch["message"].split("Break-even Known: ")[1].split(" ")[0])
    assert measured == pytest.approx(2.0, rel=0.1)

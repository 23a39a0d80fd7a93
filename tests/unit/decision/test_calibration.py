"""A window in which some of a route's traffic measures the pool that it is not in."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from specfleet.api.policy import Policy
from specfleet.decision.break_even import Estimate
from specfleet.decision.policy import route_config, with_line
from specfleet.decision.reasons import Hold, Phase, Reason
from specfleet.decision.rule import Guard, Room, RouteConfig, RouteState, Verdict, start, step
from specfleet.decision.types import Calibration, Pool

MIDNIGHT = 1_800_057_600.0  # 2027-01-16 00:00 UTC
NIGHT = MIDNIGHT + 2 * 3600.0
WINDOW = {"percent": 15, "window": {"start": "01:30", "duration": "2h"}}
PRIOR = Estimate("Prior", None)


def config(**changes: Any) -> RouteConfig:
    asked = {"breakEven": {"source": "Measured", "calibration": WINDOW}, "initial": "Speculative", **changes}
    policy = Policy.model_validate_json(json.dumps(asked))
    return route_config(policy, draft_tokens=4)


def stepped(
    pool: Pool, now: float, estimate: Estimate = PRIOR, *, settled: float = 7200.0, **more: Any
) -> tuple[RouteState, Verdict]:
    """A route that has been in this pool for two hours, a block later."""
    of = config()
    given = with_line(of, estimate, now)
    return step(start(of, now - settled, pool), given, None, now, **more)


@pytest.mark.parametrize(
    ("start_at", "hours", "at", "ends_at"),
    [
        (1.5, 2.0, 1.5, 3.5),
        (1.5, 2.0, 3.49, 3.5),
        (1.5, 2.0, 3.5, None),
        (1.5, 2.0, 1.49, None),
        (23.0, 2.0, 0.5, 1.0),
        (23.0, 2.0, 23.5, 25.0),
        (23.0, 2.0, 1.0, None),
        (0.0, 24.0, 12.0, 24.0),
    ],
)
def test_a_window_is_of_each_day_and_may_go_over_midnight(
    start_at: float, hours: float, at: float, ends_at: float | None
) -> None:
    found = Calibration(10, 3600.0 * start_at, 3600.0 * hours).end(MIDNIGHT + 3600.0 * at)
    assert found == (None if ends_at is None else MIDNIGHT + 3600.0 * ends_at)


def test_the_policy_says_how_much_and_when() -> None:
    assert config().calibration == Calibration(15, 5400.0, 7200.0)
    assert config(breakEven={"source": "Measured"}).calibration is None
    assert config(breakEven={"source": "Fixed", "tokensPerStep": "1.6"}).calibration is None


def test_a_route_that_is_on_sends_its_share_to_baseline_while_the_line_is_not_known() -> None:
    _, verdict = stepped("speculative", NIGHT)
    assert (verdict.pool, verdict.speculative_percent, verdict.phase) == ("speculative", 85, Phase.SETTLED)
    assert "Calibrating: 15 % go to baseline until 03:30, to measure the line." in verdict.message
    for now, estimate in (
        (MIDNIGHT, PRIOR),
        (MIDNIGHT + 3.5 * 3600.0, PRIOR),
        (NIGHT, Estimate("Known", 1.5, (1.4, 1.6), 4.0, (1.0, 8.0), NIGHT)),
    ):
        _, calm = stepped("speculative", now, estimate)
        assert calm.speculative_percent == 100
        assert "Calibrating" not in calm.message


def test_a_route_that_is_off_sends_that_share_to_speculation_where_it_explores_less() -> None:
    _, verdict = stepped("baseline", NIGHT)
    assert (verdict.pool, verdict.speculative_percent, verdict.phase) == ("baseline", 15, Phase.EXPLORING)
    assert "Calibrating: 15 % go to speculation until 03:30" in verdict.message
    _, calm = stepped("baseline", MIDNIGHT)
    assert calm.speculative_percent == 10


@pytest.mark.parametrize(
    ("pool", "more", "percent"),
    [
        ("speculative", {"guard": Guard(calibrate=False)}, 100),
        ("speculative", {"guard": Guard(off=Reason.SLO_BREACHED, why="Slow.")}, 10),
        ("baseline", {"guard": Guard(calibrate=False)}, 10),
        ("baseline", {"guard": Guard(explore=False)}, 0),
        ("baseline", {"guard": Guard(stay_off=Reason.POOL_SATURATED, why="Full.")}, 10),
        ("baseline", {"guard": Guard(stay_off=Reason.REQUESTS_REFUSED, explore=False, why="4xx.")}, 0),
        ("speculative", {"hold": Hold.OVERLOADED}, 100),
    ],
)
def test_guards_and_holds_go_first(pool: Pool, more: dict[str, Any], percent: int) -> None:
    _, verdict = stepped(pool, NIGHT, **more)
    assert verdict.speculative_percent == percent
    assert "Calibrating" not in verdict.message


@pytest.mark.parametrize("asked", [5, 10])
def test_a_route_that_explores_as_much_anyway_is_not_told_as_calibrating(asked: int) -> None:
    calibration = {"source": "Measured", "calibration": WINDOW | {"percent": asked}}
    of = with_line(config(breakEven=calibration), PRIOR, NIGHT)
    _, verdict = step(start(of, NIGHT - 7200.0, "baseline"), of, None, NIGHT)
    assert verdict.speculative_percent == 10
    assert "Calibrating" not in verdict.message


def test_a_busy_route_that_explores_little_calibrates() -> None:
    of = with_line(config(), PRIOR, NIGHT)
    state = replace(start(of, NIGHT - 7200.0, "baseline"), rate_requests=10_000.0, rate_hours=1.0)
    _, verdict = step(state, of, None, NIGHT)
    assert verdict.speculative_percent == 15
    _, calm = step(state, config(), None, NIGHT)
    assert calm.speculative_percent == 5


def test_a_move_that_waits_for_room_leaves_the_traffic_as_it_is() -> None:
    of = with_line(config(), PRIOR, NIGHT)
    state = replace(start(of, NIGHT - 7200.0, "speculative"), mode="baseline")
    _, verdict = step(state, of, None, NIGHT, room=Room(to_baseline=False))
    assert (verdict.pool, verdict.speculative_percent, verdict.no_room) == ("speculative", 100, True)
    assert "Calibrating" not in verdict.message


@pytest.mark.parametrize(("seconds", "percent"), [(30.0, 10), (150.0, 50)])
@pytest.mark.parametrize("asked", [15, 50, 90])
def test_a_ramp_goes_first_and_is_told_as_one(asked: int, seconds: float, percent: int) -> None:
    calibration = {"source": "Measured", "calibration": WINDOW | {"percent": asked}}
    of = with_line(config(breakEven=calibration), PRIOR, NIGHT)
    state = replace(start(of, NIGHT - seconds, "speculative"), ramp_since=NIGHT - seconds)
    _, verdict = step(state, of, None, NIGHT)
    assert (verdict.speculative_percent, verdict.phase) == (percent, Phase.MOVING)
    assert "Calibrating" not in verdict.message


@pytest.mark.parametrize("changes", [{"override": "Always"}, {"override": "Never"}, {"enforce": False}])
def test_what_a_person_has_fixed_is_not_calibrated(changes: dict[str, Any]) -> None:
    of = replace(with_line(config(), PRIOR, NIGHT), **changes)
    _, verdict = step(start(of, NIGHT - 7200.0, "speculative"), of, None, NIGHT)
    assert verdict.speculative_percent in (0, 100)
    assert "Calibrating" not in verdict.message

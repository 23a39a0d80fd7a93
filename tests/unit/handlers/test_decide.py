"""From samples to weights."""

from __future__ import annotations

from typing import Any

from specfleet.api.status import Percentages, RouteStatus
from specfleet.decision.reasons import Hold
from specfleet.decision.rule import Room, start
from specfleet.decision.samples import RouteTotals
from specfleet.handlers.decide import configs, coverage_percent, decide, hold_for, route_totals, states_of, weights
from specfleet.handlers.fleet import Fleet, WorkloadHealth
from specfleet.routing.counters import RouteRow, RouterSample
from tests.unit.handlers.samples import owner, spec_of

NOW = 1_800_000_000.0


def sample(*rows: RouteRow) -> RouterSample:
    return RouterSample(NOW, NOW - 60, rows, {}, {}, 0, 0)


def health(name: str, ready: int = 1, *, rolling: bool = False) -> WorkloadHealth:
    return WorkloadHealth(name, 1, ready, ready > 0, not rolling, rolling, False, None)


def state(baseline: int = 1, speculative: int = 1, *, rolling: bool = False) -> Fleet:
    return Fleet(
        health("baseline", baseline), health("ngram", speculative, rolling=rolling), health("router", 2), (), ()
    )


def decided(**routes: str) -> Any:
    body = owner()
    for route in body["spec"]["routing"]["routes"]:
        route["speculation"] = routes.get(route["name"], "Auto")
    spec = spec_of(body)
    states = states_of(spec, {}, {}, NOW)
    return decide(spec, states, {}, NOW, None, dict.fromkeys(states, Room()))


def test_only_answers_of_the_pool_that_was_meant_are_evidence() -> None:
    counts: dict[str, Any] = {"measured": 3, "decode_tokens": 30, "accepted": 5, "drafted": 9}
    rows = (
        RouteRow("chat", "ngram", "ngram", **counts),
        RouteRow("chat", "ngram", "baseline", **counts),
        RouteRow("chat", "baseline", "ngram", **counts),
        RouteRow("code", "baseline", "baseline", **counts),
    )
    totals = route_totals(sample(*rows), "ngram")
    assert totals == {"chat": RouteTotals(tokens=30, accepted=5, drafted=9, requests=3)}


def test_coverage_is_the_share_of_finished_answers_with_figures() -> None:
    one = sample(RouteRow("chat", "ngram", "ngram", finished=8, measured=6))
    two = sample(RouteRow("chat", "ngram", "ngram", finished=2, measured=0))
    assert coverage_percent([one, two], "chat", "ngram") == 60
    assert coverage_percent([one, two], "code", "ngram") is None


def test_what_is_nearest_to_the_cause_holds() -> None:
    unread = Hold.METRICS_UNAVAILABLE
    assert hold_for(state(speculative=0), unread, True) is Hold.NO_READY_PODS
    assert hold_for(state(rolling=True), unread, True) is Hold.ROLLOUT_IN_PROGRESS
    assert hold_for(state(), unread, True) is Hold.ROUTES_REJECTED
    assert hold_for(state(), unread, False) is Hold.METRICS_UNAVAILABLE
    assert hold_for(state(), None, False) is None


def test_a_state_that_is_remembered_goes_before_status_and_status_before_a_start() -> None:
    spec = spec_of(owner())
    config = configs(spec)["chat"]
    remembered = start(config, NOW - 50, "baseline")
    status = RouteStatus(
        name="code",
        pool="baseline",
        phase="Settled",
        reason="x",
        message="",
        speculative_percent=Percentages(intended=0),
        since="",
        state="lost",
    )
    states = states_of(spec, {"chat": remembered}, {"code": status}, NOW)
    assert states["chat"] == remembered
    assert states["code"].served == "baseline"  # not the policy's initial pool: its state is lost, its place is not
    assert states_of(spec, {}, {}, NOW)["code"].served == "speculative"


def test_weights_follow_the_decision_while_both_pools_live() -> None:
    assert weights(decided(code="Never"), False, False) == {"code": 0, "chat": 100}


def test_a_dead_pool_gets_nothing_and_never_stays_never() -> None:
    decisions = decided(code="Never")
    assert weights(decisions, False, True) == {"code": 0, "chat": 0}
    assert weights(decisions, True, False) == {"code": 0, "chat": 100}
    assert weights(decisions, True, True) == {"code": 0, "chat": 100}


def test_a_new_route_with_an_override_begins_there_without_a_switch() -> None:
    decisions = decided(chat="Never")
    assert (decisions["chat"].verdict.pool, decisions["chat"].verdict.switched) == ("baseline", False)
    assert decisions["chat"].verdict.speculative_percent == 0

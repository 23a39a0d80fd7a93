"""What `specfleet explain` says of a decision: what it saw, concluded and does next, as the rule itself has it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from specfleet.api.by_hand import ByHand
from specfleet.api.status import RouteStatus
from specfleet.api.v1alpha1 import SpecDeployment
from specfleet.cli.explain import json_text, text
from specfleet.cli.explain_chart import COLUMNS, chart
from specfleet.decision.rule import Block, RouteState, Verdict, start, step
from specfleet.decision.trend import Point
from specfleet.handlers.decide import RouteDecision, configs
from specfleet.handlers.status import Serving, route_status
from tests.unit.engines.test_vllm import BASE

SIX = 1_795_932_000.0  # 2026-11-29 06:00 UTC
POLICY = {
    "breakEven": {"source": "Fixed", "tokensPerStep": "1.6"},
    "minAcceptancePercent": 20,
    "initial": "Speculative",
}
READY = {
    "type": "Ready",
    "status": "True",
    "reason": "Available",
    "message": "m",
    "lastTransitionTime": "2026-11-29T06:00:00Z",
    "observedGeneration": 1,
}


class Fleet:
    """A SpecDeployment whose one route is decided minute by minute, at 60 requests a minute."""

    def __init__(self, **policy: Any) -> None:
        spec = {**BASE["spec"], "policy": {**POLICY, **policy}}
        self.body: dict[str, Any] = {
            **BASE,
            "metadata": {**BASE["metadata"], "namespace": "serving", "generation": 1},
            "spec": spec,
        }
        self.draft = spec["drafts"][0]["name"]
        ((self.route, self.config),) = configs(SpecDeployment.parse(self.body).spec).items()
        self.now = SIX
        self.status: RouteStatus | None = None
        self.state: RouteState = start(self.config, SIX)
        self.verdict: Verdict | None = None

    def runs(self, minutes: int, tokens_per_step: float, until: Callable[[Verdict], bool] = lambda _: False) -> Fleet:
        """Let time pass, at most until the verdict is such."""
        for _ in range(minutes):
            self.now += 60.0
            share = self.state.percent / 100.0
            requests = round(60 * share)
            steps = 100 * requests
            accepted = round(steps * (tokens_per_step - 1.0))
            block = Block(self.now, steps + accepted, accepted, 4 * steps, requests, share, 60.0)
            self.state, self.verdict = step(self.state, self.config, block, self.now)
            self.told()
            if until(self.verdict):
                break
        return self

    def told(self, by_hand: ByHand | None = None) -> None:
        """Write the status, as each pass would."""
        assert self.verdict is not None
        decision = RouteDecision(self.route, self.config, self.state, self.verdict)
        self.status = route_status(
            decision,
            self.status,
            self.draft,
            Serving(True, {self.route: self.state.percent}),
            97,
            applied_percent=self.state.percent,
            has_routers=True,
            slow=False,
            now=self.now,
            by_hand=by_hand,
        )
        shown = self.status.model_dump(mode="json", by_alias=True, exclude_none=True)
        self.body["status"] = {
            "observedGeneration": 1,
            "conditions": [READY],
            "routesVersion": "v7",
            "routes": [shown],
        }

    def says(self, word: str) -> str:
        """The line of the explanation that begins with this word."""
        (found,) = [line.strip() for line in text(self.body, now=self.now) if line.strip().startswith(f"{word}:")]
        return found


def switched(verdict: Verdict) -> bool:
    return verdict.switched


def test_a_route_that_pays() -> None:
    fleet = Fleet().runs(30, 2.2)
    assert fleet.says("Saw") == (
        "Saw: L = 2.20 tokens a step [2.20, 2.20] over 10 block(s), 600 request(s); 30 % [30, 30] of drafted tokens "
        "accepted; about 3600 requests an hour in both pools; 97 % of answers carried figures, last block 06:30."
    )
    assert fleet.says("Concluded") == (
        "Concluded: line acceptance 20 %: score 0.0 of 9.2 towards off with 0 request(s); "
        "line break-even 1.60: score 0.0 of 9.2 towards off with 0 request(s)."
    )
    assert fleet.says("Next") == (
        "Next: off when a line is at 9.2 with 10 requests, or a guard says so, and then for 10 min at least."
    )


def test_after_a_switch_off_it_says_which_line_cut_and_how_it_comes_back() -> None:
    # 15 % accepted is 1.60 tokens a step with four drafted: under the first line, on the second.
    fleet = Fleet().runs(20, 2.2).runs(120, 1.6, switched)
    fleet.runs(1, 1.6)
    assert "The acceptance line took speculation off at " in fleet.says("Concluded")
    assert "towards back on" in fleet.says("Concluded")
    said = fleet.says("Next")
    assert said.startswith("Next: 9 % of the traffic goes on looking, less with time; back on when every line")
    assert "not before" in said
    assert said.endswith("(dwell); then 10 %, 50 % and all of the traffic over 5 min.")
    fleet.runs(400, 2.4, switched)
    assert fleet.verdict is not None
    assert fleet.verdict.pool == "speculative"
    assert fleet.says("Next").startswith("Next: 50 % from ")
    assert ", 100 % from " in fleet.says("Next")
    fleet.runs(15, 2.4)
    assert "and then for 20 min at least" in fleet.says("Next")
    fleet.runs(300, 1.1, switched)
    assert "(dwell, doubled 1 time(s))" in fleet.says("Next")


def test_the_break_even_line_cuts_where_acceptance_alone_would_not() -> None:
    fleet = Fleet(minAcceptancePercent=None).runs(20, 2.2).runs(120, 1.3, switched)
    assert "The break-even line took speculation off at " in fleet.says("Concluded")


def test_what_keeps_the_rule_from_acting_is_said() -> None:
    fleet = Fleet().runs(20, 2.2)
    fleet.told(ByHand(word="off", until=fleet.now + 3600, reason="incident 7"))
    assert fleet.says("Next").startswith("Next: as said by hand until 2026-11-29T07:20:00Z; then the rule again.")
    watching = Fleet(enforcement="Observe").runs(20, 2.2)
    assert watching.says("Next").endswith("Observe reports that and moves nothing.")
    held = Fleet().runs(20, 2.2)
    held.body["status"]["routes"][0]["reason"] = "MetricsUnavailable"
    assert "nothing is decided while MetricsUnavailable holds" in held.says("Next")


def test_without_a_line_or_before_it_is_measured_nothing_is_concluded() -> None:
    bare = Fleet(minAcceptancePercent=None, breakEven={"source": "None"}).runs(5, 2.2)
    assert bare.says("Concluded") == "Concluded: nothing: no line is set."
    unmeasured = Fleet(minAcceptancePercent=None, breakEven={"source": "Measured"}).runs(5, 2.2)
    assert unmeasured.says("Concluded") == "Concluded: nothing yet, since the line is not measured."


def test_in_json_one_decision_is_followed_from_counts_to_weights() -> None:
    fleet = Fleet().runs(20, 2.2).runs(120, 1.2, switched)
    shown = json.loads(json_text(fleet.body, now=fleet.now))
    route = shown["routes"][0]
    decision = route["decision"]
    # Counts of each block; their ratio held against the line; the score; the share that follows; what is served.
    last = decision["saw"]["lines"]["BreakEven"]["blocks"][-1]
    assert (last["requests"], 1 + last["accepted"] / last["per"]) == (60, pytest.approx(1.2))
    assert decision["concluded"]["lines"]["BreakEven"]["value"] == 1.6
    assert decision["concluded"]["lastSwitchOff"] == "BelowAcceptance"
    assert decision["concluded"]["pool"] == "baseline"
    assert decision["next"]["exploringPercent"] == 9
    assert route["speculativePercent"] == {"intended": 9, "served": 9}
    assert shown["routesVersion"] == "v7"
    assert decision["trend"][0] == {
        "at": "2026-11-29T06:01:00Z",
        "tokensPerStep": 2.2,
        "line": 1.6,
        "pool": "speculative",
    }
    assert "state" not in route


def test_a_state_that_this_version_does_not_read_is_not_explained() -> None:
    fleet = Fleet().runs(20, 2.2)
    fleet.body["status"]["routes"][0]["state"] = "99;something"
    assert not [line for line in text(fleet.body, now=fleet.now) if line.strip().startswith("Saw:")]
    assert json.loads(json_text(fleet.body, now=fleet.now))["routes"][0]["decision"] is None


def test_the_chart_shows_the_fall_and_the_line() -> None:
    minute = int(SIX // 60)
    points = [Point(minute - 10 * ago, 2.4 if ago > 3 else 1.2, 1.6, "speculative") for ago in range(6, -1, -1)]
    points[-1] = Point(minute, 1.2, 1.6, "baseline")
    lines = list(chart(points, SIX))
    assert lines[0].startswith("Tokens per step, last 6 h (* with speculation, o without, - break-even line)")
    assert lines[1].startswith("  2.40 |")
    assert lines[1].endswith("***")
    assert lines[7] == "  1.20 |" + " " * (COLUMNS - 4) + "***o"
    (middle,) = [line for line in lines[2:7] if line.endswith("-------")]
    assert middle.startswith("  1.60 |")
    assert lines[-1].split() == ["00:00", "01:00", "02:00", "03:00", "04:00", "05:00", "06:00", "UTC"]


def test_a_gap_is_left_empty_and_one_point_is_no_chart() -> None:
    minute = int(SIX // 60)
    assert list(chart([Point(minute, 2.0, None, "baseline")], SIX)) == []
    lines = list(chart([Point(minute - 300, 2.0, None, "baseline"), Point(minute, 3.0, None, "baseline")], SIX))
    assert "break-even" not in lines[0]
    assert sum(line.count("o") for line in lines[1:8]) == 2

"""A policy tried on recorded traffic: agrees with an operator that had it, and never guesses a saving."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specfleet.decision.reasons import Hold, Reason
from specfleet.decision.recorded_pace import Pace
from specfleet.decision.rule import Block, RouteConfig, start, step
from specfleet.decision.types import Pool
from specfleet.decision.whatif import Outcome, Recorded, Timed, Traffic, Trial

BEGIN = 1_764_374_400.0
CONFIG = RouteConfig(initial="speculative", break_even=1.6)
REQUESTS = 300
TOKENS = 200  # decode tokens a request
SPEC_US, BASE_US = 8_000, 10_000  # a token


def block(at: float, requests: int, tokens_per_step: float, share: float) -> Block:
    tokens = TOKENS * requests
    accepted = round(tokens * (1.0 - 1.0 / tokens_per_step))
    return Block(at, tokens, accepted, 4 * (tokens - accepted), requests, share)


def recorded(
    at: float, percent: float, tokens_per_step: float, requests: int = REQUESTS, *, timed: bool = True
) -> Recorded:
    """A minute in which `percent` of the requests went to speculation, each pool with its own time per token."""
    spec = round(requests * percent / 100.0)
    base = requests - spec

    def traffic(count: int, us: int) -> Traffic:
        return Traffic(count, Timed(us * TOKENS * count, TOKENS * count) if timed else Timed())

    own = block(at, spec, tokens_per_step, percent / 100.0)
    return Recorded(at, 60.0, own, traffic(spec, SPEC_US), traffic(base, BASE_US))


def tried(minutes: list[tuple[float, float]], config: RouteConfig = CONFIG, requests: int = REQUESTS) -> Outcome:
    """The outcome of minutes, each the percent that really went to speculation and its tokens per step."""
    trial = Trial("chat", config, BEGIN)
    for number, (percent, x) in enumerate(minutes, start=1):
        trial.feed(recorded(BEGIN + 60.0 * number, percent, x, requests))
    return trial.outcome()


spells = st.lists(st.tuples(st.sampled_from([1.05, 1.5, 1.65, 2.5]), st.integers(1, 60)), min_size=1, max_size=8)
policies = st.builds(
    RouteConfig,
    initial=st.sampled_from(["speculative", "baseline"]),
    min_acceptance_percent=st.none() | st.integers(5, 60),
    break_even=st.none() | st.sampled_from([1.3, 1.6]),
    exploration_max_percent=st.sampled_from([0, 10, 30]),
    dwell_seconds=st.sampled_from([60.0, 600.0]),
)


@given(policies, spells, st.sampled_from([3, 40, 300]))
@settings(max_examples=80, deadline=None)
def test_on_the_traffic_of_an_operator_with_that_policy_it_does_what_the_operator_did(
    config: RouteConfig, quality: list[tuple[float, int]], requests: int
) -> None:
    """The operator's answers decide what goes to speculation next; the trial is shown what was recorded of that."""
    state, trial = start(config, BEGIN), Trial("chat", config, BEGIN)
    did, said = [], []
    minutes = [x for x, count in quality for _ in range(count)]
    for number, x in enumerate(minutes, start=1):
        at = BEGIN + 60.0 * number
        seen = recorded(at, state.percent, x, requests)
        assert seen.block is not None
        state, verdict = step(state, config, replace(seen.block, share=state.percent / 100.0), at)
        did.append((at, verdict.pool, verdict.speculative_percent))
        told = trial.feed(seen)
        said.append((at, told.pool, told.speculative_percent))
    assert said == did
    outcome = trial.outcome()
    switches = [at for (at, pool, _), (_, before, _) in zip(did[1:], did, strict=False) if pool != before]
    assert [move.at for move in outcome.moves if move.at > BEGIN + 60.0] == switches


def test_what_it_saves_is_told_by_the_hour_against_each_alternative() -> None:
    """Bad for two hours, always on: the policy would have been off for nearly all of it; baseline got 10 %."""
    outcome = tried([(90.0, 1.1)] * 120)
    times = outcome.time_per_token
    assert times is not None
    assert (times.always_on, times.always_off, times.done) == pytest.approx((8.0, 10.0, 8.2))
    # 5 minutes on, then an exploring share of a twentieth: dearer than always on, since speculation was quicker here.
    assert 9.5 < times.policy < 10.0
    assert times.saved_percent(times.always_on) < 0.0 < times.saved_percent(times.always_off)
    assert times.break_even == pytest.approx(1.1 * 8.0 / 10.0, rel=0.01)
    assert (times.hours, times.hours_with_traffic, times.tokens_percent) == (2, 2, 100)


def test_where_one_pool_served_nothing_the_saving_is_unknown() -> None:
    outcome = tried([(100.0, 1.1)] * 120)
    assert outcome.time_per_token is None
    assert outcome.pools_with_traffic == ("speculative",)


def test_only_hours_in_which_both_pools_served_are_compared() -> None:
    outcome = tried([(100.0, 2.0)] * 60 + [(50.0, 2.0)] * 60)
    assert outcome.time_per_token is not None
    assert (outcome.time_per_token.hours, outcome.time_per_token.hours_with_traffic) == (1, 2)
    assert outcome.time_per_token.tokens_percent == 50
    assert outcome.time_per_token.done == pytest.approx(9.0)


def test_a_route_that_was_always_on_is_thinned_to_what_exploring_would_have_shown() -> None:
    """All of the traffic is on record, and a policy that was off would have seen a few requests a minute of it."""
    hours = [(100.0, 2.5)] * 60 + [(100.0, 1.05)] * 60 + [(100.0, 2.5)] * 120
    few, many = tried(hours, requests=20), tried(hours, requests=2000)
    assert [move.pool for move in few.moves] == [move.pool for move in many.moves] == ["baseline", "speculative"]
    assert few.moves[1].at > many.moves[1].at
    assert 20 <= few.off_percent <= 60


def test_it_begins_where_the_traffic_was() -> None:
    assert tried([(4.0, 1.1)] * 20).began == "baseline"
    assert tried([(96.0, 1.1)] * 20, replace(CONFIG, initial="baseline")).began == "speculative"


def test_what_was_really_done_is_told_beside_it() -> None:
    outcome = tried([(100.0, 1.1)] * 30 + [(4.0, 1.1)] * 30)
    assert outcome.done_moves == ((BEGIN + 60.0 * 31, "baseline"),)
    assert outcome.done_off_percent == 48


def test_hours_without_a_reading_are_no_time_on_or_off() -> None:
    trial = Trial("chat", CONFIG, BEGIN)
    for number in range(1, 61):
        trial.feed(recorded(BEGIN + 60.0 * number, 100.0, 1.1))
    for number in range(61, 121):
        trial.feed(Recorded(BEGIN + 60.0 * number, 60.0, None), Hold.METRICS_UNAVAILABLE)
    outcome = trial.outcome()
    assert (outcome.seconds, outcome.unread_seconds) == (3600.0, 3600.0)
    assert outcome.off_percent == pytest.approx(100 * 55 / 60, abs=2)


def test_observe_is_tried_as_if_it_were_enforced() -> None:
    assert tried([(100.0, 1.1)] * 30, replace(CONFIG, enforce=False)).moves[0].pool == "baseline"


def paced(
    minutes: int, percent: float, pace: Pace, trial: Trial | None = None, x: float = 1.1, at: float = BEGIN
) -> float:
    """Minutes of a route with `x` tokens a step: 16 ms a step under speculation, 10 ms in baseline."""
    for _ in range(minutes):
        at += 60.0
        spec = round(REQUESTS * percent / 100.0)
        one = recorded(at, percent, x)
        us = round(16_000 / x) * TOKENS * spec
        one = replace(one, speculative=Traffic(spec, Timed(us, TOKENS * spec)))
        pace.feed({"chat": one})
        if trial is not None:
            trial.feed(one, line=pace.line("chat", trial.mode, at))
    return at


MEASURED = RouteConfig(initial="speculative", certainty="Prior")
REPLICAS: dict[Pool, int] = {"baseline": 1, "speculative": 2}


def test_a_measured_line_is_known_once_both_pools_have_run_alike() -> None:
    pace, trial = Pace(4, REPLICAS), Trial("chat", MEASURED, BEGIN)
    assert pace.line("chat", "speculative", BEGIN).certainty == "Prior"
    at = paced(20, 60.0, pace, trial)
    assert trial.outcome().moves == ()
    assert trial.outcome().last.reason is Reason.BREAK_EVEN_UNKNOWN  # type: ignore[union-attr]
    paced(20, 60.0, pace, trial, at=at)
    line = pace.line("chat", "speculative", BEGIN + 2400)
    assert line.certainty == "Known"
    assert line.tokens_per_step == pytest.approx(1.6, rel=0.05)  # no slope is known: batches hardly differ
    # Speculation: 180 requests a minute of 200 tokens at 14.5 ms, on two replicas.
    assert line.batch == pytest.approx(180 * 200 * 0.01455 / 60 / 2, rel=0.01)
    [move] = trial.outcome().moves
    assert (move.pool, move.reason) == ("baseline", "BelowBreakEven")
    # What it would come back to: what speculation runs, and the route's own requests on its replicas.
    off = pace.line("chat", "baseline", BEGIN + 2400)
    both = line.batch + (180 * 200 * 0.01455 + 120 * 200 * 0.010) / 60 / 2  # type: ignore[operator]
    assert off.batch == pytest.approx(both, rel=0.01)


def test_a_route_without_figures_is_not_measured() -> None:
    pace = Pace(4, REPLICAS)
    for minute in range(1, 60):
        one = recorded(BEGIN + 60.0 * minute, 50.0, 2.0)
        pace.feed({"chat": replace(one, block=None), "new": Recorded(one.at, 60.0, None)})
        pace.feed({"chat": Recorded(one.at, 60.0, None)})
    assert pace.line("chat", "baseline", BEGIN + 3600).certainty == "Prior"
    assert pace.line("unheard-of", "baseline", BEGIN + 3600).certainty == "Prior"

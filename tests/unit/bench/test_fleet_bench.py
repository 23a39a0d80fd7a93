"""The fleet simulation's own parts: step times, batches, counts of a block, slow replicas, and what a cycle is."""

from __future__ import annotations

import numpy as np
import pytest

from specfleet.decision.types import Pool
from tests.bench.decision.traffic import SPREAD as SPREAD_OF_REQUESTS
from tests.bench.decision.traffic import cut, lengths, request_centre
from tests.bench.decision.truth import MINUTES
from tests.bench.fleet import checks, counts, model
from tests.bench.fleet.line import Measured, Truth
from tests.bench.fleet.run import History, Minute, Replicas, Route, Scenario, content, load, simulated
from tests.bench.fleet.uncoupled import bench_day, fleet_day

ROUTES = (Route("code", 12.0, 2.25), Route("edge", 6.0, 1.50), Route("chat", 4.0, 1.25))


# --- the model


@pytest.mark.parametrize(("batch", "line"), [(1, 1.31), (64, 1.57), (128, 1.69), (256, 1.81)])
def test_break_even_rises_with_the_batch_as_the_public_fit_says(batch: float, line: float) -> None:
    assert model.break_even(batch) == pytest.approx(line, abs=0.01)


@pytest.mark.parametrize("pool", model.POOLS)
def test_a_batch_is_what_arrives_while_a_request_is_served(pool: Pool) -> None:
    steps = 4000.0
    batch = model.batch_of(pool, 2.0 * steps, 2.0)
    assert batch == pytest.approx(steps * model.step_seconds(pool, batch))
    assert model.batch_of(pool, 0.0, 2.0) == 0.0
    assert model.batch_of(pool, 1e6, 2.0) == model.MOST_BATCH
    assert model.batch_of(pool, 1.0, 0.0) == model.MOST_BATCH


def test_speculation_that_yields_less_fills_its_pool_more() -> None:
    ready: dict[Pool, float] = {"speculative": 2.0, "baseline": 2.0}

    def batches(share: float, tokens_per_step: float) -> dict[Pool, float]:
        return model.batches([model.Load(10.0, share, 400.0, tokens_per_step)], ready)

    assert batches(1.0, 1.2)["speculative"] > batches(1.0, 2.4)["speculative"]
    assert batches(0.5, 2.0)["baseline"] == batches(0.5, 1.2)["baseline"]
    assert batches(0.0, 2.0)["speculative"] == 0.0


# --- counts


def one_by_one(rng: np.random.Generator, requests: int, truth: float) -> tuple[float, float]:
    tokens = lengths(rng, requests)
    rates = cut(rng.normal(request_centre(truth), SPREAD_OF_REQUESTS, requests))
    return float(tokens.sum()), float((tokens / rates).sum())


def test_sums_of_many_requests_are_spread_as_those_of_requests_one_by_one() -> None:
    rng = np.random.default_rng(11)
    singly = np.array([one_by_one(rng, 200, 1.6) for _ in range(4000)])
    blocks = np.array([(one.tokens, one.steps) for one in (counts.drawn(rng, 200.0, 1.6) for _ in range(8000))])
    requests = 200.0
    for column in (0, 1):
        assert blocks[:, column].mean() == pytest.approx(singly[:, column].mean(), rel=0.01)
        # A block's number of requests differs too, by Poisson's law.
        own = singly[:, column].var() + requests * (singly[:, column].mean() / requests) ** 2
        assert blocks[:, column].var() == pytest.approx(own, rel=0.12)
    ratios, blocks_ratios = singly[:, 0] / singly[:, 1], blocks[:, 0] / blocks[:, 1]
    assert blocks_ratios.mean() == pytest.approx(ratios.mean(), rel=0.003)
    assert blocks_ratios.std() == pytest.approx(ratios.std(), rel=0.08)


def test_no_request_no_token_and_a_step_yields_one_to_four() -> None:
    rng = np.random.default_rng(12)
    assert counts.drawn(rng, 0.0, 1.6) == (0, 0, 0)
    for mean in (1.0, 20.0, 300.0):
        for _ in range(200):
            one = counts.drawn(rng, mean, 1.2)
            assert one.steps <= one.tokens <= 4 * one.steps


# --- load, content and replicas


def test_load_has_its_mean_a_night_a_day_and_spikes() -> None:
    factors, spikes = load(Scenario(ROUTES, 20, 1), np.random.default_rng(1))
    calm = [factor for factor, spike in zip(factors, spikes, strict=True) if not spike]
    assert min(calm) == pytest.approx(0.2, abs=0.01)
    assert max(calm) == pytest.approx(1.8, abs=0.01)
    assert 20 * 2 * 20 * 0.8 < sum(spikes) < 20 * 2 * 40
    assert set(load(Scenario(ROUTES, 1, 1, day=False), np.random.default_rng(1))[0]) == {1.0}


def test_content_is_steady_unless_it_is_asked_to_wobble() -> None:
    rng = np.random.default_rng(1)
    assert set(content(rng, ROUTES[0], Scenario(ROUTES, 1, 1))) == {2.25}
    restless = content(rng, ROUTES[0], Scenario(ROUTES, 20, 1, topic=0.03))
    assert np.std(restless) / np.mean(restless) == pytest.approx(0.03, rel=0.1)


def test_a_replica_is_away_for_ten_to_twenty_minutes_and_one_moves_at_a_time() -> None:
    busy: dict[Pool, float] = {"speculative": 80.0, "baseline": 10.0}
    lengths_of_moves = set()
    for seed in range(40):
        replicas, away = Replicas(np.random.default_rng(seed), moving=True), []
        for minute in range(60):
            replicas.minute(minute, busy)
            away.append(4 - sum(replicas.ready.values()))
        assert set(away) == {0, 1}
        assert replicas.ready == {"speculative": 3, "baseline": 1}  # the last one stays
        assert replicas.moves == 1
        lengths_of_moves.add(sum(away))
    assert (min(lengths_of_moves), max(lengths_of_moves)) == (11, 20)
    still = Replicas(np.random.default_rng(1), moving=False)
    still.minute(0, busy)
    assert still.ready == {"speculative": 2, "baseline": 2}


# --- what must not be


def history(
    spells: list[tuple[int, bool]], *, truth: float = 2.0, line: float = 1.6, spike: int = -1, calm: float = 0.0
) -> History:
    """A route's spells (minutes, on), the first day aside."""
    minutes = [Minute(True, 100, truth, line, 1.0, 5.0, calm or line)] * MINUTES
    minutes += [
        Minute(on, 100 if on else 0, truth, line, 1.0, 5.0, calm or line) for count, on in spells for _ in range(count)
    ]
    spikes = [at == spike for at in range(len(minutes))]
    scenario = Scenario((Route("chat", 1.0, truth),), len(minutes) // MINUTES, 1)
    return History(scenario, [2.0] * len(minutes), spikes, {"chat": minutes})


def test_two_switches_a_day_are_no_cycle_and_three_in_six_hours_are() -> None:
    calm = checks.checked(history([(600, True), (840, False), (600, True), (840, False)]))["chat"]
    assert (calm.switches, calm.days_over, calm.short_cycles) == (3, 0, 0)
    assert calm.most_in_24_hours == 2
    wild = checks.checked(history([(60, True), (60, False), (60, True), (1260, False)]))["chat"]
    assert (wild.switches, wild.most_in_24_hours, wild.days_over) == (3, 3, 1)
    assert wild.short_cycles == 1


def test_the_first_day_is_for_settling() -> None:
    found = history([(MINUTES, True)])
    found.minutes["chat"][100:200] = [found.minutes["chat"][0]._replace(on=False)] * 100
    assert checks.checked(found)["chat"].switches == 0


@pytest.mark.parametrize(("truth", "false"), [(1.66, 1), (1.63, 0), (1.2, 0)])
def test_a_switch_off_is_false_where_speculation_paid_by_three_percent(truth: float, false: int) -> None:
    assert checks.checked(history([(60, True), (1380, False)], truth=truth))["chat"].false == false


def test_switches_in_and_shortly_after_a_spike_are_told() -> None:
    spike = MINUTES + 50
    for begins, told in ((45, 0), (50, 1), (60, 1), (61, 0)):
        found = checks.checked(history([(begins, True), (1440 - begins, False)], spike=spike))["chat"]
        assert found.in_spikes == told


@pytest.mark.parametrize(("calm", "alone"), [(1.4, 1), (1.55, 0)])
def test_a_switch_in_a_spike_is_the_spikes_if_without_it_the_route_would_have_paid(calm: float, alone: int) -> None:
    spells, spike = [(60, True), (1380, False)], MINUTES + 55
    assert checks.checked(history(spells, truth=1.5, spike=spike, calm=calm))["chat"].by_spikes == alone
    assert checks.checked(history(spells, truth=1.5, calm=calm))["chat"].by_spikes == 0


def test_a_switch_off_at_high_load_of_a_route_that_pays_at_its_mean_follows_the_day() -> None:
    assert checks.checked(history([(60, True), (1380, False)], truth=2.0))["chat"].with_the_day == 1
    assert checks.checked(history([(60, True), (1380, False)], truth=1.2))["chat"].with_the_day == 0


# --- the loop


def test_under_constant_load_routes_find_their_places_and_stay() -> None:
    found = simulated(Scenario(ROUTES, 2, 3, moving=False, day=False), Truth())
    ends = {name: minutes[-1].on for name, minutes in found.minutes.items()}
    assert ends["code"]
    assert not ends["chat"]
    assert all(one.switches == 0 for one in checks.checked(found).values())


def test_the_measured_line_is_the_models_where_it_is_known() -> None:
    class Compared(Measured):
        known = 0

        def value(self, giver: Pool, at: float, moved: float):  # type: ignore[no-untyped-def]
            found = super().value(giver, at, moved)
            if found.certainty == "Known" and found.batch is not None:
                self.known += 1
                assert found.tokens_per_step == pytest.approx(model.break_even(found.batch), rel=0.05)
            return found

    line = Compared()
    simulated(Scenario(ROUTES, 1, 3, initial="baseline"), line)
    assert line.known > 500


def test_without_the_coupling_a_day_goes_as_in_the_decision_benchmark() -> None:
    cell = ("step", "high", 50)
    one, other = fleet_day(cell), bench_day(cell)
    assert one.switches == other.switches == 1
    assert abs(one.moves[0][0] - other.moves[0][0]) <= 3
    assert one.total_percent == pytest.approx(other.total_percent, abs=0.1)

"""The fleet with the coupling switched off, on the route-days of the decision benchmark, beside its figures."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor

import numpy as np

from specfleet.decision.rule import Room
from tests.bench.decision.drive import Minute, Operated, driven
from tests.bench.decision.rules import Shipped
from tests.bench.decision.score import Day, scored, summary
from tests.bench.decision.traffic import EPOCH, Cell
from tests.bench.decision.traffic import drawn as day_drawn
from tests.bench.decision.truth import BREAK_EVEN, MINUTES, RATES, TRUTH, load, truths
from tests.bench.fleet.counts import drawn
from tests.bench.fleet.line import Constant
from tests.bench.fleet.run import Operated as FleetRoute
from tests.bench.fleet.run import Route

SEEDS = range(50, 54)
BUSY = ("mid", "high")


def fleet_day(cell: Cell) -> Day:
    """A route-day of the decision benchmark, played by the fleet's own parts against a constant line."""
    trajectory, rate, seed = cell
    rng = np.random.default_rng([seed, list(TRUTH).index(trajectory), list(RATES).index(rate), 1])
    of_minutes = truths(rng, trajectory)
    line = Constant(BREAK_EVEN)
    route = FleetRoute(Route("route", RATES[rate], 0.0), "speculative")
    expected, minutes = [], []
    for minute, truth in enumerate(of_minutes):
        at = EPOCH + 60.0 * (minute + 1)
        now = route.load(load(trajectory, minute), truth)
        expected.append(60.0 * now.requests)
        minutes.append(Minute(route.state.percent, route.state.served == "speculative"))
        counts = drawn(rng, 60.0 * now.requests * now.share, truth)
        route.minute(at, counts, line.value(route.state.mode, at, 0.0), Room())
    assert len(minutes) == MINUTES
    return scored(trajectory, of_minutes, expected, minutes)


def bench_day(cell: Cell) -> Day:
    """The same cell in the decision benchmark."""
    traffic = day_drawn(cell)
    return scored(cell[0], traffic.truths, traffic.expected, driven(traffic, Operated(Shipped())))


def uncoupled(jobs: int, seeds: Sequence[int] = SEEDS) -> dict[str, object]:
    """Both, over all trajectories at .5 and 5 requests a second."""
    cells = [(trajectory, rate, seed) for trajectory in TRUTH for rate in BUSY for seed in seeds]
    with ProcessPoolExecutor(jobs) as pool:
        fleet = dict(zip(cells, pool.map(fleet_day, cells), strict=True))
        bench = dict(zip(cells, pool.map(bench_day, cells), strict=True))
    return {"fleet": summary(fleet), "simulator": summary(bench)}

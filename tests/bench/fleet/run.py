"""A simulated fleet, minute by minute: load, batches, counts, the shipped rule, and replicas that move slowly."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from specfleet.api.names import BASELINE_POOL
from specfleet.capacity.room import room
from specfleet.decision.break_even import Estimate
from specfleet.decision.policy import with_line
from specfleet.decision.rule import Block, Room, RouteConfig, RouteState, start, step
from specfleet.decision.types import Pool
from tests.bench.decision.traffic import EPOCH
from tests.bench.decision.truth import MINUTES, TOPIC_MINUTES
from tests.bench.fleet import model
from tests.bench.fleet.counts import TOKENS, Counts, drawn
from tests.bench.fleet.line import Line

DRAFT = "draft"
REPLICAS: dict[Pool, int] = {"speculative": 2, "baseline": 2}
MOVE_MINUTES = (10.0, 20.0)
UNEVEN = 2.0  # the batch of one pool over that of the other, from which a replica moves
PEAK_HOUR, SWING = 15.0, 0.8
SPIKES_A_DAY, SPIKE, SPIKE_MINUTES = 2, 1.8, (20, 40)
NOISE = 0.02  # of the measured time of a block's steps
OTHER: dict[Pool, Pool] = {"speculative": "baseline", "baseline": "speculative"}


@dataclass(frozen=True)
class Route:
    """A route: requests a second in the mean, and tokens per step."""

    name: str
    requests: float
    tokens_per_step: float


@dataclass(frozen=True)
class Scenario:
    """What is simulated. `moving`: replicas follow the load, and take their time; else pools stay as they are.

    `day` False has neither day nor night nor spikes. `topic` is the standard deviation of a slow wobble of tokens per
    step; without it content is steady, and only requests differ.
    """

    routes: tuple[Route, ...]
    days: int
    seed: int
    moving: bool = True
    day: bool = True
    topic: float = 0.0
    initial: Pool = "speculative"


class Minute(NamedTuple):
    """One minute of one route. `break_even` is the model's L* at the batch of the pool that served it.

    `calm` is the L* that it would be without the spike, with routes and replicas where they are; the same outside of
    spikes.
    """

    on: bool
    percent: int
    truth: float
    break_even: float
    requests: float
    milliseconds: float  # a token
    calm: float


@dataclass
class History:
    """What happened. `factors` is the load of each minute as a multiple of its mean, `spikes` the minutes of spikes."""

    scenario: Scenario
    factors: list[float]
    spikes: list[bool]
    minutes: dict[str, list[Minute]] = field(default_factory=dict)
    replica_moves: int = 0
    full_minutes: int = 0  # in which a pool ran as much as it can
    waited_minutes: int = 0  # in which a route waited for room


def load(scenario: Scenario, rng: np.random.Generator) -> tuple[list[float], list[bool]]:
    """The load of each minute over its mean, and whether it is of a spike."""
    count = scenario.days * MINUTES
    if not scenario.day:
        return [1.0] * count, [False] * count
    spikes = [False] * count
    for day in range(scenario.days):
        for _ in range(SPIKES_A_DAY):
            begin = day * MINUTES + int(rng.integers(0, MINUTES - SPIKE_MINUTES[1]))
            length = int(rng.integers(*SPIKE_MINUTES))
            spikes[begin : begin + length] = [True] * length
    factors = [
        (1.0 + SWING * math.cos(2 * math.pi * (minute / 60.0 - PEAK_HOUR) / 24.0)) * (SPIKE if spike else 1.0)
        for minute, spike in enumerate(spikes)
    ]
    return factors, spikes


def content(rng: np.random.Generator, route: Route, scenario: Scenario) -> list[float]:
    """Tokens per step of each minute."""
    keep = math.exp(-1.0 / TOPIC_MINUTES)
    first, *news = rng.normal(0.0, scenario.topic, scenario.days * MINUTES + 1).tolist()
    topic, found = first, []
    for one in news:
        topic = keep * topic + math.sqrt(1.0 - keep**2) * one
        found.append(min(max(route.tokens_per_step * (1.0 + topic), 1.02), model.K + 0.9))
    return found


class Replicas:
    """Replicas of two pools, of which one at a time moves to the pool that needs it more, or none ever does."""

    def __init__(self, rng: np.random.Generator, *, moving: bool) -> None:
        self.ready = dict(REPLICAS)
        self.moves = 0
        self._rng, self._moving = rng, moving
        self._coming: tuple[float, Pool] | None = None

    def minute(self, minute: int, batches: Mapping[Pool, float]) -> None:
        """Let a replica arrive, or let one go to the pool whose replicas run `UNEVEN` times what the other's run."""
        if self._coming is not None and minute >= self._coming[0]:
            self.ready[self._coming[1]] += 1
            self._coming = None
        if not self._moving or self._coming is not None:
            return
        busy: Pool = "speculative" if batches["speculative"] >= batches["baseline"] else "baseline"
        idle = OTHER[busy]
        if self.ready[idle] > 1 and batches[busy] > UNEVEN * batches[idle] + 1.0:
            self.ready[idle] -= 1
            self.moves += 1
            self._coming = minute + float(self._rng.uniform(*MOVE_MINUTES)), busy


class Operated:
    """One route under the shipped rule."""

    def __init__(self, route: Route, initial: Pool) -> None:
        self.route = route
        self.config = RouteConfig(initial=initial, draft_tokens=model.K, certainty="Prior")
        self.state: RouteState = start(self.config, EPOCH)
        self.waits = False

    def load(self, factor: float, truth: float) -> model.Load:
        return model.Load(self.route.requests * factor, self.state.percent / 100.0, TOKENS, truth)

    def minute(self, at: float, counts: Counts, line: Estimate, place: Room) -> None:
        """A block's counts, the line that holds now, and where there is room."""
        share = self.state.percent / 100.0
        accepted = counts.tokens - counts.steps
        block = Block(at, counts.tokens, accepted, model.K * counts.steps, counts.requests, share)
        self.config = with_line(self.config, line, at)
        self.state, verdict = step(self.state, self.config, block, at, room=place)
        self.waits = verdict.no_room


def simulated(scenario: Scenario, line: Line) -> History:
    """Run a scenario. The same one, with the same kind of line, gives the same history."""
    rng = np.random.default_rng([scenario.seed, len(scenario.routes)])
    factors, spikes = load(scenario, rng)
    truths = [content(rng, route, scenario) for route in scenario.routes]
    routes = [Operated(route, scenario.initial) for route in scenario.routes]
    history = History(scenario, factors, spikes, {route.name: [] for route in scenario.routes})
    replicas = Replicas(rng, moving=scenario.moving)
    for minute, factor in enumerate(factors):
        at = EPOCH + 60.0 * (minute + 1)
        loads = [one.load(factor, truth[minute]) for one, truth in zip(routes, truths, strict=True)]
        batches = model.batches(loads, dict(replicas.ready))
        without = _without_spike(loads) if spikes[minute] else loads
        _noted(history, routes, loads, batches, model.batches(without, dict(replicas.ready)))
        counts = [drawn(rng, 60.0 * one.requests * one.share, one.tokens_per_step) for one in loads]
        _observed(line, rng, at, loads, batches, counts, replicas.ready)
        flights = [_in_flight(one, batches) for one in loads]
        rooms = _rooms(flights, batches, replicas.ready)
        for one, its, place, flight in zip(routes, counts, rooms, flights, strict=True):
            giver = one.state.mode
            one.minute(at, its, line.value(giver, at, flight / replicas.ready[OTHER[giver]]), place)
        replicas.minute(minute, batches)
    history.replica_moves = replicas.moves
    return history


def _without_spike(loads: Sequence[model.Load]) -> list[model.Load]:
    return [replace(one, requests=one.requests / SPIKE) for one in loads]


def _noted(
    history: History,
    routes: Sequence[Operated],
    loads: Sequence[model.Load],
    batches: Mapping[Pool, float],
    calm: Mapping[Pool, float],
) -> None:
    times = {pool: 1000.0 * model.step_seconds(pool, batches[pool]) for pool in model.POOLS}
    history.full_minutes += any(batch >= model.MOST_BATCH for batch in batches.values())
    history.waited_minutes += any(one.waits for one in routes)
    for one, its in zip(routes, loads, strict=True):
        per_token = its.share * times["speculative"] / its.tokens_per_step + (1.0 - its.share) * times["baseline"]
        history.minutes[one.route.name].append(
            Minute(
                on=one.state.served == "speculative",
                percent=one.state.percent,
                truth=its.tokens_per_step,
                break_even=model.break_even(batches[one.state.served]),
                requests=its.requests,
                milliseconds=per_token,
                calm=model.break_even(calm[one.state.served]),
            )
        )


def _observed(
    line: Line,
    rng: np.random.Generator,
    at: float,
    loads: Sequence[model.Load],
    batches: Mapping[Pool, float],
    counts: Sequence[Counts],
    ready: Mapping[Pool, int],
) -> None:
    """What engines and routers show of each pool: requests running, read twice a block, and the time of answers."""
    plain = sum(one.requests * (1.0 - one.share) for one in loads)
    finished = int(rng.poisson(60.0 * plain))
    answers: dict[Pool, tuple[float, int]] = {
        "speculative": (float(sum(one.steps for one in counts)), sum(one.requests for one in counts)),
        "baseline": (finished * TOKENS, finished),
    }
    for pool, (steps, requests) in answers.items():
        shown = float(rng.poisson(2.0 * ready[pool] * batches[pool])) / (2.0 * max(1, ready[pool]))
        seconds = steps * model.step_seconds(pool, batches[pool]) * float(rng.normal(1.0, NOISE))
        line.observed(pool, at, shown, seconds, steps, requests)


def _in_flight(one: model.Load, batches: Mapping[Pool, float]) -> float:
    """Sequences of a route in both pools."""
    seconds = one.share * model.step_seconds("speculative", batches["speculative"]) / one.tokens_per_step
    seconds += (1.0 - one.share) * model.step_seconds("baseline", batches["baseline"])
    return one.requests * one.tokens * seconds


def _rooms(flights: Sequence[float], batches: Mapping[Pool, float], ready: Mapping[Pool, int]) -> list[Room]:
    """Room as the operator finds it: what is in flight against what the pool's replicas run at most."""
    names: dict[Pool, str] = {"speculative": DRAFT, "baseline": BASELINE_POOL}
    active = [{names[pool]: round(batches[pool] * ready[pool]) for pool in model.POOLS}]
    limits = {names[pool]: int(model.MOST_BATCH * ready[pool]) for pool in model.POOLS}
    return [
        Room(*room(active, round(one), limits, baseline_ready=True, speculative_ready=True, speculative_pool=DRAFT))
        for one in flights
    ]

"""Watches over the routes of one SpecDeployment: figures of a block in, which guards have tripped out.

Its memory is made of recent blocks and is filled anew within minutes after a restart; what has to last longer, why and
since when a route is off, is in the route's own state.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from specfleet.decision.guards import ALL_ACCEPTED, CANCELS_DIFFER, POD_FELL, resolved, told_only
from specfleet.decision.measures import Answers, RouteSeen, Seen
from specfleet.decision.message import clock
from specfleet.decision.pod_life import PodLives
from specfleet.decision.pressure import Load, Pressure, load
from specfleet.decision.reasons import Hold, Reason
from specfleet.decision.refusals import CHANCE, refused_alike, refused_more
from specfleet.decision.significance import excess
from specfleet.decision.slo import faster, has_room, misses_in_any_pool, over_goal, predicted
from specfleet.decision.types import Guard, Pool
from specfleet.decision.window import Window

SLO_BLOCKS = 3
SLO_FREEZE_SECONDS = 3600.0
CALIBRATION_PAUSE_SECONDS = 3600.0
REFUSED_SECONDS = 24 * 3600.0
FIRST_TRIALS = 200
FIRST_SHARE = 0.03
FIRST_BLOCKS = 3
FIRST_SECONDS = 3600.0
SUPPRESSED_TOKENS = 1000
COVERED_ANSWERS = 20
CANCELS = 20
CANCEL_TIMES = 1.5
ALL_ACCEPTED_TOKENS = 2000
SHORT_BLOCKS = 2  # in a row, from which on no route comes to a pool that is short of room


@dataclass(frozen=True, slots=True)
class Outcome:
    """By route: what holds it, and its guard. `overloaded` says why all moves are frozen; `silent` names the guards
    that have no figures, and `coverage` the percent of a route's finished answers that had some. Before the first block
    nothing is `judged`."""

    holds: Mapping[str, Hold] = field(default_factory=dict)
    guards: Mapping[str, Guard] = field(default_factory=dict)
    overloaded: str | None = None
    suppressed: str | None = None
    silent: tuple[str, ...] = ()
    coverage: Mapping[str, int] = field(default_factory=dict)
    judged: bool = False


@dataclass(slots=True)
class _Route:
    window: Window = field(default_factory=Window)
    breaches: int = 0
    breached_since: float = 0.0
    refused_at: float | None = None
    alike_at: float | None = None
    missed_at: float | None = None

    def may_calibrate(self, now: float) -> bool:
        """Whether the SLO was kept lately: measuring the other pool must not cost it."""
        return self.missed_at is None or not 0.0 <= now - self.missed_at < CALIBRATION_PAUSE_SECONDS


@dataclass(slots=True)
class _First:
    """First drafted tokens, gathered until there are enough."""

    trials: int = 0
    accepted: int = 0
    since: float = 0.0
    low: int = 0
    share: float = 0.0


@dataclass(slots=True)
class Watch:
    """One for each SpecDeployment. `block` once a block."""

    _routes: dict[str, _Route] = field(default_factory=dict)
    _pressure: Pressure = field(default_factory=Pressure)
    _lives: PodLives = field(default_factory=PodLives)
    _decayed: dict[str, float] = field(default_factory=dict)
    _first: _First = field(default_factory=_First)
    _undrafted: int = 0

    def recall_overload(self) -> None:
        """The last process has said that the pools are overloaded: it is so until it is seen not to be."""
        self._pressure.recall()

    def block(self, seen: Seen) -> Outcome:
        """Take in one block, and say what the guards make of it."""
        found: dict[str, dict[str, str]] = {route.name: {} for route in seen.routes}
        self._routes = {name: self._routes.get(name, _Route()) for name in found}
        for route in seen.routes:
            window = self._routes[route.name].window
            window.add(seen.now, seen.block_seconds, route.speculative, route.baseline)
            if seen.renewed is not None:
                window.renewed(seen.renewed)
            if misses_in_any_pool(route):
                self._routes[route.name].missed_at = seen.now
        loads = self._load(seen, "speculative"), self._load(seen, "baseline")
        self._pressure.block(*loads)
        overloaded = self._short(seen, *loads, found)
        told = [self._slo(route, seen, *loads, found[route.name]) for route in seen.routes]
        overloaded = overloaded or next((one for one in told if one is not None), None)
        suppressed = self._suppressed(seen)
        fallen, held = self._pods(seen)
        collapsed = self._collapsed(seen)
        for route in seen.routes:
            mine = found[route.name]
            self._answers(route, seen, mine)
            if overloaded:
                mine.setdefault(Hold.OVERLOADED, overloaded)
            if collapsed:
                mine[Reason.DRAFT_COLLAPSED] = collapsed
            if suppressed:
                mine[Hold.ENGINE_SUPPRESSED] = suppressed
            if fallen and route.served == "speculative":
                mine[POD_FELL] = fallen
                if held:
                    mine[Hold.POD_DECAYED] = held
        return self._outcome(seen, found, overloaded, suppressed, loads)

    def _outcome(
        self,
        seen: Seen,
        found: Mapping[str, Mapping[str, str]],
        overloaded: str | None,
        suppressed: str | None,
        loads: tuple[Load | None, Load | None],
    ) -> Outcome:
        results = {name: resolved(mine) for name, mine in found.items()}
        judged = {route.name: route.judged for route in seen.routes}
        return Outcome(
            holds={name: hold for name, (hold, _) in results.items() if hold is not None},
            guards={
                name: replace(
                    guard if judged[name] else told_only(guard),
                    calibrate=self._routes[name].may_calibrate(seen.now),
                )
                for name, (_, guard) in results.items()
            },
            overloaded=overloaded,
            suppressed=suppressed,
            silent=_silent(seen, loads),
            judged=True,
            coverage={
                route.name: percent
                for route in seen.routes
                if (percent := _coverage(self._routes[route.name].window.speculative())) is not None
            },
        )

    # --- load

    @staticmethod
    def _load(seen: Seen, pool: Pool) -> Load | None:
        return load([pod for pod in seen.pods if pod.pool == pool], seen.ready.get(pool, 0))

    def _short(
        self, seen: Seen, speculative: Load | None, baseline: Load | None, found: Mapping[str, dict[str, str]]
    ) -> str | None:
        """Pools that are short of room. Returns why all moves are to freeze, if they are."""
        pressure = self._pressure
        if pressure.overloaded:
            return "Both pools are short of room: a move would only push the load about."
        if speculative is None or baseline is None:
            return None
        signs = ", ".join(speculative.signs)
        if pressure.short >= SHORT_BLOCKS:
            for route in seen.routes:
                if route.mode == "baseline":
                    found[route.name][Reason.POOL_SATURATED] = f"The speculative pool is short of room: {signs}."
        on = [route for route in seen.routes if route.mode == "speculative" == route.served and route.judged]
        if not pressure.saturated or not on:
            return None
        chosen = min(on, key=lambda route: math.inf if route.tokens_per_step is None else route.tokens_per_step)
        if not has_room(chosen, speculative, baseline, seen):
            return "The speculative pool is short of room, and baseline is not shown to be faster with more."
        pressure.alone = 0
        found[chosen.name][Reason.POOL_SATURATED] = (
            f"For {pressure.short} blocks the speculative pool has been short of room ({signs}) and baseline has not."
        )
        return None

    # --- SLO

    def _slo(
        self,
        route: RouteSeen,
        seen: Seen,
        speculative: Load | None,
        baseline: Load | None,
        mine: dict[str, str],
    ) -> str | None:
        """A percentile over its goal. Returns why all moves are to freeze, if they are."""
        known = self._routes[route.name]
        over = over_goal(route, seen.now)
        if over is None:
            return None
        if not over:
            known.breaches = 0
            return None
        if known.breaches == 0:
            known.breached_since = seen.now
        known.breaches += 1
        if known.breaches < SLO_BLOCKS:
            return None
        text = " and ".join(over.values())
        if faster(route, over, speculative, baseline, seen):
            mine[Reason.SLO_BREACHED] = f"{text} in {known.breaches} blocks in a row."
            return None
        if not 0.0 <= seen.now - known.breached_since < SLO_FREEZE_SECONDS:
            return None
        frozen = f"Route {route.name}: {text}, and baseline is not shown to be faster with the load."
        mine[Hold.OVERLOADED] = frozen
        if predicted(route) is None:
            return None
        return f"Route {route.name} misses its SLO, and baseline would be slower with it."

    # --- answers

    def _answers(self, route: RouteSeen, seen: Seen, mine: dict[str, str]) -> None:
        known = self._routes[route.name]
        speculative, baseline = known.window.speculative(), known.window.baseline()
        refused = self._refused(route, seen, speculative, baseline)
        if refused:
            mine[Reason.REQUESTS_REFUSED] = refused
        covered = _coverage(speculative)
        if seen.by_router and covered is not None and 2 * speculative.measured < speculative.finished:
            mine[Hold.INSUFFICIENT_COVERAGE] = f"{covered} % of {speculative.finished} answers carried figures."
        if (cancels := _cancels(speculative, baseline)) is not None:
            mine[CANCELS_DIFFER] = cancels
        if speculative.drafted >= ALL_ACCEPTED_TOKENS and speculative.accepted == speculative.drafted:
            mine[ALL_ACCEPTED] = (
                f"Every one of {speculative.drafted} drafted tokens was accepted: unless the text recites, acceptance "
                "is synthetic or verification is broken; look at the answers."
            )

    def _refused(self, route: RouteSeen, seen: Seen, speculative: Answers, baseline: Answers) -> str | None:
        known = self._routes[route.name]
        innocent = known.alike_at is not None and seen.now - known.alike_at < REFUSED_SECONDS
        shown = refused_more(speculative, baseline, alone=not innocent)
        if shown is not None:
            known.refused_at, known.alike_at = seen.now, None
            return shown
        if route.mode == "speculative":
            return None
        since = max(
            (at for at in (known.refused_at, route.since if route.cause is Reason.REQUESTS_REFUSED else None) if at),
            default=None,
        )
        if since is None:
            return None
        if refused_alike(speculative, baseline):
            known.alike_at = seen.now
        alike = known.alike_at is not None and known.alike_at >= since
        renewed = seen.renewed is not None and seen.renewed > since
        if alike or renewed or seen.now - since >= REFUSED_SECONDS:
            return None
        until = clock(since + REFUSED_SECONDS, seen.now)
        return f"Engines refused requests (4xx) under speculation: it is not tried before {until}, or with new pods."

    # --- drafts

    def _suppressed(self, seen: Seen) -> str | None:
        if not seen.learned_draft:
            return None
        drafted = sum(route.speculative.drafted for route in seen.routes)
        tokens = sum(route.speculative.tokens for route in seen.routes)
        self._undrafted = 0 if drafted else self._undrafted + tokens
        if seen.suppressed is None and self._undrafted >= SUPPRESSED_TOKENS:
            return "Engines decode on and draft nothing any more: they have stopped it themselves."
        return seen.suppressed

    def _collapsed(self, seen: Seen) -> str | None:
        first = self._first
        pods = [pod for pod in seen.pods if pod.pool == "speculative" and pod.first_trials is not None]
        if not seen.learned_draft or not pods:
            self._first = _First()
            return None
        if not 0.0 <= seen.now - first.since < FIRST_SECONDS:
            first = self._first = _First(since=seen.now)
        first.trials += sum(pod.first_trials or 0 for pod in pods)
        first.accepted += sum(pod.first_accepted or 0 for pod in pods)
        if first.trials >= FIRST_TRIALS:
            first.share = first.accepted / first.trials
            first.low = first.low + 1 if first.share < FIRST_SHARE else 0
            first.trials, first.accepted, first.since = 0, 0, seen.now
        if first.low < FIRST_BLOCKS:
            return None
        return f"{first.share:.1%} of the first drafted tokens are accepted: the draft does not belong to this target."

    # --- pods

    def _pods(self, seen: Seen) -> tuple[str | None, str | None]:
        """The sentence about pods that have decayed, and the one for which routes are held meanwhile."""
        found = self._lives.block([pod for pod in seen.pods if pod.pool == "speculative"], seen.block_seconds)
        self._decayed = {one.uid: self._decayed.get(one.uid, seen.now) for one in found}
        if not found:
            return None, None
        until = max(self._decayed.values()) + seen.dwell_seconds
        waits = seen.now < until <= seen.now + seen.dwell_seconds
        text = " ".join(one.sentence() for one in found)
        return text, f"Held until {clock(until, seen.now)}, so that it can be restarted first." if waits else None


def _coverage(speculative: Answers) -> int | None:
    if speculative.finished < COVERED_ANSWERS:
        return None
    return min(100, round(100 * speculative.measured / speculative.finished))


def _cancels(speculative: Answers, baseline: Answers) -> str | None:
    one = speculative.cancelled, speculative.ended
    other = baseline.cancelled, baseline.ended
    for (hits, of), (less, other_of) in ((one, other), (other, one)):
        enough = hits >= CANCELS and other_of >= CANCELS and hits * other_of >= CANCEL_TIMES * less * of
        if enough and excess(hits, of, less, other_of) <= CHANCE:
            return (
                f"Clients hung up on {one[0]} of {one[1]} requests with speculation and on {other[0]} of {other[1]} in "
                "baseline: both pools' figures are biased by it."
            )
    return None


def _silent(seen: Seen, loads: tuple[Load | None, Load | None]) -> tuple[str, ...]:
    """Names of guards that the pages of engines tell nothing for."""
    pods = [pod for pod in seen.pods if pod.pool == "speculative"]
    names = []
    if None in loads:
        names += [Hold.OVERLOADED.value, Reason.POOL_SATURATED.value]
    if seen.learned_draft and all(pod.first_trials is None for pod in pods):
        names.append(Reason.DRAFT_COLLAPSED.value)
    if all(pod.life_trials is None for pod in pods):
        names.append(Hold.POD_DECAYED.value)
    return tuple(names)

"""The break-even line measured: L*(b) = time of a decode step under speculation / time of one in baseline, at batch b.

It equals L x TPOT_spec / TPOT_base at that batch. Each pool's curve is fitted by a line through the medians of its
measurements, T = a + s (1 + b) with a, s >= 0, near the batch in question; 1 + b is the batch as one of its requests
finds it. Where a curve does not reach that batch, the step-time model of speculative decoding bounds its slope:
verifying k + 1 tokens a sequence costs at most k + 1 times what one does, and reading the KV cache costs both alike, so
s_base <= s_spec <= (k + 1) s_base. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from specfleet.decision.curves import LONGEST_MINUTES, STREAMS, Curve, Curves, Point
from specfleet.decision.evidence import T95
from specfleet.decision.message import clock
from specfleet.decision.types import POOLS, Certainty, Pool

MIN_POINTS = 5
"""Of five blocks each; fewer are no curve."""
MIN_REQUESTS = 200
SLACK = 1.25
"""A curve tells of a batch so many times its own, both as a request finds them."""
EDGE_REQUESTS = 20
"""A curve reaches as far as so many requests have been, in two points at least: one stray point reaches nothing."""
MOST_FACTOR = 1.35
"""An interval wider than this, high over low, is no knowledge."""
MAX_AGE_SECONDS = 60.0 * LONGEST_MINUTES
"""What is older may have changed meanwhile: drivers, clocks, prompts."""
BIN = 0.2  # width, in natural logarithms of the batch
NEAR = math.log(2.0)  # a measurement at twice the batch in question weighs a quarter of one at it
SPREAD = 1.3  # of the batch, without which a slope cannot be told
LEAST_NOISE = 0.01
HALF_WEIGHT_REQUESTS = 50.0  # beyond these more requests hardly make a point surer: blocks differ by themselves
_MOST_ERROR = 5.0  # in natural logarithms: a factor of 150 says as little as any larger one


@dataclass(frozen=True, slots=True)
class Estimate:
    """What is known of a break-even line.

    Attributes:
        certainty: Known: both curves reach `batch` and agree with themselves. Extrapolated: at least one has to be
            prolonged; `tokens_per_step` is then the end of the interval that keeps a route where it is, and for one
            that is off the lower end where the interval is wider than `MOST_FACTOR` and speculation has never run such
            a batch. Prior: a pool has no curve yet; `tokens_per_step` is the caller's guess.
        tokens_per_step: L*, 1 to k + 1; None where nothing is known.
        interval: 95 %, of the measurements' scatter; where a curve is prolonged also of what its slope may be.
        batch: requests running per replica at which it was read.
        reach: the batches that both curves tell of; None where there is none.
        at: when the older of the two curves was measured last, in seconds since the epoch.
        kind: `streams`, or the class of whole answers that was compared.
    """

    certainty: Certainty
    tokens_per_step: float | None
    interval: tuple[float, float] | None = None
    batch: float | None = None
    reach: tuple[float, float] | None = None
    at: float | None = None
    kind: str = STREAMS


class _Fit(NamedTuple):
    """A weighted line near one batch, in `u` = 1 + batch and microseconds: `us` at `u`, and `slope`."""

    u: float
    us: float
    slope: float | None  # None: the points do not tell it
    reach: tuple[float, float] | None  # in u, with the slack
    noise: float  # relative, of one point
    weight: float  # points near the batch, as a number of full ones
    spread: float  # sum of weight x (u - mean)^2
    misfit: float  # relative, of the medians about the line, beyond what noise explains
    points: int

    def holds(self, u: float) -> bool:
        """Whether the pool has really run such a batch."""
        return self.reach is not None and self.reach[0] <= u <= self.reach[1]

    @property
    def t(self) -> float:
        """Student's t for an interval of 95 %; 2.0 from 10 degrees of freedom on."""
        return T95.get(self.points - 2, 2.0)

    @property
    def slopes(self) -> tuple[float, float] | None:
        """The interval of the slope, as far as points tell it."""
        if self.slope is None:
            return None
        error = self.t * self.noise * self.us / math.sqrt(self.spread)
        return max(0.0, self.slope - error), self.slope + error


def break_even(
    curves: Curves,
    giver: Pool,
    draft_tokens: int,
    now: float,
    *,
    batch: float | None = None,
    prior: float | None = None,
) -> Estimate:
    """L* for routes that `giver` serves, at `batch`: without one, at what the giver runs now.

    `prior` is what to fall back on, in tokens per step; it is shown and decides nothing.
    """
    batch = curves.pool(giver).batch if batch is None else batch
    most = draft_tokens + 1.0
    kind = _kind(curves)
    if batch is None or kind is None or not (math.isfinite(batch) and batch >= 0.0):
        return Estimate("Prior", None if prior is None or not math.isfinite(prior) else min(max(prior, 1.0), most))
    u = 1.0 + batch
    base, spec = (_fit(curves.pool(pool).curve(kind), u) for pool in POOLS)
    reach = _common(base.reach, spec.reach)
    oldest = 60.0 * min(curves.pool(pool).curve(kind).points[-1].minute for pool in POOLS)
    base_us, spec_us = _bounded(base, spec, u, draft_tokens)
    middle = math.sqrt(spec_us[0] * spec_us[1] / (base_us[0] * base_us[1]))
    scatter = math.exp(min(_MOST_ERROR, math.hypot(_error(base, u), _error(spec, u))))
    low, high = spec_us[0] / base_us[1] / scatter, spec_us[1] / base_us[0] * scatter
    known = (
        reach is not None
        and reach[0] <= u <= reach[1]
        and high / low <= MOST_FACTOR
        and min(curves.pool(pool).curve(kind).requests for pool in POOLS) >= MIN_REQUESTS
        and now - oldest <= MAX_AGE_SECONDS
    )
    # Where speculation has never run such a batch, so wide an interval is no reason to stay away: only trying tells,
    # and what it tells is kept for days.
    tries = giver == "speculative" or (high / low > MOST_FACTOR and not spec.holds(u))
    value = middle if known else low if tries else high

    def clamped(steps: float) -> float:
        return min(max(steps, 1.0), most)

    return Estimate(
        certainty="Known" if known else "Extrapolated",
        tokens_per_step=clamped(value),
        interval=(clamped(low), clamped(high)),
        batch=batch,
        reach=None if reach is None else (max(0.0, reach[0] - 1.0), reach[1] - 1.0),
        at=min(oldest, now),
        kind=kind,
    )


def step_us(curves: Curves, pool: Pool, batch: float, kind: str = STREAMS) -> float | None:
    """Microseconds of a decode step of `pool` at `batch`; None where it has never run such a batch.

    The time per output token is that in baseline, and that over L under speculation.
    """
    curve = curves.pool(pool).curve(kind)
    if len(curve.points) < MIN_POINTS or not (math.isfinite(batch) and batch >= 0.0):
        return None
    u = 1.0 + batch
    fit = _fit(curve, u)
    return sum(_range(fit, None, u)) / 2.0 if fit.holds(u) else None


def sentence(estimate: Estimate, now: float) -> str:
    """How the line was found, for people, with its interval, reach and age; empty where there is nothing to tell."""
    if estimate.interval is None or estimate.batch is None or estimate.at is None:
        return ""
    low, high = estimate.interval
    reach = estimate.reach
    seen = (
        "no batch was seen in both pools" if reach is None else f"both pools tell of {reach[0]:.3g} to {reach[1]:.3g}"
    )
    of = "" if estimate.kind == STREAMS else f", whole answers to prompts of class {estimate.kind}"
    return (
        f"Break-even {estimate.certainty}: {estimate.tokens_per_step:.2f} [{low:.2f}, {high:.2f}] at "
        f"{estimate.batch:.3g} running requests a replica; {seen}, last at {clock(estimate.at, now)}{of}."
    )


def batch_after(giver: float, receiver: float, moved: float) -> float:
    """The batch to read the line at for a route that could come back on: the larger of what the giver runs now and
    what a replica of the receiver would run with the route, `moved` requests a replica more.

    A route that is read at what its own leaving has made of the giver comes back to what drove it away, for ever.
    """
    return max(giver, receiver + moved)


def _kind(curves: Curves) -> str | None:
    """What to compare: streams where both pools have enough, else the class of whole answers with the most requests.

    Whole answers hold their prefill, so they compare only where prompts are equally long.
    """
    both = curves.baseline.kinds.keys() & curves.speculative.kinds.keys()
    usable = {
        kind: min(curves.pool(pool).curve(kind).requests for pool in POOLS)
        for kind in both
        if all(len(curves.pool(pool).curve(kind).points) >= MIN_POINTS for pool in POOLS)
    }
    if STREAMS in usable:
        return STREAMS
    return max(sorted(usable), key=lambda kind: usable[kind], default=None)


def _fit(curve: Curve, u: float) -> _Fit:
    points = curve.points
    measured = [_Measured(1.0 + point.batch, point.step_us, _weight(point)) for point in points]
    bins = _bins(measured, u)
    total = sum(one.weight for one in bins)
    mean_u = sum(one.weight * one.u for one in bins) / total
    mean_us = sum(one.weight * one.us for one in bins) / total
    slope = None
    if max(one.u for one in bins) / min(one.u for one in bins) >= SPREAD:
        square = sum(one.weight * (one.u - mean_u) ** 2 for one in bins)
        tilt = sum(one.weight * (one.u - mean_u) * (one.us - mean_us) for one in bins) / square
        slope = min(max(tilt, 0.0), mean_us / mean_u)

    def residual(at: float, us: float) -> float:
        return us / (mean_us + (slope or 0.0) * (at - mean_u)) - 1.0

    near = [one._replace(weight=one.weight * _nearness(one.u, u)) for one in measured]
    noise = max(LEAST_NOISE, 1.4826 * _median([(abs(residual(at, us)), weight) for at, us, weight in near]))
    # How far the line is from a curve that is none matters here, not at the other end of the curve.
    close = [(one.weight * _nearness(one.u, u), residual(one.u, one.us)) for one in bins]
    scatter = sum(one * off**2 for one, off in close) / sum(one for one, _ in close)
    return _Fit(
        u=mean_u,
        us=mean_us,
        slope=slope,
        reach=_reach(points),
        noise=noise,
        weight=sum(one.weight for one in near),
        spread=sum(one.weight * (one.u - mean_u) ** 2 for one in near),
        misfit=math.sqrt(max(0.0, scatter - noise**2 * len(bins) / total)),
        points=len(points),
    )


class _Measured(NamedTuple):
    """A point, or the median of some."""

    u: float
    us: float
    weight: float


def _bins(measured: Iterable[_Measured], u: float) -> list[_Measured]:
    """The medians of points of about one batch, with weights for a fit near `u`."""
    groups: dict[int, list[_Measured]] = {}
    for one in measured:
        groups.setdefault(math.floor(math.log(one.u) / BIN), []).append(one)
    return [
        _Measured(
            at := _median([(one.u, one.weight) for one in group]),
            _median([(one.us, one.weight) for one in group]),
            sum(one.weight for one in group) * _nearness(at, u),
        )
        for _, group in sorted(groups.items())
    ]


def _weight(point: Point) -> float:
    requests = max(1, point.requests)
    return requests / (requests + HALF_WEIGHT_REQUESTS)


def _nearness(at: float, u: float) -> float:
    return (1.0 + (math.log(at / u) / NEAR) ** 2) ** -2


def _median(values: list[tuple[float, float]]) -> float:
    """The weighted median of (value, weight); between two where they share the weight."""
    values = sorted(values)
    half = sum(weight for _, weight in values) / 2.0
    seen = 0.0
    for place, (value, weight) in enumerate(values[:-1]):
        seen += weight
        if seen > half * (1.0 + 1e-9):
            return value
        if seen >= half * (1.0 - 1e-9):
            return (value + values[place + 1][0]) / 2.0
    return values[-1][0]


def _reach(points: tuple[Point, ...]) -> tuple[float, float] | None:
    """The batches, as a request finds them, that points tell of; None where no two of them have enough requests."""
    by_batch = sorted(points, key=lambda point: point.batch_code)
    low, high = _edge(by_batch), _edge(by_batch[::-1])
    return None if low is None or high is None else (min(low, high) / SLACK, max(low, high) * SLACK)


def _edge(points: list[Point]) -> float | None:
    requests = measurements = 0
    for point in points:
        requests, measurements = requests + point.requests, measurements + point.merged
        if measurements >= 2 and requests >= EDGE_REQUESTS:
            return 1.0 + point.batch
    return None


def _common(one: tuple[float, float] | None, other: tuple[float, float] | None) -> tuple[float, float] | None:
    if one is None or other is None:
        return None
    low, high = max(one[0], other[0]), min(one[1], other[1])
    return (low, high) if low <= high else None


def _error(fit: _Fit, u: float) -> float:
    """Half of the relative 95 % interval of the step's time at `u`, by the scatter of points and of medians."""
    lever = 1.0 / max(1.0, fit.weight)
    if fit.slope is not None:
        lever += (u - fit.u) ** 2 / fit.spread
    return math.hypot(fit.t * fit.noise * math.sqrt(lever), 2.0 * fit.misfit)


def _bounded(base: _Fit, spec: _Fit, u: float, draft_tokens: int) -> tuple[tuple[float, float], tuple[float, float]]:
    """The least and the most that a step may take at `u` in baseline and in speculation, by what slopes may be."""
    most = draft_tokens + 1.0
    of_base, of_spec = base.slopes, spec.slopes
    for_base = None if of_spec is None else (of_spec[0] / most, of_spec[1])
    for_spec = None if of_base is None else (of_base[0], of_base[1] * most)
    return _range(base, for_base, u), _range(spec, for_spec, u)


def _range(fit: _Fit, others: tuple[float, float] | None, u: float) -> tuple[float, float]:
    """By a curve's own slope where it has run such a batch and tells it, else within what the other pool's allows."""
    steepest = fit.us / fit.u  # a step of an empty batch does not take less than no time
    if fit.slope is not None and (others is None or fit.holds(u)):
        slopes = (fit.slope, fit.slope)
    else:
        low, high = others or (0.0, steepest)
        slopes = (low, high) if fit.slope is None else (min(max(fit.slope, low), high),) * 2
    ends = sorted(fit.us + min(slope, steepest) * (u - fit.u) for slope in slopes)
    return ends[0], ends[-1]

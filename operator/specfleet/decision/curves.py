"""What a decode step costs in each pool at each running batch: the last day's measurements, small enough for status.

A point is some blocks of one pool: the time of a decode step, the batch it ran in, and the requests that it rests on.
Baseline's steps yield one token each; speculation's yield L, which differs by route, so steps and not tokens are what
routes with different content have in common. Pure: values and a clock in, values out.
"""

from __future__ import annotations

import base64
import math
import re
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

from specfleet.decision.evidence import rounded
from specfleet.decision.sealed import sealed, unsealed
from specfleet.decision.state import MAX_TIME
from specfleet.decision.types import POOLS, Pool

STREAMS = "streams"
"""The kind of timings from a stream's first token to its last; every other kind is a class of whole answers."""
POINT_BLOCKS = 5
POINT_REQUESTS = 10
POINT_MOST_SECONDS = 3600.0
POINT_MOST_FACTOR = 2.0
"""A block in another batch than this times that of the point being gathered, or under it, begins a new point."""
KEPT_MINUTES = 24 * 60
"""Points of a pool are kept for a day before its newest one, so that a pool at rest forgets nothing, and those at a
batch of which there is no newer one for a week: what was learned under load is not forgotten while a pool idles."""
LONGEST_MINUTES = 7 * KEPT_MINUTES
SAME_BATCH = 1.25
MOST_POINTS = {True: 64, False: 24}  # of streams, and of each class of whole answers
MOST_KINDS = 8
LOAD_SECONDS = 4 * 3600.0
"""The batch that a line is read at fades over four hours: a peak that passes moves no route, what lasts does
(docs/decisions/0810-break-even-measured.md)."""
VERSION = "1"
MOST_CHARACTERS = 16384

_BATCH_STEP, _TIME_STEP = 0.005, 0.004  # in natural logarithms: what rounding costs
_MOST_CODE = 65535
_MOST = 1e15
_LEAST_STEPS = 1e-3
_POINT = struct.Struct(">HHHHB")
_MOST_MERGED = 255
_KIND = re.compile(r"[A-Za-z0-9_-]{1,24}")
_KEY = re.compile(r"[A-Za-z0-9_-]{0,64}")


class Point(NamedTuple):
    """A measurement, in the whole numbers in which it is kept. `minute` is its end, in minutes since the epoch.

    `merged` is how many were made one.
    """

    minute: int
    batch_code: int
    time_code: int
    requests: int
    merged: int = 1

    @property
    def batch(self) -> float:
        """Requests running per ready replica."""
        return math.expm1(self.batch_code * _BATCH_STEP)

    @property
    def step_us(self) -> float:
        """Microseconds of a decode step."""
        return math.exp(self.time_code * _TIME_STEP)


@dataclass(frozen=True, slots=True)
class Timing:
    """One pool's answers of one kind in one block: microseconds of decoding, and the decode steps they were spent on.

    In baseline `steps` are the tokens; under speculation they are the sum over routes of tokens / L of that block.
    """

    us: float
    steps: float
    requests: int


@dataclass(frozen=True, slots=True)
class _Gathered:
    """Blocks that will make a point. `batch_steps` is the sum of batch x steps."""

    since: float
    seconds: float = 0.0
    us: float = 0.0
    steps: float = 0.0
    batch_steps: float = 0.0
    requests: int = 0


@dataclass(frozen=True, slots=True)
class Curve:
    """The points of one pool and kind, oldest first."""

    points: tuple[Point, ...] = ()
    gathered: _Gathered | None = None

    @property
    def requests(self) -> int:
        """Requests behind all points."""
        return sum(point.requests for point in self.points)


@dataclass(frozen=True, slots=True)
class PoolCurves:
    """One pool. `key` tells what its pods are: another key is another curve.

    `load_sum` over `load_seconds` is the batch that the pool runs, both fading over `LOAD_SECONDS`; `latest` is that
    of the last block alone, and is not kept in status.
    """

    key: str = ""
    kinds: Mapping[str, Curve] = field(default_factory=dict)
    load_at: float = 0.0
    load_sum: float = 0.0
    load_seconds: float = 0.0
    latest: float | None = field(default=None, compare=False)

    @property
    def batch(self) -> float | None:
        """Requests running per ready replica, of the last hours; None while that is not known."""
        return self.load_sum / self.load_seconds if self.load_seconds > 0.0 else None

    def curve(self, kind: str = STREAMS) -> Curve:
        """The points of one kind."""
        return self.kinds.get(kind) or _EMPTY


_EMPTY = Curve()


@dataclass(frozen=True, slots=True)
class Curves:
    """Both pools of one SpecDeployment."""

    baseline: PoolCurves = PoolCurves()
    speculative: PoolCurves = PoolCurves()

    def pool(self, pool: Pool) -> PoolCurves:
        """One pool's curves."""
        return self.baseline if pool == "baseline" else self.speculative

    def keyed(self, baseline: str, speculative: str) -> Curves:
        """The same for pods that these keys tell; what was measured on other pods is forgotten.

        Raises:
            ValueError: a key is no word of at most 64 letters, digits, dashes and underscores.
        """
        if (self.baseline.key, self.speculative.key) == (baseline, speculative):
            return self
        for key in (baseline, speculative):
            if not _KEY.fullmatch(key):
                raise ValueError(f"expected a key of at most 64 letters, digits, - and _, found {key!r}")
        return Curves(
            self.baseline if self.baseline.key == baseline else PoolCurves(baseline),
            self.speculative if self.speculative.key == speculative else PoolCurves(speculative),
        )

    def shifted(self, seconds: float) -> Curves:
        """The same after the clock was set by `seconds`: what was measured stays as old as it is."""

        def moved(pool: PoolCurves) -> PoolCurves:
            kinds = {
                kind: Curve(tuple(one._replace(minute=_minute(60.0 * one.minute + seconds)) for one in curve.points))
                for kind, curve in pool.kinds.items()
            }
            return replace(pool, kinds=kinds, load_at=min(MAX_TIME, max(0.0, pool.load_at + seconds)))

        return Curves(moved(self.baseline), moved(self.speculative))

    def with_block(
        self,
        pool: Pool,
        at: float,
        seconds: float,
        batch: float,
        timings: Mapping[str, Timing],
        block_seconds: float = 60.0,
    ) -> Curves:
        """After one block of `seconds` that ends at `at` (epoch seconds), in which a replica ran `batch` requests.

        What cannot be (not finite, negative, no time, no steps) is left out.
        """
        if not (0.0 <= at <= MAX_TIME and _count(batch) and _count(seconds) and seconds > 0.0):
            return self
        known = _not_after(self.pool(pool), at)
        fade = math.exp(-(at - known.load_at) / LOAD_SECONDS) if known.load_seconds else 0.0
        kinds = dict(known.kinds)
        for kind, timing in sorted(timings.items(), key=lambda item: (item[0] != STREAMS, item[0])):
            if _usable(kind, timing) and (kind in kinds or len(kinds) < MOST_KINDS):
                kinds[kind] = _gathering(known.curve(kind), kind, at, seconds, batch, timing, block_seconds)
        changed = replace(
            known,
            kinds=kinds,
            load_at=round(at, 3),
            load_sum=rounded(known.load_sum * fade + batch * seconds),
            load_seconds=rounded(known.load_seconds * fade + seconds),
            latest=batch,
        )
        return replace(self, **{pool: changed})

    def encode(self) -> str:
        """All that is kept as one short printable string; blocks that make no point yet are left out."""
        body = ";".join([VERSION, *(_encoded(self.pool(pool)) for pool in POOLS)])
        return sealed(body)


def decode(text: str | None) -> Curves:
    """What `encode` wrote. Missing, cut, altered, of another version: nothing known, and never an exception."""
    if not isinstance(text, str) or len(text) > MOST_CHARACTERS:
        return Curves()
    try:
        version, *pools = unsealed(text).split(";")
        if version != VERSION or len(pools) != len(POOLS):
            return Curves()
        return Curves(*(_decoded(one) for one in pools))
    except (ValueError, struct.error, OverflowError):
        return Curves()


def _count(value: float) -> bool:
    return 0.0 <= value <= _MOST  # neither NaN nor infinite


def _usable(kind: str, timing: Timing) -> bool:
    numbers = (timing.us, timing.steps, float(timing.requests))
    return (
        bool(_KIND.fullmatch(kind)) and all(map(_count, numbers)) and timing.us > 0.0 and timing.steps >= _LEAST_STEPS
    )


def _minute(at: float) -> int:
    return int(min(MAX_TIME, max(0.0, at)) // 60.0)


def _code(value: float, step: float) -> int:
    """`value` (1 or more) on a logarithmic scale."""
    return min(_MOST_CODE, max(0, round(math.log(value) / step)))


def _gathering(
    curve: Curve, kind: str, at: float, seconds: float, batch: float, timing: Timing, block_seconds: float
) -> Curve:
    old = curve.gathered
    if old is not None and _apart(old, batch):
        curve, old = _closed(curve, kind, at - seconds), None
    old = old or _Gathered(since=at - seconds)
    new = _Gathered(
        since=old.since,
        seconds=old.seconds + seconds,
        us=old.us + timing.us,
        steps=old.steps + timing.steps,
        batch_steps=old.batch_steps + batch * timing.steps,
        requests=old.requests + timing.requests,
    )
    curve = replace(curve, gathered=new)
    long = at - new.since >= POINT_MOST_SECONDS
    # A block's end comes with jitter: the last one of a point need not be whole.
    full = new.requests >= POINT_REQUESTS and at - new.since >= (POINT_BLOCKS - 0.5) * block_seconds
    return _closed(curve, kind, at) if full or long else curve


def _apart(gathered: _Gathered, batch: float) -> bool:
    """Whether a block's batch is another one than that of what was gathered, as a request finds it: itself and others.

    Few requests are no point of their own: they go on.
    """
    found = 1.0 + gathered.batch_steps / gathered.steps
    apart = abs(math.log((1.0 + batch) / found)) > math.log(POINT_MOST_FACTOR)
    return apart and gathered.requests >= POINT_REQUESTS


def _closed(curve: Curve, kind: str, at: float) -> Curve:
    """The curve with what was gathered as its newest point."""
    made = curve.gathered
    assert made is not None
    point = Point(
        minute=_minute(at),
        batch_code=_code(1.0 + made.batch_steps / made.steps, _BATCH_STEP),
        time_code=_code(max(1.0, made.us / made.steps), _TIME_STEP),
        requests=min(made.requests, _MOST_CODE),
    )
    return Curve(_kept((*curve.points, point), MOST_POINTS[kind == STREAMS]))


def _kept(points: Iterable[Point], most: int) -> tuple[Point, ...]:
    """A day's points, see `KEPT_MINUTES`. Where they are too many, the two most alike become one; an outlier stays."""
    found = sorted(points)
    found = [point for place, point in enumerate(found) if not _outlived(point, found[place + 1 :])]
    while len(found) > most:
        by_batch = sorted(found, key=lambda point: (point.batch_code, point.time_code))
        first, second = min(pairwise(by_batch), key=lambda pair: _distance(*pair))
        found.remove(first)
        found.remove(second)
        found = sorted([*found, _merged(first, second)])
    return tuple(found)


def _outlived(point: Point, newer: list[Point]) -> bool:
    age = newer[-1].minute - point.minute if newer else 0
    if age <= KEPT_MINUTES:
        return False
    near = math.log(SAME_BATCH) / _BATCH_STEP
    again = sum(one.merged for one in newer if abs(one.batch_code - point.batch_code) <= near)
    return age > LONGEST_MINUTES or again >= 2  # one alone could be astray


def _distance(one: Point, other: Point) -> float:
    """How unlike two points are: 10 % of the batch, 3 % of the time and four hours count alike."""
    return (
        abs(one.batch_code - other.batch_code) * _BATCH_STEP / 0.1
        + abs(one.time_code - other.time_code) * _TIME_STEP / 0.03
        + abs(one.minute - other.minute) / 240.0
    )


def _merged(one: Point, other: Point) -> Point:
    """Two points as one, each by its requests."""
    weight = max(1, one.requests) / (max(1, one.requests) + max(1, other.requests))

    def between(a: int, b: int) -> int:
        return round(a * weight + b * (1.0 - weight))

    return Point(
        minute=between(one.minute, other.minute),
        batch_code=between(one.batch_code, other.batch_code),
        time_code=between(one.time_code, other.time_code),
        requests=min(_MOST_CODE, one.requests + other.requests),
        merged=min(_MOST_MERGED, one.merged + other.merged),
    )


def _not_after(known: PoolCurves, at: float) -> PoolCurves:
    """Nothing lies in the future: a clock that was set back must not keep old points for ever."""
    minute = int(at // 60.0)
    if known.load_at <= at and all(
        (not one.points or one.points[-1].minute <= minute) and (one.gathered is None or one.gathered.since <= at)
        for one in known.kinds.values()
    ):
        return known
    kinds = {
        kind: Curve(
            tuple(sorted(point._replace(minute=min(point.minute, minute)) for point in one.points)),
            None if one.gathered is None else replace(one.gathered, since=min(one.gathered.since, at)),
        )
        for kind, one in known.kinds.items()
    }
    return replace(known, kinds=kinds, load_at=min(known.load_at, at))


def _encoded(pool: PoolCurves) -> str:
    parts = [pool.key, repr(pool.load_at), repr(pool.load_sum), repr(pool.load_seconds)]
    for kind, curve in sorted(pool.kinds.items()):
        if curve.points:
            newest = curve.points[-1].minute
            raw = b"".join(_POINT.pack(newest - point.minute, *point[1:]) for point in curve.points)
            parts += [kind, str(newest), base64.urlsafe_b64encode(raw).decode()]
    return ",".join(parts)


def _decoded(text: str) -> PoolCurves:
    key, at, load_sum, load_seconds, *rest = text.split(",")
    numbers = [float(one) for one in (at, load_sum, load_seconds)]
    if (
        not _KEY.fullmatch(key)
        or not all(0.0 <= one < math.inf for one in numbers)
        or len(rest) % 3
        or len(rest) > 3 * MOST_KINDS
    ):
        raise ValueError("not curves of this version")
    kinds = {}
    for kind, newest, packed in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        if not _KIND.fullmatch(kind) or not 0 <= int(newest) <= MAX_TIME / 60.0:
            raise ValueError("not timings of a kind")
        points = tuple(
            Point(int(newest) - age, *codes)
            for age, *codes in _POINT.iter_unpack(base64.urlsafe_b64decode(packed.encode()))
        )
        kinds[kind] = Curve(_kept(points, MOST_POINTS[kind == STREAMS]))
    return PoolCurves(key, kinds, *numbers)

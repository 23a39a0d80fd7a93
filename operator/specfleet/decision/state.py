"""What a route's decision remembers, and the string in which the SpecDeployment's status keeps it."""

from __future__ import annotations

import base64
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from specfleet.decision.evidence import KEPT_BLOCKS, Closed, Gathered, LineState
from specfleet.decision.reasons import Reason
from specfleet.decision.sealed import sealed, unsealed
from specfleet.decision.types import LINES, Line, Pool, RouteConfig

VERSION = "3"
WITHOUT_FIRM = "2"
EARLIER = "1"  # as 2, and the cause is written otherwise
MAX_BACKOFF = 5
MAX_TIME = 253402300799.0  # the last second of the year 9999
_POOL_CODES: dict[Pool, str] = {"speculative": "s", "baseline": "b"}
_POOLS: dict[str, Pool] = {"s": "speculative", "b": "baseline"}
_EARLIER_CAUSES: dict[str, Reason | None] = {"-": None, "a": Reason.BELOW_ACCEPTANCE, "e": Reason.BELOW_BREAK_EVEN}


@dataclass(frozen=True, slots=True)
class RouteState:
    """Everything `step` needs to know of the past. Times are seconds since the epoch.

    `mode` is what the rule has decided, also while an override or Observe has the route elsewhere; `since` is when.
    `placed` is where the rule itself last had the route; `served` is where it is now, since `served_since`.
    """

    mode: Pool
    since: float
    placed: Pool
    served: Pool
    served_since: float
    percent: int
    ramp_since: float | None = None
    backoff: int | None = None  # exponent of the last switch-off; None before the first
    cause: Reason | None = None  # of the last switch-off: a line or a guard
    told: str = ""  # the guard's sentence of that time
    block_at: float = 0.0
    rate_requests: float = 0.0  # requests of the pool, fading over an hour
    rate_hours: float = 0.0  # hours x share that they came in, fading alike
    lines: tuple[LineState, ...] = field(default_factory=lambda: tuple(LineState() for _ in LINES))

    def line(self, line: Line) -> LineState:
        """The state of one line."""
        return self.lines[LINES.index(line)]

    @property
    def requests_per_hour(self) -> float | None:
        """The route's rate, in both pools; None while it is not known."""
        return self.rate_requests / self.rate_hours if self.rate_requests > 0.0 and self.rate_hours > 0.0 else None

    def forgetful(self) -> RouteState:
        """The state without anything that was counted; where the route is, since when and the back-off stay."""
        return replace(self, lines=tuple(LineState() for _ in LINES))

    def encode(self) -> str:
        """The state as one short printable string; `decode` gives back an equal state."""
        head = [
            _POOL_CODES[self.mode] + _POOL_CODES[self.placed] + _POOL_CODES[self.served],
            "" if self.cause is None else self.cause.value,
            base64.urlsafe_b64encode(self.told.encode()).decode(),
            _text(self.since),
            _text(self.served_since),
            str(self.percent),
            "" if self.ramp_since is None else _text(self.ramp_since),
            "" if self.backoff is None else str(self.backoff),
            _text(self.block_at),
            _text(self.rate_requests),
            _text(self.rate_hours),
        ]
        body = ";".join([VERSION, ",".join(head), *(_encode_line(line) for line in self.lines)])
        return sealed(body)


def start(config: RouteConfig, now: float, pool: Pool | None = None) -> RouteState:
    """The state of a route that nothing is known about: in `pool` if given, else in the policy's initial one."""
    served = pool or config.initial
    now = milliseconds(now)
    percent = 100 if served == "speculative" else 0
    return RouteState(mode=served, since=now, placed=served, served=served, served_since=now, percent=percent)


def decode(text: str | None, config: RouteConfig, now: float, pool: Pool | None = None) -> RouteState:
    """The state that `encode` wrote. Missing, cut, altered or of another version: `start`, and never an exception."""
    if not isinstance(text, str):
        return start(config, now, pool)
    try:
        return _decode(text)
    except (ValueError, KeyError, IndexError, TypeError, OverflowError):
        return start(config, now, pool)


def not_after(state: RouteState, now: float) -> RouteState:
    """`state` with no time later than `now`: after a clock was set back, no dwell may wait for the old time."""
    latest = max(state.since, state.served_since, state.block_at, state.ramp_since or 0.0)
    if latest <= now and all(line.gathered.since <= now for line in state.lines):
        return state
    return replace(
        state,
        since=min(state.since, now),
        served_since=min(state.served_since, now),
        block_at=min(state.block_at, now),
        ramp_since=None if state.ramp_since is None else min(state.ramp_since, now),
        lines=tuple(
            replace(line, gathered=replace(line.gathered, since=min(line.gathered.since, now))) for line in state.lines
        ),
    )


def milliseconds(time: float) -> float:
    """`time` as state keeps it."""
    return round(float(time), 3)


def _text(value: float) -> str:
    return repr(int(value)) if value == int(value) else repr(value)


def _encode_line(line: LineState) -> str:
    counts = line.gathered
    head = [
        "" if line.value is None else _text(line.value),
        str(line.draft_tokens),
        _text(line.score),
        _text(line.requests),
        str(line.span),
        _text(line.variance),
        _text(line.steps_sum),
        _text(line.requests_sum),
        "k" if line.firm else "",
    ]
    partial = (
        ""
        if counts.empty
        else ",".join(
            [
                _text(counts.since),
                _text(counts.seconds),
                *(str(n) for n in (counts.tokens, counts.accepted, counts.drafted, counts.requests)),
            ]
        )
    )
    blocks = "/".join(
        f"{block.accepted},{block.weight},{block.requests},{_text(block.evidence)}" for block in line.recent
    )
    return "|".join([",".join(head), partial, blocks])


def _decode(text: str) -> RouteState:
    version, head, *lines = unsealed(text).split(";")
    if version not in (VERSION, WITHOUT_FIRM, EARLIER) or len(lines) != len(LINES):
        raise ValueError("not a state of this version")
    fields = head.split(",")
    if version == EARLIER:
        cause, told = _EARLIER_CAUSES[fields[0][3:]], ""
        fields[0] = fields[0][:3]
    else:
        cause = Reason(fields[1]) if fields[1] else None
        told = base64.urlsafe_b64decode(fields[2]).decode()
        del fields[1:3]
    codes, since, served_since, percent, ramp_since, backoff, block_at, rate_requests, rate_hours = fields
    mode, placed, served = list(codes)
    return RouteState(
        mode=_POOLS[mode],
        since=_time(since),
        placed=_POOLS[placed],
        served=_POOLS[served],
        served_since=_time(served_since),
        percent=_whole(percent, 100),
        ramp_since=_time(ramp_since) if ramp_since else None,
        backoff=_whole(backoff, MAX_BACKOFF) if backoff else None,
        cause=cause,
        told=told,
        block_at=_time(block_at),
        rate_requests=_number(rate_requests),
        rate_hours=_number(rate_hours),
        lines=tuple(_decode_line(line, told_firm=version == VERSION) for line in lines),
    )


def _decode_line(text: str, *, told_firm: bool) -> LineState:
    head, partial, blocks = text.split("|")
    value, draft_tokens, score, requests, span, variance, steps_sum, requests_sum, *firm = head.split(",")
    if firm not in ([["k"], [""]] if told_firm else [[]]):
        raise ValueError("not a line of this version")
    recent = tuple(_decode_block(block.split(",")) for block in blocks.split("/")) if blocks else ()
    return LineState(
        value=_number(value) if value else None,
        draft_tokens=_whole(draft_tokens),
        score=_number(score),
        requests=_number(requests),
        span=_whole(span, KEPT_BLOCKS),
        variance=_positive(variance),
        steps_sum=_number(steps_sum),
        requests_sum=_number(requests_sum),
        gathered=_decode_gathered(partial.split(",")) if partial else Gathered(),
        recent=recent,
        firm=firm == ["k"],
    )


def _decode_gathered(parts: Sequence[str]) -> Gathered:
    since, seconds, tokens, accepted, drafted, requests = parts
    return Gathered(
        float(since), _positive(seconds), _whole(tokens), _whole(accepted), _whole(drafted), _whole(requests)
    )


def _decode_block(parts: Sequence[str]) -> Closed:
    accepted, weight, requests, evidence = parts
    closed = Closed(_whole(accepted), _whole(weight), _whole(requests), _positive(evidence))
    if closed.weight == 0:
        raise ValueError("a block without weight")
    return closed


def _number(text: str) -> float:
    value = float(text)
    if not math.isfinite(value) or value < 0.0:
        raise ValueError(f"not a number that state holds: {text!r}")
    return value


def _positive(text: str) -> float:
    value = _number(text)
    if value == 0.0:
        raise ValueError("zero where state holds none")
    return value


def _time(text: str) -> float:
    return _number(text)


def _whole(text: str, most: int | None = None) -> int:
    value = int(text)
    if value < 0 or (most is not None and value > most):
        raise ValueError(f"not a count that state holds: {text!r}")
    return value

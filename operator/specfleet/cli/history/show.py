"""A replay as tables for people and as JSON for programs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from specfleet.cli.history.times import shown
from specfleet.cli.replay_history import Result, Told
from specfleet.decision.types import Pool
from specfleet.decision.whatif import TimePerToken

_LEAST_WIDTH = 132
_LISTED_MOVES = 20
_WORD: dict[Pool, str] = {"speculative": "on", "baseline": "off"}


def printed(result: Result, console: Console | None = None) -> None:
    """What the policy would have done, what time per token that would have cost, and what is unknown.

    As wide as it needs where nobody watches.
    """
    console = console or Console(highlight=False)
    if not console.is_terminal:
        console = Console(file=console.file, width=max(console.width, _LEAST_WIDTH), highlight=False)
    console.print(_tables(result))
    for line in _lines(result):
        console.print(line, soft_wrap=True, markup=False)


def _tables(result: Result) -> RenderableType:
    request = result.request
    read = "router" if result.kind == "router" else "engine"
    head = (
        f"{request.namespace}/{request.name}, {shown(request.start)} to {shown(request.end)}, "
        f"blocks of {request.block_seconds:g} s, {len(result.sources)} {read} pod(s) read"
    )
    parts: list[RenderableType] = [Text(head), _decisions(result)]
    if any(told.outcome.time_per_token is not None for told in result.routes):
        parts += [Text("Time per token, in ms, where both pools served the route in the same hour:"), _times(result)]
    return Group(*parts)


def _decisions(result: Result) -> Table:
    table = Table("route", "began", "the policy would have", box=None, pad_edge=False)
    for name in ("off (time)", "really off (requests)", "requests", "tokens/step", "accepted"):
        table.add_column(name, justify="right")
    for told in result.routes:
        one = told.outcome
        table.add_row(
            one.route,
            _WORD[one.began],
            _in_words(told),
            f"{one.off_percent} %",
            "-" if one.done_off_percent is None else f"{one.done_off_percent} %",
            str(one.requests),
            "-" if one.tokens_per_step is None else f"{one.tokens_per_step:.2f}",
            "-" if one.acceptance_percent is None else f"{one.acceptance_percent} %",
        )
    return table


def _in_words(told: Told) -> str:
    moves = told.outcome.moves
    if not moves:
        return "switched nothing"
    at = shown(moves[0].at)[5:16].replace("T", " ")
    first = f"gone {_WORD[moves[0].pool]} {at}"
    return first if len(moves) == 1 else f"{first}; {len(moves)} switches"


def _times(result: Result) -> Table:
    table = Table("route", box=None, pad_edge=False)
    for name in ("policy", "always on", "always off", "really", "saves of on", "of off", "of really", "break-even"):
        table.add_column(name, justify="right")
    table.add_column("from")
    for told in result.routes:
        known = told.outcome.time_per_token
        if known is None:
            table.add_row(told.outcome.route, *["unknown"] + ["-"] * 7, "")
            continue
        table.add_row(
            told.outcome.route,
            *(f"{ms:.2f}" for ms in (known.policy, known.always_on, known.always_off, known.done)),
            *(f"{known.saved_percent(ms):+.1f} %" for ms in (known.always_on, known.always_off, known.done)),
            "-" if known.break_even is None else f"{known.break_even:.2f}",
            f"{known.basis}, {known.hours} of {known.hours_with_traffic} h",
        )
    return table


def _lines(result: Result) -> Iterator[str]:
    for told in result.routes:
        one = told.outcome
        for move in one.moves[:_LISTED_MOVES]:
            yield f"{one.route}: {shown(move.at)} {_WORD[move.pool]} ({move.reason}): {move.message}"
        if len(one.moves) > _LISTED_MOVES:
            yield f"{one.route}: {len(one.moves) - _LISTED_MOVES} more switches; --output json has them all."
        for at, pool in one.done_moves[:_LISTED_MOVES]:
            yield f"{one.route}: {shown(at)} really went {_WORD[pool]} (most of its requests)."
        for note in told.notes:
            yield f"{one.route}: {note}"
    yield from (f"{note[:1].upper()}{note[1:]}" for note in result.notes)


def document(result: Result) -> dict[str, Any]:
    """The result as JSON: the fields are those of docs/reference/replay.md."""
    request = result.request
    return {
        "deployment": f"{request.namespace}/{request.name}",
        "start": shown(request.start),
        "end": shown(request.end),
        "blockSeconds": request.block_seconds,
        "series": "routers" if result.kind == "router" else "engines",
        "pods": {name: sorted(pools) for name, pools in result.sources.items()},
        "dropped": dict(sorted(result.dropped.items())),
        "notes": list(result.notes),
        "routes": [_route(told) for told in result.routes],
    }


def _route(told: Told) -> dict[str, Any]:
    one = told.outcome
    return {
        "route": one.route,
        "began": one.began,
        "switches": [
            {"at": shown(move.at), "pool": move.pool, "reason": move.reason, "message": move.message}
            for move in one.moves
        ],
        "offPercent": one.off_percent,
        "readSeconds": round(one.seconds),
        "unreadSeconds": round(one.unread_seconds),
        "done": {
            "offPercentOfRequests": one.done_off_percent,
            "switches": [{"at": shown(at), "pool": pool} for at, pool in one.done_moves],
        },
        "requests": one.requests,
        "measuredRequests": one.measured,
        "tokensPerStep": None if one.tokens_per_step is None else f"{one.tokens_per_step:.2f}",
        "acceptancePercent": one.acceptance_percent,
        "timePerToken": None if one.time_per_token is None else _time(one.time_per_token),
        "last": None if one.last is None else {"pool": one.last.pool, "reason": one.last.reason.value},
        "notes": list(told.notes),
    }


def _time(known: TimePerToken) -> dict[str, Any]:
    alternatives = {"alwaysOn": known.always_on, "alwaysOff": known.always_off, "done": known.done}
    return {
        "basis": known.basis,
        "milliseconds": {"policy": f"{known.policy:.3f}", **{k: f"{ms:.3f}" for k, ms in alternatives.items()}},
        "savedPercent": {name: f"{known.saved_percent(ms):.1f}" for name, ms in alternatives.items()},
        "hoursCompared": known.hours,
        "hoursWithTraffic": known.hours_with_traffic,
        "tokensComparedPercent": known.tokens_percent,
        "breakEven": None if known.break_even is None else f"{known.break_even:.2f}",
    }

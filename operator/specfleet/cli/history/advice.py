"""What is to be said about a replay: what is unknown, why, and what to switch on."""

from __future__ import annotations

from collections.abc import Iterator

from specfleet.api.names import BASELINE_POOL
from specfleet.cli.history.recorded import Grid, Kind
from specfleet.cli.history.request import Request
from specfleet.decision.reasons import Reason
from specfleet.decision.samples import Kind as Dropped
from specfleet.decision.types import RouteConfig
from specfleet.decision.whatif import KNOWN_TOKENS, Outcome

_FIGURES: dict[Kind, str] = {
    "router": "Start its vLLM (0.29 or later) with --per-request-spec-decode-metrics summary, or replay the engines' "
    "own counters with --engine-series.",
    "engine": "Its engines counted no draft.",
}


def notes(outcome: Outcome, config: RouteConfig, kind: Kind) -> Iterator[str]:
    """What is to be said about one route."""
    if config.override != "Auto":
        yield f"the route says speculation: {config.override}, so no policy decides about it."
    elif not config.has_line:
        yield "no line is set for this route: write minAcceptancePercent or breakEven."
    elif outcome.last is not None and outcome.last.reason is Reason.BREAK_EVEN_UNKNOWN:
        yield (
            "the break-even line could not be measured: both pools have to serve streams at the same time, 200 of each."
        )
    if not outcome.requests:
        yield "no request was counted in this time."
        return
    if "speculative" not in outcome.pools_with_traffic:
        yield (
            "acceptance was not recorded: all of its traffic was served without speculation. Let some of it speculate: "
            "initial: Speculative under Observe, or Enforce with exploration.maxPercent above 0."
        )
    elif not outcome.measured:
        yield "acceptance was not recorded: answers of the speculative pool carried no figures. " + _FIGURES[kind]
    yield from _time_notes(outcome)


def _time_notes(outcome: Outcome) -> Iterator[str]:
    known = outcome.time_per_token
    if known is not None:
        if known.hours < known.hours_with_traffic:
            yield (
                f"times are compared over {known.hours} of {known.hours_with_traffic} hours with traffic "
                f"({known.tokens_percent} % of its tokens): in the others one pool served less than {KNOWN_TOKENS} "
                "timed tokens."
            )
        return
    missing = [pool for pool in ("speculative", BASELINE_POOL) if pool not in outcome.pools_with_traffic]
    if missing:
        yield (
            f"what it would have saved is unknown: the {missing[0]} pool served none of it, so its time per token is "
            "unknown. Send it the route for an hour (speculation: Always or Never) to know."
        )
    else:
        yield (
            f"what it would have saved is unknown: in no hour did both pools serve {KNOWN_TOKENS} timed tokens of it."
        )


def general(grid: Grid, request: Request, unread_seconds: float) -> Iterator[str]:
    """What is to be said about all routes at once."""
    if unread_seconds:
        yield f"nothing was read for {duration_text(unread_seconds)}; the decisions stood meanwhile."
    counts = {kind: count for kind, count in grid.dropped.items() if kind != Dropped.STALE.value and count}
    if counts:
        told = ", ".join(f"{kind} {count}" for kind, count in sorted(counts.items()))
        yield f"left out by the data rules: {told}."
    if request.config_of("").enforce is False:
        yield "the policy says Observe; it is replayed as if it said Enforce."


def duration_text(seconds: float) -> str:
    """A length of time for people: the two largest units."""
    minutes = round(seconds / 60.0)
    if minutes < 1:
        return f"{seconds:.0f} s"
    days, hours = divmod(minutes // 60, 24)
    parts = [(days, "d"), (hours, "h"), (minutes % 60, "min")]
    return " ".join([f"{count} {unit}" for count, unit in parts if count][:2])

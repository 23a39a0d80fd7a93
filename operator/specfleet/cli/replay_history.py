"""`specfleet replay --prometheus`: what a policy would have done on the traffic that a Prometheus server recorded."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from specfleet.api.conditions import Reason
from specfleet.cli.history.advice import general, notes
from specfleet.cli.history.presence import nothing_usable, selected
from specfleet.cli.history.reading import pieces
from specfleet.cli.history.recorded import Grid, Kind
from specfleet.cli.history.request import HistoryProblem, Request
from specfleet.decision.reasons import Hold
from specfleet.decision.recorded_pace import Pace
from specfleet.decision.samples import Kind as Dropped
from specfleet.decision.types import Pool, RouteConfig
from specfleet.decision.whatif import Outcome, Recorded, Trial
from specfleet.metrics.promapi import Endpoint, PromApi, PrometheusError

_SOME_GAPS = 12


@dataclass(frozen=True)
class Told:
    """What came of one route, and what is to be said about it: what is unknown and what to switch on."""

    outcome: Outcome
    config: RouteConfig
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Result:
    """A whole replay. `sources` are the processes that were read, with the pools they counted for."""

    request: Request
    kind: Kind
    routes: tuple[Told, ...]
    dropped: Mapping[str, int]
    sources: Mapping[str, frozenset[Pool]]
    notes: tuple[str, ...]


def replayed(request: Request, on_read: Callable[[float], None] = lambda until: None) -> Result:
    """Read the history and run the rule over it; `on_read` is told up to which time it was read.

    Raises:
        HistoryProblem: nothing was recorded, or what was cannot be used.
        PrometheusError: the server does not answer as a Prometheus does.
    """
    with PromApi(request.endpoint) as api:
        selection = selected(api, request)
        grid = Grid(request.start, request.block_seconds)
        trials: dict[str, Trial] = {}
        pace = Pace(request.config_of("").draft_tokens, request.replicas)
        for some, until in pieces(api, selection, request.start - grid.lead_seconds, request.end):
            for blocks, hold in grid.fed(some, until):
                _fed(trials, pace, blocks, hold, request)
            _subtractable(grid, request)
            on_read(until)
    if not trials:
        raise HistoryProblem(nothing_usable(grid, selection, request))
    told = []
    for route, trial in sorted(trials.items()):
        config, outcome = request.config_of(route), trial.outcome()
        told.append(Told(outcome, config, tuple(notes(outcome, config, selection.kind))))
    unread = max(one.outcome.unread_seconds for one in told)
    sources = {name: frozenset(pools) for name, pools in sorted(grid.sources.items())}
    return Result(
        request, selection.kind, tuple(told), dict(grid.dropped), sources, tuple(general(grid, request, unread))
    )


def _subtractable(grid: Grid, request: Request) -> None:
    """Raise HistoryProblem where samples are too far apart to be subtracted."""
    if grid.spacing > grid.gap_seconds and grid.dropped[Dropped.GAP.value] > _SOME_GAPS:
        raise HistoryProblem(
            f"these series have a sample every {grid.spacing:.0f} s; with blocks of {request.block_seconds:g} s, "
            f"samples further apart than {grid.gap_seconds:.0f} s are not subtracted: scrape every 30 s, or replay "
            f"with --block {round(grid.spacing)}s"
        )


def _fed(
    trials: dict[str, Trial], pace: Pace, blocks: dict[str, Recorded], hold: Hold | None, request: Request
) -> None:
    if blocks:
        pace.feed(blocks)
    for route in blocks:
        if route not in trials:
            config = replace(request.config_of(route), block_seconds=request.block_seconds)
            trials[route] = Trial(route, config, blocks[route].at - request.block_seconds)
    at = next((one.at for one in blocks.values()), None)
    for route in sorted(trials):
        if at is None:
            trials[route].unread(request.block_seconds)
        else:
            trial, measured = trials[route], request.config_of(route).certainty is not None
            line = pace.line(route, trial.mode, at) if measured else None
            trial.feed(blocks.get(route) or Recorded(at, request.block_seconds, None), hold, line)


def failure(error: PrometheusError, endpoint: Endpoint) -> str:
    """A server's failure, in words for somebody at a command line."""
    text = str(error)
    refused = re.search(r"answers (401|403)", text)
    if error.reason is Reason.PROMETHEUS_UNAUTHORIZED and refused is not None:
        return (
            f"{endpoint.url} answers {refused.group(1)}: it asks for credentials, or for others than these; give "
            "--bearer-token-file FILE, or --username NAME and --password-file FILE"
        )
    return text.replace("set prometheus.caFile", "name its authority with --ca-file")

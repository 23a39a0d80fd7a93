"""The status of a SpecDeployment, computed whole from what is known. Pure."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from specfleet.api.by_hand import ByHand
from specfleet.api.names import BASELINE_POOL, endpoint
from specfleet.api.status import (
    BreakEvenStatus,
    ByHandStatus,
    EvidenceStatus,
    Percentages,
    PlanStatus,
    PoolStatus,
    PreflightStatus,
    Range,
    RouteReport,
    RouteStatus,
    SpecDeploymentStatus,
    Summary,
    Switch,
    UpgradeStatus,
)
from specfleet.api.times import epoch, timestamp
from specfleet.decision.report import Report, observed, sentence
from specfleet.decision.rule import Verdict
from specfleet.decision.trend import appended
from specfleet.handlers.decide import RouteDecision, pool_name
from specfleet.handlers.fleet import Fleet

HISTORY = 10
TOGETHER_NOTE = " Decided for all routes together."
SLOW_SWITCH_NOTE = " Routers take a change over within 90 s: their pods may not be annotated."


@dataclass(frozen=True)
class Serving:
    """What routers serve, as far as known.

    Attributes:
        confirmed: every ready router serves the table that was last decided, and there is one.
        percent: speculative percent by route where all ready routers agree.
    """

    confirmed: bool = False
    percent: Mapping[str, int] = field(default_factory=dict)


def parse_status(body: Mapping[str, Any]) -> SpecDeploymentStatus:
    """The status in an object; an empty one where it is missing or not of our making."""
    try:
        return SpecDeploymentStatus.model_validate(body.get("status") or {})
    except ValueError:
        return SpecDeploymentStatus()


def dump(status: SpecDeploymentStatus) -> dict[str, Any]:
    """As it goes to the API server."""
    return status.model_dump(mode="json", by_alias=True, exclude_none=True)


def route_status(
    decision: RouteDecision,
    before: RouteStatus | None,
    draft: str,
    serving: Serving,
    coverage: int | None,
    *,
    applied_percent: int,
    has_routers: bool,
    slow: bool,
    now: float,
    together: bool = False,
    by_hand: ByHand | None = None,
) -> RouteStatus:
    """One route. `applied_percent` is what routers were told, which readiness may make another than the decision's."""
    verdict, state = decision.verdict, decision.state
    served = serving.percent.get(decision.name)
    underway = has_routers and verdict.phase != "Held" and not (serving.confirmed and served == applied_percent)
    phase: Literal["Settled", "Moving", "Exploring", "Held"] = "Moving" if underway else verdict.phase.value
    message = verdict.message + (TOGETHER_NOTE if together else "") + (SLOW_SWITCH_NOTE if underway and slow else "")
    pool = pool_name(verdict.pool, draft)
    history = list(before.history) if before is not None else []
    if verdict.switched:
        history.append(Switch(at=timestamp(now), pool=pool, reason=verdict.reason.value, message=verdict.message))
    return RouteStatus(
        name=decision.name,
        pool=pool,
        phase=phase,
        reason=verdict.reason.value,
        message=message,
        speculative_percent=Percentages(intended=verdict.speculative_percent, served=served),
        acceptance_percent=verdict.acceptance_percent,
        tokens_per_step=None if verdict.tokens_per_step is None else f"{verdict.tokens_per_step:.2f}",
        break_even=_break_even(decision),
        evidence=_evidence(verdict, coverage),
        since=timestamp(state.served_since),
        history=history[-HISTORY:],
        trend=_trend(decision, before, now),
        by_hand=None
        if by_hand is None
        else ByHandStatus(speculation=by_hand.word, until=by_hand.until_text, reason=by_hand.reason),
        report=_report(decision, before, draft, now),
        state=state.encode(),
    )


def _trend(decision: RouteDecision, before: RouteStatus | None, now: float) -> str | None:
    """The route's trend with a point of now, where one is due: written with the status, never a reason to write it."""
    verdict, line = decision.verdict, decision.config.line_value("BreakEven")
    return appended(None if before is None else before.trend, now, verdict.tokens_per_step, line, verdict.pool)


def _break_even(decision: RouteDecision) -> BreakEvenStatus | None:
    config, line = decision.config, decision.line
    if config.certainty is None or line is None:
        fixed = config.break_even
        return None if fixed is None else BreakEvenStatus(tokens_per_step=f"{fixed:.2f}", state="Fixed")
    force = decision.state.line("BreakEven").value
    if force is None:
        force = line.tokens_per_step
    return BreakEvenStatus(
        tokens_per_step=None if force is None else f"{force:.2f}",
        state=line.certainty,
        measured=None if line.interval is None else f"{line.tokens_per_step:.2f}",
        interval=_range(line.interval, 2),
        batch=None if line.batch is None else f"{line.batch:.1f}",
        reach=_range(line.reach, 1),
        at=None if line.at is None else timestamp(line.at),
    )


def _range(ends: tuple[float, float] | None, digits: int) -> Range | None:
    return None if ends is None else Range(low=f"{ends[0]:.{digits}f}", high=f"{ends[1]:.{digits}f}")


def _report(decision: RouteDecision, before: RouteStatus | None, draft: str, now: float) -> RouteReport | None:
    known = None if before is None or before.report is None else report_of(before.report)
    report = observed(known, decision.state, decision.config, now)
    if report is None:
        return None
    return RouteReport(
        since=timestamp(report.since),
        policy=report.policy,
        would_be=pool_name(report.would_be, draft),
        would_have_switched_at=None if report.switched_at is None else timestamp(report.switched_at),
        switches=report.switches,
        earlier_off_seconds=round(report.off_seconds),
        off_percent=report.off_percent(now),
        message=sentence(report, decision.verdict.pool, now),
    )


def report_of(status: RouteReport) -> Report | None:
    """The report that a status holds; None where somebody has written what is no time into it."""
    try:
        since = epoch(status.since)
        switched_at = None if status.would_have_switched_at is None else epoch(status.would_have_switched_at)
    except ValueError:
        return None
    return Report(
        since=since,
        policy=status.policy,
        would_be="baseline" if status.would_be == BASELINE_POOL else "speculative",
        switched_at=switched_at,
        off_seconds=float(status.earlier_off_seconds),
        switches=status.switches,
    )


def _evidence(verdict: Verdict, coverage: int | None) -> EvidenceStatus | None:
    shown = verdict.evidence
    if shown is None:
        return None
    return EvidenceStatus(
        line=shown.line,
        score=f"{shown.score:.1f}",
        threshold=f"{shown.threshold:.1f}",
        requests=shown.requests,
        coverage_percent=coverage,
    )


def pools_status(state: Fleet) -> list[PoolStatus]:
    """Replicas of both pools, or of the External ones that there are."""
    return [
        PoolStatus(
            name=pool.name,
            desired=pool.desired,
            ready=pool.ready,
            release=pool.release,
            source="External" if pool.external else "Rendered",
        )
        for pool in state.pools
    ]


def summary(routes: Iterable[RouteStatus]) -> Summary:
    """The line that `kubectl get` shows: how many routes speculate, and the range of their acceptance."""
    routes = list(routes)
    on = sum(route.pool != BASELINE_POOL for route in routes)
    known = sorted(route.acceptance_percent for route in routes if route.acceptance_percent is not None)
    if not known:
        acceptance = "unknown"
    elif known[0] == known[-1]:
        acceptance = f"{known[0]}%"
    else:
        acceptance = f"{known[0]}-{known[-1]}%"
    return Summary(mode=f"{on}/{len(routes)} speculative", acceptance=acceptance)


def assembled(
    *,
    name: str,
    namespace: str,
    generation: int,
    conditions: list[Any],
    routes: list[RouteStatus],
    pools: list[PoolStatus],
    routes_version: str | None,
    attribution: Literal["Router", "Engine", "Deployment"] = "Router",
    preflight: PreflightStatus | None = None,
    plan: PlanStatus | None = None,
    upgrade: UpgradeStatus | None = None,
    curves: str | None = None,
) -> SpecDeploymentStatus:
    """The whole status."""
    return SpecDeploymentStatus(
        observed_generation=generation,
        conditions=conditions,
        endpoint=endpoint(name, namespace),
        summary=summary(routes) if routes else None,
        attribution=attribution,
        routes_version=routes_version,
        pools=pools,
        routes=routes,
        preflight=preflight,
        plan=plan,
        upgrade=upgrade,
        curves=curves,
    )


def noticeable(status: Mapping[str, Any]) -> dict[str, Any]:
    """What a person would notice at once; figures that move with every block are left out, their presence is not."""
    view = copy.deepcopy(dict(status))
    for route in view.get("routes") or ():
        for figure in ("acceptancePercent", "tokensPerStep"):
            route[figure] = figure in route
        if "breakEven" in route:
            # Whether a line is known can change with each block's load.
            route["breakEven"] = route["breakEven"].get("state") in ("Known", "Extrapolated")
        route["slow"] = str(route.get("message", "")).endswith(SLOW_SWITCH_NOTE)
        for volatile in ("message", "evidence", "state", "trend"):
            route.pop(volatile, None)
        for moving in ("offPercent", "message"):
            route.get("report", {}).pop(moving, None)
    view.pop("curves", None)
    if "summary" in view:
        view["summary"].pop("acceptance", None)
    for condition in view.get("conditions") or ():
        condition.pop("lastTransitionTime", None)
    return view


def figures(status: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    """The figures that are refreshed now and then: they change only when something was counted."""
    return [
        (
            route.get("name"),
            route.get("acceptancePercent"),
            route.get("tokensPerStep"),
            tuple(sorted((route.get("evidence") or {}).items())),
        )
        for route in status.get("routes") or ()
    ]


def counts_only(before: Mapping[str, Any], after: Mapping[str, Any]) -> bool:
    """Whether all that is new are numbers of ready pods: news that can wait for more of them."""

    def without(status: Mapping[str, Any]) -> dict[str, Any]:
        view = noticeable(status)
        view.pop("pools", None)
        for condition in view.get("conditions") or ():
            condition.pop("message", None)
        return view

    return without(before) == without(after)

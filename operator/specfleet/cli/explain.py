"""`specfleet explain`: where each route is served and why, in plain sentences, from spec and status alone."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from specfleet.api.names import BASELINE_POOL
from specfleet.api.status import BreakEvenStatus, Condition, PlanStatus, RouteStatus, SpecDeploymentStatus
from specfleet.api.v1alpha1 import SpecDeployment
from specfleet.cli.explain_chart import chart
from specfleet.cli.explain_route import Decision
from specfleet.cluster.auth import Connection, connect
from specfleet.cluster.client import ApiClient
from specfleet.cluster.errors import ApiError, ClusterError
from specfleet.cluster.gate import WriteGate
from specfleet.cluster.kinds import SPEC_DEPLOYMENT
from specfleet.decision.report import sentence
from specfleet.decision.trend import points
from specfleet.decision.types import Pool, RouteConfig
from specfleet.handlers.decide import configs
from specfleet.handlers.status import report_of

# Shown where they have this status: everything else is as it should be.
_ATTENTION = {
    "Ready": ("False", "Unknown"),
    "Stalled": ("True",),
    "Reconciling": ("True",),
    "Valid": ("False",),
    "DraftCompatible": ("False", "Unknown"),
    "MetricsAvailable": ("False",),
    "CapacitySufficient": ("False",),
}
_WRAP_HISTORY = 10


class Output(StrEnum):
    """How to print."""

    TEXT = "text"
    JSON = "json"


class ExplainError(Exception):
    """There is nothing to explain; the text says why and what to do."""


def explain_command(
    name: Annotated[str, typer.Argument(help="The SpecDeployment.")],
    route: Annotated[str | None, typer.Argument(help="One of its routes; default: all.")] = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Namespace. Default: that of the current context.")
    ] = None,
    kubeconfig: Annotated[Path | None, typer.Option(help="Kubeconfig. Default: as kubectl.")] = None,
    output: Annotated[Output, typer.Option("--output", "-o", help="Text, or JSON for programs.")] = Output.TEXT,
) -> None:
    """Say where each route is served and why, with the figures."""
    try:
        body = asyncio.run(_read(name, namespace, kubeconfig))
        shown = json_text(body, route) if output is Output.JSON else "\n".join(text(body, route))
    except (ExplainError, ClusterError) as error:
        _end(str(error))
    typer.echo(shown)


def text(body: Mapping[str, Any], route: str | None = None, now: float | None = None) -> Iterator[str]:
    """The explanation, line by line. `now` is in seconds since the epoch; None is the clock. Raises ExplainError."""
    now = time.time() if now is None else now
    status = _status(body)
    routes = [_reported(one, now) for one in _routes(body, status, route)]
    meta = body["metadata"]
    if route is None:
        yield from _head(meta, status, body)
    known = _configs(body)
    for one in routes:
        yield from _route(one, Decision.read(one, known.get(one.name), now), now, blank=route is None)
    if any(one.report is not None for one in routes):
        yield ""
        yield from _how_to_enforce(meta, body.get("spec") or {})
    needed = [c for c in status.conditions if c.status in _ATTENTION.get(c.type, ())]
    if needed:
        yield ""
        yield "What needs a look:"
        for condition in needed:
            yield f"  {condition.type}={condition.status} ({condition.reason}): {condition.message}"


def json_text(body: Mapping[str, Any], route: str | None = None, now: float | None = None) -> str:
    """The same for programs: the status and, of each route, what was counted and concluded and what comes next."""
    status = _status(body)
    now = time.time() if now is None else now
    shown_routes = [_reported(one, now) for one in _routes(body, status, route)]
    routes = [one.model_dump(mode="json", by_alias=True, exclude_none=True) for one in shown_routes]
    known = _configs(body)
    for shown_route, one in zip(shown_routes, routes, strict=True):
        one.pop("state", None)
        one.pop("trend", None)
        decision = Decision.read(shown_route, known.get(shown_route.name), now)
        one["decision"] = None if decision is None else decision.document()
    whole = status.model_dump(mode="json", by_alias=True, exclude_none=True)
    meta = body["metadata"]
    shown = {"name": meta["name"], "namespace": meta["namespace"], **whole, "routes": routes}
    return json.dumps(shown, indent=2)


async def _read(name: str, namespace: str | None, kubeconfig: Path | None) -> dict[str, Any]:
    connection = await connect(kubeconfig)
    async with connection.session() as session:
        client = ApiClient(session, connection.server, WriteGate())
        return await read_deployment(client, connection, name, namespace)


async def read_deployment(
    client: ApiClient, connection: Connection, name: str, namespace: str | None
) -> dict[str, Any]:
    """The SpecDeployment as it is now. Raises ExplainError where there is none, ClusterError without an answer."""
    where = namespace or connection.namespace
    try:
        body = await client.get(SPEC_DEPLOYMENT, where, name)
    except ApiError as error:
        raise ExplainError(f"SpecDeployment {where}/{name} cannot be read: {error.message or error}") from error
    if body is not None:
        return body
    try:
        await client.read(SPEC_DEPLOYMENT.path(where))
    except ApiError as error:
        if error.not_found:
            raise ExplainError(
                f"the cluster {connection.server} does not know SpecDeployments: install specfleet first"
            ) from error
    raise ExplainError(
        f"expected a SpecDeployment {name} in namespace {where}, found none: "
        "kubectl get specdeployments -A lists all of them; name another namespace with -n"
    )


def _status(body: Mapping[str, Any]) -> SpecDeploymentStatus:
    meta = body["metadata"]
    try:
        status = SpecDeploymentStatus.model_validate(body.get("status") or {})
    except ValueError:
        raise ExplainError(
            f"the status of {meta['namespace']}/{meta['name']} is not what this version of specfleet writes: "
            "use the specfleet of the operator's version"
        ) from None
    if not status.conditions:
        raise ExplainError(
            f"{meta['namespace']}/{meta['name']} has no status yet: is the operator running? "
            "kubectl get deployment -A -l app.kubernetes.io/name=specfleet shows it"
        )
    return status


def _routes(body: Mapping[str, Any], status: SpecDeploymentStatus, route: str | None) -> list[RouteStatus]:
    if route is None:
        return status.routes
    found = [one for one in status.routes if one.name == route]
    if not found:
        names = ", ".join(one.name for one in status.routes) or "none yet"
        raise ExplainError(f"{body['metadata']['name']} has no route {route}: its routes are {names}")
    return found


def _head(meta: Mapping[str, Any], status: SpecDeploymentStatus, body: Mapping[str, Any]) -> Iterator[str]:
    on = sum(route.pool != BASELINE_POOL for route in status.routes)
    ready = _condition(status, "Ready")
    state = {"True": "ready", "False": "not ready"}.get(ready.status if ready else "", "not known to be ready")
    enforcement = ((body.get("spec") or {}).get("policy") or {}).get("enforcement")
    yield (
        f"{meta['namespace']}/{meta['name']} is {state}; "
        f"{on} of {len(status.routes)} route(s) are served with speculation."
    )
    if enforcement == "Observe":
        yield "Enforcement is Observe: decisions are reported and nothing is moved."
    counted = _condition(status, "MetricsAvailable")
    if status.attribution == "Deployment" and counted is not None and counted.status != "False":
        yield counted.message
    if meta.get("generation") != status.observed_generation:
        yield "The last change of its spec has not been looked at yet."
    if status.endpoint:
        yield f"Endpoint: {status.endpoint}"
    if status.pools:
        yield "Pools: " + ", ".join(f"{pool.name} {pool.ready} of {pool.desired} ready" for pool in status.pools)
    if status.plan is not None and status.plan.sequences:
        yield from _plan(status.plan, status.plan.sequences)
    if status.upgrade is not None:
        yield f"Upgrade, {status.upgrade.changes}. {status.upgrade.message}"


def _plan(plan: PlanStatus, sequences: Mapping[str, int]) -> Iterator[str]:
    rooms = " and ".join(f"{count} sequences in {pool}" for pool, count in sorted(sequences.items()))
    cost = "" if plan.draft_cost_percent is None else f"; the draft costs {plan.draft_cost_percent} %"
    yield f"KV plan: a pod has room for {rooms}, of {plan.sequence_tokens} tokens each{cost}."
    if plan.break_even_tokens_per_step is not None:
        yield f"  By weights alone speculation needs {plan.break_even_tokens_per_step} tokens per decode step."
    if plan.message is not None:
        yield f"  {plan.message}"


def _configs(body: Mapping[str, Any]) -> dict[str, RouteConfig]:
    """The policy of each route; empty where the spec is none that this version reads."""
    try:
        return configs(SpecDeployment.parse(body).spec)
    except ValueError:
        return {}


def _route(one: RouteStatus, decision: Decision | None, now: float, *, blank: bool) -> Iterator[str]:
    if blank:
        yield ""
    kind = "without speculation" if one.pool == BASELINE_POOL else "with speculation"
    yield f"Route {one.name} is served by pool {one.pool}, {kind}, since {one.since} ({one.phase}, {one.reason})."
    yield f"  {one.message}"
    if one.by_hand is not None:
        said = one.by_hand
        yield f"  Said by hand: {said.speculation} until {said.until} ({said.reason}); `specfleet auto` takes it back."
    yield f"  {_share(one)}"
    figures = _figures(one)
    if decision is not None:
        yield from (f"  {sentence}" for sentence in decision.sentences())
    elif figures:
        yield f"  {figures}"
    yield from (f"  {line}" for line in chart(points(one.trend), now))
    if one.report is not None:
        yield f"  Observe ({one.report.policy}): {one.report.message}"
    if one.history:
        yield "  Switches, newest first:"
        for switch in reversed(one.history[-_WRAP_HISTORY:]):
            yield f"    {switch.at} to {switch.pool} ({switch.reason}): {switch.message}"


def _share(one: RouteStatus) -> str:
    meant, served = one.speculative_percent.intended, one.speculative_percent.served
    if served is None:
        return f"{meant} % of its traffic is meant for speculation; what routers serve is not known now."
    if served == meant:
        return f"{meant} % of its traffic goes to speculation; every router serves that."
    return f"{meant} % of its traffic is meant for speculation; routers serve {served} % now."


def _figures(one: RouteStatus) -> str:
    parts = []
    if one.acceptance_percent is not None:
        parts.append(f"{one.acceptance_percent} % of drafted tokens accepted")
    if one.tokens_per_step is not None:
        parts.append(f"{one.tokens_per_step} tokens a decode step{_needed(one.break_even)}")
    if one.evidence is not None:
        seen = one.evidence
        direction = "back on" if one.pool == BASELINE_POOL else "off"
        parts.append(
            f"evidence towards {direction}: {seen.score} of {seen.threshold} on line {seen.line}, "
            f"{seen.requests} request(s)"
        )
        if seen.coverage_percent is not None:
            parts.append(f"{seen.coverage_percent} % of answers carried figures")
    told = "; ".join(parts)
    return told[:1].upper() + told[1:] + "." if told else ""


def _needed(line: BreakEvenStatus | None) -> str:
    if line is None or line.tokens_per_step is None:
        return ""
    return f" ({line.tokens_per_step} {'expected, not measured yet' if line.state == 'Prior' else 'needed'})"


def _reported(one: RouteStatus, now: float) -> RouteStatus:
    """`one` with its report as of now: status is written when the report changes, and the share of time moves on."""
    report = None if one.report is None else report_of(one.report)
    if one.report is None or report is None:
        return one
    served: Pool = "baseline" if one.pool == BASELINE_POOL else "speculative"
    update = {"off_percent": report.off_percent(now), "message": sentence(report, served, now)}
    return one.model_copy(update={"report": one.report.model_copy(update=update)})


def _how_to_enforce(meta: Mapping[str, Any], spec: Mapping[str, Any]) -> Iterator[str]:
    external = (spec.get("pools") or {}).get("external")
    if external is not None and len(external) < 2:
        yield "To let it act, name a second Service under spec.pools.external, then set policy.enforcement: Enforce."
        return
    patch = '{"spec":{"policy":{"enforcement":"Enforce"}}}'
    yield "One field lets it act, spec.policy.enforcement:"
    yield f"  kubectl patch specdeployment {meta['name']} -n {meta['namespace']} --type merge -p '{patch}'"


def _condition(status: SpecDeploymentStatus, kind: str) -> Condition | None:
    return next((condition for condition in status.conditions if condition.type == kind), None)


def _end(sentence: str) -> NoReturn:
    typer.echo(f"specfleet explain: {sentence}", err=True)
    raise typer.Exit(1)

"""From a SpecDeployment and its weights to what the routers are to do. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

from specfleet.api.base import quantity_bytes
from specfleet.api.names import BASELINE_POOL, pool_object
from specfleet.api.v1alpha1 import Initial, Route, RouteMatch, SpecDeployment, Speculation
from specfleet.engines.protocol import EngineFacts
from specfleet.engines.registry import engine_module
from specfleet.render.meta import content_hash
from specfleet.routing.clusters import clusters
from specfleet.routing.plan import Match, PoolPlan, RoutePlan, RouterPlan
from specfleet.routing.table import route_table

ROUTER_REPLICAS = 2


def initial_weights(deployment: SpecDeployment) -> dict[str, int]:
    """Each route's share of speculation, in percent, before any decision: its override, else `policy.initial`."""
    start = 100 if deployment.spec.policy.initial is Initial.SPECULATIVE else 0
    by_override = {Speculation.ALWAYS: 100, Speculation.NEVER: 0, Speculation.AUTO: start}
    return {route.name: by_override[route.speculation] for route in deployment.spec.routing.routes}


def requests_per_router(max_sequences: int, replicas: int) -> int:
    """Requests in flight that one router lets through to a pool: the fleet's sequences over the routers, rounded up."""
    return -(-max_sequences * replicas // ROUTER_REPLICAS)


def router_plan(deployment: SpecDeployment, weights: Mapping[str, int]) -> RouterPlan:
    """The plan for these weights (route -> percent of speculation; a route that is missing gets its initial share).

    Its version is a hash of all that the routers read, so equal tables have equal versions.

    Raises:
        ValueError: the object has errors, or a weight is out of range.
    """
    spec = deployment.spec
    facts = engine_module(spec.engine.type).facts(deployment, speculative=True)
    shares = initial_weights(deployment) | dict(weights)
    plan = RouterPlan(
        deployment=deployment.name,
        namespace=deployment.namespace,
        version="",
        baseline=_pool(deployment, BASELINE_POOL, facts),
        speculative=_pool(deployment, spec.draft.name, facts),
        routes=tuple(_route(route, shares[route.name]) for route in spec.routing.routes),
        served_name=deployment.served_name,
        refused_fields=facts.refused_fields,
        max_request_bytes=quantity_bytes(spec.routing.max_request_bytes),
        tenant_header=spec.routing.tenant_header,
    )
    return replace(plan, version=content_hash(json.dumps([clusters(plan), route_table(plan)])))


def _pool(deployment: SpecDeployment, pool: str, facts: EngineFacts) -> PoolPlan:
    # The short name is the first that the resolver tries; a longer one costs the cluster's DNS three look-ups each.
    return PoolPlan(
        name=pool,
        host=pool_object(deployment.name, pool),
        port=facts.port,
        health_path=facts.health_path,
        max_requests=requests_per_router(facts.max_sequences, deployment.spec.pools.size),
        revision=deployment.spec.rendered_target.revision or "",
    )


def _route(route: Route, speculative_percent: int) -> RoutePlan:
    # A route that is to leave speculation, and waits for room in baseline, still has its share.
    never = route.speculation is Speculation.NEVER and speculative_percent == 0
    return RoutePlan(
        name=route.name,
        matches=tuple(_match(match) for match in route.match),
        speculative_percent=speculative_percent,
        never_speculative=never,
    )


def _match(match: RouteMatch) -> Match:
    header = match.header
    return Match(
        header=(header.name.lower(), header.value) if header is not None else None,
        model=match.model,
        response_format=tuple(match.response_format or ()),
        tools=match.tools,
    )

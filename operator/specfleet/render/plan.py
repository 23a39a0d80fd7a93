"""From a SpecDeployment and its weights to what the routers are to do. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from specfleet.api.base import quantity_bytes
from specfleet.api.names import BASELINE_POOL, pool_object
from specfleet.api.v1alpha1 import External, Initial, Route, RouteMatch, Routing, SpecDeployment, Speculation
from specfleet.engines.external import ExternalPool, ExternalPools, undiscovered
from specfleet.engines.protocol import EngineFacts
from specfleet.engines.registry import engine_module
from specfleet.engines.release import parse_version
from specfleet.engines.running import IDLE_SECONDS, running_engine
from specfleet.render.meta import content_hash
from specfleet.routing import process
from specfleet.routing.clusters import UNLIMITED, clusters
from specfleet.routing.plan import Match, PoolPlan, RoutePlan, RouterPlan
from specfleet.routing.table import route_table

ROUTER_REPLICAS = 2


def initial_weights(deployment: SpecDeployment) -> dict[str, int]:
    """Each route's share of speculation, in percent, before any decision: its override, else `policy.initial`.

    Where there is only one External pool, that one has everything.
    """
    external = deployment.spec.external
    if external is not None and (external.baseline is None or external.speculative is None):
        whole = 100 if external.baseline is None else 0
        return {route.name: whole for route in deployment.spec.routing.routes}
    start = 100 if deployment.spec.policy.initial is Initial.SPECULATIVE else 0
    by_override = {Speculation.ALWAYS: 100, Speculation.NEVER: 0, Speculation.AUTO: start}
    return {route.name: by_override[route.speculation] for route in deployment.spec.routing.routes}


def requests_per_router(max_sequences: int, replicas: int, routers: int = ROUTER_REPLICAS) -> int:
    """Requests in flight that one router lets through to a pool: the fleet's sequences over the routers, rounded up."""
    return -(-max_sequences * replicas // routers)


def router_plan(
    deployment: SpecDeployment,
    weights: Mapping[str, int],
    external: ExternalPools | None = None,
    routers: int = ROUTER_REPLICAS,
    earlier: str | None = None,
    *,
    sequences: Mapping[str, int] = MappingProxyType({}),
) -> RouterPlan:
    """The plan for these weights (route -> percent of speculation; a route that is missing gets its initial share).

    Its version is a hash of all that the routers read, so equal tables have equal versions.

    Args:
        external: what is known of External pools, by name; None or a missing one: only what the object says.
        routers: how many routers there are to be.
        earlier: the engine's release that some pods may still run; what is asked and sent then suits both.
        sequences: that a pod has room for, by pool, where that is planned; no more are let through.

    Raises:
        ValueError: the object has errors, or a weight is out of range.
    """
    if deployment.spec.external is not None:
        plan = _external_plan(deployment, weights, external or {})
    else:
        plan = _split_plan(deployment, weights, routers, sequences)
        if earlier is not None:
            plan = _for_both(plan, deployment, earlier)
    return replace(plan, version=content_hash(json.dumps([clusters(plan), route_table(plan)])))


def _split_plan(
    deployment: SpecDeployment, weights: Mapping[str, int], routers: int, sequences: Mapping[str, int]
) -> RouterPlan:
    spec = deployment.spec
    facts = engine_module(spec.engine.type).facts(deployment, speculative=True)
    shares = initial_weights(deployment) | dict(weights)
    return RouterPlan(
        deployment=deployment.name,
        namespace=deployment.namespace,
        version="",
        baseline=_pool(deployment, BASELINE_POOL, facts, routers, sequences),
        speculative=_pool(deployment, spec.draft.name, facts, routers, sequences),
        routes=tuple(_route(route, shares[route.name]) for route in spec.routing.routes),
        served_name=deployment.served_name,
        refused_fields=facts.refused_fields,
        route_label=facts.route_label,
        max_request_bytes=quantity_bytes(spec.routing.max_request_bytes),
        tenant_header=spec.routing.tenant_header,
        affinity_header=spec.routing.affinity.header if spec.routing.affinity is not None else None,
        prompt_key=_prompt_key(spec.routing),
    )


def _for_both(plan: RouterPlan, deployment: SpecDeployment, earlier: str) -> RouterPlan:
    """The plan while pods of two releases run: a health check that both answer, and no field that either refuses.

    A release answers the health check of an older one, not the other way round.
    """
    spec = deployment.spec
    update: dict[str, Any] = {"version": earlier, "image": None, "args": {}, "extra_args": []}
    other = deployment.model_copy(
        update={"spec": spec.model_copy(update={"engine": spec.engine.model_copy(update=update)})}
    )
    module = engine_module(spec.engine.type)
    then, now = parse_version(earlier), parse_version(module.facts(deployment, speculative=False).release)
    if then is not None and now is not None and then < now:
        path = module.facts(other, speculative=False).health_path
        baseline, speculative = (replace(pool, health_path=path) for pool in (plan.baseline, plan.speculative))
        plan = replace(plan, baseline=baseline, speculative=speculative)
    try:
        refused = module.facts(other, speculative=True).refused_fields
    except ValueError:
        refused = ()  # the draft that the spec has now is none that the release before could use
    return replace(plan, refused_fields=tuple(dict.fromkeys((*plan.refused_fields, *refused))))


def _pool(
    deployment: SpecDeployment, pool: str, facts: EngineFacts, routers: int, sequences: Mapping[str, int]
) -> PoolPlan:
    running = min(facts.max_sequences, sequences.get(pool, facts.max_sequences))
    # The short name is the first that the resolver tries; a longer one costs the cluster's DNS three look-ups each.
    return PoolPlan(
        name=pool,
        host=pool_object(deployment.name, pool),
        port=facts.port,
        health_path=facts.health_path,
        max_requests=requests_per_router(running, deployment.spec.pools.size, routers),
        revision=deployment.spec.rendered_target.revision or "",
        idle_seconds=facts.idle_seconds,
    )


def _external_plan(deployment: SpecDeployment, weights: Mapping[str, int], known: ExternalPools) -> RouterPlan:
    spec = deployment.spec
    assert spec.external is not None
    pools = _sides(spec.external, spec.draft.name, known)
    limit = external_limit(pool for pool in pools.values() if pool is not None)
    baseline, speculative = (
        _external_pool(deployment, name, pools[name], limit) for name in (BASELINE_POOL, spec.draft.name)
    )
    both = baseline.host is not None and speculative.host is not None
    shares = initial_weights(deployment) | (dict(weights) if both else {})
    speculating = pools[spec.draft.name]
    release = spec.engine.version if speculating is None else speculating.release or spec.engine.version
    return RouterPlan(
        deployment=deployment.name,
        namespace=deployment.namespace,
        version="",
        baseline=baseline,
        speculative=speculative,
        routes=tuple(_route(route, shares[route.name], both=both) for route in spec.routing.routes),
        served_name=deployment.served_name,
        refused_fields=running_engine(spec.engine.type, release).refused_fields,
        max_request_bytes=quantity_bytes(spec.routing.max_request_bytes),
        tenant_header=spec.routing.tenant_header,
        affinity_header=spec.routing.affinity.header if spec.routing.affinity is not None else None,
        prompt_key=_prompt_key(spec.routing),
    )


def _prompt_key(routing: Routing) -> str | None:
    if routing.prompt_hash is None:
        return None
    return f"{process.PROMPT_KEY_DIR}/{process.PROMPT_KEY_FILE}"


def _sides(external: External, draft: str, known: ExternalPools) -> dict[str, ExternalPool | None]:
    asked = {BASELINE_POOL: external.baseline, draft: external.speculative}
    return {
        name: None if side is None else known.get(name) or undiscovered(name, side.service, side.port)
        for name, side in asked.items()
    }


def external_limit(pools: Iterable[ExternalPool]) -> int:
    """Requests in flight that each router lets through to an External pool: the sequences of all pods of all pools.

    One router has to be able to carry everything, and pods may be added while the operator is away: what is too much
    for a pool waits in its engines, as it did before. Rounded up to a power of two, so that a pod more or less, as in
    every rollout, gives the routers no new clusters. No limit where it is not known what a pod runs at once.
    """
    total = 0
    for pool in pools:
        if pool.max_sequences is None:
            return UNLIMITED
        total += pool.max_sequences * len(pool.pods)
    return min(1 << (total - 1).bit_length(), UNLIMITED) if total else UNLIMITED


def _external_pool(deployment: SpecDeployment, name: str, pool: ExternalPool | None, limit: int) -> PoolPlan:
    spec = deployment.spec
    release = None if pool is None else pool.release
    engine = running_engine(spec.engine.type, release or spec.engine.version)
    return PoolPlan(
        name=name,
        # The short name, as for rendered pools: a Service of that name in the router's own namespace.
        host=None if pool is None else pool.service,
        port=0 if pool is None else pool.port,
        health_path=engine.health_path,
        max_requests=limit,
        revision=(spec.target.revision if spec.target is not None else None) or "",
        idle_seconds=IDLE_SECONDS,
        one_address=pool is not None and not pool.headless,
        also_healthy=engine.also_healthy,
    )


def _route(route: Route, speculative_percent: int, *, both: bool = True) -> RoutePlan:
    # A route that is to leave speculation, and waits for room in baseline, still has its share.
    never = both and route.speculation is Speculation.NEVER and speculative_percent == 0
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

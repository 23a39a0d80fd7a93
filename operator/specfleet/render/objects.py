"""Everything that is in the cluster for one SpecDeployment, as data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from specfleet.api.names import BASELINE_POOL
from specfleet.api.v1alpha1 import SpecDeployment
from specfleet.engines.external import ExternalPools
from specfleet.engines.protocol import EngineFacts
from specfleet.engines.registry import engine_module
from specfleet.render.account import service_account
from specfleet.render.disruption import pool_budget, router_budget
from specfleet.render.engine import engine_deployment
from specfleet.render.engine_files import files_config_map
from specfleet.render.meta import Manifest, OwnerRef
from specfleet.render.monitor import pod_monitor
from specfleet.render.plan import router_plan
from specfleet.render.router import bootstrap_config_map, router_deployment, routes_config_map
from specfleet.render.services import endpoint_service, pool_service
from specfleet.render.start import USUAL_START, Starts
from specfleet.settings import OperatorSettings


def render_all(
    deployment: SpecDeployment,
    settings: OperatorSettings,
    weights: Mapping[str, int] | None = None,
    owner: OwnerRef | None = None,
    *,
    with_pod_monitor: bool = False,
    external: ExternalPools | None = None,
    sequences: Mapping[str, int] = MappingProxyType({}),
    earlier: str | None = None,
    starts: Starts = MappingProxyType({}),
) -> list[Manifest]:
    """All objects, in the order of writing: what pods mount or name comes before the pods.

    For External pools that is the router and what belongs to it.

    Args:
        weights: percent of speculation by route; a route that is missing gets its initial share.
        owner: the object that they belong to; None leaves the references out.
        with_pod_monitor: whether the cluster has the kind PodMonitor.
        external, earlier, sequences: what is known of External pools, the engine's release before, and what pods have
            room for; see `router_plan`.

    Raises:
        ValueError: the object has errors; `specfleet.render.validate` says which.
    """
    pools = _rendered_pools(deployment, settings)
    plan = router_plan(deployment, weights or {}, external, settings.router.replicas, earlier, sequences=sequences)
    objects = [
        service_account(deployment, owner),
        bootstrap_config_map(deployment, owner),
        routes_config_map(deployment, plan, owner),
        *(files_config_map(deployment, pool, facts, owner) for pool, facts in pools.items() if facts.files),
        *(pool_service(deployment, pool, facts, owner) for pool, facts in pools.items()),
        endpoint_service(deployment, owner),
        *(pool_budget(deployment, pool, owner) for pool in pools),
        router_budget(deployment, owner),
        *(
            engine_deployment(deployment, pool, facts, owner, starts.get(pool, USUAL_START))
            for pool, facts in pools.items()
        ),
        router_deployment(deployment, settings, owner),
    ]
    if with_pod_monitor:
        objects.append(pod_monitor(deployment, settings, owner))
    return objects


def pool_deployments(deployment: SpecDeployment, settings: OperatorSettings) -> dict[str, Manifest]:
    """The Deployments of the pools that specfleet runs, by the pool's name, without owner references."""
    pools = _rendered_pools(deployment, settings)
    return {pool: engine_deployment(deployment, pool, facts, None) for pool, facts in pools.items()}


def _rendered_pools(deployment: SpecDeployment, settings: OperatorSettings) -> dict[str, EngineFacts]:
    """Facts of the pools that specfleet runs, by name; none where they are External."""
    if deployment.spec.external is not None:
        return {}
    engine = engine_module(deployment.spec.engine.type)
    pools = {
        BASELINE_POOL: engine.facts(deployment, speculative=False),
        deployment.spec.draft.name: engine.facts(deployment, speculative=True),
    }
    return {name: _mirrored(deployment, facts, settings) for name, facts in pools.items()}


def _mirrored(deployment: SpecDeployment, facts: EngineFacts, settings: OperatorSettings) -> EngineFacts:
    """The facts with the administrator's repository for the public one; an image that the object names stays."""
    repository = {str(name): given for name, given in settings.engine_images.items()}.get(deployment.spec.engine.type)
    if repository is None or deployment.spec.engine.image is not None:
        return facts
    return replace(facts, image=f"{repository}:{facts.image.rpartition(':')[2]}")

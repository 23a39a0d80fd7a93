"""Validation and rendering as the reconcile uses them, under one operator's settings. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from specfleet.api.findings import Finding, Severity
from specfleet.api.models import Preflight
from specfleet.api.names import (
    ANNOTATION_RUNS,
    ANNOTATION_START,
    ANNOTATION_TEMPLATE,
    BASELINE_POOL,
    LABEL_POOL,
    pool_object,
)
from specfleet.api.v1alpha1 import Metadata, SpecDeployment, SpecDeploymentSpec
from specfleet.cluster.applied import digest
from specfleet.engines.external import ExternalPools
from specfleet.engines.registry import engine_module
from specfleet.handlers.rendering import Checked, Rendered, WantedPool
from specfleet.preflight.request import PreflightRequest, preflight_request
from specfleet.render.engine import surging
from specfleet.render.external_findings import external_findings
from specfleet.render.meta import Manifest
from specfleet.render.objects import pool_deployments, render_all
from specfleet.render.plan import router_plan
from specfleet.render.preflight import preflight_job
from specfleet.render.start import Starts
from specfleet.render.upgrade import pool_facts
from specfleet.render.validate import validate_document
from specfleet.settings import OperatorSettings


class SpecRenderer:
    """A `Renderer` over `specfleet.render`."""

    def __init__(self, settings: OperatorSettings) -> None:
        self._settings = settings
        self._pod_monitors = settings.pod_monitor.enabled is True

    @property
    def routers(self) -> int:
        """Router pods of each SpecDeployment."""
        return self._settings.router.replicas

    @property
    def preflight_seconds(self) -> float:
        """How long a preflight may take."""
        return float(self._settings.preflight_seconds)

    def use_pod_monitors(self, there: bool) -> None:
        """Render a PodMonitor from now on, or none, as the cluster has the kind and the settings want it."""
        wanted = self._settings.pod_monitor.enabled
        self._pod_monitors = there if wanted == "auto" else wanted

    def check(self, body: Mapping[str, Any]) -> Checked:
        """Read and validate; what the API server should have refused is found here as well."""
        deployment, found = validate_document(body, self._settings)
        refused = tuple(one for one in found if one.severity is Severity.ERROR)
        warnings = tuple(one for one in found if one.severity is not Severity.ERROR)
        spec = deployment.spec if deployment is not None else None
        if deployment is None or refused:
            return Checked(spec, refused, warnings)
        wanted = deployment.spec.draft.preflight is not Preflight.SKIP
        request = preflight_request(deployment) if wanted else None
        breakers = _breakers(deployment, self.routers)
        if deployment.spec.external is not None:
            return Checked(spec, (), warnings, breakers, request)
        usual = engine_module(deployment.spec.engine.type).facts(deployment, speculative=False).startup.longest_seconds
        return Checked(spec, (), warnings, breakers, request, self._wanted(deployment), usual)

    def render(
        self,
        body: Mapping[str, Any],
        spec: SpecDeploymentSpec,
        percents: Mapping[str, int],
        external: ExternalPools | None = None,
        *,
        preflight: PreflightRequest | None = None,
        held: bool = False,
        sequences: Mapping[str, int] = MappingProxyType({}),
        alone: bool = False,
        earlier: str | None = None,
        starts: Starts = MappingProxyType({}),
    ) -> Rendered:
        """All objects with these weights. `spec` is that of `body`, read before.

        `sequences`: that a pod has room for, by pool; the routers let through no more.

        `preflight`: with the Job that compares this. `held`: without the Deployment of the speculative pool; `alone`:
        there is none, so that baseline has its room. `earlier`: the engine's release that pods may still run. `starts`:
        how long pods may take to start.
        """
        deployment = _deployment(body, spec)
        objects = render_all(
            deployment,
            self._settings,
            percents,
            with_pod_monitor=self._pod_monitors,
            external=external,
            earlier=earlier,
            starts=starts,
            sequences=sequences,
        )
        if spec.external is None:
            wanted = self._wanted(deployment)
            objects = [_noted(one, wanted, starts, alone=alone) for one in objects]
        if held:
            name = pool_object(deployment.name, spec.draft.name)
            objects = [one for one in objects if (one["kind"], one["metadata"]["name"]) != ("Deployment", name)]
        if preflight is not None:
            facts = engine_module(spec.engine.type).facts(deployment, speculative=True)
            objects.append(preflight_job(deployment, preflight, facts, self._settings, None))
        plan = router_plan(deployment, percents, external, self.routers, earlier, sequences=sequences)
        return Rendered(tuple(objects), plan.version)

    def template(self, body: Mapping[str, Any], spec: SpecDeploymentSpec, pool: str) -> Mapping[str, Any]:
        """The pod template of one pool."""
        template: Manifest = pool_deployments(_deployment(body, spec), self._settings)[pool]["spec"]["template"]
        return template

    def _wanted(self, deployment: SpecDeployment) -> Mapping[str, WantedPool]:
        return {
            pool: WantedPool(digest(manifest["spec"]["template"]), _runs(deployment, pool))
            for pool, manifest in pool_deployments(deployment, self._settings).items()
        }

    def check_external(
        self, body: Mapping[str, Any], spec: SpecDeploymentSpec, external: ExternalPools
    ) -> tuple[Finding, ...]:
        """What the pods of External pools do not have in common with each other or with the SpecDeployment."""
        return tuple(external_findings(_deployment(body, spec), external))


def _deployment(body: Mapping[str, Any], spec: SpecDeploymentSpec) -> SpecDeployment:
    return SpecDeployment(metadata=Metadata.model_validate(body["metadata"]), spec=spec)


def _runs(deployment: SpecDeployment, pool: str) -> str:
    release = engine_module(deployment.spec.engine.type).facts(deployment, speculative=pool != BASELINE_POOL).release
    return json.dumps(pool_facts(deployment, pool, release), separators=(",", ":"), sort_keys=True)


def _noted(manifest: Manifest, wanted: Mapping[str, WantedPool], starts: Starts, *, alone: bool) -> Manifest:
    """A pool's Deployment with what the next upgrade is told by; `alone`, rolled without a pod less."""
    pool = manifest["metadata"]["labels"].get(LABEL_POOL)
    if manifest["kind"] != "Deployment" or pool is None:
        return manifest
    # How long pods may take to start is no change that they would be rolled for.
    notes = {ANNOTATION_TEMPLATE: wanted[pool].template, ANNOTATION_RUNS: wanted[pool].runs}
    if pool in starts and starts[pool].probe_seconds:
        notes[ANNOTATION_START] = str(starts[pool].probe_seconds)
    meta = manifest["metadata"]
    noted = {**manifest, "metadata": {**meta, "annotations": {**meta.get("annotations", {}), **notes}}}
    return surging(noted) if alone and pool == BASELINE_POOL else noted


def _breakers(deployment: SpecDeployment, routers: int) -> Mapping[str, int]:
    if deployment.spec.external is not None:
        return {}  # what they carry is seen in the cluster
    plan = router_plan(deployment, {}, routers=routers)
    return {pool.name: pool.max_requests for pool in (plan.baseline, plan.speculative)}

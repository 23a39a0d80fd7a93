"""Validation and rendering as the reconcile uses them, under one operator's settings. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from specfleet.api.findings import Severity
from specfleet.api.v1alpha1 import Metadata, SpecDeployment, SpecDeploymentSpec
from specfleet.handlers.rendering import Checked, Rendered
from specfleet.render.objects import render_all
from specfleet.render.plan import router_plan
from specfleet.render.validate import validate_document
from specfleet.settings import OperatorSettings


class SpecRenderer:
    """A `Renderer` over `specfleet.render`."""

    def __init__(self, settings: OperatorSettings) -> None:
        self._settings = settings

    def check(self, body: Mapping[str, Any]) -> Checked:
        """Read and validate; what the API server should have refused is found here as well."""
        deployment, found = validate_document(body, self._settings)
        refused = tuple(one for one in found if one.severity is Severity.ERROR)
        warnings = tuple(one for one in found if one.severity is not Severity.ERROR)
        spec = deployment.spec if deployment is not None else None
        if deployment is None or refused:
            return Checked(spec, refused, warnings)
        return Checked(spec, (), warnings, _breakers(deployment))

    def render(self, body: Mapping[str, Any], spec: SpecDeploymentSpec, percents: Mapping[str, int]) -> Rendered:
        """All objects with these weights. `spec` is that of `body`, read before."""
        deployment = SpecDeployment(metadata=Metadata.model_validate(body["metadata"]), spec=spec)
        objects = render_all(deployment, self._settings, percents)
        return Rendered(tuple(objects), router_plan(deployment, percents).version)


def _breakers(deployment: SpecDeployment) -> Mapping[str, int]:
    plan = router_plan(deployment, {})
    return {pool.name: pool.max_requests for pool in (plan.baseline, plan.speculative)}

"""Validation and rendering as the reconcile uses them, under one operator's settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

from specfleet.api.findings import Finding, FindingReason, Severity, error
from specfleet.api.v1alpha1 import Metadata, SpecDeployment, SpecDeploymentSpec
from specfleet.engines.registry import engine_module
from specfleet.handlers.rendering import Checked, Rendered
from specfleet.render.objects import render_all
from specfleet.render.plan import router_plan
from specfleet.settings import OperatorSettings


class SpecRenderer:
    """A `Renderer` over `specfleet.render`."""

    def __init__(self, settings: OperatorSettings) -> None:
        self._settings = settings

    def check(self, body: Mapping[str, Any]) -> Checked:
        """Read and validate; what the API server should have refused is found here as well."""
        try:
            deployment = SpecDeployment.parse(body)
        except ValidationError as problems:
            return Checked(None, tuple(_finding(problem) for problem in problems.errors()))
        found = engine_module(deployment.spec.engine.type).check(deployment)
        refused = tuple(one for one in found if one.severity is Severity.ERROR)
        warnings = tuple(one for one in found if one.severity is not Severity.ERROR)
        if refused:
            return Checked(deployment.spec, refused, warnings)
        return Checked(deployment.spec, (), warnings, _breakers(deployment))

    def render(self, body: Mapping[str, Any], spec: SpecDeploymentSpec, percents: Mapping[str, int]) -> Rendered:
        """All objects with these weights. `spec` is that of `body`, read before."""
        deployment = SpecDeployment(metadata=Metadata.model_validate(body["metadata"]), spec=spec)
        objects = render_all(deployment, self._settings, percents)
        return Rendered(tuple(objects), router_plan(deployment, percents).version)


def _breakers(deployment: SpecDeployment) -> Mapping[str, int]:
    plan = router_plan(deployment, {})
    return {pool.name: pool.max_requests for pool in (plan.baseline, plan.speculative)}


def _finding(problem: Mapping[str, Any]) -> Finding:
    path = re.sub(r"\.(\d+)", r"[\1]", ".".join(str(part) for part in problem["loc"]))
    unknown = problem["type"] == "extra_forbidden"
    return error(FindingReason.UNKNOWN_FIELD if unknown else FindingReason.INVALID_VALUE, path, str(problem["msg"]))

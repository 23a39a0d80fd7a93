"""What the reconcile needs of validation and rendering, as one small interface. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from specfleet.api.findings import Finding
from specfleet.api.v1alpha1 import SpecDeploymentSpec
from specfleet.engines.external import ExternalPools
from specfleet.preflight.request import PreflightRequest
from specfleet.render.start import Starts


@dataclass(frozen=True)
class WantedPool:
    """A pool as the spec has it: the hash of its pod template, and what its pods are made from, as JSON."""

    template: str
    runs: str


@dataclass(frozen=True)
class Checked:
    """A SpecDeployment read and validated; `spec` is None where `errors` says why.

    `breakers` are the requests in flight that one router lets through, by pool; `preflight` is what is to be compared
    before the speculative pool is made, None where nothing is; `pools` are those that specfleet runs, by name, and
    `usual_start_seconds` is what their pods get to start.
    """

    spec: SpecDeploymentSpec | None
    errors: tuple[Finding, ...] = ()
    warnings: tuple[Finding, ...] = ()
    breakers: Mapping[str, int] = field(default_factory=dict)
    preflight: PreflightRequest | None = None
    pools: Mapping[str, WantedPool] = field(default_factory=dict)
    usual_start_seconds: int = 0


@dataclass(frozen=True)
class Rendered:
    """All objects of one SpecDeployment, without owner references, and the version of its routes file."""

    objects: tuple[Mapping[str, Any], ...]
    routes_version: str


class Renderer(Protocol):
    """Validation and rendering under one operator's settings."""

    @property
    def routers(self) -> int:
        """Router pods of each SpecDeployment."""

    @property
    def preflight_seconds(self) -> float:
        """How long a preflight may take."""

    def use_pod_monitors(self, there: bool) -> None:
        """Render a PodMonitor from now on, or none, as the cluster has the kind and the settings want it."""

    def check(self, body: Mapping[str, Any]) -> Checked:
        """Read and validate a SpecDeployment; never raises."""

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
        """All objects, with `percents` of each route's traffic going to speculation; `external` pools as seen.

        `sequences`: that a pod has room for, by pool; the routers let through no more.

        `preflight`: with the Job that compares this. `held`: without the Deployment of the speculative pool; `alone`:
        there is none, so that baseline has its room. `earlier`: the engine's release that pods may still run. `starts`:
        how long pods may take to start.
        """

    def template(self, body: Mapping[str, Any], spec: SpecDeploymentSpec, pool: str) -> Mapping[str, Any]:
        """The pod template of one pool."""

    def check_external(
        self, body: Mapping[str, Any], spec: SpecDeploymentSpec, external: ExternalPools
    ) -> tuple[Finding, ...]:
        """What the pods of External pools do not have in common with each other or with the SpecDeployment."""

"""SpecDeployment v1alpha1: what the operator answers (`status`)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from specfleet.api.base import Model, Percent


class Condition(Model):
    """A metav1.Condition. `lastTransitionTime` is RFC 3339, whole seconds."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str
    last_transition_time: str
    observed_generation: int


class Summary(Model):
    """One line for `kubectl get`."""

    mode: str
    acceptance: str


class PoolStatus(Model):
    """Replicas of one pool."""

    name: str
    desired: int
    ready: int


class Percentages(Model):
    """Share of a route's traffic for speculation: meant, and served by every router (absent: unknown)."""

    intended: Percent
    served: Percent | None = None


class BreakEvenStatus(Model):
    """The line in force."""

    tokens_per_step: str
    state: Literal["Fixed"]


class EvidenceStatus(Model):
    """How sure the operator is. At `score` >= `threshold` the route switches."""

    line: Literal["Acceptance", "BreakEven"]
    score: str
    threshold: str
    requests: int
    coverage_percent: Percent | None = None


class Switch(Model):
    """One entry of the history."""

    at: str
    pool: str
    reason: str
    message: str


class RouteStatus(Model):
    """Where a route is served, and why."""

    name: str
    pool: str
    phase: Literal["Settled", "Moving", "Exploring", "Held"]
    reason: str
    message: str
    speculative_percent: Percentages
    acceptance_percent: Percent | None = None
    tokens_per_step: str | None = None
    break_even: BreakEvenStatus | None = None
    evidence: EvidenceStatus | None = None
    since: str
    history: Annotated[list[Switch], Field(max_length=10)] = Field(default_factory=list)
    state: str = ""


class SpecDeploymentStatus(Model):
    """The observed state. `observedGeneration` is -1 until the object has been seen."""

    observed_generation: int = -1
    conditions: Annotated[list[Condition], Field(max_length=16)] = Field(
        default_factory=list,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
    )
    endpoint: str | None = None
    summary: Summary | None = None
    attribution: Literal["Router"] | None = None
    routes_version: str | None = None
    pools: Annotated[list[PoolStatus], Field(max_length=4)] = Field(
        default_factory=list,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )
    routes: Annotated[list[RouteStatus], Field(max_length=32)] = Field(
        default_factory=list,
        json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    )

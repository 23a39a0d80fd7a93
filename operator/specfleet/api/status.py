"""SpecDeployment v1alpha1: what the operator answers (`status`)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from specfleet.api.base import DecimalText, Model, Percent


def _map_by(key: str) -> dict[str, Any]:
    return {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}


class Condition(Model):
    """A metav1.Condition."""

    type: str = Field(description="What the condition is about.")
    status: Literal["True", "False", "Unknown"] = Field(description="Whether it holds.")
    reason: str = Field(description="A stable CamelCase name of why.")
    message: str = Field(description="One sentence for people.")
    last_transition_time: str = Field(description="When status last changed, RFC 3339, whole seconds.")
    observed_generation: int = Field(description="Generation of the spec that this is about.")


class Summary(Model):
    """One line for `kubectl get`."""

    mode: str = Field(description='How many routes are served with speculation, such as "2/3 speculative".')
    acceptance: str = Field(description="Accepted over drafted tokens of all routes, in percent.")


class PoolStatus(Model):
    """Replicas of one pool."""

    name: str = Field(description="baseline; the draft's name, or speculative where External pools declare no draft.")
    desired: int = Field(description="Engine pods that the pool should have.")
    ready: int = Field(description="Engine pods that are ready.")
    release: str | None = Field(None, description="The engine's release, as far as it is known.")
    source: Literal["Rendered", "External"] | None = Field(
        None, description="Rendered: specfleet runs the pods. External: somebody else does."
    )


class Percentages(Model):
    """A route's share of speculation."""

    intended: Percent = Field(description="What was decided.")
    served: Percent | None = Field(None, description="What every router reports; absent while it is unknown.")


class Range(Model):
    """Two figures, as decimal text."""

    low: str = Field(description="The lower one.")
    high: str = Field(description="The higher one.")


class BreakEvenStatus(Model):
    """The break-even line in force, and with source Measured how it was found."""

    tokens_per_step: str | None = Field(
        None,
        description="Tokens per decode step above which speculation pays, as decisions take it: once known it follows "
        "`measured` by 5 % an hour. Absent while nothing is known.",
    )
    state: Literal["Fixed", "Known", "Extrapolated", "Prior"] = Field(
        description="Fixed: by the spec. Known: both pools were seen at this batch; only then it switches a route off. "
        "Extrapolated: one of them was not; `measured` is then the cautious end of the interval, or for a route "
        "that is off the lower end of one so wide that only trying tells. Prior: not measured yet."
    )
    measured: str | None = Field(None, description="What it is at `batch`, as of the last write of this status.")
    interval: Range | None = Field(None, description="95 % interval of `measured`.")
    batch: str | None = Field(None, description="Running requests per replica at which it was read.")
    reach: Range | None = Field(None, description="Running requests per replica at which both pools were seen.")
    at: str | None = Field(None, description="When the pool that was measured longer ago was measured, RFC 3339.")


class EvidenceStatus(Model):
    """How sure the operator is. At `score` >= `threshold` the route switches."""

    line: Literal["Acceptance", "BreakEven"] = Field(description="The line that is nearest to a switch.")
    score: str = Field(description="Evidence gathered for a switch.")
    threshold: str = Field(description="Evidence that a switch needs.")
    requests: int = Field(description="Finished requests behind the evidence.")
    coverage_percent: Percent | None = Field(
        None, description="Share of the route's output that carried acceptance figures."
    )


class Switch(Model):
    """One entry of the history."""

    at: str = Field(description="When, RFC 3339.")
    pool: str = Field(description="The pool that the route went to.")
    reason: str = Field(description="A stable CamelCase name of why.")
    message: str = Field(description="Why, in one sentence with figures.")


class RouteReport(Model):
    """Under `enforcement: Observe`: what the rule would have done. Changes when the rule changes its mind."""

    since: str = Field(description="From when on it is told, RFC 3339; other lines in the policy begin a new report.")
    policy: Annotated[str, Field(max_length=128)] = Field(description="The lines that the route was judged by.")
    would_be: str = Field(description="The pool that the rule would have the route served by.")
    would_have_switched_at: str | None = Field(
        None, description="When it would have gone there, RFC 3339; absent where it would have been there all the time."
    )
    switches: Annotated[int, Field(ge=0)] = Field(0, description="How often the route would have switched.")
    earlier_off_seconds: Annotated[int, Field(ge=0)] = Field(
        0, description="Time without speculation that it would have had before the last switch."
    )
    off_percent: Percent = Field(
        description="Share of the time since `since` without speculation, as of the last write of this status."
    )
    message: str = Field(description="The same in one sentence, as of the last write of this status.")


class ByHandStatus(Model):
    """What a person has said of a route for a while, beside the spec (`specfleet off` and `on`)."""

    speculation: Literal["off", "on"] = Field(description="How the route is to be served.")
    until: str = Field(description="When that ends by itself, RFC 3339.")
    reason: str = Field(description="Why, in that person's words.")


class RouteStatus(Model):
    """Where a route is served, and why."""

    name: str = Field(description="The route.")
    pool: str = Field(description="The pool that serves it.")
    phase: Literal["Settled", "Moving", "Exploring", "Held"] = Field(
        description="Settled; Moving: a switch is under way; Exploring: off, and a share of traffic goes on looking; "
        "Held: no decision is made now."
    )
    reason: str = Field(description="A stable CamelCase name of why it is there.")
    message: str = Field(description="Why, in one sentence with figures.")
    speculative_percent: Percentages = Field(description="Share of the route's traffic that goes to speculation.")
    acceptance_percent: Percent | None = Field(None, description="Accepted over drafted tokens.")
    tokens_per_step: str | None = Field(None, description="Tokens per decode step, L = N / (N - A), as decimal text.")
    break_even: BreakEvenStatus | None = Field(None, description="The break-even line in force, where there is one.")
    evidence: EvidenceStatus | None = Field(None, description="How near a switch is.")
    since: str = Field(description="Since when it is served there, RFC 3339.")
    history: Annotated[list[Switch], Field(max_length=10)] = Field(
        default_factory=list, description="The last switches, newest last."
    )
    trend: Annotated[str, Field(max_length=1024)] | None = Field(
        None,
        description="Tokens per step and break-even line of the last 6 hours: a start, then points of minutes since "
        "it, such as 20:2.38/1.80s (s: served with speculation, b: without; -: not known). Added to when status is "
        "written, at most every 8 minutes.",
    )
    by_hand: ByHandStatus | None = Field(None, description="What a person has said of the route, while it holds.")
    report: RouteReport | None = Field(
        None, description="What the rule would have done; only under enforcement: Observe."
    )
    state: str = Field("", description="What the decision remembers; opaque.")


class PreflightStatus(Model):
    """The verdict about target and draft; it stands until what was compared changes."""

    key: str = Field(description="Of what was compared: models, revisions, mode, k, length and engine release.")
    outcome: Literal["Passed", "Failed", "Unknown"] = Field(description="Unknown counts as a warning.")
    reason: str = Field(description="The reason of condition DraftCompatible.")
    message: Annotated[str, Field(max_length=1024)] = Field(description="Why, in a sentence with both values.")
    weight_mebibytes: Annotated[int, Field(ge=0)] | None = Field(
        None, description="Weights of target and draft, in MiB, as far as their files tell: how long a pod may start."
    )
    at: str = Field(description="When, RFC 3339.")


class PlanStatus(Model):
    """What pods have room for, as far as it is known; figures of pools are of one pod, by the pool's name."""

    kv_bytes_per_token: Annotated[int, Field(ge=0)] | None = Field(
        None, description="Bytes of KV cache that one token takes in the target and its draft, in all layers together."
    )
    sequence_tokens: Annotated[int, Field(ge=1)] | None = Field(
        None, description="Tokens of the sequences that are counted: pools.sequenceTokens, else the longest served."
    )
    sequences: Annotated[dict[str, int], Field(max_length=4)] | None = Field(
        None, description="Such sequences that a pod has KV cache for."
    )
    kv_tokens: Annotated[dict[str, int], Field(max_length=4)] | None = Field(
        None, description="Tokens in KV cache, as the engine counts them: blocks times their size."
    )
    reported_kv_tokens: Annotated[dict[str, int], Field(max_length=4)] | None = Field(
        None, description="The same as a running pod reports it; of several pods the least."
    )
    draft_cost_percent: Percent | None = Field(
        None, description="Share of the sequences that the draft takes from a pod."
    )
    break_even_tokens_per_step: DecimalText | None = Field(
        None,
        description="Tokens per decode step that speculation needs while batches are small, by the weights that draft "
        "and target read: 1 + k c, as decimal text. Shown for routes until it is measured.",
    )
    second_pool_accelerators: Annotated[int, Field(ge=0)] | None = Field(
        None, description="Accelerators of the pool without speculation."
    )
    message: Annotated[str, Field(max_length=512)] | None = Field(
        None, description="What of the plan a running pod contradicts."
    )


class UpgradeStatus(Model):
    """A change of engine pods under way, one pool at a time; absent when all pods carry it."""

    state: Literal["Rolling", "Waiting", "Stuck"] = Field(
        description="Rolling; Waiting: no pool may lose pods now; Stuck: pods do not come up within the deadline."
    )
    pool: str = Field(description="The pool that takes the change now, or is the first to.")
    next: str | None = Field(None, description="The pool that takes it afterwards, and carries all traffic till then.")
    changes: Annotated[str, Field(max_length=512)] = Field(description="What differs, such as tokens 4 -> 5.")
    from_release: Annotated[str, Field(max_length=64)] | None = Field(
        None, description="The engine's release before, of which pods may still run."
    )
    message: Annotated[str, Field(max_length=512)] = Field(description="How far it is, in a sentence.")


class SpecDeploymentStatus(Model):
    """The observed state."""

    observed_generation: int = Field(-1, description="Generation of the spec that was last seen; -1 before the first.")
    conditions: Annotated[list[Condition], Field(max_length=16)] = Field(
        default_factory=list,
        description="Ready, Reconciling, Stalled, and what they rest on.",
        json_schema_extra=_map_by("type"),
    )
    preflight: PreflightStatus | None = Field(
        None, description="Whether the draft fits the target; absent where there is nothing to compare, and until then."
    )
    plan: PlanStatus | None = Field(None, description="The KV plan; absent where nothing of it is known.")
    upgrade: UpgradeStatus | None = Field(None, description="The change of engine pods that is under way.")
    endpoint: str | None = Field(None, description="The URL for clients inside the cluster.")
    summary: Summary | None = None
    attribution: Literal["Router", "Engine", "Deployment"] | None = Field(
        None,
        description="Where acceptance comes from. Router: the routers count it by route. Engine: the engines do, told "
        "of the route by the routers. Deployment: the engines' own counters, since their answers carry no figures; all "
        "routes are then decided together.",
    )
    routes_version: str | None = Field(None, description="Version of the route table that was last written.")
    pools: Annotated[list[PoolStatus], Field(max_length=4)] = Field(
        default_factory=list, description="Replicas by pool.", json_schema_extra=_map_by("name")
    )
    curves: Annotated[str, Field(max_length=16384)] | None = Field(
        None, description="What decode steps took at which batch, where a line or a guard needs it; opaque."
    )
    routes: Annotated[list[RouteStatus], Field(max_length=32)] = Field(
        default_factory=list, description="Each route's state.", json_schema_extra=_map_by("name")
    )

"""SpecDeployment v1alpha1: `spec.routing`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal

from pydantic import ConfigDict, Field, StringConstraints

from specfleet.api.base import ByteQuantity, HeaderName, Model, Rule, ShortName, rules
from specfleet.api.models import SecretKeyRef
from specfleet.api.policy import BreakEven, Slo

RESERVED_ROUTE_NAMES = ("ineligible", "other")


class Speculation(StrEnum):
    """A person's override for one route."""

    AUTO = "Auto"
    ALWAYS = "Always"
    NEVER = "Never"


_KEPT = rules(
    Rule(
        "!self.matches('(?i)^(x-envoy-|x-specfleet-|x-custom-labels$)')",
        "headers x-envoy-*, x-specfleet-* and x-custom-labels are removed from requests before routes are "
        "matched: choose another header",
    )
)


class HeaderMatch(Model):
    """A request header with exactly this value."""

    name: HeaderName = Field(description="Name of the header, in any case.", json_schema_extra=_KEPT)
    value: Annotated[str, StringConstraints(min_length=1, max_length=256, pattern=r"^[\x20-\x7e]+$")] = Field(
        description="Its exact value."
    )


class RouteMatch(Model):
    """All keys that are given must match."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "has(self.header) || has(self.model) || has(self.responseFormat) || has(self.tools)",
                "a match needs at least one of header, model, responseFormat and tools",
            )
        )
    )
    header: HeaderMatch | None = None
    model: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$", max_length=253)] | None = Field(
        None, description="A model alias that the client sends."
    )
    response_format: list[Literal["text", "json_object", "json_schema"]] | None = Field(
        None,
        min_length=1,
        max_length=3,
        description="Value of response_format.type in the request.",
        json_schema_extra={"x-kubernetes-list-type": "set"},
    )
    tools: bool | None = Field(None, description="Whether the request carries a non-empty list of tools.")


class RoutePolicy(Model):
    """What one route has otherwise than `spec.policy`."""

    min_acceptance_percent: Annotated[int, Field(ge=1, le=100)] | None = Field(
        None, description="Accepted over drafted tokens, in percent; under it, with evidence, speculation is off."
    )
    break_even: BreakEven | None = Field(None, description="The line that tokens per decode step must reach to pay.")
    slo: Slo | None = Field(None, description="Times that requests are to keep; a guard, beside the lines.")


class Route(Model):
    """A kind of traffic that is decided for on its own."""

    name: ShortName = Field(
        description="Name of the route, in status and metrics.",
        json_schema_extra=rules(
            Rule(
                "!(self in [" + ", ".join(f"'{name}'" for name in RESERVED_ROUTE_NAMES) + "])",
                "the router counts under this name itself: call the route otherwise",
            )
        ),
    )
    match: list[RouteMatch] = Field(
        default_factory=list,
        max_length=16,
        description="Any entry may match; none on the last route, which takes the rest.",
        json_schema_extra={"x-kubernetes-list-type": "atomic"},
    )
    speculation: Speculation = Field(Speculation.AUTO, description="A person's override, in Git.")
    policy: RoutePolicy | None = Field(None, description="What this route has otherwise than spec.policy.")


class Affinity(Model):
    """Keeps what belongs together in one place, where its prefix is cached."""

    header: HeaderName = Field(
        description="Requests with one value of this header, for instance the turns of a conversation, go to one pool "
        "while their route's share stands, and there to one pod while the pods stand; those without it anywhere.",
        json_schema_extra=_KEPT,
    )


class PromptHash(Model):
    """A keyed hash of each prompt, in the routers' log."""

    key_secret_ref: SecretKeyRef = Field(
        description="Secret key of at least 32 random bytes; only router pods mount it, the operator reads none."
    )


def _default_routes() -> list[Route]:
    return [Route(name="default")]


class Routing(Model):
    """How requests are told apart."""

    max_request_bytes: ByteQuantity = Field("16Mi", description="Larger request bodies are answered with 413.")
    tenant_header: HeaderName | None = Field(
        None, description="Header whose value is logged with each request; never a metric label."
    )
    affinity: Affinity | None = Field(
        None, description="By what requests keep their pool and pod; absent: each goes where there is room."
    )
    prompt_hash: PromptHash | None = Field(
        None, description="Log an HMAC-SHA-256 of each prompt, to find equal ones without reading any; absent: none."
    )
    routes: list[Route] = Field(
        default_factory=_default_routes,
        min_length=1,
        max_length=32,
        description="Ordered; the first that matches wins.",
        json_schema_extra={
            "x-kubernetes-list-type": "atomic",
            **rules(
                Rule(
                    "self.all(r, self.exists_one(s, s.name == r.name))",
                    "route names must differ: two routes have one name",
                ),
                Rule(
                    "!has(self[size(self) - 1].match) || size(self[size(self) - 1].match) == 0",
                    "the last route takes what no other does and must have no match: remove it, "
                    "or add a last route without one",
                ),
                Rule(
                    "self.filter(r, !has(r.match) || size(r.match) == 0).size() <= 1",
                    "only the last route may be without match: give every other route one",
                ),
            ),
        },
    )

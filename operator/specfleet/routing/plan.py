"""What a router is to do: the pools, the routes and their weights, as plain values.

The caller has validated names (DNS labels of at most 16 characters); what is checked here is what would make the router
serve something else than the plan says.
"""

from __future__ import annotations

from dataclasses import dataclass, field

RESERVED_ROUTE_NAMES = frozenset({"ineligible", "other"})
"""Names that the router counts under itself: requests that speculation refuses, and paths that are no inference."""


@dataclass(frozen=True)
class PoolPlan:
    """One pool of engine pods as the router sees it."""

    name: str
    host: str | None
    """DNS name of the pool's Service, or an IP address; None where the deployment has no such pool."""
    port: int
    health_path: str
    max_requests: int
    """Requests in flight that ONE router process lets through to this pool; above it the answer is 429."""
    revision: str = ""
    """Revision of the model that the pool serves, for the access log."""
    idle_seconds: int = 30
    """How long a connection is kept unused; shorter than the engine keeps it, or requests meet one that just closed."""
    one_address: bool = False
    """The name yields one address whatever the pods (a Service with a cluster IP); the node's proxy picks the pod."""
    also_healthy: tuple[int, ...] = ()
    """Statuses beside 200 with which `health_path` says that the engine serves, such as 401 of one that wants a key."""


@dataclass(frozen=True)
class Match:
    """One way to match a request; the keys that are set must all hold."""

    header: tuple[str, str] | None = None
    """Name and exact value."""
    model: str | None = None
    """An alias: the exact value of the body's `model`."""
    response_format: tuple[str, ...] = ()
    """The body's `response_format.type` is one of these."""
    tools: bool | None = None
    """The body does, or does not, offer tools (a `tools` that is neither null nor empty)."""


@dataclass(frozen=True)
class RoutePlan:
    """One route; `matches` are alternatives, and none means everything."""

    name: str
    matches: tuple[Match, ...]
    speculative_percent: int
    never_speculative: bool = False
    """Failover into speculation is ruled out too (a person said `Never`)."""


@dataclass(frozen=True)
class RouterPlan:
    """Everything that the files of one router say.

    Raises:
        ValueError: no catch-all at the end or one before it, a name twice or reserved, a percentage out of 0..100, a
            route that must never speculate with a share of speculation, no pool, or a route with a share in a pool that
            there is not.
    """

    deployment: str
    namespace: str
    version: str
    baseline: PoolPlan
    speculative: PoolPlan
    routes: tuple[RoutePlan, ...]
    served_name: str
    refused_fields: tuple[str, ...] = field(default=())
    max_request_bytes: int = 16 * 1024 * 1024
    tenant_header: str | None = None
    affinity_header: str | None = None
    """Requests with one value of it go to one pool as long as their route's share stands, and there to one pod."""
    prompt_key: str | None = None
    """Path of the file with the key by which prompts are hashed for the log; None hashes none."""
    route_label: str | None = None
    """The label under which engines are told a request's route, in the header `x-custom-labels`."""

    def __post_init__(self) -> None:
        if not self.routes or self.routes[-1].matches:
            raise ValueError("the last route must have no match, so that every request has a route")
        for route in self.routes[:-1]:
            if not route.matches:
                raise ValueError(
                    f"route {route.name!r} has no match but is not the last: no request reaches those below it"
                )
        names = [route.name for route in self.routes]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"route name {name!r} stands twice; give each route a name of its own")
            if name in RESERVED_ROUTE_NAMES:
                raise ValueError(f"route name {name!r} is taken by the router itself; choose another one")
        for route in self.routes:
            if not 0 <= route.speculative_percent <= 100:
                raise ValueError(
                    f"route {route.name!r}: speculative_percent is {route.speculative_percent}, expected 0..100"
                )
            if route.never_speculative and route.speculative_percent:
                raise ValueError(
                    f"route {route.name!r} must never speculate but has {route.speculative_percent} % of it"
                )
        self._check_pools()
        if not 0 < self.max_request_bytes <= 2**31:
            raise ValueError(f"max_request_bytes is {self.max_request_bytes}, expected 1..{2**31}")

    def _check_pools(self) -> None:
        if self.baseline.host is None and self.speculative.host is None:
            raise ValueError("a router needs at least one pool with a host")
        if self.only is None:
            return
        whole = 100 if self.only is self.speculative else 0
        for route in self.routes:
            if route.speculative_percent != whole or route.never_speculative:
                raise ValueError(
                    f"route {route.name!r} has {route.speculative_percent} % of speculation"
                    f"{' at most' if route.never_speculative else ''}, but there is only pool {self.only.name!r}, "
                    f"which takes everything: expected {whole}"
                )

    @property
    def only(self) -> PoolPlan | None:
        """The pool that takes everything; None where there are two."""
        if self.baseline.host is None:
            return self.speculative
        return self.baseline if self.speculative.host is None else None

    @property
    def aliases(self) -> tuple[str, ...]:
        """Model names that are no model: the router rewrites them to `served_name`."""
        found = {match.model for route in self.routes for match in route.matches if match.model is not None}
        return tuple(sorted(found - {self.served_name}))

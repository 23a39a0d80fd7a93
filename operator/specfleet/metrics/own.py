"""The operator's own metrics. Labels are bounded: namespace, deployment, route, pool, kind, verb, reason."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

_ROUTE = ("namespace", "deployment", "route")
_SECONDS = (0.005, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class OperatorMetrics:
    """All series of one operator process, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        registry = self.registry
        self.reconciles = Counter(
            "specfleet_operator_reconciles", "Reconciles of a SpecDeployment by result.", ["result"], registry=registry
        )
        self.reconcile_seconds = Histogram(
            "specfleet_operator_reconcile_seconds", "Time of one reconcile.", buckets=_SECONDS, registry=registry
        )
        self.queue_depth = Gauge(
            "specfleet_operator_queue_depth", "SpecDeployments that wait for a reconcile.", registry=registry
        )
        self.api_writes = Counter(
            "specfleet_operator_api_writes",
            "Writes to the API server by verb, kind and HTTP status (0: no answer).",
            ["verb", "kind", "status"],
            registry=registry,
        )
        self.api_write_seconds = Histogram(
            "specfleet_operator_api_write_seconds", "Time of one write.", buckets=_SECONDS, registry=registry
        )
        self.leader = Gauge("specfleet_operator_leader", "1 on the replica that holds the lease.", registry=registry)
        self.silent_watches = Gauge(
            "specfleet_operator_silent_watches", "Watches that have gone silent.", registry=registry
        )
        self.samples = Counter(
            "specfleet_operator_router_readings", "Readings of routers by result.", ["result"], registry=registry
        )
        self.engine_readings = Counter(
            "specfleet_operator_engine_readings",
            "Readings of engine pages for guards by result.",
            ["result"],
            registry=registry,
        )
        self.samples_dropped = Counter(
            "specfleet_operator_samples_dropped",
            "Samples left out of decisions, by reason.",
            ["reason"],
            registry=registry,
        )
        self.prometheus_queries = Counter(
            "specfleet_operator_prometheus_queries",
            "Bulk queries of source Prometheus by result.",
            ["result"],
            registry=registry,
        )
        self.drift = Counter(
            "specfleet_operator_drift_corrections",
            "Edits of others that were put back, by kind.",
            ["kind"],
            registry=registry,
        )
        self.switches = Counter(
            "specfleet_operator_switches",
            "Switches of routes between pools.",
            ["namespace", "deployment", "pool"],
            registry=registry,
        )
        self.switch_seconds = Histogram(
            "specfleet_operator_switch_seconds",
            "Time from the decision to its being served by every router.",
            buckets=(0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 90.0, 300.0),
            registry=registry,
        )
        self.route_acceptance = Gauge(
            "specfleet_route_acceptance_ratio",
            "Accepted over drafted tokens of the last blocks.",
            _ROUTE,
            registry=registry,
        )
        self.route_tokens_per_step = Gauge(
            "specfleet_route_tokens_per_step", "Tokens per decode step of the last blocks.", _ROUTE, registry=registry
        )
        self.route_break_even = Gauge(
            "specfleet_route_break_even_tokens_per_step",
            "Tokens per decode step above which speculation pays, as decisions take it.",
            _ROUTE,
            registry=registry,
        )
        self.route_break_even_known = Gauge(
            "specfleet_route_break_even_known",
            "1 where the break-even line is fixed or known, 0 where it had to be extrapolated.",
            _ROUTE,
            registry=registry,
        )
        self.route_speculative_ratio = Gauge(
            "specfleet_route_speculative_ratio",
            "Share of traffic that is meant for speculation.",
            _ROUTE,
            registry=registry,
        )
        self.route_served_ratio = Gauge(
            "specfleet_route_served_ratio",
            "Share of traffic that every router sends to speculation.",
            _ROUTE,
            registry=registry,
        )
        self.route_exploring_prompt = Gauge(
            "specfleet_route_exploring_prompt_ratio",
            "Share of a route's prompt tokens that speculation got while the route explores it, over the last hour.",
            _ROUTE,
            registry=registry,
        )
        self.route_score = Gauge(
            "specfleet_route_evidence_score",
            "Evidence score towards the next switch.",
            [*_ROUTE, "line"],
            registry=registry,
        )
        self.route_threshold = Gauge(
            "specfleet_route_evidence_threshold",
            "Score at which the route switches.",
            [*_ROUTE, "line"],
            registry=registry,
        )
        self.pool_ready = Gauge(
            "specfleet_pool_ready_replicas",
            "Ready engine pods.",
            ["namespace", "deployment", "pool"],
            registry=registry,
        )
        self.pool_desired = Gauge(
            "specfleet_pool_desired_replicas",
            "Wanted engine pods.",
            ["namespace", "deployment", "pool"],
            registry=registry,
        )
        self._labelled = (
            self.route_acceptance,
            self.route_tokens_per_step,
            self.route_break_even,
            self.route_break_even_known,
            self.route_speculative_ratio,
            self.route_served_ratio,
            self.route_exploring_prompt,
            self.route_score,
            self.route_threshold,
            self.pool_ready,
            self.pool_desired,
            self.switches,
        )

    def written(self, verb: str, kind: str, status: int, seconds: float) -> None:
        """One write was answered."""
        self.api_writes.labels(verb, kind, str(status)).inc()
        self.api_write_seconds.observe(seconds)

    def forget(self, namespace: str, deployment: str) -> None:
        """A SpecDeployment is gone: so are its series."""
        for metric in self._labelled:
            metric.remove_by_labels({"namespace": namespace, "deployment": deployment})

    def page(self) -> bytes:
        """The text that GET /metrics answers."""
        return generate_latest(self.registry)

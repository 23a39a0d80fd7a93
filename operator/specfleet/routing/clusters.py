"""The cluster file (CDS): two pools of hosts, and above them what a route can aim at.

Every setting that differs from Envoy's default is there because the default lost requests; docs/reference/router.md has
the table.
"""

from __future__ import annotations

from typing import Any

from specfleet.routing import names
from specfleet.routing.plan import PoolPlan, RouterPlan

Resource = dict[str, Any]

UNLIMITED = 2**32 - 1
CLUSTER_TYPE = "type.googleapis.com/envoy.config.cluster.v3.Cluster"


_BALANCING: Resource = {
    # Half of a pool being sick is no reason to send requests to the sick half.
    "healthy_panic_threshold": {"value": 0.0},
    # Envoy would keep news of a host's health from its workers for up to a second, to save rebuilding large clusters.
    "update_merge_window": "0s",
}


def clusters(plan: RouterPlan) -> list[Resource]:
    """The resources of cds.yaml, in an order in which each names only those before it."""
    by_key = plan.affinity_header is not None
    return [
        _hosts(names.BASELINE_HOSTS, plan.baseline, by_key),
        _hosts(names.SPECULATIVE_HOSTS, plan.speculative, by_key),
        _aim(names.BASELINE_FIRST, plan.baseline, [names.BASELINE_HOSTS, names.SPECULATIVE_HOSTS]),
        _aim(names.SPECULATIVE_FIRST, plan.speculative, [names.SPECULATIVE_HOSTS, names.BASELINE_HOSTS]),
        _aim(names.BASELINE_ONLY, plan.baseline, [names.BASELINE_HOSTS]),
    ]


def _thresholds(max_requests: int) -> Resource:
    # Retries are bounded per request (num_retries); the budget only has to let all requests of a killed host through.
    return {
        "thresholds": [
            {
                "priority": "DEFAULT",
                "max_connections": UNLIMITED,
                "max_pending_requests": UNLIMITED,
                "max_requests": max_requests,
                "retry_budget": {"budget_percent": {"value": 100.0}, "min_retry_concurrency": 1024},
            }
        ]
    }


def _balancer(by_key: bool) -> Resource:
    if not by_key:
        return {"lb_policy": "LEAST_REQUEST", "least_request_lb_config": {"choice_count": 4}}
    # Of 32 pods on a ring of 1024, Envoy's default, the fullest gets twice what the emptiest does; here 1.3 times.
    return {"lb_policy": "RING_HASH", "ring_hash_lb_config": {"minimum_ring_size": 8192}}


def _hosts(cluster: str, pool: PoolPlan, by_key: bool) -> Resource:
    """The pool's hosts. A name that DNS does not know (yet) yields none, and the other pool serves."""
    if pool.host is None:
        return {
            "@type": CLUSTER_TYPE,
            "name": cluster,
            # Not the pool's: its gauges would keep what they said when the pool was still there.
            "alt_stat_name": "absent",
            "type": "STATIC",
            "common_lb_config": _BALANCING,
            "load_assignment": {"cluster_name": cluster},
        }
    health: Resource = {"path": pool.health_path, "host": pool.host}
    if pool.also_healthy:
        statuses = [200, *pool.also_healthy]
        health["expected_statuses"] = [{"start": status, "end": status + 1} for status in statuses]
    common: Resource = {"idle_timeout": f"{pool.idle_seconds}s"}
    if pool.one_address:
        # A connection stays with the pod that the proxy picked for it, also when that pod is about to go, and none goes
        # to a pod that is new: so a connection for each request.
        common["max_requests_per_connection"] = 1
    hosts: Resource = {
        "@type": CLUSTER_TYPE,
        "name": cluster,
        "alt_stat_name": names.hosts_stat(pool.name),
        "cluster_type": {
            "name": "envoy.clusters.dns",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.clusters.dns.v3.DnsCluster",
                "dns_refresh_rate": "2s",
                "dns_failure_refresh_rate": {"base_interval": "0.5s", "max_interval": "2s"},
                "respect_dns_ttl": False,
                "dns_lookup_family": "V4_PREFERRED",
                # Every address is a host of its own (strict DNS), not one host with many addresses.
                "all_addresses_in_single_endpoint": False,
            },
        },
        # Short: a pod that vanished without a word is passed over before a client would notice.
        "connect_timeout": "1s",
        **_balancer(by_key),
        "common_lb_config": _BALANCING,
        "ignore_health_on_host_removal": True,
        "circuit_breakers": _thresholds(pool.max_requests),
        "health_checks": [
            {
                "timeout": "5s",
                "interval": "2s",
                "interval_jitter_percent": 10,
                "no_traffic_interval": "2s",
                "no_traffic_healthy_interval": "2s",
                "unhealthy_threshold": 3,
                "healthy_threshold": 1,
                "http_health_check": health,
            }
        ],
        "outlier_detection": {
            "split_external_local_origin_errors": True,
            "consecutive_local_origin_failure": 2,
            "enforcing_consecutive_local_origin_failure": 100,
            "consecutive_gateway_failure": 3,
            "enforcing_consecutive_gateway_failure": 100,
            # A prompt that makes the engine answer 500 would else eject one host after the other.
            "enforcing_consecutive_5xx": 0,
            "enforcing_success_rate": 0,
            "enforcing_local_origin_success_rate": 0,
            "enforcing_failure_percentage": 0,
            "enforcing_failure_percentage_local_origin": 0,
            "interval": "1s",
            # Longer than the active check takes to find a host dead, else it comes back in between. A host whose active
            # check passes comes back at once.
            "base_ejection_time": "20s",
            "max_ejection_time": "60s",
            "max_ejection_percent": 100,
        },
        # A node that dies sends no FIN; without these a stream in prefill would hang for ever.
        "upstream_connection_options": {
            "tcp_keepalive": {"keepalive_time": 15, "keepalive_interval": 5, "keepalive_probes": 3}
        },
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                # The engine closes idle connections too; we must be first.
                "common_http_protocol_options": common,
                "explicit_http_config": {"http_protocol_options": {}},
            }
        },
        "load_assignment": {
            "cluster_name": cluster,
            "policy": {"overprovisioning_factor": 10000},
            "endpoints": [
                {
                    "lb_endpoints": [
                        {
                            "endpoint": {
                                "address": {"socket_address": {"address": pool.host, "port_value": pool.port}}
                            },
                            "metadata": {
                                "filter_metadata": {
                                    names.METADATA: {"pool": pool.name, "revision": pool.revision or "-"}
                                }
                            },
                        }
                    ]
                }
            ],
        },
    }
    if pool.one_address:
        # One pod that fails would eject the address of all of them.
        del hosts["outlier_detection"]
        # A check meets what a request meets: whichever pod the proxy picks. One dead pod of three fails five in a row
        # once in 243 times; a kept connection would watch a single pod, and go on when the Service has none any more.
        hosts["health_checks"][0] |= {"reuse_connection": False, "unhealthy_threshold": 5}
    return hosts


def _aim(cluster: str, intended: PoolPlan, members: list[str]) -> Resource:
    return {
        "@type": CLUSTER_TYPE,
        "name": cluster,
        # %UPSTREAM_CLUSTER% is this name, whoever answers: the intended pool.
        "alt_stat_name": intended.name,
        "connect_timeout": "1s",
        "lb_policy": "CLUSTER_PROVIDED",
        "common_lb_config": _BALANCING,
        "circuit_breakers": _thresholds(UNLIMITED),
        "cluster_type": {
            "name": "envoy.clusters.aggregate",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.clusters.aggregate.v3.ClusterConfig",
                "clusters": members,
            },
        },
    }

"""Envoy's bootstrap: listeners, filters, loggers. The same for every SpecDeployment: no change rolls a router."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from specfleet.routing import names, process
from specfleet.routing.accesslog import LOGGED_BYTES, access_loggers, active_logger
from specfleet.routing.identity import identity_filter

Resource = dict[str, Any]

HCM = "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
EARLY_MUTATION = "type.googleapis.com/envoy.extensions.http.early_header_mutation.header_mutation.v3.HeaderMutation"
MAX_CONNECTIONS = 50_000
"""Of clients, to one router; beyond it new ones are closed at once. Probes and the operator do not count."""
LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Places:
    """Where the router listens and reads its files; the defaults are those of the pod."""

    data_host: str = "0.0.0.0"  # noqa: S104 - the data port is the pod's purpose
    data_port: int = process.DATA_PORT
    read_host: str = "0.0.0.0"  # noqa: S104 - the read-only port is for probes, the operator and Prometheus
    read_port: int = process.READ_PORT
    admin_port: int = process.ADMIN_PORT
    table_port: int = process.TABLE_PORT
    bootstrap_dir: str = process.BOOTSTRAP_DIR
    routes_dir: str = process.ROUTES_DIR


def bootstrap(places: Places) -> Resource:
    """The bootstrap document for these places."""
    return {
        "node": {"id": "router", "cluster": "specfleet"},
        "admin": {"address": _address(LOOPBACK, places.admin_port)},
        "stats_flush_on_admin": True,
        "overload_manager": {
            "resource_monitors": [
                {
                    "name": "envoy.resource_monitors.global_downstream_max_connections",
                    "typed_config": {
                        "@type": "type.googleapis.com/"
                        "envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig",
                        "max_active_downstream_connections": MAX_CONNECTIONS,
                    },
                }
            ]
        },
        "stats_config": {"histogram_bucket_settings": _buckets()},
        "dynamic_resources": {"cds_config": _file(places, "cds.yaml")},
        "static_resources": {
            "listeners": [_data_listener(places), _read_listener(places), _table_listener(places)],
            "clusters": [_loopback("admin", places.admin_port), _loopback("table", places.table_port)],
        },
    }


def _buckets() -> list[Resource]:
    """Milliseconds; Envoy's own are too coarse at the times of one token and too fine at those of an answer."""
    fine = [1, 2, 5, 10, 15, 20, 25, 30, 40, 50, 75, 100, 150, 200, 300, 500, 750]
    return [
        {
            "match": {"safe_regex": {"regex": ".*"}},
            "buckets": [*fine, 1000, 2000, 5000, 10000, 20000, 30000, 60000, 120000, 300000, 600000],
        }
    ]


def _file(places: Places, name: str) -> Resource:
    return {
        "resource_api_version": "V3",
        "path_config_source": {
            "path": f"{places.routes_dir}/{name}",
            # A ConfigMap volume is renewed by renaming a symlink of the directory, never by writing the file.
            "watched_directory": {"path": places.routes_dir},
        },
        "initial_fetch_timeout": "15s",
    }


def _address(host: str, port: int) -> Resource:
    return {"socket_address": {"address": host, "port_value": port}}


def _loopback(name: str, port: int) -> Resource:
    return {
        "name": name,
        "type": "STATIC",
        "connect_timeout": "1s",
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _address(LOOPBACK, port)}}]}],
        },
    }


def _router(upstream_log: bool) -> Resource:
    config: Resource = {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router",
        "suppress_envoy_headers": True,
    }
    if upstream_log:
        config["upstream_log"] = [active_logger()]
        config["upstream_log_options"] = {"flush_upstream_log_on_upstream_stream": True}
    return {"name": "envoy.filters.http.router", "typed_config": config}


def _listener(name: str, host: str, port: int, manager: Resource) -> Resource:
    return {
        "name": name,
        "address": _address(host, port),
        "filter_chains": [
            {
                "filters": [
                    {
                        "name": "envoy.filters.network.http_connection_manager",
                        "typed_config": {"@type": HCM, **manager},
                    }
                ]
            }
        ],
    }


# Probes and counters are answered to the last moment of a drain, and however many clients there are.
_ALWAYS: Resource = {"drain_type": "MODIFY_ONLY", "ignore_global_conn_limit": True}


def _early(*mutations: Resource) -> list[Resource]:
    return [
        {
            "name": "envoy.http.early_header_mutation.header_mutation",
            "typed_config": {
                "@type": EARLY_MUTATION,
                "mutations": list(mutations),
            },
        }
    ]


def _header(key: str, value: str, action: str) -> Resource:
    return {"append": {"header": {"key": key, "value": value}, "append_action": action}}


def _rds(places: Places) -> Resource:
    return {"route_config_name": names.ROUTE_TABLE, "config_source": _file(places, "rds.yaml")}


def _data_listener(places: Places) -> Resource:
    manager: Resource = {
        "stat_prefix": "router",
        "rds": _rds(places),
        "codec_type": "AUTO",
        # Engines take HTTP/1.0, which some proxies still speak to what is behind them; Envoy would answer 426.
        "http_protocol_options": {"accept_http_10": True, "default_host_for_http_10": "endpoint"},
        "use_remote_address": True,
        "normalize_path": True,
        "merge_slashes": True,
        "path_with_escaped_slashes_action": "REJECT_REQUEST",
        "server_header_transformation": "PASS_THROUGH",
        "generate_request_id": True,
        "preserve_external_request_id": True,
        "always_set_request_id_in_response": True,
        "request_id_extension": {
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.request_id.uuid.v3.UuidRequestIdConfig",
                # Else a client's own id would come back with a digit changed.
                "pack_trace_reason": False,
            }
        },
        # Five minutes, the default, cut a long whole answer; each route has its own idle timeout.
        "stream_idle_timeout": "0s",
        "request_timeout": "300s",
        "request_headers_timeout": "30s",
        "common_http_protocol_options": {"idle_timeout": "900s"},
        # Clients in the cluster are private addresses, whose x-envoy-* Envoy would obey. Without accept-encoding the
        # engine answers plain, so that the figures can be read.
        "early_header_mutation_extensions": _early(
            {"remove_on_match": {"key_matcher": {"prefix": "x-envoy-"}}},
            {"remove_on_match": {"key_matcher": {"prefix": "x-specfleet-"}}},
            {"remove": names.CUSTOM_LABELS_HEADER},
            {"remove": "accept-encoding"},
            # The engine, the client and the log have the same id, whatever length the client's own has.
            _header("x-request-id", f"%REQ(X-REQUEST-ID):{LOGGED_BYTES}%", "OVERWRITE_IF_EXISTS"),
        ),
        "local_reply_config": _local_replies(),
        "access_log": access_loggers(),
        "http_filters": [
            # Before the buffer, which answers 413 and 408 by itself, and on every route: refusals are logged with it.
            {"name": names.IDENTITY_FILTER, "typed_config": identity_filter()},
            {
                "name": names.BUFFER_FILTER,
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.filters.http.buffer.v3.Buffer",
                    "max_request_bytes": 16 * 1024 * 1024,
                },
            },
            {
                "name": names.LUA_FILTER,
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.filters.http.lua.v3.Lua",
                    "default_source_code": {"filename": f"{places.bootstrap_dir}/filter.lua"},
                },
            },
            _router(upstream_log=True),
        ],
    }
    return _listener("data", places.data_host, places.data_port, manager)


def _read_listener(places: Places) -> Resource:
    get = [{"name": ":method", "string_match": {"exact": "GET"}}]

    def forward(path: str, cluster: str, rewrite: str | None = None) -> Resource:
        action: Resource = {"cluster": cluster, "timeout": "5s"}
        if rewrite:
            action["prefix_rewrite"] = rewrite
        return {"match": {"path": path, "headers": get}, "route": action}

    manager: Resource = {
        "stat_prefix": "read",
        "normalize_path": True,
        "route_config": {
            "name": "read",
            "virtual_hosts": [
                {
                    "name": "read",
                    "domains": ["*"],
                    "routes": [
                        forward(process.READY_PATH, "table", process.SERVED_PATH),
                        forward(process.SERVED_PATH, "table"),
                        forward("/stats", "admin"),
                        forward("/stats/prometheus", "admin"),
                        {"match": {"prefix": "/"}, "direct_response": {"status": 404}},
                    ],
                }
            ],
        },
        "http_filters": [
            {
                # 503 once the shutdown helper has failed the health check; before that the route decides.
                "name": "envoy.filters.http.health_check",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.filters.http.health_check.v3.HealthCheck",
                    "pass_through_mode": True,
                    "headers": [{"name": ":path", "string_match": {"exact": process.READY_PATH}}],
                },
            },
            _router(upstream_log=False),
        ],
    }
    return {**_listener("read", places.read_host, places.read_port, manager), **_ALWAYS}


def _table_listener(places: Places) -> Resource:
    manager: Resource = {
        "stat_prefix": "table",
        "rds": _rds(places),
        "early_header_mutation_extensions": _early(
            _header(names.LISTENER_HEADER, "table", "OVERWRITE_IF_EXISTS_OR_ADD"),
        ),
        "http_filters": [_router(upstream_log=False)],
    }
    return {**_listener("table", LOOPBACK, places.table_port, manager), **_ALWAYS}


def _error(message: str, kind: str, code: str) -> Resource:
    """An answer in the shape of OpenAI's errors."""
    return {"json_format": {"error": {"message": message, "type": kind, "param": None, "code": code}}}


def _status_is(code: int, op: str = "EQ") -> Resource:
    return {
        "status_code_filter": {
            "comparison": {"op": op, "value": {"default_value": code, "runtime_key": f"specfleet.status.{code}"}}
        }
    }


def _local_replies() -> Resource:
    invalid = "invalid_request_error"
    texts = [
        (400, "The request is not valid HTTP: %RESPONSE_CODE_DETAILS%.", invalid, "bad_request"),
        (404, "Nothing is served at this path. Inference is served at POST /v1/chat/completions, /v1/completions, "
              "/v1/responses and /v1/messages, the model list at GET /v1/models.", invalid, "not_found"),
        (405, "This path is served, but not with this method; see the allow header.", invalid, "method_not_allowed"),
        (413, "The request body is larger than %METADATA(VIRTUAL_HOST:specfleet:max_request_bytes)% bytes, the "
              "maxRequestBytes of this endpoint. Send a smaller body, or have the limit raised.",
         invalid, "request_too_large"),
        (408, "The request did not arrive in time.", invalid, "request_timeout"),
        (431, "The request's headers are larger than 60 KiB.", invalid, "headers_too_large"),
    ]  # fmt: skip
    retry = {"header": {"key": "retry-after", "value": "1"}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD"}
    # What is refused before the head of a request has been read has no id yet; setting one does not change a known one.
    own_id = {"header": {"key": "x-request-id", "value": "%UNIQUE_ID%"}, "append_action": "ADD_IF_ABSENT"}
    taken = _error("All sequences of this endpoint are taken. Try again shortly.", "rate_limit_error", "overloaded")
    sick = _error("No engine that may serve this request is ready.", "server_error", "no_ready_engine")
    other = _error(
        "The router has no answer of an engine: %RESPONSE_CODE_DETAILS%.", "server_error", "engine_unavailable"
    )
    return {
        "mappers": [
            {
                "filter": {"response_flag_filter": {"flags": ["UO"]}},
                "status_code": 429,
                "headers_to_add": [retry, own_id],
                "body_format_override": taken,
            },
            {
                "filter": {"response_flag_filter": {"flags": ["UH"]}},
                "headers_to_add": [own_id],
                "body_format_override": sick,
            },
            *(
                {
                    "filter": _status_is(status),
                    "headers_to_add": [own_id],
                    "body_format_override": _error(message, kind, code),
                }
                for status, message, kind, code in texts
            ),
            {"filter": _status_is(100, "GE"), "headers_to_add": [own_id], "body_format_override": other},
        ]
    }

"""The route file (RDS): which request goes where, with which share, and the proof of what is served."""

from __future__ import annotations

import json
from typing import Any

from specfleet.routing import names
from specfleet.routing.identity import identity_filter
from specfleet.routing.plan import Match, RoutePlan, RouterPlan

Resource = dict[str, Any]

NUM_RETRIES = 4
WHOLE_ANSWER_SECONDS = 3600
"""A route's idle timeout: how long an answer may take to its first byte, or between two."""

EDIT_BYTES = 4096
"""What the filter may add to a body of the largest size: the request for usage, a longer model name."""

_DISABLED = {
    names.BUFFER_FILTER: {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.buffer.v3.BufferPerRoute",
        "disabled": True,
    },
    names.LUA_FILTER: {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.lua.v3.LuaPerRoute",
        "disabled": True,
    },
}


def route_table(plan: RouterPlan) -> Resource:
    """The one RouteConfiguration. Its order is the order of precedence: refusals, then the plan's routes, then 404."""
    served = json.dumps(served_document(plan), separators=(",", ":"))
    return {
        "@type": "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
        "name": names.ROUTE_TABLE,
        "max_direct_response_body_size_bytes": max(4096, len(served) + 1),
        "virtual_hosts": [
            {
                "name": "endpoint",
                "domains": ["*"],
                "include_attempt_count_in_response": True,
                "request_body_buffer_limit": plan.max_request_bytes + EDIT_BYTES,
                "retry_policy": _retry_policy(),
                "request_headers_to_remove": ["x-envoy-external-address", "x-envoy-internal"],
                "metadata": {
                    "filter_metadata": {
                        names.LUA_FILTER: {names.METADATA: _fleet(plan)},
                        names.METADATA: {"max_request_bytes": plan.max_request_bytes},
                    }
                },
                "typed_per_filter_config": {
                    names.BUFFER_FILTER: {
                        "@type": "type.googleapis.com/envoy.extensions.filters.http.buffer.v3.BufferPerRoute",
                        "buffer": {"max_request_bytes": plan.max_request_bytes + EDIT_BYTES},
                    },
                    **({names.IDENTITY_FILTER: identity_filter(plan.tenant_header)} if plan.tenant_header else {}),
                },
                "routes": [
                    _served_route(served),
                    _too_large(plan),
                    *[found for route in plan.routes for found in _routes(plan, route)],
                    *_models(plan),
                    *_preflights(plan),
                    *_refusals(),
                ],
            }
        ],
    }


def served_document(plan: RouterPlan) -> Resource:
    """What GET /served answers: the version and, by route, the percentages of the pools."""
    return {
        "version": plan.version,
        "routes": {
            route.name: {
                plan.baseline.name: 100 - route.speculative_percent,
                plan.speculative.name: route.speculative_percent,
            }
            for route in plan.routes
        },
    }


def _fleet(plan: RouterPlan) -> Resource:
    """What the Lua filter has to know of this deployment."""
    fleet: Resource = {
        "served": plan.served_name,
        "aliases": dict.fromkeys(plan.aliases, True),
        "refused": list(plan.refused_fields),
        "limit": plan.max_request_bytes,
    }
    if plan.prompt_key is not None:
        fleet["hash_key"] = plan.prompt_key
    return fleet


def _retry_policy() -> Resource:
    return {
        "retry_on": "connect-failure,refused-stream,reset,retriable-status-codes",
        "retriable_status_codes": [503],
        "num_retries": NUM_RETRIES,
        "retry_back_off": {"base_interval": "0.025s", "max_interval": "0.25s"},
        # The host that just failed has the fewest requests in flight, so in a pool of two the balancer, which takes
        # the least busy of four draws, picks it fifteen times in sixteen. With too few attempts a retry goes there
        # again, and then leaves the pool.
        "host_selection_retry_max_attempts": 512,
        "retry_host_predicate": [
            {
                "name": "envoy.retry_host_predicates.previous_hosts",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.retry.host.previous_hosts.v3.PreviousHostsPredicate"
                },
            }
        ],
        # A pool that died as a whole is not yet known as such: after two tries there, the other one.
        "retry_priority": {
            "name": "envoy.retry_priorities.previous_priorities",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.retry.priority.previous_priorities.v3"
                ".PreviousPrioritiesConfig",
                "update_frequency": 2,
            },
        },
    }


def _served_route(document: str) -> Resource:
    return {
        "name": "served",
        "match": {
            "path": "/served",
            "headers": [{"name": names.LISTENER_HEADER, "string_match": {"exact": "table"}}],
        },
        "direct_response": {"status": 200, "body": {"inline_string": document}},
        "response_headers_to_add": [
            {
                "header": {"key": "content-type", "value": "application/json"},
                "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
            }
        ],
    }


def _dynamic(key: str, values: tuple[str, ...], invert: bool = False) -> Resource:
    """A condition on what the filter has found: the text under `key` is one of these."""
    matchers: list[Resource] = [{"string_match": {"exact": value}} for value in values]
    # Envoy refuses an "or" of one.
    matcher = matchers[0] if len(matchers) == 1 else {"or_match": {"value_matchers": matchers}}
    found: Resource = {"filter": names.METADATA, "path": [{"key": key}], "value": matcher}
    if invert:
        found["invert"] = True
    return found


def _too_large(plan: RouterPlan) -> Resource:
    return {
        "name": "too-large",
        "match": {
            "prefix": "/",
            "headers": [
                {"name": "content-length", "range_match": {"start": plan.max_request_bytes + 1, "end": 2**63 - 1}}
            ],
            # Only the client's own length counts: asking for usage makes a body that just fits a little longer.
            "dynamic_metadata": [_dynamic("seen", ("1",), invert=True)],
        },
        "direct_response": {"status": 413},
        "typed_per_filter_config": _DISABLED,
    }


def _routes(plan: RouterPlan, route: RoutePlan) -> list[Resource]:
    found = []
    for match in route.matches or (Match(),):
        headers: list[Resource] = [{"name": ":method", "string_match": {"exact": "POST"}}]
        metadata: list[Resource] = []
        if match.header is not None:
            headers.append({"name": match.header[0].lower(), "string_match": {"exact": match.header[1]}})
        if match.model is not None:
            metadata.append(_dynamic("model", (match.model,)))
        if match.response_format:
            metadata.append(_dynamic("format", match.response_format))
        if match.tools is not None:
            metadata.append(_dynamic("tools", ("1",), invert=not match.tools))
        if plan.refused_fields and plan.only is None:
            refused = [*metadata, _dynamic("ineligible", ("1",))]
            found.append(_forward(plan, route, headers, refused, ineligible=True))
        found.append(_forward(plan, route, headers, metadata, ineligible=False))
    return found


def _forward(
    plan: RouterPlan, route: RoutePlan, headers: list[Resource], metadata: list[Resource], *, ineligible: bool
) -> Resource:
    match: Resource = {"safe_regex": {"regex": "|".join(names.INFERENCE_PATHS)}, "headers": headers}
    if metadata:
        match["dynamic_metadata"] = metadata
    action: Resource = {"timeout": "0s", "idle_timeout": f"{WHOLE_ANSWER_SECONDS}s"}
    if ineligible or route.never_speculative:
        action["cluster"] = names.BASELINE_ONLY
    elif route.speculative_percent == 0:
        action["cluster"] = names.BASELINE_FIRST
    elif route.speculative_percent == 100:
        action["cluster"] = names.SPECULATIVE_FIRST
    else:
        # The hash modulo 100 is compared with the weights one after the other. Speculation is the last of them: its
        # keys are the uppermost, so a share that rises only adds to them.
        action["weighted_clusters"] = {
            "clusters": [
                {"name": names.BASELINE_FIRST, "weight": 100 - route.speculative_percent},
                {"name": names.SPECULATIVE_FIRST, "weight": route.speculative_percent},
            ]
        }
        if plan.affinity_header is not None:
            action["weighted_clusters"]["use_hash_policy"] = True
    if plan.affinity_header is not None:
        # Without the header there is no hash, and Envoy draws for each request.
        action["hash_policy"] = [{"header": {"header_name": plan.affinity_header.lower()}}]
    found: Resource = {
        "name": f"{route.name}/{names.INELIGIBLE}" if ineligible else route.name,
        "match": match,
        "route": action,
        "metadata": _labels(plan, names.INELIGIBLE if ineligible else route.name, route.name),
    }
    if plan.route_label is not None:
        told = names.INELIGIBLE if ineligible else route.name
        found["request_headers_to_add"] = [
            {
                "header": {
                    "key": names.CUSTOM_LABELS_HEADER,
                    "value": json.dumps({plan.route_label: told}, separators=(",", ":")),
                },
                "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
            }
        ]
    return found


def _labels(plan: RouterPlan, label: str, user_route: str) -> Resource:
    return {"filter_metadata": {names.METADATA: {"route": label, "user_route": user_route, "version": plan.version}}}


def _home(plan: RouterPlan) -> str:
    """Where what is no inference goes first: baseline, where there is one."""
    return names.SPECULATIVE_FIRST if plan.only is plan.speculative else names.BASELINE_FIRST


def _models(plan: RouterPlan) -> list[Resource]:
    return [
        {
            "name": "models",
            "match": {
                "path": names.MODELS_PATH,
                "headers": [{"name": ":method", "string_match": {"exact": "GET"}}],
            },
            "route": {"timeout": "30s", "cluster": _home(plan)},
            "metadata": _labels(plan, names.OTHER, names.OTHER),
        }
    ]


def _preflights(plan: RouterPlan) -> list[Resource]:
    """A browser asks before it posts; engines answer that themselves (vLLM by --allowed-origins)."""
    return [
        {
            "name": "preflight",
            "match": {
                "safe_regex": {"regex": "|".join((*names.INFERENCE_PATHS, names.MODELS_PATH))},
                "headers": [{"name": ":method", "string_match": {"exact": "OPTIONS"}}],
            },
            "route": {"timeout": "30s", "cluster": _home(plan)},
            "metadata": _labels(plan, names.OTHER, names.OTHER),
        }
    ]


def _refusals() -> list[Resource]:
    wrong_method = [
        {
            "name": f"method{path.replace('/', '-')}",
            "match": {"path": path},
            "direct_response": {"status": 405},
            "response_headers_to_add": [{"header": {"key": "allow", "value": verb}}],
            "typed_per_filter_config": _DISABLED,
        }
        for path, verb in [*((path, "POST") for path in names.INFERENCE_PATHS), (names.MODELS_PATH, "GET")]
    ]
    nothing = {
        "name": "nothing",
        "match": {"prefix": "/"},
        "direct_response": {"status": 404},
        "typed_per_filter_config": _DISABLED,
    }
    return [*wrong_method, nothing]

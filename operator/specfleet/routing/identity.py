"""Whose request it is: trace and tenant, read from headers into what the access log can say of every request.

By Envoy's own filter and not in Lua, so that it runs before bodies are waited for and on routes that only refuse.
"""

from __future__ import annotations

from typing import Any

from specfleet.routing import names

Resource = dict[str, Any]

TRACE_KEY, TENANT_KEY = "trace", "tenant"

# The trace id of a W3C traceparent (lower case), else nothing: an empty value is not kept. \C is any byte, valid UTF-8
# or not. Envoy takes no much longer expression.
_TRACE_ID = r"^(?:[0-9a-f]{2}-([0-9a-f]{32})-\C*|\C*)$"


def identity_filter(tenant_header: str | None = None) -> Resource:
    """Configuration of Envoy's header-to-metadata filter, whole or as that of a virtual host.

    Envoy leaves out a header value of more than 8 KiB; how much of a shorter one is logged is the access log's.
    """
    rules = [
        {
            "header": "traceparent",
            "on_header_present": {
                "metadata_namespace": names.METADATA,
                "key": TRACE_KEY,
                "regex_value_rewrite": {"pattern": {"regex": _TRACE_ID}, "substitution": r"\1"},
            },
        }
    ]
    if tenant_header is not None:
        rules.append(
            {
                "header": tenant_header.lower(),
                "on_header_present": {"metadata_namespace": names.METADATA, "key": TENANT_KEY},
            }
        )
    return {
        "@type": "type.googleapis.com/envoy.extensions.filters.http.header_to_metadata.v3.Config",
        "request_rules": rules,
    }

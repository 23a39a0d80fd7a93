"""Names that the bootstrap, the clusters, the routes and the counters share.

Clusters are named by role, never by pool: the route table then never names a cluster that is still to come, whatever a
draft is called. The pool's name travels in `alt_stat_name` and in the endpoints' metadata.
"""

from __future__ import annotations

ROUTE_TABLE = "specfleet"
METADATA = "specfleet"
"""Key of our dynamic metadata, route metadata and endpoint metadata."""
LUA_FILTER = "envoy.filters.http.lua"
IDENTITY_FILTER = "envoy.filters.http.header_to_metadata"
BUFFER_FILTER = "envoy.filters.http.buffer"

BASELINE_HOSTS = "baseline-hosts"
SPECULATIVE_HOSTS = "speculative-hosts"
BASELINE_FIRST = "baseline-first"
SPECULATIVE_FIRST = "speculative-first"
BASELINE_ONLY = "baseline-only"

LISTENER_HEADER = "x-specfleet-listener"
"""Set by the loopback listener that reads the table back, stripped on the data port."""

CUSTOM_LABELS_HEADER = "x-custom-labels"
"""Labels by which SGLang counts a request, as a JSON object; a client's own are stripped."""

INELIGIBLE = "ineligible"
OTHER = "other"
BASELINE = "baseline"

MEASURED_PATHS = ("/v1/chat/completions", "/v1/completions")
INFERENCE_PATHS = (*MEASURED_PATHS, "/v1/responses", "/v1/messages", "/tokenize", "/detokenize")
"""POST, and OPTIONS before it."""
MODELS_PATH = "/v1/models"
"""GET, and OPTIONS before it."""


def hosts_stat(pool: str) -> str:
    """Name under which Envoy counts what the pool's own hosts do."""
    return f"hosts-{pool}"

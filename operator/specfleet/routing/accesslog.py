"""What is counted and logged of each request.

The counters carry the labels route (that matched), pool (that answered: metadata of the host) and intended (the pool
that the route aimed at). A counter whose value may be missing has a logger of its own behind a filter on presence.
"""

from __future__ import annotations

from typing import Any

from specfleet.routing.identity import TENANT_KEY, TRACE_KEY
from specfleet.routing.names import METADATA

Resource = dict[str, Any]

PREFIX = "specfleet"
STATS_TYPE = "type.googleapis.com/envoy.extensions.access_loggers.stats.v3.Config"

ROUTE = f"%METADATA(ROUTE:{METADATA}:route)%"
POOL = f"%UPSTREAM_METADATA({METADATA}:pool)%"
INTENDED = "%UPSTREAM_CLUSTER%"
LABELS = (("route", ROUTE), ("pool", POOL), ("intended", INTENDED))
TIME_LABEL = "upto_us"
"""The bucket's upper bound in microseconds, or "inf"."""
PROMPT_LABEL = "prompt_upto"
"""Upper bound of the class of prompt lengths in tokens, or "inf"."""
OUTCOME = (
    ("code", "%RESPONSE_CODE%"),
    ("flags", "%RESPONSE_FLAGS%"),
    ("phase", f"%DYNAMIC_METADATA({METADATA}:phase)%"),
)
BY_PROMPT = (*LABELS, (PROMPT_LABEL, f"%DYNAMIC_METADATA({METADATA}:prompt_class)%"))

# From the first byte of the answer's body, the first token (engines send headers long before), to the last.
DECODE_MICROSECONDS = "%COMMON_DURATION(US_RX_BODY_BEG:US_RX_END:us)%"
WHOLE_MICROSECONDS = "%COMMON_DURATION(DS_RX_BEG:US_RX_END:us)%"


LOGGED_BYTES = 128
"""Of what a client may choose freely: its request id, which is cut to this on the way to the engine too, and tenant."""
LOGGED_PATH_BYTES = 512

# An answer that Envoy gives before it has read the head of a request has an id of its own (bootstrap.py).
_ID = "X-REQUEST-ID"
REQUEST_ID = (
    f'%COALESCE({{"operators": [{{"command": "REQ", "param": "{_ID}"}}, {{"command": "RESP", "param": "{_ID}"}}]}})'
    f":{LOGGED_BYTES}%"
)


def access_loggers() -> list[Resource]:
    """The loggers of the data listener: one JSON line, and the counters."""
    return [
        _line(),
        _stats(
            None,
            _counter("requests", None, labels=(*LABELS, *OUTCOME)),
            _counter("attempts", "%UPSTREAM_REQUEST_ATTEMPT_COUNT%"),
        ),
        _stats("tokens", _counter("completion_tokens"), _counter("prompt_tokens")),
        _stats("plain", _counter("plain_measured", None), _counter("plain_decode_tokens", _value("decode_tokens"))),
        _stats(
            "speculative",
            _counter("measured", None),
            _counter("decode_tokens"),
            _counter("accepted"),
            _counter("drafted"),
            _counter("rounds"),
        ),
        _stats(
            "timed_stream",
            _counter("stream_decode_us", DECODE_MICROSECONDS),
            _counter("stream_decode_tokens", _value("decode_tokens")),
            _counter("stream_tpot", None, labels=(*LABELS, (TIME_LABEL, _value("tpot")))),
        ),
        _stats("ttft", _counter("stream_ttft", None, labels=(*LABELS, (TIME_LABEL, _value("ttft"))))),
        _stats(
            "timed_whole",
            _counter("whole_us", WHOLE_MICROSECONDS, labels=BY_PROMPT),
            _counter("whole_tokens", _value("completion_tokens"), labels=BY_PROMPT),
            _counter("whole_answers", None, labels=BY_PROMPT),
        ),
        _stats("lua_error", _counter("lua_errors", None, labels=())),
    ]


def active_logger() -> Resource:
    """The upstream logger that counts the requests an engine is working on, by route and pool."""
    return {
        "name": "envoy.access_loggers.stats",
        # Only the beginning: the gauge is taken back when the stream is gone, and an end without a beginning (a refused
        # connection) would be logged as an error.
        "filter": {"log_type_filter": {"types": ["UpstreamPoolReady"]}},
        "typed_config": {
            "@type": STATS_TYPE,
            "stats_scope": {"prefix": PREFIX},
            "gauges": [
                {
                    "stat": {"name": "active", "tags": _tags((("route", ROUTE), ("pool", POOL)))},
                    "value_fixed": 1,
                    "add_subtract": {"add_log_type": "UpstreamPoolReady", "sub_log_type": "UpstreamEnd"},
                }
            ],
        },
    }


def _value(key: str) -> str:
    return f"%DYNAMIC_METADATA({METADATA}:{key})%"


def _tags(labels: tuple[tuple[str, str], ...]) -> list[Resource]:
    return [{"name": name, "value_format": value} for name, value in labels]


_OWN_VALUE = "own"


def _counter(name: str, value: str | None = _OWN_VALUE, labels: tuple[tuple[str, str], ...] = LABELS) -> Resource:
    """A counter that adds the metadata of its own name, another format's value, or (None) one."""
    counter: Resource = {"stat": {"name": name, "tags": _tags(labels)}}
    if value is None:
        counter["value_fixed"] = 1
    else:
        counter["value_format"] = _value(name) if value == _OWN_VALUE else value
    return counter


def _present(key: str) -> Resource:
    return {
        "metadata_filter": {
            "matcher": {
                "filter": METADATA,
                "path": [{"key": key}],
                "value": {"present_match": True},
            },
            "match_if_key_not_found": False,
        }
    }


def _stats(present: str | None, *counters: Resource) -> Resource:
    logger: Resource = {
        "name": "envoy.access_loggers.stats",
        "typed_config": {"@type": STATS_TYPE, "stats_scope": {"prefix": PREFIX}, "counters": list(counters)},
    }
    if present is not None:
        logger["filter"] = _present(present)
    return logger


def _line() -> Resource:
    """One JSON line a request on standard output. No part of a prompt or an answer is in it."""
    fields = {
        "time": "%START_TIME(%Y-%m-%dT%H:%M:%S.%3fZ)%",
        "requestId": REQUEST_ID,
        "traceId": _value(TRACE_KEY),
        "tenant": f"%DYNAMIC_METADATA({METADATA}:{TENANT_KEY}):{LOGGED_BYTES}%",
        "method": "%REQ(:METHOD)%",
        "path": f"%PATH(NQ:PATH):{LOGGED_PATH_BYTES}%",
        "route": f"%METADATA(ROUTE:{METADATA}:user_route)%",
        "countedAs": ROUTE,
        "pool": POOL,
        "intended": INTENDED,
        "host": "%UPSTREAM_HOST%",
        "model": _value("model"),
        "promptHash": _value("prompt_hash"),
        "revision": f"%UPSTREAM_METADATA({METADATA}:revision)%",
        "routesVersion": f"%METADATA(ROUTE:{METADATA}:version)%",
        "status": "%RESPONSE_CODE%",
        "flags": "%RESPONSE_FLAGS%",
        "details": "%RESPONSE_CODE_DETAILS%",
        "phase": _value("phase"),
        "attempts": "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
        "latencyMs": "%DURATION%",
        "ttftMs": "%COMMON_DURATION(DS_RX_BEG:US_RX_BODY_BEG:ms)%",
        "promptTokens": _value("prompt_tokens"),
        "completionTokens": _value("completion_tokens"),
        "acceptedTokens": _value("accepted"),
        "draftedTokens": _value("drafted"),
        "bytesIn": "%BYTES_RECEIVED%",
        "bytesOut": "%BYTES_SENT%",
    }
    return {
        "name": "envoy.access_loggers.stdout",
        "typed_config": {
            "@type": "type.googleapis.com/envoy.extensions.access_loggers.stream.v3.StdoutAccessLog",
            "log_format": {"json_format": fields},
        },
    }

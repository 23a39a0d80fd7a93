"""What a fleet's routers say for themselves: what they serve, and what they counted."""

from __future__ import annotations

import json
import time
import urllib.request
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

from specfleet.routing.counters import COUNTS, STATS_PATH, RouteRow, parse_stats
from tests.node.install import pods_of
from tests.node.kube import Kube, ready_pods

READ_PORT = 9902

RowKey = tuple[str, str, str]
"""Route, pool that answered, intended pool."""


def addresses(kube: Kube, name: str, namespace: str) -> list[str]:
    """Pod addresses of the ready routers."""
    routers = [
        pod
        for pod in pods_of(kube, name, namespace)
        if pod["metadata"]["labels"]["app.kubernetes.io/component"] == "router"
    ]
    return [pod["status"]["podIP"] for pod in ready_pods(routers)]


def served(address: str) -> dict[str, Any]:
    """Version and weights that one router serves."""
    document: dict[str, Any] = json.loads(_read(address, "/served"))
    return document


def all_serve(kube: Kube, name: str, namespace: str, route: str, pool: str, percents: range) -> bool:
    """Whether every router sends a share of `route` to `pool` that lies in `percents`."""
    found = [served(address)["routes"][route][pool] for address in addresses(kube, name, namespace)]
    return bool(found) and all(one in percents for one in found)


def all_reach(kube: Kube, name: str, namespace: str, pool: str) -> bool:
    """Whether every router has found a pod of the pool, and that pod has passed its health check."""
    pages = [_read(address, STATS_PATH) for address in addresses(kube, name, namespace)]
    return bool(pages) and all(parse_stats(page, time.time()).healthy.get(pool, 0) > 0 for page in pages)


def rows(kube: Kube, name: str, namespace: str) -> dict[RowKey, RouteRow]:
    """The counters of all routers, summed."""
    sums: dict[RowKey, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for address in addresses(kube, name, namespace):
        for row in parse_stats(_read(address, STATS_PATH), time.time()).rows:
            for count in COUNTS:
                sums[row.route, row.pool, row.intended][count] += getattr(row, count)
    return {key: _row(key, counts) for key, counts in sums.items()}


def since(before: dict[RowKey, RouteRow], after: dict[RowKey, RouteRow]) -> dict[RowKey, RouteRow]:
    """What was counted between two readings of the same routers."""
    changed = {}
    for key, row in after.items():
        first = before.get(key, RouteRow(*key))
        changed[key] = _row(key, {count: getattr(row, count) - getattr(first, count) for count in COUNTS})
    return changed


def tokens_per_step(row: RouteRow) -> float:
    """L = N / (N - A)."""
    return row.decode_tokens / (row.decode_tokens - row.accepted)


def stream_ms_per_token(row: RouteRow) -> float:
    """Time per output token of streams, in milliseconds."""
    return row.stream_decode_us / row.stream_decode_tokens / 1000.0


def _row(key: RowKey, counts: Mapping[str, Any]) -> RouteRow:
    return RouteRow(*key, **counts)


def _read(address: str, path: str) -> bytes:
    with urllib.request.urlopen(f"http://{address}:{READ_PORT}{path}", timeout=10) as response:
        body: bytes = response.read()
    return body

"""Where traffic goes now, by those who send it: for a route of which neither memory nor status says anything. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from specfleet.api.names import routes_object
from specfleet.cluster.applied import unpacked
from specfleet.cluster.kinds import CONFIG_MAP
from specfleet.handlers.observed import OwnedRecord
from specfleet.handlers.plan import ObjectId
from specfleet.metrics.direct import Served
from specfleet.routing.process import SERVED_PATH

try:
    from yaml import CSafeLoader as SafeLoader
except ImportError:
    from yaml import SafeLoader  # type: ignore[assignment]


def traffic(
    answers: Iterable[Served], owned: Mapping[ObjectId, OwnedRecord], deployment: str, draft: str
) -> dict[str, int]:
    """Speculative percent by route: what the routers that answer agree on, else what their files say."""
    found = _in_files(owned.get((CONFIG_MAP, routes_object(deployment))), draft)
    answers = list(answers)
    for route in {route for one in answers for route in one.speculative_percent}:
        said = [one.speculative_percent[route] for one in answers if route in one.speculative_percent]
        if len(said) == len(answers) and len(set(said)) == 1:
            found[route] = said[0]
    return found


def _in_files(record: OwnedRecord | None, draft: str) -> dict[str, int]:
    """By the ConfigMap that routers mount; nothing where it is not there, not at hand, or not of our making."""
    if record is None or record.body is None:
        return {}
    try:
        table = yaml.load(unpacked(record.body)["data"]["rds.yaml"], Loader=SafeLoader)
        routes = [route for host in table["resources"][0]["virtual_hosts"] for route in host["routes"]]
        return {str(route): int(pools.get(draft, 0)) for route, pools in _served(routes)["routes"].items()}
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, yaml.YAMLError):
        return {}


def _served(routes: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """What GET /served answers by this table."""
    route = next((one for one in routes if one.get("match", {}).get("path") == SERVED_PATH), None)
    if route is None:
        raise ValueError("a table without its own account")
    document: dict[str, Any] = json.loads(route["direct_response"]["body"]["inline_string"])
    return document

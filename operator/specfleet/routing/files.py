"""The two ConfigMaps of a router as text: what never changes, and what routing, policy and sizes change."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import yaml

try:
    from yaml import CSafeDumper as SafeDumper  # four times as fast, the same text
except ImportError:
    from yaml import SafeDumper  # type: ignore[assignment]

from specfleet.routing.bootstrap import Places, bootstrap
from specfleet.routing.clusters import clusters
from specfleet.routing.plan import RouterPlan
from specfleet.routing.table import route_table


def bootstrap_files(places: Places | None = None) -> dict[str, str]:
    """Data of ConfigMap NAME-router: bootstrap.yaml and filter.lua, the same for every deployment."""
    return dict(_bootstrap_files(places or Places()))


@cache
def _bootstrap_files(places: Places) -> dict[str, str]:
    parts = files("specfleet.routing")
    lua = "".join(parts.joinpath(name).read_text(encoding="utf-8") for name in ("hmac.lua", "filter.lua"))
    return {"bootstrap.yaml": _yaml(bootstrap(places)), "filter.lua": lua}


def routes_files(plan: RouterPlan) -> dict[str, str]:
    """Data of ConfigMap NAME-routes: cds.yaml and rds.yaml, each one discovery response of `plan.version`."""
    return {
        "cds.yaml": _yaml({"version_info": plan.version, "resources": clusters(plan)}),
        "rds.yaml": _yaml({"version_info": plan.version, "resources": [route_table(plan)]}),
    }


def _yaml(document: dict[str, Any]) -> str:
    return yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)


class _Dumper(SafeDumper):
    """Writes values in full: anchors would make a diff of two tables unreadable."""

    def ignore_aliases(self, data: object) -> bool:
        return True

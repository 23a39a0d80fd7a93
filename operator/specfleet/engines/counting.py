"""Engines whose own pages have to be read, since their answers carry no figures. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specfleet.api.v1alpha1 import EngineType, SpecDeploymentSpec
from specfleet.engines import sglang, sglang_tables


@dataclass(frozen=True)
class EngineCounting:
    """Where a rendered engine's counters are read.

    Args:
        port: of its metrics page.
        label: under which it counts by route.
        since: the first release that counts what decisions rest on.
    """

    port: int
    label: str
    since: str


_COUNTING: Mapping[EngineType, EngineCounting] = {
    EngineType.SGLANG: EngineCounting(sglang.PORT, sglang_tables.ROUTE_LABEL, str(sglang_tables.COUNTING_SINCE))
}


def engine_counting(spec: SpecDeploymentSpec) -> EngineCounting | None:
    """How pools that specfleet runs count; None where the routers do, or somebody else runs the pools."""
    return None if spec.external is not None else _COUNTING.get(spec.engine.type)

"""Engines whose own pages have to be read, since their answers carry no figures. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from packaging.version import Version

from specfleet.api.v1alpha1 import EngineType, SpecDeploymentSpec
from specfleet.engines import (
    sglang,
    sglang_tables,
    trtllm,
    trtllm_drafts,
    trtllm_tables,
    vllm,
    vllm_drafts,
    vllm_tables,
)
from specfleet.engines.declared import declared_release


@dataclass(frozen=True)
class EngineCounting:
    """Where a rendered engine's counters are read, and what they tell.

    Args:
        port: of its metrics page.
        label: under which it counts by route; None where it knows of no routes, which are then decided together.
        why: why the engine counts and not the routers, as the beginning of a sentence.
        lacks: what is missing where the page tells no acceptance, and what to do, as the beginning of a sentence.
        path: of its metrics page.
        silent: whether the release is known to count nothing, so that its pages are not read.
        suppressed: what may keep it from drafting beside the policy, and what to do, as a sentence; None where an
            engine that drafts nothing is not taken for one that was kept from it.
    """

    port: int
    label: str | None
    why: str
    lacks: str
    path: str = "/metrics"
    silent: bool = False
    suppressed: str | None = None


def _sglang(_: Version, __: SpecDeploymentSpec) -> EngineCounting:
    since = sglang_tables.COUNTING_SINCE
    return EngineCounting(
        sglang.PORT,
        sglang_tables.ROUTE_LABEL,
        "SGLang's answers carry no figures",
        f"The engines count no verifications, which they do from release {since} on",
    )


def _trtllm(release: Version, spec: SpecDeploymentSpec) -> EngineCounting:
    since = trtllm_tables.COUNTING_SINCE
    return EngineCounting(
        trtllm.PORT,
        None,
        "TensorRT-LLM's answers carry no figures, and its counters know of no route",
        f"TensorRT-LLM {release} counts no drafts that a decision could rest on, which it does from {since} on"
        if release < since
        else "The engines count no drafts: their pages have no series trtllm_spec_decode_*",
        path=trtllm.METRICS_PATH,
        silent=release < since,
        suppressed=trtllm_drafts.suppresses(spec),
    )


def _vllm(release: Version, spec: SpecDeploymentSpec) -> EngineCounting | None:
    if vllm_tables.has_figures(release):
        return None
    first = vllm_drafts.table().on_first_engine(spec.draft.mode, release)
    return EngineCounting(
        vllm.PORT,
        None,
        f"vLLM {release}'s answers carry no figures, which they do from {vllm_tables.FIGURES_SINCE} on",
        f"vLLM {release} does mode {spec.draft.mode} on its V0 engine, whose counters tell no acceptance"
        if first
        else "The engines count no drafts: their pages have no series vllm:spec_decode_*",
        silent=first,
    )


_COUNTING: Mapping[EngineType, Callable[[Version, SpecDeploymentSpec], EngineCounting | None]] = {
    EngineType.SGLANG: _sglang,
    EngineType.TENSORRTLLM: _trtllm,
    EngineType.VLLM: _vllm,
}


def engine_counting(spec: SpecDeploymentSpec) -> EngineCounting | None:
    """How pools that specfleet runs count; None where the routers do, or somebody else runs the pools."""
    counting = _COUNTING.get(spec.engine.type)
    if spec.external is not None or counting is None:
        return None
    version, _ = declared_release(spec.engine, public_image="", newest="", in_full=False)
    return None if version is None else counting(version, spec)

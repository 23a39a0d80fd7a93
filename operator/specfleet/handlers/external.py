"""What External pools come to, from how they were seen: facts, problems, and who counts. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from specfleet.api.conditions import Reason
from specfleet.api.findings import Finding
from specfleet.api.v1alpha1 import EngineType, SpecDeploymentSpec
from specfleet.engines.external import ExternalPool
from specfleet.engines.release import parse_version
from specfleet.engines.vllm_tables import FIGURES_SINCE
from specfleet.handlers.pods import Problem
from specfleet.handlers.seen import SeenPool, is_rolling
from specfleet.handlers.seen_facts import pool_facts
from specfleet.handlers.unfit import unfit, warnings

Attribution = Literal["Router", "Deployment"]
FIGURES_FLAG = "--per-request-spec-decode-metrics summary"
COUNTER_SINCE = "0.5.13"
TOGETHER = "all routes are decided together, from the engines' own counters"


@dataclass(frozen=True)
class Assessment:
    """What the pools of one SpecDeployment come to.

    Attributes:
        pools: facts by pool name, for the router's files.
        problems: why a pool cannot serve, by name.
        unfit: why the two are not one pool with speculation and one without; nothing is decided then.
        rolling: pools whose pods are being replaced by others.
        attribution: who counts what is accepted, and `why`, in a sentence.
        counters: what keeps the engines' counters from being read; empty where they are, or are not needed.
        capacity: requests that each pool runs at once; None where a pod's limit is not known.
        draft_tokens: k.
        warnings: what a person should know of.
    """

    pools: Mapping[str, ExternalPool]
    problems: Mapping[str, Problem] = field(default_factory=dict)
    unfit: Problem | None = None
    rolling: frozenset[str] = frozenset()
    attribution: Attribution = "Router"
    why: str = ""
    counters: Problem | None = None
    capacity: Mapping[str, int | None] = field(default_factory=dict)
    draft_tokens: int = 1
    warnings: tuple[Finding, ...] = ()


def assess_pools(
    spec: SpecDeploymentSpec,
    seen: Mapping[str, SeenPool],
    *,
    figures_seen: bool = False,
    before: Assessment | None = None,
) -> Assessment:
    """The assessment of what was seen.

    Args:
        seen: by pool name; a side that the spec does not have is missing.
        figures_seen: whether a router has counted figures in answers of the speculative pool.
        before: the last one, which stands where pods are gone or do not agree.
    """
    draft = spec.draft.name
    pools = {name: pool_facts(spec, pool) for name, pool in seen.items()}
    rolling = frozenset(name for name, pool in seen.items() if is_rolling(pool))
    speculative = seen.get(draft)
    draft_tokens = spec.draft.tokens
    attribution: Attribution = "Router"
    why, counters = "", None
    if speculative is not None:
        told = pools[draft].draft_tokens
        if told is None and before is not None and (draft in rolling or not speculative.staying):
            told = before.draft_tokens
        draft_tokens = told or spec.draft.tokens
        attribution, why = _attribution(spec.engine.type, pools[draft], figures_seen)
        if before is not None and not speculative.staying:
            attribution, why = before.attribution, before.why
        if attribution == "Deployment":
            counters = _counters(spec, speculative, why, draft_tokens)
    return Assessment(
        pools=pools,
        problems={name: pool.problem for name, pool in seen.items() if pool.problem is not None},
        unfit=unfit(draft, seen, rolling),
        rolling=rolling,
        attribution=attribution,
        why=why,
        counters=counters,
        capacity={name: _capacity(pools[name]) for name in seen},
        draft_tokens=draft_tokens,
        warnings=tuple(warnings(spec, seen, pools)),
    )


def sentence(text: str) -> str:
    """With a capital at its beginning, unless that is a name such as vLLM."""
    return f"{text[:1].upper()}{text[1:]}" if text.partition(" ")[0].islower() else text


def _capacity(pool: ExternalPool) -> int | None:
    return None if pool.max_sequences is None else pool.max_sequences * pool.ready


def _attribution(engine: EngineType, pool: ExternalPool, figures_seen: bool) -> tuple[Attribution, str]:
    """Who counts what is accepted, and why it is not the routers."""
    if not pool.pods:
        return "Router", ""
    if engine is EngineType.SGLANG:
        return "Deployment", f"SGLang's answers carry no figures of their own: {TOGETHER}"
    if pool.figures_per_request or (pool.figures_per_request is None and figures_seen):
        return "Router", ""
    version = parse_version(pool.release) if pool.release is not None else None
    if version is not None and version < FIGURES_SINCE:
        return "Deployment", f"vLLM {pool.release} has no figures per request ({FIGURES_SINCE} has): {TOGETHER}"
    add = f"add {FIGURES_FLAG} to the arguments of the pods of Service {pool.service}"
    if version is None:
        add += f" if their vLLM is {FIGURES_SINCE} or newer"
    if pool.figures_per_request is None:
        return "Deployment", f"no answer has carried figures yet: {TOGETHER}. For a decision by route {add}"
    return "Deployment", f"the answers carry no figures: {TOGETHER}. For a decision by route {add}"


def _counters(spec: SpecDeploymentSpec, pool: SeenPool, why: str, draft_tokens: int) -> Problem | None:
    """What keeps the engines' counters from being read, where decisions rest on them."""
    ready = [pod for pod in pool.pods if pod.ready]
    troubled = [pod for pod in ready if pod.trouble is not None]
    told = f"{sentence(why)}."
    if ready and len(troubled) * 2 > len(ready):
        first = troubled[0]
        reason = Reason.ENGINE_METRICS_LOCKED if first.locked else Reason.ENGINE_METRICS_UNREADABLE
        return Problem(reason, f"{told} Pod {first.name}: {first.trouble}. The last decision holds")
    read = [pod.reading for pod in ready if pod.reading is not None]
    if not read or any(one.totals(draft_tokens) is not None for one in read):
        return None
    lacks = None
    if spec.engine.type is EngineType.SGLANG:
        lacks = f"They count no verifications: SGLang has sglang:spec_verify_calls_total from {COUNTER_SINCE} on"
    elif spec.engine.type is EngineType.VLLM and any(one.speculative for one in read):
        lacks = "They are of vLLM's V0 engine (up to 0.9.2), which adds its totals up anew with each look: use V1"
    return None if lacks is None else Problem(Reason.ENGINE_COUNTS_NOTHING, f"{told} {lacks}. The last decision holds")

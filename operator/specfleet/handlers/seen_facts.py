"""From External pools as they were read to facts for the router's files. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from specfleet.api.v1alpha1 import EngineType, SpecDeploymentSpec
from specfleet.engines.arguments import ReadArguments
from specfleet.engines.external import ExternalPod, ExternalPool
from specfleet.engines.release import parse_version, tag_version
from specfleet.handlers.seen import SeenPod, SeenPool

T = TypeVar("T")
VLLM_MAX_SEQUENCES = 256  # vLLM's own default for its server; on large accelerators it takes more


def pool_facts(spec: SpecDeploymentSpec, pool: SeenPool) -> ExternalPool:
    kinds = {pod.speculative for pod in pool.staying}
    arguments = [pod.arguments for pod in pool.staying if pod.readable and pod.arguments is not None]
    read = len(arguments) == len(pool.staying) and bool(arguments)
    whole = read and all(pod.whole for pod in pool.staying)
    figures = [one.figures_per_request for one in arguments]
    served = [set(one.served_names) for one in arguments]
    return ExternalPool(
        name=pool.name,
        service=pool.asked.service,
        headless=pool.headless,
        port=pool.port or pool.asked.port,
        pods=tuple(_pod_facts(pod) for pod in pool.staying),
        problem=None if pool.problem is None else pool.problem.message,
        release=_release(spec, pool),
        draft_tokens=_one_of(_draft_tokens(pod) for pod in pool.staying),
        draft_mode=_one_of(one.mode for one in arguments),
        model=_one_of(one.model for one in arguments),
        max_sequences=_max_sequences(spec.engine.type, pool),
        speculative=next(iter(kinds)) if len(kinds) == 1 else None,
        figures_per_request=all(figures) if whole or (read and all(figures)) else None,
        forced_usage=any(one.usage_forced for one in arguments) if whole else None,
        served_names=tuple(sorted(set.intersection(*served))) if read else (),
        api_key=any(one.api_key for one in arguments) if whole else None,
    )


def _pod_facts(pod: SeenPod) -> ExternalPod:
    read = pod.arguments
    words = None
    if read is not None and pod.readable:
        words = tuple(f"--{name}" if value is None else f"--{name}={value}" for name, value in read.flags)
    return ExternalPod(
        name=pod.name,
        ip=pod.endpoint.address,
        ready=pod.ready,
        args=words,
        image=pod.image,
        uid=pod.uid,
        metrics=None if pod.reading is None else pod.reading.facts(),
        metrics_problem=pod.trouble,
    )


def _one_of(values: Iterable[T | None]) -> T | None:
    """The value that all who tell one tell."""
    told = {value for value in values if value is not None}
    return told.pop() if len(told) == 1 else None


def _draft_tokens(pod: SeenPod) -> int | None:
    read = _depth(pod.arguments) if pod.readable and pod.arguments is not None else None
    return read if read is not None else pod.reading.tokens_a_round if pod.reading is not None else None


def _depth(read: ReadArguments) -> int | None:
    """k; of a tree of drafts its depth, since no more of it can be accepted in a step."""
    config = read.speculative or {}
    width, depth = config.get("eagle_topk"), config.get("num_steps")
    if read.engine is EngineType.SGLANG and isinstance(width, int) and width > 1 and isinstance(depth, int):
        return depth
    return read.draft_tokens


def _release(spec: SpecDeploymentSpec, pool: SeenPool) -> str | None:
    """The oldest of the pods': what the engine tells, else its image's tag; else what the SpecDeployment says."""
    told = [parse_version(text) for pod in pool.staying if (text := pod.release or _tagged(pod)) is not None]
    known = [version for version in told if version is not None]
    if known:
        return str(min(known).public)
    stated = parse_version(spec.engine.version) if spec.engine.version is not None else None
    return None if stated is None else str(stated.public)


def _tagged(pod: SeenPod) -> str | None:
    version = tag_version(pod.image) if pod.image else None
    # A private image may be numbered on its own: no release of vLLM or SGLang begins with 1.
    return str(version) if version is not None and version.major == 0 else None


def _max_sequences(engine: EngineType, pool: SeenPool) -> int | None:
    """Requests that one pod runs at once: what a person wrote, else the smallest of the pods' own limits."""
    if pool.asked.max_sequences is not None:
        return pool.asked.max_sequences
    limits: list[int] = []
    for pod in pool.staying:
        limit = pod.arguments.max_sequences if pod.readable and pod.arguments is not None else None
        if limit is None and pod.whole and engine is EngineType.VLLM:
            limit = VLLM_MAX_SEQUENCES
        if limit is None:
            return None
        limits.append(limit)
    return min(limits) if limits else None

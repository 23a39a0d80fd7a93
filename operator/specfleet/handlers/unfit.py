"""What is wrong with External pools, and what a person should know of them, in sentences. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from specfleet.api.conditions import Reason
from specfleet.api.findings import Finding, FindingReason, warning
from specfleet.api.names import BASELINE_POOL
from specfleet.api.v1alpha1 import EngineType, SpecDeploymentSpec
from specfleet.engines.external import ExternalPool
from specfleet.handlers.masking import masked
from specfleet.handlers.pods import Problem
from specfleet.handlers.seen import SeenPod, SeenPool

SHOWN = 3


def unfit(draft: str, seen: Mapping[str, SeenPool], rolling: frozenset[str]) -> Problem | None:
    """Why the pools are not one with speculation, called `draft`, and one without; `rolling` ones may differ."""
    baseline, speculative = seen.get(BASELINE_POOL), seen.get(draft)
    if baseline is not None and speculative is not None:
        shared = {p.uid: p.name for p in baseline.staying}.keys() & {p.uid for p in speculative.staying}
        if shared:
            names = _names(pod for pod in speculative.staying if pod.uid in shared)
            return Problem(
                Reason.POOLS_OVERLAP,
                f"Services {baseline.asked.service} and {speculative.asked.service} both select {names}: "
                "narrow their selectors, so that one has the pods with speculation and the other those without",
            )
    kinds = {name: _kind(pool) for name, pool in seen.items()}
    for name, pool in seen.items():
        if kinds[name] == "mixed" and name not in rolling:
            return _mixed(pool)
    if kinds.get(draft) == "plain" and kinds.get(BASELINE_POOL) == "speculative":
        assert speculative is not None
        assert baseline is not None
        return Problem(
            Reason.POOLS_SWAPPED,
            f"the pods of Service {speculative.asked.service} do not speculate and those of "
            f"{baseline.asked.service} do: exchange the two names in pools.external",
        )
    if kinds.get(draft) == "plain" and draft not in rolling:
        assert speculative is not None
        return Problem(
            Reason.PODS_DO_NOT_SPECULATE,
            f"the pods of Service {speculative.asked.service} ({_names(speculative.staying)}) were started without "
            f"speculation: {_SPECULATION_FLAG[_engine(speculative)]}, or name the Service of those that have it",
        )
    if kinds.get(BASELINE_POOL) == "speculative" and BASELINE_POOL not in rolling:
        assert baseline is not None
        return Problem(
            Reason.BASELINE_SPECULATES,
            f"the pods of Service {baseline.asked.service} ({_names(baseline.staying)}) were started with speculation: "
            "name the Service of those that have none in pools.external.baseline",
        )
    return None


_SPECULATION_FLAG = {
    EngineType.VLLM: "start them with --speculative-config",
    EngineType.SGLANG: "start them with --speculative-algorithm",
}


def _engine(pool: SeenPool) -> EngineType:
    found = [pod.arguments.engine for pod in pool.staying if pod.arguments is not None]
    return next((one for one in found if one is not None), EngineType.VLLM)


def _kind(pool: SeenPool) -> Literal["plain", "speculative", "mixed"] | None:
    kinds = {pod.speculative for pod in pool.staying} - {None}
    if len(kinds) > 1:
        return "mixed"
    return None if not kinds else "speculative" if kinds == {True} else "plain"


def _mixed(pool: SeenPool) -> Problem:
    on = _names(pod for pod in pool.staying if pod.speculative)
    off = _names(pod for pod in pool.staying if pod.speculative is False)
    return Problem(
        Reason.MIXED_PODS,
        f"Service {pool.asked.service} selects pods that speculate ({on}) and pods that do not ({off}): "
        "narrow its selector, or make a Service for each kind",
    )


def _names(pods: Iterable[SeenPod]) -> str:
    names = [pod.name for pod in pods]
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def warnings(
    spec: SpecDeploymentSpec, seen: Mapping[str, SeenPool], pools: Mapping[str, ExternalPool]
) -> Iterator[Finding]:
    """What was taken from the SpecDeployment because it could not be read, and what is lost."""
    for name, pool in seen.items():
        side = "baseline" if name == BASELINE_POOL else "speculative"
        path = f"spec.pools.external.{side}"
        if pool.problem is not None:
            continue
        if pool.service is not None and not pool.headless and not pool.service.external_name:
            yield warning(
                FindingReason.SERVICE_HAS_CLUSTER_IP,
                f"{path}.service",
                f"Service {pool.asked.service} has a cluster IP: the node's proxy picks the pod, so that routers "
                "balance by connection, cannot pass over a sick pod and retry on the same one; a headless Service "
                "(clusterIP: None) over the same pods mends that",
            )
        yield from _argument_warnings(pool, path)
        if pool.staying and pools[name].max_sequences is None:
            yield warning(
                FindingReason.MISSING_FIELD,
                f"{path}.maxSequences",
                f"how many requests a pod of {pool.asked.service} runs at once cannot be read from its arguments; "
                "nothing moves to it until you write maxSequences",
            )
    speculative = pools.get(spec.draft.name)
    if speculative is not None and speculative.speculative and speculative.draft_tokens is None:
        yield from _unknown_k(spec)
    for pool_facts in pools.values():
        if pool_facts.pods and pool_facts.release is None:
            yield warning(
                FindingReason.RELEASE_UNKNOWN,
                "spec.engine.version",
                f"the release of the pods of {pool_facts.service} cannot be read from image tag or engine: "
                'write engine.version, for instance "0.32.0"',
            )
            break


def _unknown_k(spec: SpecDeploymentSpec) -> Iterator[Finding]:
    if not spec.drafts:
        yield warning(
            FindingReason.MISSING_FIELD,
            "spec.drafts",
            f"how many tokens the pods draft a round cannot be read; {spec.draft.tokens} are taken: write drafts: "
            "[{name: ngram, mode: NGram, tokens: ...}]",
        )


def _argument_warnings(pool: SeenPool, path: str) -> Iterator[Finding]:
    for pod in pool.staying:
        read = pod.arguments
        if read is not None and not pod.whole:
            said = masked(read.problems[0], 240) if read.problems else "its container has no arguments"
            yield warning(
                FindingReason.ARGUMENTS_UNREADABLE,
                f"{path}.service",
                f"the arguments of pod {pod.name} cannot be read ({said}): what its counters do not tell is taken from "
                "engine.version, drafts[0].tokens and maxSequences",
            )
            return


def unread_pods(seen: Mapping[str, SeenPool]) -> str:
    """A sentence about pods whose metrics page cannot be read; empty where all can."""
    for pool in seen.values():
        troubled = [pod for pod in pool.staying if pod.trouble is not None]
        if troubled:
            more = f" ({len(troubled)} of {len(pool.staying)} pods)" if len(pool.staying) > 1 else ""
            return f"Pod {troubled[0].name} of pool {pool.name}{more}: {troubled[0].trouble}."
    return ""

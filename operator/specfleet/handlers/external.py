"""External pools as they were seen: facts for the router's files, what is wrong with them, and who counts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, TypeVar

from packaging.version import Version

from specfleet.api.conditions import Reason
from specfleet.api.findings import Finding, FindingReason, warning
from specfleet.api.names import BASELINE_POOL
from specfleet.api.v1alpha1 import EngineType, ExternalService, SpecDeploymentSpec
from specfleet.cluster.endpoints import Endpoint, PodFacts, ServiceFacts
from specfleet.engines.arguments import ReadArguments
from specfleet.engines.external import ExternalPod, ExternalPool
from specfleet.engines.release import parse_version, tag_version
from specfleet.handlers.masking import masked
from specfleet.handlers.pods import Problem
from specfleet.metrics.engine import EngineReading

T = TypeVar("T")
Attribution = Literal["Router", "Deployment"]
FIGURES_FLAG = "--per-request-spec-decode-metrics summary"
FIGURES_SINCE = Version("0.29.0")
COUNTER_SINCE = "0.5.13"
VLLM_MAX_SEQUENCES = 256  # vLLM's own default for its server; on large accelerators it takes more
SHOWN = 3


@dataclass(frozen=True)
class SeenPod:
    """One pod behind a Service, as it was read.

    Attributes:
        facts: None where no pod of that name is there, or the endpoint is none.
        arguments: of the engine's container; None where there is no pod to read them from.
        reading: its counters; without them `trouble` says why, and `locked` that the pod wants a key.
        release: what the engine itself tells.
    """

    endpoint: Endpoint
    facts: PodFacts | None = None
    arguments: ReadArguments | None = None
    image: str = ""
    reading: EngineReading | None = None
    trouble: str | None = None
    locked: bool = False
    release: str | None = None

    @property
    def name(self) -> str:
        """Of the pod; the address where there is none."""
        return self.endpoint.pod or self.endpoint.address

    @property
    def uid(self) -> str:
        """Of the pod; the address where there is none."""
        return self.endpoint.uid or self.endpoint.address

    @property
    def ready(self) -> bool:
        """Whether it takes new requests."""
        return self.endpoint.ready and not self.endpoint.leaving

    @property
    def readable(self) -> bool:
        """Whether its command line says how the engine was started."""
        read = self.arguments
        return read is not None and not read.shell and read.engine is not None and bool(read.flags or read.model)

    @property
    def whole(self) -> bool:
        """Whether all of its arguments are seen: none come from a file."""
        return (
            self.readable and self.arguments is not None and all(name != "config" for name, _ in self.arguments.flags)
        )

    @property
    def speculative(self) -> bool | None:
        """Whether it speculates: by its counters, which no configuration file can belie, else by its arguments."""
        if self.reading is not None and self.reading.speculative is not None:
            return self.reading.speculative
        if self.readable and self.arguments is not None and self.arguments.speculative is not None:
            return True
        return False if self.whole else None


@dataclass(frozen=True)
class SeenPool:
    """One side of the pools. `problem`: why it has no pod that could serve. `port`: what a router dials."""

    name: str
    asked: ExternalService
    service: ServiceFacts | None = None
    port: int = 0
    pods: tuple[SeenPod, ...] = ()
    problem: Problem | None = None

    @property
    def headless(self) -> bool:
        """Whether its name yields the pods' addresses."""
        return self.service is not None and self.service.headless

    @property
    def staying(self) -> tuple[SeenPod, ...]:
        """Pods that are not about to go."""
        return tuple(pod for pod in self.pods if not pod.endpoint.leaving)

    @property
    def ready(self) -> int:
        """Pods that take requests."""
        return sum(pod.ready for pod in self.pods)


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
    pools = {name: _facts(spec, pool) for name, pool in seen.items()}
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
        unfit=_unfit(draft, seen, rolling),
        rolling=rolling,
        attribution=attribution,
        why=why,
        counters=counters,
        capacity={name: _capacity(pools[name]) for name in seen},
        draft_tokens=draft_tokens,
        warnings=tuple(_warnings(spec, seen, pools)),
    )


def is_rolling(pool: SeenPool) -> bool:
    """Whether pods of one controller differ in template, arguments or image, as they do while it replaces them."""
    families: dict[str, set[tuple[str, str]]] = {}
    for pod in pool.staying:
        if pod.facts is not None:
            families.setdefault(pod.facts.family, set()).add((pod.facts.template, pod.facts.fingerprint))
    return any(len(templates) > 1 for templates in families.values())


def sentence(text: str) -> str:
    """With a capital at its beginning, unless that is a name such as vLLM."""
    return f"{text[:1].upper()}{text[1:]}" if text.partition(" ")[0].islower() else text


def _capacity(pool: ExternalPool) -> int | None:
    return None if pool.max_sequences is None else pool.max_sequences * pool.ready


# --- facts


def _facts(spec: SpecDeploymentSpec, pool: SeenPool) -> ExternalPool:
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


# --- what is wrong


def _unfit(draft: str, seen: Mapping[str, SeenPool], rolling: frozenset[str]) -> Problem | None:
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


# --- who counts


def _attribution(engine: EngineType, pool: ExternalPool, figures_seen: bool) -> tuple[Attribution, str]:
    """Who counts what is accepted, and why it is not the routers."""
    if not pool.pods:
        return "Router", ""
    together = "all routes are decided together, from the engines' own counters"
    if engine is EngineType.SGLANG:
        return "Deployment", f"SGLang's answers carry no figures of their own: {together}"
    if pool.figures_per_request or (pool.figures_per_request is None and figures_seen):
        return "Router", ""
    version = parse_version(pool.release) if pool.release is not None else None
    if version is not None and version < FIGURES_SINCE:
        return "Deployment", f"vLLM {pool.release} has no figures per request ({FIGURES_SINCE} has): {together}"
    add = f"add {FIGURES_FLAG} to the arguments of the pods of Service {pool.service}"
    if version is None:
        add += f" if their vLLM is {FIGURES_SINCE} or newer"
    if pool.figures_per_request is None:
        return "Deployment", f"no answer has carried figures yet: {together}. For a decision by route {add}"
    return "Deployment", f"the answers carry no figures: {together}. For a decision by route {add}"


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
    if spec.engine.type is EngineType.SGLANG and read and all(one.totals(draft_tokens) is None for one in read):
        return Problem(
            Reason.ENGINE_COUNTS_NOTHING,
            f"{told} They count no verifications: SGLang has sglang:spec_verify_calls_total from {COUNTER_SINCE} "
            "on. The last decision holds",
        )
    return None


# --- what a person should know


def _warnings(
    spec: SpecDeploymentSpec, seen: Mapping[str, SeenPool], pools: Mapping[str, ExternalPool]
) -> Iterator[Finding]:
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

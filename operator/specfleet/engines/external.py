"""Engines that somebody else runs: what is known of them, filled in by the operator from the cluster. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class EngineMetrics:
    """Counters of one engine process since it started.

    Args:
        running: requests that it works on.
        waiting: requests that wait in it.
        output_tokens: tokens that it generated.
        speculative: whether its page has counters of speculation.
        drafts: rounds in which something was drafted.
        draft_tokens: tokens that were drafted.
        accepted_tokens: of those, what the target accepted.
        started_at: seconds since the epoch at which the process began, where it says so.
    """

    running: int
    waiting: int
    output_tokens: int
    speculative: bool
    drafts: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0
    started_at: float | None = None


@dataclass(frozen=True)
class ExternalPod:
    """One pod behind a Service.

    Args:
        ready: as Kubernetes says.
        args: the engine's command line without the program; None where it runs through a shell script or has none.
        metrics: its counters; None where they could not be read, and `metrics_problem` says why.
    """

    name: str
    ip: str
    ready: bool
    args: tuple[str, ...] | None
    image: str
    uid: str
    metrics: EngineMetrics | None = None
    metrics_problem: str | None = None


@dataclass(frozen=True)
class ExternalPool:
    """One side of a SpecDeployment whose pods somebody else runs.

    None means that it is not known, never "no".

    Args:
        name: of the pool: `baseline`, or the draft's.
        service: in the SpecDeployment's namespace.
        headless: whether its DNS name yields the pods' addresses; else one, behind which the node's proxy picks.
        port: what a router dials: the endpoints' port of a headless Service, the Service's port of one with an address.
        problem: why it has no pod that could serve, in one sentence: no such Service, no endpoints, no such port.
        release: the engine's, such as `0.32.0`; that of the oldest pod where they differ.
        draft_tokens: k, where all pods that tell have one.
        draft_mode: how its command line says that tokens are drafted, in the engine's own word.
        max_sequences: requests that one pod runs at once; the smallest, where pods differ.
        speculative: whether its pods speculate.
        figures_per_request: whether all its pods put acceptance figures into answers.
        forced_usage: whether a pod was started with usage on every chunk of a stream.
        model: what its pods load, a Hub id or a path, where all that tell have one.
        served_names: model names that all its pods take; empty where they could not be read.
        api_key: whether its command line asks for an API key.
        problems: what else was seen, in sentences: pods of both kinds, arguments in a shell script, metrics on no port.
    """

    name: str
    service: str
    headless: bool
    port: int
    pods: tuple[ExternalPod, ...] = ()
    problem: str | None = None
    release: str | None = None
    draft_tokens: int | None = None
    draft_mode: str | None = None
    max_sequences: int | None = None
    speculative: bool | None = None
    figures_per_request: bool | None = None
    forced_usage: bool | None = None
    model: str | None = None
    served_names: tuple[str, ...] = ()
    api_key: bool | None = None
    problems: tuple[str, ...] = field(default=())

    @property
    def ready(self) -> int:
        """Pods that Kubernetes calls ready."""
        return sum(pod.ready for pod in self.pods)


def undiscovered(name: str, service: str, port: int) -> ExternalPool:
    """A pool of which only the SpecDeployment tells: taken for a headless Service with this port."""
    return ExternalPool(name=name, service=service, headless=True, port=port)


ExternalPools = Mapping[str, ExternalPool]
"""By pool name; a side that the SpecDeployment does not have is missing."""

"""What specfleet needs to know of a serving engine: facts as values, no Kubernetes objects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from specfleet.api.findings import Finding
from specfleet.api.v1alpha1 import SpecDeployment


@dataclass(frozen=True)
class EnvFact:
    """An environment variable with a value, or with one from a Secret's key `(name, key)`."""

    name: str
    value: str | None = None
    secret: tuple[str, str] | None = None


@dataclass(frozen=True)
class FileFact:
    """A file that the engine is started with: its name, the directory that it lies in, and what it holds."""

    name: str
    directory: str
    text: str


@dataclass(frozen=True)
class ProbeFact:
    """An HTTP probe of the engine's port."""

    path: str
    period_seconds: int
    timeout_seconds: int
    failure_threshold: int

    @property
    def longest_seconds(self) -> int:
        """How long the probe may fail before the kubelet acts."""
        return self.period_seconds * self.failure_threshold


@dataclass(frozen=True)
class EngineFacts:
    """How one pool's engine is started, reached, probed and ended.

    Args:
        release: the engine's release as far as it is known, such as `0.32.0`.
        args: after `command`; the only difference between the pools is what speculation adds.
        model_mount: where a volume with the model is mounted; None for a Hub model.
        draft_mount: where a volume with the draft model is mounted; None where the draft has none of its own.
        cache_mount: where the cache claim is mounted.
        accelerators: count of the accelerator resource per pod.
        max_sequences: requests that one pod runs at once; more of them wait in it.
        pre_stop_seconds: how long a pod goes on serving after it has left the Services.
        shutdown_seconds: how long the engine then lets requests in flight finish.
        refused_fields: request body members that the engine refuses under speculation.
        figures_per_request: whether answers carry their own acceptance figures.
        idle_seconds: how long a router may keep an unused connection; shorter than the engine keeps it.
        files: what the engine reads as it starts; all in one directory, of which nothing else is read.
        drain: run in the container at a pod's end, for at most `pre_stop_seconds` and `shutdown_seconds`, where the
            engine would end its requests; None where it waits for them itself.
        route_label: the label by which the engine counts by route, where it takes one from the request.
    """

    release: str
    image: str
    command: tuple[str, ...]
    args: tuple[str, ...]
    env: tuple[EnvFact, ...]
    port: int
    health_path: str
    startup: ProbeFact
    readiness: ProbeFact
    liveness: ProbeFact
    shared_memory: bool
    model_mount: str | None
    draft_mount: str | None
    cache_mount: str
    accelerators: int
    max_sequences: int
    pre_stop_seconds: int
    shutdown_seconds: int
    refused_fields: tuple[str, ...]
    figures_per_request: bool
    idle_seconds: int = 30
    route_label: str | None = None
    files: tuple[FileFact, ...] = ()
    drain: tuple[str, ...] | None = None

    @property
    def grace_seconds(self) -> int:
        """terminationGracePeriodSeconds: leave the Services, finish what runs, and a margin to exit."""
        return self.pre_stop_seconds + self.shutdown_seconds + 15


class EngineModule(Protocol):
    """One engine. Both functions are pure."""

    def check(self, deployment: SpecDeployment) -> list[Finding]:
        """Everything in the object that this engine release cannot do, in the order of the spec."""

    def facts(self, deployment: SpecDeployment, *, speculative: bool) -> EngineFacts:
        """Facts of one pool. The object must have passed `check` without errors.

        Raises:
            ValueError: it has not.
        """

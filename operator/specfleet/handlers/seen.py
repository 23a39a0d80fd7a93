"""External pools as they were read: Services, endpoints, pods, their arguments and counters. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from specfleet.api.v1alpha1 import ExternalService
from specfleet.cluster.endpoints import Endpoint, PodFacts, ServiceFacts
from specfleet.engines.arguments import ReadArguments
from specfleet.handlers.pods import Problem
from specfleet.metrics.engine import EngineReading


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


def is_rolling(pool: SeenPool) -> bool:
    """Whether pods of one controller differ in template, arguments or image, as they do while it replaces them."""
    families: dict[str, set[tuple[str, str]]] = {}
    for pod in pool.staying:
        if pod.facts is not None:
            families.setdefault(pod.facts.family, set()).add((pod.facts.template, pod.facts.fingerprint))
    return any(len(templates) > 1 for templates in families.values())

"""Looks at the Services, endpoints and pods of External pools, at the pace of a sample. It reads and never writes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from specfleet.api.conditions import Reason
from specfleet.api.names import BASELINE_POOL
from specfleet.api.v1alpha1 import EngineType, ExternalService, SpecDeploymentSpec
from specfleet.cluster.client import ApiClient
from specfleet.cluster.endpoints import (
    ENDPOINT_SLICE,
    SERVICE_LABEL,
    Endpoint,
    PodFacts,
    ServiceFacts,
    endpoints,
    engine_container,
    pod_facts,
    service_facts,
)
from specfleet.cluster.errors import ApiError
from specfleet.cluster.kinds import POD, SERVICE
from specfleet.engines.arguments import ReadArguments, read_container
from specfleet.handlers.pods import Problem
from specfleet.handlers.seen import SeenPod, SeenPool
from specfleet.metrics.engine import METRICS_PATH, EngineError, EngineReader, EngineReading

logger = logging.getLogger(__name__)
REREAD_SECONDS = 600.0  # an image may be changed in a running pod, nothing else of what is read
RIGHTS = "specfleet's ClusterRole gives get on services and pods and list on endpointslices: helm upgrade puts it back"


@dataclass
class KnownPod:
    """What was read of one pod, which hardly ever changes. `metrics_at`: port and path that had its metrics last."""

    facts: PodFacts
    arguments: ReadArguments | None
    image: str
    read_at: float
    release: str | None = None
    release_asked: bool = False
    metrics_at: tuple[int, str] | None = None


@dataclass
class Sight:
    """What was seen of one SpecDeployment's External pools. `pods` are by uid; `seen` is None before the first look."""

    seen: Mapping[str, SeenPool] | None = None
    pods: dict[str, KnownPod] = field(default_factory=dict)
    next_look: float = 0.0


class Discovery:
    """Reads of External pools. One look at a time for each SpecDeployment; the caller sees to that."""

    def __init__(self, client: ApiClient, reader: EngineReader) -> None:
        self._client = client
        self._reader = reader

    async def look(self, namespace: str, spec: SpecDeploymentSpec, sight: Sight, now: float) -> None:
        """Fill `sight.seen` anew.

        Raises:
            ClusterError: the API server does not answer; what was seen before stays.
        """
        external = spec.external
        assert external is not None
        sides = {BASELINE_POOL: external.baseline, spec.draft.name: external.speculative}
        asked = {name: side for name, side in sides.items() if side is not None}
        engine = spec.engine.type
        pools = await asyncio.gather(
            *(self._pool(namespace, name, side, engine, sight, now) for name, side in asked.items())
        )
        sight.seen = {pool.name: pool for pool in pools}
        alive = {pod.uid for pool in pools for pod in pool.pods}
        for uid in set(sight.pods) - alive:
            del sight.pods[uid]

    async def _pool(
        self, namespace: str, name: str, asked: ExternalService, engine: EngineType, sight: Sight, now: float
    ) -> SeenPool:
        pool = SeenPool(name, asked)
        try:
            # From the API server's cache: this is asked again and again, and a moment ago is soon enough.
            body = await self._service(namespace, asked.service)
            if body is None:
                return replace(pool, problem=_missing(namespace, asked))
            service = service_facts(body)
            pool = replace(pool, service=service, problem=_unusable(service, asked))
            if pool.problem is not None:
                return pool
            selector = f"{SERVICE_LABEL}={asked.service}"
            path = ENDPOINT_SLICE.path(namespace)
            slices = (await self._client.read(path, labelSelector=selector, resourceVersion="0")).get("items") or ()
            found = endpoints(slices, service.ports[asked.port])
            pods = await asyncio.gather(*(self._pod(namespace, one, engine, sight, now) for one in found))
        except ApiError as error:
            if not error.forbidden:
                raise
            return replace(pool, problem=Problem(Reason.ENDPOINTS_NOT_READABLE, f"{_denied(error)}: {RIGHTS}"))
        ports = {one.port for one in found if one.port is not None}
        return replace(
            pool,
            pods=tuple(pods),
            port=min(ports) if service.headless and ports else asked.port,
            problem=_endpoint_problem(asked, service, found, ports),
        )

    async def _service(self, namespace: str, name: str) -> dict[str, Any] | None:
        try:
            return await self._client.read(SERVICE.path(namespace, name), resourceVersion="0")
        except ApiError as error:
            if error.not_found:
                return None
            raise

    async def _pod(self, namespace: str, endpoint: Endpoint, engine: EngineType, sight: Sight, now: float) -> SeenPod:
        known = await self._known(namespace, endpoint, engine, sight, now)
        if known is None:
            trouble = None if endpoint.pod else "no pod is behind this address: it is balanced, and nothing is read"
            return SeenPod(endpoint, trouble=trouble)
        pod = SeenPod(endpoint, known.facts, known.arguments, known.image, release=known.release)
        if not pod.ready or endpoint.port is None:
            return pod
        if endpoint.address not in known.facts.addresses:
            return replace(pod, trouble=f"the address {endpoint.address} is not the pod's own: nothing is read from it")
        try:
            reading = await self._reading(known, endpoint.address, endpoint.port, engine)
        except EngineError as error:
            return replace(pod, trouble=str(error), locked=error.unauthorized)
        if not known.release_asked:
            known.release_asked = True
            known.release = await self._reader.release(endpoint.address, endpoint.port)
        return replace(pod, reading=reading, release=known.release)

    async def _known(
        self, namespace: str, endpoint: Endpoint, engine: EngineType, sight: Sight, now: float
    ) -> KnownPod | None:
        if not endpoint.pod:
            return None
        known = sight.pods.get(endpoint.uid)
        if known is not None and now - known.read_at < REREAD_SECONDS:
            return known
        body = await self._client.get(POD, namespace, endpoint.pod)
        if body is None or body["metadata"]["uid"] != endpoint.uid:
            return None
        container = engine_container(body, endpoint.port)
        arguments = None if container is None else _compact(read_container(container, engine))
        image = "" if container is None else str(container.get("image") or "")
        sight.pods[endpoint.uid] = KnownPod(pod_facts(body), arguments, image, now)
        return sight.pods[endpoint.uid]

    async def _reading(self, known: KnownPod, address: str, port: int, engine: EngineType) -> EngineReading:
        """From where it was last, the Service's port, or where the pod's annotations say; the first one's error."""
        facts = known.facts
        annotated = (facts.scrape_port or port, facts.scrape_path or METRICS_PATH)
        places = dict.fromkeys([*([known.metrics_at] if known.metrics_at else []), (port, METRICS_PATH), annotated])
        first: EngineError | None = None
        for one in places:
            try:
                reading = await self._reader.metrics(address, one[0], engine, one[1])
            except EngineError as error:
                first = first or error
                continue
            known.metrics_at = one
            return reading
        assert first is not None
        raise first


def _compact(read: ReadArguments) -> ReadArguments:
    """Without what only a person's listing needs: this is kept for every pod."""
    return replace(read, given=(), strays=(), prefix=())


def _denied(error: ApiError) -> str:
    return f"the API server refuses to let the operator read them ({error.reason or error.status})"


def _missing(namespace: str, asked: ExternalService) -> Problem:
    return Problem(
        Reason.SERVICE_NOT_FOUND,
        f"there is no Service {asked.service} in namespace {namespace}: make it, or name another one in pools.external",
    )


def _unusable(service: ServiceFacts, asked: ExternalService) -> Problem | None:
    if service.external_name:
        return Problem(
            Reason.SERVICE_NOT_USABLE,
            f"Service {service.name} is an alias (ExternalName) without endpoints: name the Service that has the pods",
        )
    if service.of_router is not None:
        return Problem(
            Reason.SERVICE_NOT_USABLE,
            f"Service {service.name} is the router of SpecDeployment {service.of_router}: requests would go round; "
            "name a Service of engine pods",
        )
    if asked.port not in service.ports:
        ports = ", ".join(str(port) for port in sorted(service.ports)) or "none"
        return Problem(
            Reason.SERVICE_PORT_NOT_FOUND,
            f"Service {service.name} has no TCP port {asked.port} (its ports: {ports}): "
            "write one of them in pools.external, or add the port to the Service",
        )
    return None


def _endpoint_problem(
    asked: ExternalService, service: ServiceFacts, found: tuple[Endpoint, ...], ports: set[int]
) -> Problem | None:
    if not found:
        return Problem(
            Reason.SERVICE_WITHOUT_ENDPOINTS,
            f"Service {asked.service} has no endpoints: no pod has the labels that it selects, or none an address yet",
        )
    if not ports:
        name = service.ports[asked.port]
        return Problem(
            Reason.SERVICE_PORT_NOT_FOUND,
            f"no pod of Service {asked.service} has the port that its {asked.port} ({name or 'unnamed'}) leads to: "
            "targetPort must be a number, or the name of a containerPort",
        )
    if len(ports) > 1 and service.headless:
        told = ", ".join(str(port) for port in sorted(ports))
        return Problem(
            Reason.SERVICE_NOT_USABLE,
            f"the pods of headless Service {asked.service} listen on different ports ({told}), and a router dials one: "
            "let all of them listen on one port",
        )
    return None

"""One Deployment that is adopted: its engine container, what that was started with, and the Service before it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from specfleet.api.v1alpha1 import EngineType
from specfleet.cli.adopting.scene import AdoptError, Scene, is_rendered, name_of, pod_labels
from specfleet.engines.arguments import ReadArguments, read_container

Manifest = dict[str, Any]


@dataclass(frozen=True)
class Side:
    """A Deployment and its engine container."""

    deployment: Manifest
    container: Manifest
    read: ReadArguments

    @property
    def name(self) -> str:
        """The Deployment's name."""
        return name_of(self.deployment)

    @property
    def engine(self) -> EngineType:
        """Its engine."""
        assert self.read.engine is not None
        return self.read.engine

    @property
    def port(self) -> int | None:
        """TCP port of its API; None where a script hides it and the container declares no one port."""
        if not self.read.shell:
            return self.read.port
        ports = [one for one in self.container.get("ports") or [] if one.get("protocol", "TCP") == "TCP"]
        named = [one for one in ports if one.get("name") in ("http", "api", "http1")]
        chosen = named or ports
        return int(chosen[0]["containerPort"]) if len(chosen) == 1 else None

    @property
    def served_names(self) -> tuple[str, ...]:
        """Names that clients may send; empty where they cannot be seen."""
        return self.read.served_names or ((self.read.model,) if self.read.model else ())


@dataclass(frozen=True)
class ServiceBefore:
    """The Service that is named in the SpecDeployment."""

    name: str
    port: int
    headless: bool


def side_of(scene: Scene, name: str, container: str | None) -> Side:
    """The Deployment of that name with its engine container. Raises AdoptError."""
    deployment = scene.deployment(name)
    if is_rendered(deployment):
        raise AdoptError(f"Deployment {name} was made by specfleet: there is nothing to adopt")
    containers: list[Manifest] = deployment["spec"]["template"]["spec"]["containers"]
    if container is not None:
        chosen = [one for one in containers if one.get("name") == container]
        if not chosen:
            names = ", ".join(str(one.get("name")) for one in containers)
            raise AdoptError(f"Deployment {name} has no container {container}: its containers are {names}")
        return _checked(name, deployment, chosen[0])
    read = [(one, read_container(one)) for one in containers]
    engines = [one for one, found in read if found.engine is not None]
    if len(engines) > 1:
        names = ", ".join(str(one.get("name")) for one in engines)
        raise AdoptError(f"Deployment {name} has several engine containers ({names}): name one with --container")
    if not engines:
        seen = "; ".join(f"{one.get('name')} ({_said(one, found)})" for one, found in read)
        raise AdoptError(
            f"Deployment {name} has no container that runs vLLM or SGLang; found {seen or 'no container at all'}"
        )
    return _checked(name, deployment, engines[0])


def _said(container: Mapping[str, Any], found: ReadArguments) -> str:
    return found.problems[0] if found.problems else f"image {container.get('image')}"


def _checked(name: str, deployment: Manifest, container: Manifest) -> Side:
    read = read_container(container)
    if read.engine is None:
        raise AdoptError(
            f"container {container.get('name')} of Deployment {name} does not run vLLM or SGLang: "
            f"{_said(container, read)}"
        )
    return Side(deployment, container, read)


def candidates(scene: Scene) -> list[str]:
    """Deployments that have an engine container."""
    found = []
    for deployment in scene.deployments:
        containers = deployment["spec"]["template"]["spec"]["containers"]
        if not is_rendered(deployment) and any(read_container(one).engine is not None for one in containers):
            found.append(name_of(deployment))
    return sorted(found)


def service_before(scene: Scene, side: Side, notes: list[str]) -> ServiceBefore:
    """The Service whose endpoints are this Deployment's engines, and only these; a headless one where there is one.

    Raises:
        AdoptError: there is none; the text has the Service to create.
    """
    labels = pod_labels(side.deployment)
    reasons: list[str] = []
    fitting: list[ServiceBefore] = []
    for service in sorted(scene.services, key=name_of):
        spec = service.get("spec") or {}
        if not _selects(spec, labels):
            continue
        name = name_of(service)
        both = [
            name_of(one) for one in scene.deployments if one is not side.deployment and _selects(spec, pod_labels(one))
        ]
        if both:
            reasons.append(f"Service {name} selects pods of {', '.join(sorted(both))} too")
            continue
        port = _port(spec, side)
        if port is None:
            reasons.append(f"Service {name} has no port that leads to the engine's ({side.port or 'unknown'})")
            beside = _beside(spec, side)
            if beside is not None:
                reasons.append(
                    f"it leads to container {beside} of the pod: where requests must pass through that, a router that "
                    "goes to the engine is not for this Deployment"
                )
            continue
        fitting.append(ServiceBefore(name, port, spec.get("clusterIP") == "None"))
    if not fitting:
        raise AdoptError(_no_service(scene, side, reasons))
    chosen = next((one for one in fitting if one.headless), fitting[0])
    others = [one.name for one in fitting if one != chosen]
    if others:
        notes.append(f"Service {chosen.name} is used for {side.name}; {', '.join(others)} would do as well")
    if not chosen.headless:
        notes.append(
            f"Service {chosen.name} has a cluster IP: the node's proxy picks the pod, so that load is not balanced by "
            "pod and a sick pod is not left out; a headless Service (clusterIP: None) with the same selector keeps that"
        )
    return chosen


def _selects(spec: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    selector = spec.get("selector") or {}
    return (
        bool(selector)
        and spec.get("type") != "ExternalName"
        and all(labels.get(key) == value for key, value in selector.items())
    )


def _port(spec: Mapping[str, Any], side: Side) -> int | None:
    """The Service's port that leads to the engine."""
    names = {
        str(port["name"]): int(port["containerPort"]) for port in side.container.get("ports") or [] if port.get("name")
    }
    ports = [one for one in spec.get("ports") or [] if one.get("protocol", "TCP") == "TCP"]
    for one in ports:
        target = one.get("targetPort", one.get("port"))
        number = target if isinstance(target, int) else names.get(str(target))
        if side.port is not None and number == side.port:
            return int(one["port"])
    return int(ports[0]["port"]) if side.port is None and len(ports) == 1 else None


def _beside(spec: Mapping[str, Any], side: Side) -> str | None:
    """Another container of the pod that the Service leads to."""
    targets = {str(one.get("targetPort", one.get("port"))) for one in spec.get("ports") or []}
    pod = side.deployment["spec"]["template"]["spec"]
    for container in [*pod["containers"], *(pod.get("initContainers") or [])]:
        ports = container.get("ports") or []
        known = {str(port.get(key)) for port in ports for key in ("name", "containerPort")}
        if container is not side.container and known & targets:
            return str(container.get("name"))
    return None


def _no_service(scene: Scene, side: Side, reasons: Iterable[str]) -> str:
    why = "; ".join(reasons)
    why = f" that would do ({why})" if why else ""
    selector = ((side.deployment.get("spec") or {}).get("selector") or {}).get("matchLabels") or pod_labels(
        side.deployment
    )
    metadata: dict[str, Any] = {"name": f"{side.name}-engines"[:63].rstrip("-")}
    if scene.namespace:
        metadata["namespace"] = scene.namespace
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata,
        "spec": {
            "clusterIP": "None",
            "selector": dict(selector),
            "ports": [{"name": "http", "port": 8000, "targetPort": side.port or 8000}],
        },
    }
    begin = "Create" if scene.live else "Add its Service to the manifests, or create"
    written = yaml.safe_dump(service, sort_keys=False)
    return (
        f"no Service in {scene.where} selects the pods of Deployment {side.name}{why}. "
        f"{begin} one, by which the router reaches each pod, and try again:\n{written}"
    )

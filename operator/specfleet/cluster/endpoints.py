"""Services, EndpointSlices and pods of others, read for External pools: only what is asked of them. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from specfleet.cluster.applied import digest
from specfleet.cluster.kinds import Kind

ENDPOINT_SLICE = Kind("discovery.k8s.io/v1", "EndpointSlice", "endpointslices")
SERVICE_LABEL = "kubernetes.io/service-name"
Body = Mapping[str, Any]
_TEMPLATES = (
    "pod-template-hash",
    "controller-revision-hash",
    "leaderworkerset.sigs.k8s.io/template-revision-hash",
)
_SCRAPE_PORT, _SCRAPE_PATH = "prometheus.io/port", "prometheus.io/path"
_ENGINE = re.compile(r"vllm|sglang|engine|kserve-container")
_RUN = ("name", "image", "command", "args", "env")
_PATH = re.compile(r"/[A-Za-z0-9_/-]{1,128}")


@dataclass(frozen=True)
class ServiceFacts:
    """One Service. `ports` are its TCP ports by number, with the names that EndpointSlices have them under."""

    name: str
    headless: bool
    external_name: bool
    ports: Mapping[int, str]
    of_router: str | None
    """The SpecDeployment whose router this Service is, if it is one of specfleet's."""


@dataclass(frozen=True)
class Endpoint:
    """One address behind a Service. `pod` and `uid` are empty where no pod is behind it; `port` None: it has none."""

    address: str
    pod: str
    uid: str
    ready: bool
    leaving: bool
    port: int | None


@dataclass(frozen=True)
class PodFacts:
    """One pod of somebody else.

    Attributes:
        family: what makes it: the Deployment or another controller; pods of one family differ only in a rollout.
        template: which version of the family's template it has; empty where it does not say.
        fingerprint: hash of what its containers run: images, commands, arguments and variables.
        scrape_port, scrape_path: where its annotations say that its metrics are.
    """

    name: str
    uid: str
    addresses: frozenset[str]
    family: str
    template: str
    fingerprint: str
    scrape_port: int | None
    scrape_path: str | None


def service_facts(body: Body) -> ServiceFacts:
    """From a Service."""
    meta, spec = body["metadata"], body.get("spec") or {}
    labels = meta.get("labels") or {}
    ours = labels.get("app.kubernetes.io/managed-by") == "specfleet"
    router = ours and labels.get("app.kubernetes.io/component") == "router"
    ports = {
        int(port["port"]): str(port.get("name") or "")
        for port in spec.get("ports") or ()
        if port.get("protocol", "TCP") == "TCP"
    }
    return ServiceFacts(
        name=str(meta["name"]),
        headless=spec.get("clusterIP") == "None",
        external_name=spec.get("type") == "ExternalName",
        ports=ports,
        of_router=str(labels.get("app.kubernetes.io/instance") or meta["name"]) if router else None,
    )


def endpoints(slices: Iterable[Body], port_name: str) -> tuple[Endpoint, ...]:
    """The endpoints of a Service's slices, one a pod (IPv4 first), in the order of their names."""
    found: dict[str, Endpoint] = {}
    for one in sorted(slices, key=lambda body: str(body.get("addressType")), reverse=True):
        port = next(
            (
                int(p["port"])
                for p in one.get("ports") or ()
                if (p.get("name") or "") == port_name and p.get("port") and p.get("protocol", "TCP") == "TCP"
            ),
            None,
        )
        if one.get("addressType") not in ("IPv4", "IPv6"):
            continue
        for entry in one.get("endpoints") or ():
            endpoint = _endpoint(entry, port)
            if endpoint is not None:
                found[endpoint.uid or endpoint.address] = endpoint
    return tuple(sorted(found.values(), key=lambda e: (e.pod, e.address)))


def _endpoint(entry: Body, port: int | None) -> Endpoint | None:
    addresses = entry.get("addresses") or ()
    if not addresses:
        return None
    conditions = entry.get("conditions") or {}
    target = entry.get("targetRef") or {}
    is_pod = target.get("kind") == "Pod"
    return Endpoint(
        address=str(addresses[0]),
        pod=str(target.get("name") or "") if is_pod else "",
        uid=str(target.get("uid") or "") if is_pod else "",
        # The API says of a missing condition to take it for ready.
        ready=conditions.get("ready") is not False,
        leaving=conditions.get("terminating") is True,
        port=port,
    )


def pod_facts(body: Body) -> PodFacts:
    """From a pod."""
    meta, spec, status = body["metadata"], body.get("spec") or {}, body.get("status") or {}
    labels, annotations = meta.get("labels") or {}, meta.get("annotations") or {}
    template = next((str(labels[name]) for name in _TEMPLATES if labels.get(name)), "")
    addresses = {str(one["ip"]) for one in status.get("podIPs") or () if one.get("ip")}
    if status.get("podIP"):
        addresses.add(str(status["podIP"]))
    port, path = str(annotations.get(_SCRAPE_PORT) or ""), str(annotations.get(_SCRAPE_PATH) or "")
    return PodFacts(
        name=str(meta["name"]),
        uid=str(meta["uid"]),
        addresses=frozenset(addresses),
        family=_family(meta, template),
        template=template,
        fingerprint=digest([[c.get(key) for key in _RUN] for c in spec.get("containers") or ()]),
        scrape_port=int(port) if port.isdigit() and 0 < int(port) < 65536 else None,
        scrape_path=path if _PATH.fullmatch(path) else None,
    )


def _family(meta: Body, template: str) -> str:
    for reference in meta.get("ownerReferences") or ():
        if reference.get("controller"):
            name = str(reference.get("name"))
            if reference.get("kind") == "ReplicaSet" and template:
                name = name.removesuffix(f"-{template}")
            return f"{reference.get('kind')}/{name}"
    return ""


def engine_container(body: Body, port: int | None) -> Body | None:
    """The container of a pod that serves `port`: the one that declares it, else one that is named or looks so.

    None where several could be it.
    """
    containers = list((body.get("spec") or {}).get("containers") or ())
    declared = [c for c in containers if any(p.get("containerPort") == port for p in c.get("ports") or ())]
    looks = [c for c in containers if _ENGINE.search(f"{c.get('name')} {c.get('image')}")]
    for candidates in (declared, looks, containers):
        if len(candidates) == 1:
            return dict(candidates[0])
    return None

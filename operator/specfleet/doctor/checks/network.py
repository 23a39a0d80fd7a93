"""What lies between clients, routers and engines: kube-proxy, and policies that close a port that is needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from specfleet.api.names import BASELINE_POOL, labels
from specfleet.doctor.facts import Facts, Get, Listing, Manifest
from specfleet.doctor.findings import Item, NotChecked, Seen, info, warning
from specfleet.doctor.installed import enumerated, fleet_namespaces, fleets, key
from specfleet.doctor.selectors import matches
from specfleet.routing.process import DATA_PORT, READ_PORT

# Where kubeadm and EKS keep it; the key is the first that is there.
_PROXIES = ("kube-proxy", "kube-proxy-config")
_PROXY_KEYS = ("config.conf", "config")
_ENGINE_PORT = 8000


@dataclass(frozen=True)
class Way:
    """A port that some pods must be reached at, or must reach. `named`: the port's name in the pod."""

    direction: str
    component: str
    port: int
    named: str
    protocol: str
    why: str


_WAYS = (
    Way("Ingress", "router", DATA_PORT, "http", "TCP", "clients send their requests there"),
    Way("Ingress", "router", READ_PORT, "read", "TCP", "the operator reads the routers' counters there"),
    Way("Ingress", "engine", _ENGINE_PORT, "http", "TCP", "routers send requests and health checks there"),
    Way("Egress", "router", _ENGINE_PORT, "http", "TCP", "routers send requests to engines"),
    Way("Egress", "router", 53, "dns", "UDP", "routers find engine pods by DNS"),
)


def proxy(facts: Facts) -> Iterator[Item]:
    """kube-proxy's mode: how the router's Service forgets pods that end."""
    paths = [f"/api/v1/namespaces/kube-system/configmaps/{name}" for name in _PROXIES]
    facts.prepare(*(Get(path) for path in paths))
    body = next((found for path in paths if (found := facts.get(path)) is not None), None)
    if body is None:
        yield Seen("no ConfigMap of kube-proxy: its mode is not known, or the network plug-in does its work")
        return
    data = body.get("data") or {}
    about = f"ConfigMap kube-system/{body['metadata']['name']}"
    try:
        text = next((str(data[key]) for key in _PROXY_KEYS if key in data), "")
        mode = str((yaml.safe_load(text) or {}).get("mode") or "iptables")
    except (yaml.YAMLError, AttributeError):
        yield NotChecked(f"the configuration of kube-proxy in {about} cannot be read")
        return
    if mode != "ipvs":
        yield Seen(f"kube-proxy runs in mode {mode}")
        return
    yield info(
        about,
        "kube-proxy runs in mode ipvs",
        "iptables or nftables: draining of routers was tried with iptables, and Kubernetes gives ipvs up from 1.35 on",
        "watch for refused connections while routers are rolled, or change the mode",
    )


def policies(facts: Facts) -> Iterator[Item]:
    """NetworkPolicies that select a fleet's pods and let no rule through on a port that is needed."""
    count = 0
    paths = {name: f"/apis/networking.k8s.io/v1/namespaces/{name}/networkpolicies" for name in fleet_namespaces(facts)}
    facts.prepare(*(Listing(path) for path in paths.values()))
    for namespace, path in paths.items():
        found = facts.listed(path)
        count += len(found)
        for way in _WAYS:
            closing = _closing(found, way, _pods(facts, namespace, way))
            if closing:
                yield _closed(namespace, way, closing)
    yield Seen(
        f"{count} NetworkPolicies where fleets are; whether the cluster's network enforces them, the API does not tell"
    )


def _closed(namespace: str, way: Way, closing: list[str]) -> Item:
    to = "to" if way.direction == "Ingress" else "from"
    return warning(
        f"NetworkPolicy {namespace}/{enumerated(closing)}",
        f"no rule admits {way.protocol} port {way.port} {to} pods of component {way.component}",
        f"a rule for it: {way.why} (the API does not tell whether the cluster's network enforces policies)",
        f"add a NetworkPolicy in {namespace} that selects app.kubernetes.io/component={way.component} and admits the "
        "port",
    )


def _pods(facts: Facts, namespace: str, way: Way) -> list[dict[str, str]]:
    """Labels of the pods that a way is about: of the fleets there, or of one that could be.

    Engines of External pools have labels and ports of somebody else's choice.
    """
    here = [one for one in fleets(facts) if key(one)[0] == namespace]
    meant = [one for one in here if way.port != _ENGINE_PORT or _strategy(one) != "External"]
    names = [key(one)[1] for one in meant] if here else ["any"]
    return [labels(name, way.component, BASELINE_POOL if way.component == "engine" else None) for name in names]


def _strategy(fleet: Manifest) -> str:
    return str(((fleet.get("spec") or {}).get("pools") or {}).get("strategy") or "Split")


def _closing(found: list[Manifest], way: Way, pods: list[dict[str, str]]) -> list[str]:
    """Names of the policies that together close the way to one of the pods; empty where it is open."""
    for pod in pods:
        selecting = [
            one
            for one in found
            if way.direction in _types(one["spec"]) and matches(one["spec"].get("podSelector"), pod)
        ]
        rules = [rule for one in selecting for rule in one["spec"].get(way.direction.lower()) or ()]
        if selecting and not any(_admits(rule, way) for rule in rules):
            return [str(one["metadata"]["name"]) for one in selecting]
    return []


def _types(spec: Mapping[str, Any]) -> list[str]:
    given: list[str] = spec.get("policyTypes") or []
    return given or (["Ingress", "Egress"] if "egress" in spec else ["Ingress"])


def _admits(rule: Mapping[str, Any], way: Way) -> bool:
    ports = rule.get("ports") or ()
    return not ports or any(_is_port(one, way) for one in ports)


def _is_port(one: Mapping[str, Any], way: Way) -> bool:
    if (one.get("protocol") or "TCP") != way.protocol:
        return False
    port = one.get("port")
    if port is None or port == way.named:
        return True
    return isinstance(port, int) and port <= way.port <= int(one.get("endPort") or port)

"""Nodes with accelerators: none, another vendor's, all taken, or none that pods may go to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from specfleet.doctor.facts import Facts, Manifest
from specfleet.doctor.findings import Item, Seen, info, warning
from specfleet.doctor.installed import containers, enumerated, fleets

DEFAULT = "nvidia.com/gpu"
KNOWN = (
    DEFAULT,
    "amd.com/gpu",
    "gpu.intel.com/i915",
    "gpu.intel.com/xe",
    "habana.ai/gaudi",
    "google.com/tpu",
    "aws.amazon.com/neuron",
    "aws.amazon.com/neuroncore",
)
_MIG = "nvidia.com/mig-"
_KEEPS_AWAY = ("NoSchedule", "NoExecute")
_RUNNING = "status.phase!=Succeeded,status.phase!=Failed"


def check(facts: Facts) -> Iterator[Item]:
    """What nodes offer against what fleets ask for; before the first fleet, against the default."""
    nodes = facts.listed("/api/v1/nodes")
    specs = fleets(facts)
    wanted = {_resource(one) for one in specs} or {DEFAULT}
    offers = {node["metadata"]["name"]: _offer(node, wanted) for node in nodes}
    usable = [node for node in nodes if _usable(node) and offers[node["metadata"]["name"]]]
    total: Counter[str] = Counter()
    for node in usable:
        total.update(offers[node["metadata"]["name"]])
    for resource in sorted(wanted - {""}):
        if not total[resource]:
            yield _nothing(resource, nodes, offers, total)
    if total and not specs:
        yield from _room(facts, usable, total)
        yield from _taints(usable)
    if total:
        offered = ", ".join(f"{count} {resource}" for resource, count in sorted(total.items()))
        yield Seen(f"{offered} on {len(usable)} node(s)")


def _nothing(resource: str, nodes: list[Manifest], offers: Mapping[str, Counter[str]], total: Counter[str]) -> Item:
    expected = f"a node that is ready and offers {resource}"
    away = sorted(name for name, offer in offers.items() if offer[resource])
    if away:
        return warning(
            f"Node {enumerated(away)}",
            f"{resource} is offered only by nodes that are not ready or are cordoned",
            expected,
            f"kubectl describe node {away[0]}; kubectl uncordon {away[0]} if it was cordoned by hand",
        )
    if total:
        others = ", ".join(sorted(total))
        return warning(
            "",
            f"no node offers {resource}; there is {others}",
            expected,
            f"write pools.accelerator.resource: {sorted(total)[0]} in SpecDeployments, with an engine.image for it",
        )
    return warning(
        "",
        f"no node of {len(nodes)} offers {resource}, nor any other accelerator that is known",
        expected,
        "install the vendor's device plugin, or add GPU nodes (an autoscaler may add them when pods ask); for engines "
        'on CPUs write pools.accelerator.resource: ""',
    )


def _room(facts: Facts, usable: list[Manifest], total: Counter[str]) -> Iterator[Item]:
    """Before the first fleet: are there accelerators that no pod has?"""
    pods = facts.listed("/api/v1/pods", fields=_RUNNING)
    names = {node["metadata"]["name"] for node in usable}
    taken: Counter[str] = Counter()
    for pod in pods:
        if (pod.get("spec") or {}).get("nodeName") in names:
            taken.update(_asked(pod["spec"], total))
    for resource, count in sorted(total.items()):
        if taken[resource] >= count:
            yield warning(
                "",
                f"all {count} {resource} are taken by running pods",
                "two free ones for the smallest fleet: one engine pod with speculation and one without",
                "free some, add nodes, or begin with pools.strategy External and the engines that run already",
            )
        elif count - taken[resource] == 1:
            yield warning(
                "",
                f"of {count} {resource} one is free",
                "two free ones for the smallest fleet: one engine pod with speculation and one without",
                "free one more, or add a node",
            )


def _taints(usable: list[Manifest]) -> Iterator[Item]:
    kept = [_keeping_away(node) for node in usable]
    if kept and all(kept):
        taints = sorted({taint for one in kept for taint in one})
        yield info(
            f"Node {enumerated(node['metadata']['name'] for node in usable)}",
            f"every node with accelerators has a taint: {', '.join(taints)}",
            "engine pods that tolerate it",
            "add the toleration under pools.template.spec.tolerations, unless the cluster's admission adds it "
            "(ExtendedResourceToleration)",
        )


def _keeping_away(node: Manifest) -> list[str]:
    return [
        f"{taint['key']}:{taint['effect']}"
        for taint in (node.get("spec") or {}).get("taints") or ()
        if taint.get("effect") in _KEEPS_AWAY and not str(taint.get("key")).startswith("node.kubernetes.io/")
    ]


def _resource(fleet: Manifest) -> str:
    spec = fleet.get("spec") or {}
    pools = spec.get("pools") or {}
    if pools.get("strategy") == "External":
        return ""
    resource = (pools.get("accelerator") or {}).get("resource")
    return DEFAULT if resource is None else str(resource)


def _offer(node: Manifest, wanted: Iterable[str]) -> Counter[str]:
    allocatable = (node.get("status") or {}).get("allocatable") or {}
    known = {*KNOWN, *wanted}
    return Counter({name: n for name, text in allocatable.items() if (name in known or name.startswith(_MIG))
                    and (n := _count(text))})  # fmt: skip


def _usable(node: Manifest) -> bool:
    conditions = {one.get("type"): one.get("status") for one in (node.get("status") or {}).get("conditions") or ()}
    return conditions.get("Ready") == "True" and not (node.get("spec") or {}).get("unschedulable")


def _asked(pod_spec: Mapping[str, Any], resources: Iterable[str]) -> Counter[str]:
    asked: Counter[str] = Counter()
    for container in containers(pod_spec):
        limits = (container.get("resources") or {}).get("limits") or {}
        asked.update({name: _count(limits[name]) for name in resources if name in limits})
    return asked


def _count(text: object) -> int:
    """Extended resources are whole numbers; anything else counts as none."""
    try:
        return int(str(text))
    except ValueError:
        return 0

"""Cluster DNS: routers find engine pods by it, so how long answers are kept decides how long a pod must drain."""

from __future__ import annotations

from collections.abc import Iterator

from specfleet.doctor.corefile import Kept, kept
from specfleet.doctor.facts import CannotTell, Facts, Get, Manifest
from specfleet.doctor.findings import Item, NotChecked, Seen, error, info, warning
from specfleet.doctor.selectors import ready_endpoints
from specfleet.engines.vllm import PRE_STOP_SECONDS

ROUTER_REFRESH_SECONDS = 2
MARGIN_SECONDS = 5
STOCK_NEGATIVE_SECONDS = 30
_SYSTEM = "kube-system"
_COREFILES = ("coredns", "rke2-coredns-rke2-coredns")
_NODE_LOCAL = "node-local-dns"


def check(facts: Facts) -> Iterator[Item]:
    """Whether DNS answers, and how old its answers may be."""
    yield from _servers(facts)
    for name in (*_COREFILES, _NODE_LOCAL):
        facts.prepare(Get(_config_map(name)))
    found = next((body for name in _COREFILES if (body := facts.get(_config_map(name))) is not None), None)
    times = kept(_corefile(found))
    if found is None or times is None:
        yield NotChecked(
            f"no Corefile in ConfigMap {_SYSTEM}/{_COREFILES[0]}: how long the cluster's DNS keeps answers is not "
            f"known; engine pods drain for {PRE_STOP_SECONDS} s, which is enough for 30 s"
        )
        return
    yield from _judged(times, f"ConfigMap {_SYSTEM}/{found['metadata']['name']}")
    local = facts.get(_config_map(_NODE_LOCAL))
    before = kept(_corefile(local))
    if before is not None and before.stale:
        yield _stale(f"ConfigMap {_SYSTEM}/{_NODE_LOCAL}")


def _servers(facts: Facts) -> Iterator[Item]:
    try:
        services = facts.listed(f"/api/v1/namespaces/{_SYSTEM}/services", "k8s-app=kube-dns")
        ready = sum(ready_endpoints(facts, _SYSTEM, str(one["metadata"]["name"])) for one in services)
    except CannotTell as why:
        yield NotChecked(str(why))
        return
    names = ", ".join(str(one["metadata"]["name"]) for one in services)
    if not services:
        yield NotChecked(f"no Service with label k8s-app=kube-dns in {_SYSTEM}: whether DNS answers is not known")
    elif not ready:
        yield error(
            f"Service {_SYSTEM}/{names}",
            "the cluster's DNS has no ready pod",
            "at least one: routers find engine pods by DNS, and clients the router",
            f"kubectl get pods -n {_SYSTEM} -l k8s-app=kube-dns",
        )
    else:
        yield Seen(f"Service {names} has {ready} ready endpoint(s)")


def _judged(times: Kept, about: str) -> Iterator[Item]:
    limit = PRE_STOP_SECONDS - ROUTER_REFRESH_SECONDS - MARGIN_SECONDS
    if times.stale:
        yield _stale(about)
    if times.positive > limit:
        yield warning(
            about,
            f"DNS answers about Services are kept for up to {times.positive} s",
            f"at most {limit} s: an engine pod that ends serves for {PRE_STOP_SECONDS} s more, and requests that are "
            "sent to it later are lost",
            "lower ttl of the plugin kubernetes, or the time of the plugin cache, to 30",
        )
    if times.negative > STOCK_NEGATIVE_SECONDS:
        yield info(
            about,
            f"DNS keeps the answer that a Service has no pods for up to {times.negative} s",
            f"at most {STOCK_NEGATIVE_SECONDS} s: so long a pool goes unnoticed after its first pod is ready",
            "lower ttl of the plugin kubernetes, or denial of the plugin cache, to 30",
        )
    if not times.stale and times.positive <= limit and times.negative <= STOCK_NEGATIVE_SECONDS:
        yield Seen(
            f"answers about Services are kept for up to {times.positive} s, that there are none {times.negative} s"
        )


def _stale(about: str) -> Item:
    return warning(
        about,
        "DNS serves answers after they have expired (serve_stale)",
        "current answers: requests go to engine pods that have ended for as long as an old answer is served",
        "take serve_stale out of the block that answers for the cluster's own names",
    )


def _config_map(name: str) -> str:
    return f"/api/v1/namespaces/{_SYSTEM}/configmaps/{name}"


def _corefile(body: Manifest | None) -> str:
    return str(((body or {}).get("data") or {}).get("Corefile") or "")

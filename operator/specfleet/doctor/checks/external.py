"""External pools: the Services that SpecDeployments name, looked at before the operator says something of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from specfleet.api.conditions import Reason
from specfleet.doctor.facts import CannotTell, Facts, Get, Listing, Manifest
from specfleet.doctor.findings import Item, NotChecked, Seen, error
from specfleet.doctor.installed import fleets, key
from specfleet.doctor.selectors import endpoint_slices, ready_endpoints

_SAID_ALREADY = (Reason.SERVICE_NOT_FOUND, Reason.SERVICE_PORT_NOT_FOUND, Reason.SERVICE_WITHOUT_ENDPOINTS)


def check(facts: Facts) -> Iterator[Item]:
    """Each side of each External fleet: the Service is there, has the port, and leads to a ready pod."""
    found = [one for one in fleets(facts) if _sides(one)]
    facts.prepare(*(query for body in found for asked in _sides(body).values() for query in _queries(body, asked)))
    for body in found:
        if _reasons(body) & set(_SAID_ALREADY):
            yield Seen(f"SpecDeployment {'/'.join(key(body))} says itself what is wrong with its Services")
            continue
        for side, asked in _sides(body).items():
            try:
                yield _service(facts, body, side, asked)
            except CannotTell as why:
                yield NotChecked(str(why))
    if not found:
        yield Seen("no SpecDeployment has External pools")


def _service(facts: Facts, body: Manifest, side: str, asked: dict[str, Any]) -> Item:
    (namespace, fleet), name = key(body), str(asked.get("service"))
    port = int(asked.get("port") or 8000)
    about, field = f"Service {namespace}/{name}", f"pools.external.{side}"
    service = facts.get(_queries(body, asked)[0].path)
    if service is None:
        return error(about, f"{field} of SpecDeployment {fleet} names a Service that does not exist",
                     "a Service of that namespace", f"kubectl get services -n {namespace}; write its name in "
                     f"{field}.service")  # fmt: skip
    ports = [int(one["port"]) for one in service["spec"].get("ports") or ()]
    if port not in ports:
        return error(about, f"{field} of SpecDeployment {fleet} names port {port}; the Service has "
                     f"{', '.join(map(str, ports)) or 'none'}", "a port of the Service (port, not targetPort)",
                     f"write one of them in {field}.port")  # fmt: skip
    ready = ready_endpoints(facts, namespace, name)
    if not ready:
        return error(about, "it has no ready endpoint: the router can send nothing there",
                     f"at least one ready pod for pool {side} of SpecDeployment {fleet}",
                     f"kubectl get endpointslices -n {namespace} -l kubernetes.io/service-name={name}; compare the "
                     "Service's selector with the pods' labels, and look at their readiness")  # fmt: skip
    return Seen(f"{about} has port {port} and {ready} ready endpoint(s)")


def _queries(body: Manifest, asked: dict[str, Any]) -> tuple[Get, Listing]:
    namespace, name = key(body)[0], str(asked.get("service"))
    return Get(f"/api/v1/namespaces/{namespace}/services/{name}"), endpoint_slices(namespace, name)


def _sides(body: Manifest) -> dict[str, dict[str, Any]]:
    external = ((body.get("spec") or {}).get("pools") or {}).get("external") or {}
    return {side: external[side] for side in ("speculative", "baseline") if external.get(side)}


def _reasons(body: Manifest) -> set[str]:
    return {str(one.get("reason")) for one in (body.get("status") or {}).get("conditions") or ()}

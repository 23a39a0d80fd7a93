"""Prometheus: the kind PodMonitor, and whether the server answers that decisions are to rest on."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit

from specfleet.doctor.facts import CannotTell, Facts, Get, Manifest, PageAnswer
from specfleet.doctor.findings import Item, NotChecked, Seen, error, warning
from specfleet.doctor.installed import Installed, fleets, key, operators, settings_of
from specfleet.doctor.selectors import endpoint_slices, ready_endpoints
from specfleet.settings import OperatorSettings

_QUERY = "/api/v1/query?query=vector(1)"
_IN_CLUSTER = re.compile(r"([a-z0-9-]+)\.([a-z0-9-]+)(\.svc(\.[a-z0-9.-]+)?)?")
# What is put into a path of the API server must not lead out of it: SpecDeployments' authors write it.
_PLAIN_PATH = re.compile(r"(/(?!\.\.?(/|$))[A-Za-z0-9._~-]+)*/?")
_TEXT = 120


@dataclass(frozen=True)
class Asked:
    """A Prometheus that somebody names.

    Attributes:
        used: decisions rest on it.
        proof: the operator has credentials for it.
        trusted: an administrator wrote the URL, so this machine may ask it.
    """

    url: str
    about: str
    used: bool
    proof: bool
    trusted: bool


def check(facts: Facts) -> Iterator[Item]:
    """Settings and fleets that name a Prometheus, and PodMonitors that cannot be made."""
    kinds = (facts.get("/apis/monitoring.coreos.com/v1") or {}).get("resources") or ()
    served = any(one.get("name") == "podmonitors" for one in kinds)
    try:
        read = [(one, settings_of(facts, one)) for one in operators(facts)]
    except CannotTell as why:
        yield NotChecked(str(why))
        read = []
    given = [(one, found.settings) for one, found in read if found is not None and found.settings is not None]
    for one, settings in given:
        if settings.pod_monitor.enabled is True and not served:
            yield error(
                f"ConfigMap {one.namespace}/{one.settings_map}",
                "podMonitor.enabled is true, and the cluster has no kind PodMonitor",
                "the Prometheus operator, or podMonitor.enabled: auto",
                "install the Prometheus operator's definitions, or set podMonitor.enabled to auto and run helm upgrade",
            )
    asked = list(dict.fromkeys(_asked(given, fleets(facts))))
    for server in asked:
        try:
            yield from _answers(facts, server)
        except CannotTell as why:
            yield NotChecked(f"{server.url}: {why}")
    yield Seen(
        ("PodMonitor is served" if served else "there is no kind PodMonitor: routers carry scrape annotations")
        + ("" if asked else "; no Prometheus is named, figures are read from the routers")
    )


def _asked(given: list[tuple[Installed, OperatorSettings]], specs: list[Manifest]) -> Iterator[Asked]:
    using = [one for one in specs if _metrics(one).get("source") == "Prometheus"]
    own = {key(one): url for one in using if (url := (_metrics(one).get("prometheus") or {}).get("url"))}
    for (namespace, name), url in own.items():
        yield Asked(str(url), f"SpecDeployment {namespace}/{name}", used=True, proof=False, trusted=False)
    for one, settings in given:
        server = settings.prometheus
        if server.url is not None:
            proof = (server.bearer_token_file or server.username_file) is not None
            about = f"ConfigMap {one.namespace}/{one.settings_map}"
            yield Asked(server.url, about, used=len(using) > len(own), proof=proof, trusted=True)


def _answers(facts: Facts, server: Asked) -> Iterator[Item]:
    parts = urlsplit(server.url)
    place = _IN_CLUSTER.fullmatch(parts.hostname or "")
    base = parts.path.rstrip("/")
    if place is None:
        yield _outside(facts, server)
        return
    if not _PLAIN_PATH.fullmatch(parts.path):
        yield NotChecked(f"{server.url} has a path that is not asked for by way of the API server")
        return
    name, namespace = place.group(1), place.group(2)
    path = f"/api/v1/namespaces/{namespace}/services/{name}"
    facts.prepare(Get(path), endpoint_slices(namespace, name))
    if facts.get(path) is None:
        if place.group(3) is None:
            # NAME.NAMESPACE looks like any host of two labels, such as prometheus.example.
            yield _outside(facts, server)
            return
        yield _wrong(server, f"there is no Service {namespace}/{name} behind {server.url}", f"kubectl get services -n "
                     f"{namespace}")  # fmt: skip
        return
    if not ready_endpoints(facts, namespace, name):
        yield _wrong(server, f"Service {namespace}/{name} behind {server.url} has no ready endpoint",
                     f"kubectl get pods,endpointslices -n {namespace}")  # fmt: skip
        return
    port = parts.port or (443 if parts.scheme == "https" else 80)
    through = f"/api/v1/namespaces/{namespace}/services/{parts.scheme}:{name}:{port}/proxy{base}{_QUERY}"
    answer = facts.page(through)
    if _from_api_server(answer):
        said = str(json.loads(answer.text).get("message"))[:_TEXT]
        if answer.status == 403:
            yield NotChecked(f"whether {server.url} answers: {said}")
        else:
            yield _wrong(server, f"{server.url} does not answer: {said}", f"kubectl get pods -n {namespace}")
        return
    yield _judged(server, answer, "by way of the API server")


def _outside(facts: Facts, server: Asked) -> Item:
    if not server.trusted:
        return Seen(f"{server.url} is not asked from here; condition MetricsAvailable says what the operator sees")
    return _judged(server, facts.page(f"{server.url.rstrip('/')}{_QUERY}"), "from here")


def _judged(server: Asked, answer: PageAnswer, how: str) -> Item:
    if answer.status == 0:
        return _wrong(
            server,
            f"{server.url} does not answer {how}: {answer.text[:_TEXT]}",
            "check the address; the operator may see it where this machine does not",
            certain=False,
        )
    if answer.status in (401, 403):
        if server.proof:
            return Seen(f"{server.url} asks for credentials, and the operator has some")
        return _wrong(
            server,
            f"{server.url} asks for credentials ({answer.status}), and there are none for it",
            "set prometheus.bearerTokenFile or usernameFile and passwordFile in the operator's settings; none are "
            "sent to a URL that a SpecDeployment names",
        )
    if answer.status != 200 or not _is_prometheus(answer):
        kind = answer.media_type or "something else"
        return _wrong(server, f"{server.url} answers {answer.status} with {kind}, not as a Prometheus does",
                      f"write the base URL, below which {_QUERY.partition('?')[0]} answers")  # fmt: skip
    return Seen(f"{server.url} answers {how}")


def _wrong(server: Asked, found: str, action: str, *, certain: bool = True) -> Item:
    make = error if server.used and certain else warning
    return make(server.about, found, "a Prometheus that answers: without figures the last decision holds", action)


def _is_prometheus(answer: PageAnswer) -> bool:
    try:
        document = json.loads(answer.text)
    except ValueError:
        return False
    return isinstance(document, dict) and document.get("status") == "success"


def _from_api_server(answer: PageAnswer) -> bool:
    try:
        document = json.loads(answer.text)
    except ValueError:
        return False
    return isinstance(document, dict) and document.get("kind") == "Status" and document.get("apiVersion") == "v1"


def _metrics(body: Manifest) -> Manifest:
    found: Manifest = (body.get("spec") or {}).get("metrics") or {}
    return found

"""What is installed: operators, their settings and the SpecDeployments, found among the facts. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from specfleet.api.names import LABEL_DEPLOYMENT
from specfleet.api.v1alpha1 import API_VERSION, PLURAL
from specfleet.doctor.facts import CannotTell, Facts, Get, Listing, Manifest
from specfleet.doctor.findings import NotChecked
from specfleet.doctor.settings_text import Given, given

COMPONENT = "app.kubernetes.io/component"
MANAGED = "app.kubernetes.io/managed-by=specfleet"
CONTAINER = "operator"
SETTINGS_KEY = "settings.yaml"
FLEETS = f"/apis/{API_VERSION}/{PLURAL}"


@dataclass(frozen=True)
class Installed:
    """One Deployment of the operator."""

    namespace: str
    name: str
    body: Manifest

    @property
    def about(self) -> str:
        """For findings."""
        return f"Deployment {self.namespace}/{self.name}"

    @property
    def replicas(self) -> int:
        """Pods that it should have."""
        wanted = self.body["spec"].get("replicas")
        return 1 if wanted is None else int(wanted)

    @property
    def ready(self) -> int:
        """Pods that are ready."""
        return int((self.body.get("status") or {}).get("readyReplicas") or 0)

    @property
    def version(self) -> str:
        """As labelled by the chart; empty where it is not."""
        return str((self.body["metadata"].get("labels") or {}).get("app.kubernetes.io/version") or "")

    @property
    def image(self) -> str:
        """Of the operator's container."""
        return str(self._container.get("image") or "")

    @property
    def account(self) -> str:
        """The service account's user name."""
        name = self._pod_spec.get("serviceAccountName") or "default"
        return f"system:serviceaccount:{self.namespace}:{name}"

    @property
    def settings_map(self) -> str | None:
        """Name of the ConfigMap that is mounted as settings."""
        for volume in self._pod_spec.get("volumes") or ():
            if volume.get("name") == "settings" and "configMap" in volume:
                return str(volume["configMap"].get("name"))
        return None

    @property
    def pods(self) -> Listing:
        """Its pods."""
        labels = (self.body["spec"].get("selector") or {}).get("matchLabels") or {}
        return Listing(f"/api/v1/namespaces/{self.namespace}/pods", selector_text(labels))

    @property
    def settings(self) -> Get | None:
        """Its settings, where a ConfigMap holds them."""
        name = self.settings_map
        return Get(f"/api/v1/namespaces/{self.namespace}/configmaps/{name}") if name else None

    @property
    def _pod_spec(self) -> Mapping[str, Any]:
        spec: Mapping[str, Any] = self.body["spec"]["template"]["spec"]
        return spec

    @property
    def _container(self) -> Mapping[str, Any]:
        containers: list[Mapping[str, Any]] = self._pod_spec.get("containers") or []
        return next((one for one in containers if one.get("name") == CONTAINER), containers[0] if containers else {})


def operators(facts: Facts) -> list[Installed]:
    """All operators that can be seen, in whatever namespace."""
    selector = f"{COMPONENT}={CONTAINER}"
    try:
        found = facts.listed("/apis/apps/v1/deployments", selector)
    except CannotTell:
        found = facts.listed(f"/apis/apps/v1/namespaces/{facts.scope.operator_namespace}/deployments", selector)
    return [
        Installed(str(one["metadata"]["namespace"]), str(one["metadata"]["name"]), one)
        for one in found
        if _is_operator(one["metadata"].get("labels") or {})
    ]


def elsewhere(facts: Facts) -> NotChecked | None:
    """Where operators may be looked for in one namespace only."""
    try:
        facts.listed("/apis/apps/v1/deployments", f"{COMPONENT}={CONTAINER}")
    except CannotTell as why:
        return NotChecked(f"operators in other namespaces than {facts.scope.operator_namespace}: {why}")
    return None


def settings_of(facts: Facts, one: Installed) -> Given | None:
    """The settings that an operator was given, None where the ConfigMap or its key is missing."""
    query = one.settings
    if query is None:
        return given("")
    body = facts.get(query.path)
    text = ((body or {}).get("data") or {}).get(SETTINGS_KEY)
    return None if text is None else given(str(text))


def watched_namespaces(facts: Facts, one: Installed) -> tuple[str, ...]:
    """Namespaces that an operator watches; empty is all of them."""
    found = settings_of(facts, one)
    return found.watch_namespaces if found is not None else ()


def fleets(facts: Facts) -> list[Manifest]:
    """The SpecDeployments to look at: of all namespaces, or of the one that was named or can be read."""
    if facts.scope.namespace is not None:
        return facts.listed(_fleets_path(facts.scope.namespace))
    try:
        return facts.listed(FLEETS)
    except CannotTell:
        return facts.listed(_fleets_path(facts.scope.default_namespace))


def unseen(facts: Facts, path: str, labels: str = "") -> NotChecked | None:
    """Where a kind may be listed in one namespace only: that the others were not looked at."""
    if facts.scope.namespace is not None:
        return None
    try:
        facts.listed(path, labels)
    except CannotTell as why:
        return NotChecked(f"other namespaces than {facts.scope.default_namespace}: {why}")
    return None


def fleet_namespaces(facts: Facts) -> list[str]:
    """Namespaces with fleets; where there is none the one that a first fleet would be in."""
    if facts.scope.namespace is not None:
        return [facts.scope.namespace]
    found = sorted({str(one["metadata"]["namespace"]) for one in fleets(facts)})
    return found or [facts.scope.default_namespace]


def owned(facts: Facts, kind_path: str, *, names_only: bool = False) -> list[Manifest]:
    """Objects of one kind that are labelled as a SpecDeployment's; `kind_path` such as `/apis/apps/v1/deployments`."""
    try:
        query = owned_query(facts, kind_path, names_only=names_only)
        return facts.listed(query.path, query.labels, names_only=names_only)
    except CannotTell:
        if facts.scope.namespace is not None:
            raise
        path = _in_namespace(kind_path, facts.scope.default_namespace)
        return facts.listed(path, MANAGED, names_only=names_only)


def owned_query(facts: Facts, kind_path: str, *, names_only: bool = False) -> Listing:
    """What `owned` asks for first."""
    namespace = facts.scope.namespace
    path = kind_path if namespace is None else _in_namespace(kind_path, namespace)
    return Listing(path, MANAGED, names_only=names_only)


def _in_namespace(kind_path: str, namespace: str) -> str:
    prefix, _, plural = kind_path.rpartition("/")
    return f"{prefix}/namespaces/{namespace}/{plural}"


def key(body: Mapping[str, Any]) -> tuple[str, str]:
    """Namespace and name."""
    return str(body["metadata"]["namespace"]), str(body["metadata"]["name"])


def owner_key(body: Mapping[str, Any]) -> tuple[str, str] | None:
    """Namespace and name of the SpecDeployment that an object is labelled with."""
    name = (body["metadata"].get("labels") or {}).get(LABEL_DEPLOYMENT)
    return (str(body["metadata"]["namespace"]), str(name)) if name else None


def selector_text(labels: Mapping[str, str]) -> str:
    """A label selector as the API takes it in a query."""
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items()))


def enumerated(names: Iterable[str], most: int = 3) -> str:
    """The first few names, and how many more there are."""
    known = list(names)
    shown = ", ".join(known[:most])
    return f"{shown} and {len(known) - most} more" if len(known) > most else shown


def containers(pod_spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Init containers, then containers."""
    yield from pod_spec.get("initContainers") or ()
    yield from pod_spec.get("containers") or ()


def _fleets_path(namespace: str) -> str:
    return f"/apis/{API_VERSION}/namespaces/{namespace}/{PLURAL}"


def _is_operator(labels: Mapping[str, str]) -> bool:
    chart = str(labels.get("helm.sh/chart") or "")
    return labels.get("app.kubernetes.io/name") == "specfleet" or chart.startswith("specfleet-")

"""One API server a test process; each test has a namespace, a kubelet double and operators of its own."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.api import OWNED, Api, Body, Refused, eventually
from tests.cluster.kubelet import Kubelet
from tests.cluster.live_fleet import Engines, LiveFleet
from tests.cluster.operator_process import ROOT, OperatorProcess
from tests.cluster.routers import Router, free_port
from tests.testbed import api as testbed

NAMES = itertools.count(1)
EXAMPLE: Body = {
    "apiVersion": "specfleet.dev/v1alpha1",
    "kind": "SpecDeployment",
    "metadata": {"name": "assistant", "labels": {"team": "a"}, "annotations": {"note": "mine"}},
    "spec": {
        "engine": {"type": "vLLM", "version": "0.32.0"},
        "target": {"model": "owner/name"},
        "drafts": [{"name": "ngram", "mode": "NGram"}],
        "pools": {"replicas": 2},
        "routing": {
            "routes": [
                {"name": "code", "match": [{"header": {"name": "x-route", "value": "code"}}]},
                {"name": "chat"},
            ]
        },
        "policy": {"minAcceptancePercent": 30, "initial": "Speculative", "block": "2s", "dwell": "20s"},
    },
}


@dataclass
class World:
    """A namespace with a kubelet double, and the operators that were started in it."""

    api: Api
    kubeconfig: Path
    namespace: str
    router_port: int
    kubelet: Kubelet
    directory: Path
    audit_log: Path
    operators: list[OperatorProcess] = field(default_factory=list)

    def start(
        self, wrapper: tuple[str, ...] = (), *, wait: bool = True, environment: Mapping[str, str] | None = None
    ) -> OperatorProcess:
        """One more operator."""
        log = self.directory / f"operator-{len(self.operators)}.log"
        one = OperatorProcess(self.kubeconfig, self.namespace, self.router_port, log, wrapper, environment)
        self.operators.append(one)
        return one.ready() if wait else one

    def create(self, **spec: Any) -> Body:
        """The example, with top-level parts of its spec replaced."""
        body = json.loads(json.dumps(EXAMPLE))
        body["spec"].update(spec)
        return self.api.create("SpecDeployment", self.namespace, body)

    def edit(self, spec: Body, name: str = "assistant") -> Body:
        """Merge into the spec, as `kubectl edit` would."""
        return self.api.patch("SpecDeployment", self.namespace, name, {"spec": spec})

    def speculation(self, route: str, value: str) -> Body:
        """Set a person's override on one route of the example."""
        routes = json.loads(json.dumps(self.body()["spec"]["routing"]["routes"]))
        for one in routes:
            if one["name"] == route:
                one["speculation"] = value
        return self.edit({"routing": {"routes": routes}})

    def body(self, name: str = "assistant") -> Body:
        """The SpecDeployment now."""
        found = self.api.get("SpecDeployment", self.namespace, name)
        assert found is not None
        return found

    def status(self) -> Body:
        """Its status."""
        status = self.body()["status"]
        assert isinstance(status, dict)
        return status

    def condition(self, kind: str) -> Body:
        """One condition; KeyError where it is not there yet."""
        found: dict[str, Body] = {one["type"]: one for one in self.status()["conditions"]}
        return found[kind]

    def route(self, name: str) -> Body:
        """One route's status."""
        found: dict[str, Body] = {one["name"]: one for one in self.status()["routes"]}
        return found[name]

    def until(self, kind: str, status: str, reason: str | None = None) -> Body:
        """Wait for a condition of the current generation."""

        def look() -> Body | None:
            one = self.condition(kind)
            now = one["observedGeneration"] == self.body()["metadata"]["generation"]
            return one if now and one["status"] == status and reason in (None, one["reason"]) else None

        return eventually(f"{kind}={status} {reason or ''}", look)

    def settled(self) -> None:
        """Wait until it is ready, and every router serves what was decided."""
        self.until("Ready", "True")
        self.until("Reconciling", "False")
        eventually(
            "all routes are served as meant",
            lambda: all(
                one["speculativePercent"].get("served") == one["speculativePercent"]["intended"]
                and one["phase"] != "Moving"
                for one in self.status()["routes"]
            ),
        )

    def served(self, route: str, percent: int) -> None:
        """Wait until status says that every router sends this share of the route to speculation."""
        eventually(
            f"route {route} is served with {percent} % speculation",
            lambda: (
                self.route(route)["speculativePercent"].get("served") == percent
                and self.route(route)["phase"] != "Moving"
            ),
        )

    @property
    def routers(self) -> list[Router]:
        """The routers that run, where they are not Envoys."""
        return [one for one in self.kubelet.routers.values() if isinstance(one, Router)]

    def events(self, reason: str) -> list[Body]:
        """Events with this reason."""
        return [one for one in self.api.list("Event", self.namespace) if one["reason"] == reason]

    def writes(self, operator: OperatorProcess) -> list[Body]:
        """What one operator asked the API server to write in this namespace, by the audit log, its lease included.

        Each has `verb`, `objectRef` (resource, name), `responseStatus.code` and `requestReceivedTimestamp`.
        """
        lines = self.audit_log.read_text().rpartition("\n")[0].splitlines()
        found = [json.loads(line) for line in lines if f"({operator.log.stem}_" in line]
        return [one for one in found if (one.get("objectRef") or {}).get("namespace") == self.namespace]

    def versions(self) -> dict[str, str]:
        """resourceVersion of everything that the operator may write."""
        found = {}
        for kind in ("SpecDeployment", *OWNED, "Pod", "Event"):
            for one in self.api.list(kind, self.namespace):
                if kind == "Event" and one.get("reportingController") != "specfleet.dev/operator":
                    continue
                found[f"{kind}/{one['metadata']['name']}"] = one["metadata"]["resourceVersion"]
        return found


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[testbed.ControlPlane]:
    """An API server with the CRDs, and the controllers."""
    plane = testbed.ensure_control_plane(tmp_path_factory.mktemp("control-plane"), controllers=True, audited=True)
    api = Api(plane.kubeconfig)
    for path in sorted((ROOT / "crds").glob("*.yaml")):
        crd = yaml.safe_load(path.read_text())
        api.request("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    eventually("the CRD is served", lambda: _served(api))
    yield plane
    plane.stop()


def _served(api: Api) -> bool:
    try:
        api.request("GET", "/apis/specfleet.dev/v1alpha1/specdeployments")
    except Refused:
        return False
    return True


@pytest.fixture
def world(api_server: testbed.ControlPlane, tmp_path: Path) -> Iterator[World]:
    """A namespace of its own."""
    api = Api(api_server.kubeconfig)
    namespace = f"test-{next(NAMES)}"
    api.request("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})
    port = free_port()
    kubelet = Kubelet(api, namespace, port)
    one = World(api, api_server.kubeconfig, namespace, port, kubelet, tmp_path, api_server.audit_log)
    try:
        yield one
    finally:
        for operator in one.operators:
            if operator.process.poll() is None:
                operator.kill()
        kubelet.stop()
        api.request("DELETE", f"/api/v1/namespaces/{namespace}")


@pytest.fixture(scope="session")
def engines() -> Iterator[Engines]:
    """An engine for each pool, for all fleets of this process."""
    running = Engines.started()
    yield running
    running.stop()


@pytest.fixture
def fleet(world: World, engines: Engines, tmp_path: Path) -> LiveFleet:
    """The world's SpecDeployment with Envoys as routers, yet to be created."""
    return LiveFleet(world, engines, tmp_path / "routers")

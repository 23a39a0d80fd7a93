"""A stand-in for the kubelet, for tests on an API server alone: it says of pods what a kubelet would say.

Pods become ready as soon as they are seen, unless `trouble` says otherwise; a router pod gets a router of its own,
which takes its files over at start and whenever the pod's annotation changes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Protocol

from tests.cluster.addresses import ENGINE_ADDRESS
from tests.cluster.api import Api, Body, Refused
from tests.cluster.routers import Router

NODE = "engines"
ANNOTATION = "specfleet.dev/routes-version"
Trouble = Callable[[Body], Body | None]


class AnyRouter(Protocol):
    """What the kubelet does to a router."""

    address: str

    @property
    def served(self) -> dict[str, Any] | None:
        """The table that it serves."""

    def load(self, routes: dict[str, str]) -> None:
        """Take over the files of the ConfigMap."""

    def close(self) -> None:
        """End it."""


class Kubelet:
    """Runs in a thread of its own until it is stopped."""

    def __init__(self, api: Api, namespace: str, router_port: int) -> None:
        self._api, self._namespace, self._port = api, namespace, router_port
        self._stopping = threading.Event()
        self._annotated: dict[str, str | None] = {}
        self._said: dict[str, Body] = {}
        self.make_router: Callable[[int, Body], AnyRouter] = lambda port, pod: Router(port)
        self.routers: dict[str, AnyRouter] = {}
        self.syncing = True
        self.addresses: dict[str, str] = {}  # of pods that are not specfleet's, by their label `app`
        self.trouble: Trouble = lambda pod: None
        self._broken: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End it and its routers. Raises what broke in it."""
        self._stopping.set()
        self._thread.join()
        for router in self.routers.values():
            router.close()
        if self._broken is not None:
            raise self._broken

    def unready(self, **container: Any) -> Body:
        """The status of a pod whose container is in this state (`state`, `lastState`)."""
        return _status(ENGINE_ADDRESS, False, container)

    def _run(self) -> None:
        while not self._stopping.wait(0.03):
            try:
                self._pass()
            except Refused as refused:
                if refused.status not in (404, 409):
                    self._broken = refused
                    raise
            except BaseException as error:
                self._broken = error
                raise

    def _pass(self) -> None:
        pods = {pod["metadata"]["uid"]: pod for pod in self._api.list("Pod", self._namespace)}
        for uid in set(self.routers) - set(pods):
            self.routers.pop(uid).close()
        for uid, pod in pods.items():
            if pod["metadata"].get("deletionTimestamp"):
                if pod["spec"].get("nodeName"):
                    path = f"/api/v1/namespaces/{self._namespace}/pods/{pod['metadata']['name']}"
                    self._api.request("DELETE", path, {"gracePeriodSeconds": 0})
                continue
            self._say(uid, pod)

    def _say(self, uid: str, pod: Body) -> None:
        labels = pod["metadata"].get("labels") or {}
        if labels.get("app.kubernetes.io/component") == "router":
            self._router(uid, pod)
        other = self.addresses.get(labels.get("app", ""), ENGINE_ADDRESS)
        if other in self.addresses.values() and not pod["spec"].get("nodeName"):
            self._bind(pod["metadata"]["name"])
        address = self.routers[uid].address if uid in self.routers else other
        status = self.trouble(pod) or _status(address, True, {})
        if self._said.get(uid) != status:
            self._said[uid] = status
            self._api.patch("Pod", self._namespace, pod["metadata"]["name"], {"status": status}, "status")

    def _bind(self, pod: str) -> None:
        """Put a pod on the node: no EndpointSlice has a pod whose node does not exist."""
        binding = {"metadata": {"name": pod}, "target": {"kind": "Node", "name": NODE}}
        self._api.request("POST", f"/api/v1/namespaces/{self._namespace}/pods/{pod}/binding", binding)

    def _router(self, uid: str, pod: Body) -> None:
        annotation = (pod["metadata"].get("annotations") or {}).get(ANNOTATION)
        router = self.routers.get(uid)
        if router is None:
            router = self.routers[uid] = self.make_router(self._port, pod)
        elif self._annotated.get(uid) == annotation or not self.syncing:
            return
        volumes = {volume["name"]: volume for volume in pod["spec"]["volumes"]}
        names = [volume["configMap"]["name"] for volume in volumes.values() if "configMap" in volume]
        name = next(one for one in names if one.endswith("-routes"))
        routes = self._api.get("ConfigMap", self._namespace, name)
        if routes is not None:
            router.load(routes["data"])
            self._annotated[uid] = annotation


_NOW = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _status(address: str, ready: bool, container: Body) -> Body:
    said = "True" if ready else "False"
    return {
        "phase": "Running" if ready else "Pending",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "conditions": [
            {"type": kind, "status": said, "lastTransitionTime": _NOW} for kind in ("Ready", "ContainersReady")
        ]
        + [{"type": "PodScheduled", "status": "True", "lastTransitionTime": _NOW}],
        "containerStatuses": [
            {
                "name": "engine",
                "image": "engine",
                "imageID": "",
                "ready": ready,
                "restartCount": 0,
                "state": {"running": {"startedAt": _NOW}} if ready else {},
                **container,
            }
        ],
    }

"""A small synchronous client for tests: plain paths, plain dictionaries."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import urllib3
from kubernetes import client, config

T = TypeVar("T")
DEADLINE_SECONDS = 40.0
Body = dict[str, Any]

PATHS = {
    "SpecDeployment": "/apis/specfleet.dev/v1alpha1/namespaces/{}/specdeployments",
    "Deployment": "/apis/apps/v1/namespaces/{}/deployments",
    "Job": "/apis/batch/v1/namespaces/{}/jobs",
    "Service": "/api/v1/namespaces/{}/services",
    "ConfigMap": "/api/v1/namespaces/{}/configmaps",
    "ServiceAccount": "/api/v1/namespaces/{}/serviceaccounts",
    "PodDisruptionBudget": "/apis/policy/v1/namespaces/{}/poddisruptionbudgets",
    "Pod": "/api/v1/namespaces/{}/pods",
    "Event": "/apis/events.k8s.io/v1/namespaces/{}/events",
    "Lease": "/apis/coordination.k8s.io/v1/namespaces/{}/leases",
    "ReplicaSet": "/apis/apps/v1/namespaces/{}/replicasets",
    "ResourceQuota": "/api/v1/namespaces/{}/resourcequotas",
}
OWNED = ("ServiceAccount", "ConfigMap", "Service", "PodDisruptionBudget", "Deployment")


class Refused(Exception):
    """The API server's answer, where it is no success."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"{status}: {body}")
        self.status = status


class Api:
    """One API server as its administrator sees it."""

    def __init__(self, kubeconfig: Path) -> None:
        found = client.Configuration()
        config.load_kube_config(str(kubeconfig), client_configuration=found)  # type: ignore[no-untyped-call]
        self._server = found.host
        self._pool = urllib3.PoolManager(
            ca_certs=found.ssl_ca_cert, cert_file=found.cert_file, key_file=found.key_file, maxsize=8
        )

    def request(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Body:
        """The parsed answer. Raises Refused."""
        answer = self._pool.request(
            method,
            self._server + path,
            body=None if body is None else json.dumps(body),
            headers={"Content-Type": content_type},
        )
        if answer.status >= 400:
            raise Refused(answer.status, answer.data.decode(errors="replace"))
        parsed = json.loads(answer.data)
        assert isinstance(parsed, dict)
        return parsed

    def get(self, kind: str, namespace: str, name: str) -> Body | None:
        """The object, or None."""
        try:
            return self.request("GET", f"{PATHS[kind].format(namespace)}/{name}")
        except Refused as refused:
            if refused.status == 404:
                return None
            raise

    def list(self, kind: str, namespace: str) -> list[Body]:
        """All objects of a kind in a namespace."""
        items = self.request("GET", PATHS[kind].format(namespace))["items"]
        assert isinstance(items, list)
        return items

    def create(self, kind: str, namespace: str, body: Body) -> Body:
        """A new object."""
        return self.request("POST", PATHS[kind].format(namespace), body)

    def patch(self, kind: str, namespace: str, name: str, body: Body, subresource: str = "") -> Body:
        """A JSON merge patch."""
        path = f"{PATHS[kind].format(namespace)}/{name}" + (f"/{subresource}" if subresource else "")
        return self.request("PATCH", path, body, "application/merge-patch+json")

    def strategic(self, kind: str, namespace: str, name: str, body: Body) -> Body:
        """A strategic merge patch."""
        return self.request(
            "PATCH", f"{PATHS[kind].format(namespace)}/{name}", body, "application/strategic-merge-patch+json"
        )

    def delete(self, kind: str, namespace: str, name: str) -> None:
        """Delete an object; one that is not there is no error."""
        try:
            self.request("DELETE", f"{PATHS[kind].format(namespace)}/{name}")
        except Refused as refused:
            if refused.status != 404:
                raise


def person_side(body: Body) -> Body:
    """What a person wrote, or a controller may have put beside it: all metadata but the server's own book-keeping."""
    kept = ("resourceVersion", "managedFields")
    return {key: value for key, value in body["metadata"].items() if key not in kept}


def eventually(what: str, look: Callable[[], T | None], seconds: float = DEADLINE_SECONDS) -> T:
    """The first answer that is neither None nor empty. Fails with `what` and the last error when the time is up."""
    end = time.monotonic() + seconds
    last: Exception | None = None
    while True:
        try:
            found = look()
            if found:
                return found
            last = None
        except (AssertionError, KeyError, IndexError, Refused) as error:
            last = error
        if time.monotonic() >= end:
            raise AssertionError(f"not within {seconds:.0f} s: {what}" + (f" ({last!r})" if last else ""))
        time.sleep(0.05)

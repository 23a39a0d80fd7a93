"""Engines of others, for External pools: an HTTP port with vLLM's metrics page, behind Deployments and Services.

The pods are made by the cluster's controllers; what would run in them is a server of this process. EndpointSlices take
no loopback address, so that the servers listen on the machine's own address, each on a port of its own.
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Mapping
from typing import Any

from tests.cluster.api import Body, Refused, eventually, person_side
from tests.cluster.conftest import World
from tests.cluster.http_server import Answer, HttpServer
from tests.cluster.kubelet import NODE

IMAGE = "vllm/vllm-openai:v0.32.0"
SPECULATION = '{"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4}'
PLAIN_ARGS = ["owner/name", "--max-num-seqs", "8", "--served-model-name", "chat"]
FIGURES = ["--per-request-spec-decode-metrics", "summary"]
BARE_ARGS = [*PLAIN_ARGS, "--speculative-config", SPECULATION]
SPECULATIVE_ARGS = [*BARE_ARGS, *FIGURES]


def own_address() -> str:
    """An address of this machine that is no loopback address; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.connect(("203.0.113.1", 9))
        return str(one.getsockname()[0])


class Engine:
    """One engine's port. `pages` are status, content type and body by path; close it."""

    def __init__(self, *, speculative: bool) -> None:
        self.counters = {"generation_tokens_total": 0, "num_requests_running": 0, "num_requests_waiting": 0}
        self.counters["request_success_total"] = 0
        if speculative:
            self.counters |= dict.fromkeys(
                (
                    "spec_decode_num_drafts_total",
                    "spec_decode_num_draft_tokens_total",
                    "spec_decode_num_accepted_tokens_total",
                ),
                0,
            )
        self.pages: dict[str, Answer] = {}
        self.asked: list[str] = []
        self._server = HttpServer(own_address(), 0, self.answer)
        self.port = self._server.port

    def answer(self, path: str) -> Answer:
        """The answer to a GET."""
        self.asked.append(path)
        if path in self.pages:
            return self.pages[path]
        if path == "/metrics":
            lines = [
                f'vllm:{name}{{engine="0",model_name="chat"}} {float(value)}' for name, value in self.counters.items()
            ]
            return 200, "text/plain; version=0.0.4", ("\n".join(lines) + "\n").encode()
        return 404, "text/plain", b""

    def count(self, *, requests: int, steps: int, accepted: int, draft_tokens: int = 4) -> None:
        """So many requests have ended, decoded in so many steps that drafted each time."""
        self.counters["request_success_total"] += requests
        self.counters["generation_tokens_total"] += requests + steps + accepted
        self.counters["spec_decode_num_drafts_total"] += steps
        self.counters["spec_decode_num_draft_tokens_total"] += draft_tokens * steps
        self.counters["spec_decode_num_accepted_tokens_total"] += accepted

    def close(self) -> None:
        """Answer no more."""
        self._server.close()


class Team:
    """A team that serves already: its Deployments and Services in the world's namespace."""

    def __init__(self, world: World) -> None:
        self.world = world
        with contextlib.suppress(Refused):  # one for all tests
            world.api.request("POST", "/api/v1/nodes", {"metadata": {"name": NODE}})
        self.speculative = Engine(speculative=True)
        self.baseline = Engine(speculative=False)

    def close(self) -> None:
        """End the engines."""
        self.speculative.close()
        self.baseline.close()

    def serves(self, **changes: Any) -> None:
        """The usual pair: Deployments and headless Services `fast` (with speculation) and `plain`."""
        self.deployment("fast", self.speculative, SPECULATIVE_ARGS, **changes)
        self.deployment("plain", self.baseline, PLAIN_ARGS, **changes)
        self.service("fast", self.speculative.port)
        self.service("plain", self.baseline.port)
        eventually("both Services have endpoints", lambda: self.endpoints("fast") and self.endpoints("plain"))

    def deployment(
        self,
        name: str,
        engine: Engine,
        args: list[str],
        *,
        image: str = IMAGE,
        replicas: int = 1,
        command: tuple[str, ...] = ("vllm", "serve"),
        annotations: Mapping[str, str] | None = None,
        labels: Mapping[str, str] | None = None,
    ) -> Body:
        """A Deployment as a team writes it."""
        self.world.kubelet.addresses[name] = own_address()
        selected = {"app": name}
        container: Body = {"name": "vllm", "image": image, "args": args, "ports": [{"containerPort": engine.port}]}
        if command:
            container["command"] = list(command)
        template: Body = {
            "metadata": {"labels": selected | dict(labels or {}), "annotations": dict(annotations or {})},
            "spec": {"automountServiceAccountToken": False, "containers": [container]},
        }
        spec = {"replicas": replicas, "selector": {"matchLabels": selected}, "template": template}
        return self.world.api.create("Deployment", self.world.namespace, {"metadata": {"name": name}, "spec": spec})

    def service(
        self,
        name: str,
        port: int,
        selector: Mapping[str, str] | None = None,
        *,
        headless: bool = True,
        labels: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> Body:
        """A Service on port 8000 over pods that listen on `port`."""
        body: Body = {
            "selector": dict(selector or {"app": name}),
            "ports": [{"name": "http", "port": 8000, "targetPort": port}],
            **({"clusterIP": "None"} if headless else {}),
            **spec,
        }
        meta = {"name": name, "labels": dict(labels or {})}
        return self.world.api.create("Service", self.world.namespace, {"metadata": meta, "spec": body})

    def endpoints(self, service: str) -> list[Body]:
        """The endpoints of a Service."""
        path = f"/apis/discovery.k8s.io/v1/namespaces/{self.world.namespace}/endpointslices"
        slices = self.world.api.request("GET", f"{path}?labelSelector=kubernetes.io/service-name={service}")["items"]
        return [one for body in slices for one in body.get("endpoints") or ()]

    def adopt(self, **spec: Any) -> Body:
        """The SpecDeployment `assistant` over the pair; `None` as a value leaves a part of the spec out."""
        body = json.loads(json.dumps(ADOPTED))
        body["spec"].update(spec)
        body["spec"] = {key: value for key, value in body["spec"].items() if value is not None}
        return self.world.api.create("SpecDeployment", self.world.namespace, body)

    def pods_are_ready(self, count: int) -> None:
        """Wait until so many pods of the team run on the node and are ready: then nobody else writes to them."""

        def ready() -> bool:
            pods = [one for one in self._objects("Pod") if one["spec"].get("nodeName")]
            return len([one for one in pods if one.get("status", {}).get("phase") == "Running"]) == count

        eventually(f"{count} pods run", ready)

    def written(self) -> dict[str, Body]:
        """All of the team's objects that a write can change, but for status and the server's own book-keeping."""
        return {
            f"{kind}/{one['metadata']['name']}": {"metadata": person_side(one), "spec": one["spec"]}
            for kind in ("Deployment", "Service", "Pod")
            for one in self._objects(kind)
        }

    def _objects(self, kind: str) -> list[Body]:
        return [
            one
            for one in self.world.api.list(kind, self.world.namespace)
            if (one["metadata"].get("labels") or {}).get("app.kubernetes.io/managed-by") != "specfleet"
        ]


ADOPTED: Body = {
    "apiVersion": "specfleet.dev/v1alpha1",
    "kind": "SpecDeployment",
    "metadata": {"name": "assistant"},
    "spec": {
        "engine": {"type": "vLLM"},
        "pools": {
            "strategy": "External",
            "external": {
                "speculative": {"service": "fast", "port": 8000},
                "baseline": {"service": "plain", "port": 8000},
            },
        },
        "routing": {
            "routes": [
                {"name": "code", "match": [{"header": {"name": "x-route", "value": "code"}}]},
                {"name": "chat"},
            ]
        },
        "policy": {
            "minAcceptancePercent": 30,
            "initial": "Speculative",
            "enforcement": "Observe",
            "block": "2s",
            "dwell": "20s",
        },
    },
}

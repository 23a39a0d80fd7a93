"""Source Prometheus and PodMonitors on a real API server, with a real Prometheus that scrapes the routers."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.api import eventually
from tests.cluster.conftest import World
from tests.cluster.routers import Router
from tests.testbed.prometheus_server import PrometheusServer, Target

pytestmark = pytest.mark.cluster

SCALED = (str(Path(__file__).with_name("scaled_operator.py")),)
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
POD_MONITORS: dict[str, Any] = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {
        "name": "podmonitors.monitoring.coreos.com",
        "annotations": {"api-approved.kubernetes.io": "unapproved, a stand-in for tests"},
    },
    "spec": {
        "group": "monitoring.coreos.com",
        "scope": "Namespaced",
        "names": {"plural": "podmonitors", "singular": "podmonitor", "kind": "PodMonitor"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}},
            }
        ],
    },
}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[PrometheusServer]:
    (tmp_path / "prometheus").mkdir()
    made = PrometheusServer(tmp_path / "prometheus", scrape_seconds=0.5)
    yield made
    made.stop()


def targets(world: World, server: PrometheusServer) -> None:
    """Let the server scrape the routers that run, as service discovery would."""
    names = {pod["metadata"]["uid"]: pod["metadata"]["name"] for pod in world.api.list("Pod", world.namespace)}
    server.targets(
        Target(f"{router.address}:{world.router_port}", {"namespace": world.namespace, "pod": names[uid]})
        for uid, router in world.kubelet.routers.items()
    )


def poor(world: World) -> None:
    """Count poor answers on chat, good ones on code."""
    for router in world.routers:
        router.count("chat", "ngram", measured=30, decode_tokens=1530, accepted=30, drafted=1200)
        router.count("code", "ngram", measured=30, decode_tokens=1500, accepted=900, drafted=1200)


def test_decisions_rest_on_prometheus_and_hold_while_it_is_away(world: World, server: PrometheusServer) -> None:
    world.create(metrics={"source": "Prometheus", "prometheus": {"url": server.url}})
    world.start(SCALED)
    world.settled()
    world.until("MetricsAvailable", "False", "PrometheusUnreachable")
    targets(world, server)
    server.start()
    world.until("MetricsAvailable", "True", "PrometheusRead")

    server.stop()
    said = world.until("MetricsAvailable", "False", "PrometheusUnreachable")
    assert said["message"] == f"{server.url} refuses the connection; the last decision holds."
    away = time.monotonic()
    while time.monotonic() < away + 12.0:  # longer than the dwell in speculation, and six blocks of evidence
        poor(world)
        assert {_percent(router, route) for router in world.routers for route in ("chat", "code")} == {100}
        time.sleep(1.0)
    chat = world.route("chat")
    assert (chat["pool"], chat["phase"], chat["reason"]) == ("ngram", "Held", "MetricsUnavailable")
    assert chat["history"] == []

    server.start()
    world.until("MetricsAvailable", "True", "PrometheusRead")

    def switched() -> bool:
        poor(world)
        return bool(world.route("chat")["pool"] == "baseline")

    eventually("chat is served by baseline", switched, 90.0)
    chat, code = world.route("chat"), world.route("code")
    assert (chat["reason"], len(chat["history"])) == ("BelowAcceptance", 1)
    assert chat["acceptancePercent"] < 10
    assert (code["pool"], code["history"]) == ("ngram", [])
    eventually("the routers have it", lambda: all(_percent(router, "chat") <= 10 for router in world.routers))
    assert {_percent(router, "code") for router in world.routers} == {100}
    assert 'specfleet_operator_prometheus_queries_total{result="ok"}' in world.operators[0].get("/metrics")


def test_routers_that_only_prometheus_reaches_are_decided_on_and_not_asked_for_ever(
    world: World, server: PrometheusServer
) -> None:
    world.create(metrics={"source": "Prometheus", "prometheus": {"url": server.url}})
    operator = world.start(SCALED)
    world.settled()
    for router in world.routers:
        router.deaf = True
    targets(world, server)
    server.start()
    world.until("MetricsAvailable", "True", "PrometheusRead")
    said = world.until("Moving", "Unknown", "RoutersUnreachable")
    assert "No router can be asked what it serves" in said["message"]

    def switched() -> bool:
        poor(world)
        return bool(world.route("chat")["pool"] == "baseline")

    eventually("chat is served by baseline", switched, 90.0)
    chat = world.route("chat")
    assert chat["phase"] != "Moving"
    assert "served" not in chat["speculativePercent"]
    eventually("the routers have it", lambda: all(_percent(router, "chat") <= 10 for router in world.routers))
    failed = 'specfleet_operator_router_readings_total{result="failed"}'
    assert float(re.findall(rf"{re.escape(failed)} (\S+)", operator.get("/metrics"))[0]) <= 4


def _percent(router: Router, route: str) -> int:
    return int((router.served or {})["routes"][route]["ngram"])


def test_without_an_address_the_spec_is_not_valid(world: World) -> None:
    world.create(metrics={"source": "Prometheus"})
    world.start()
    said = world.until("Valid", "False", "PrometheusUnknown")
    assert "prometheus.url" in said["message"]
    world.edit({"metrics": {"source": "Direct"}})
    world.until("Valid", "True")
    world.until("MetricsAvailable", "True", "RoutersRead")


def test_pod_monitors_are_applied_once_the_kind_is_there_put_back_and_gone_with_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.create()
    world.start(SCALED)
    world.settled()
    path = f"/apis/monitoring.coreos.com/v1/namespaces/{world.namespace}/podmonitors"
    world.api.request("POST", CRDS, POD_MONITORS)
    try:

        def monitor() -> dict[str, Any] | None:
            found = world.api.request("GET", path)["items"]
            return found[0] if found else None

        made = eventually("a PodMonitor is applied", monitor)
        assert made["metadata"]["ownerReferences"][0]["uid"] == world.body()["metadata"]["uid"]
        assert made["spec"]["podMetricsEndpoints"][0]["port"] == "read"
        world.until("Ready", "True")

        edit = {"spec": {"podTargetLabels": ["mine"]}}
        world.api.request(
            "PATCH", f"{path}/{made['metadata']['name']}", edit, content_type="application/merge-patch+json"
        )
        eventually(
            "the edit is put back",
            lambda: (monitor() or made)["spec"]["podTargetLabels"] == ["specfleet.dev/deployment"],
        )
        world.api.request("DELETE", f"{path}/{made['metadata']['name']}")
        again = eventually("it is made again", monitor)
        assert again["metadata"]["uid"] != made["metadata"]["uid"]

        assert world.operators[0].stop() == 0
        monkeypatch.setenv("SPECFLEET_POD_MONITOR__ENABLED", "false")
        world.start(SCALED)
        eventually("where settings want none it is pruned", lambda: monitor() is None)
    finally:
        world.api.request("DELETE", f"{CRDS}/podmonitors.monitoring.coreos.com")
    world.until("Ready", "True")
    assert world.operators[1].probe("/healthz") == 200

    assert world.operators[1].stop() == 0
    monkeypatch.setenv("SPECFLEET_POD_MONITOR__ENABLED", "true")
    world.start(SCALED)
    said = world.until("Ready", "False", "ApplyFailed")
    assert said["message"].startswith("PodMonitor assistant-router: ")

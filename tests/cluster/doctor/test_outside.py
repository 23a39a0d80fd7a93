"""External pools and Prometheus, looked at by `specfleet doctor`."""

from __future__ import annotations

import pytest
import yaml

from tests.cluster.api import Body
from tests.cluster.doctor.bed import (
    FLEETS,
    SETTINGS,
    Bed,
    endpoints,
    only,
    service,
)

pytestmark = pytest.mark.cluster


def external(bed: Bed, **pools: Body) -> None:
    """A SpecDeployment with External pools, not looked at yet."""
    bed.make(
        {
            "apiVersion": "specfleet.dev/v1alpha1",
            "kind": "SpecDeployment",
            "metadata": {"name": "adopted", "namespace": FLEETS},
            "spec": {
                "engine": {"type": "vLLM"},
                "pools": {"strategy": "External", "external": pools},
                "policy": {"enforcement": "Observe", "minAcceptancePercent": 30},
            },
        }
    )


def test_external_services_that_lead_nowhere(bed: Bed) -> None:
    bed.make(service("plain", FLEETS, 8000))
    bed.make(endpoints("plain", FLEETS, ready=False))
    external(bed, speculative={"service": "fast"}, baseline={"service": "plain"})

    found = bed.doctor().of("external-services")

    assert [(one["about"], one["severity"]) for one in found] == [
        (f"Service {FLEETS}/fast", "error"),
        (f"Service {FLEETS}/plain", "error"),
    ]
    assert "does not exist" in found[0]["found"]
    assert "no ready endpoint" in found[1]["found"]


def test_an_external_service_without_that_port(bed: Bed) -> None:
    bed.make(service("plain", FLEETS, 80))
    bed.make(endpoints("plain", FLEETS))
    external(bed, baseline={"service": "plain", "port": 8000})

    assert "names port 8000; the Service has 80" in only(bed, "external-services")["found"]


def test_a_prometheus_that_does_not_answer(bed: Bed) -> None:
    settings = yaml.safe_load(bed.api.request("GET", SETTINGS)["data"]["settings.yaml"])
    settings["prometheus"] = {"url": "http://127.0.0.1:1"}
    bed.change(SETTINGS, {"data": {"settings.yaml": yaml.safe_dump(settings)}})
    away = only(bed, "prometheus")
    settings["prometheus"] = {"url": "http://prometheus.serving.svc:9090"}
    bed.change(SETTINGS, {"data": {"settings.yaml": yaml.safe_dump(settings)}})
    bed.lease()
    missing = only(bed, "prometheus")

    assert "http://127.0.0.1:1 does not answer from here" in away["found"]
    assert "there is no Service serving/prometheus" in missing["found"]

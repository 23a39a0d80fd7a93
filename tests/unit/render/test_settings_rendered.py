"""What the operator's settings change in what is rendered."""

from __future__ import annotations

from typing import Any

import pytest

from specfleet.api.findings import FindingReason
from specfleet.api.v1alpha1 import SpecDeployment
from specfleet.render.objects import render_all
from specfleet.render.validate import validate
from specfleet.settings import (
    OperatorSettings,
    PodMonitorSettings,
    PrometheusSettings,
    Resources,
    RouterSettings,
)
from tests.unit.handlers.samples import owner

Body = dict[str, Any]
DEFAULTS = OperatorSettings()


def made(template: Body | None = None, **spec: Any) -> SpecDeployment:
    """A SpecDeployment with these parts of its spec, and this template."""
    body = owner(**spec)
    if template is not None:
        body["spec"]["pools"]["template"] = template
    return SpecDeployment.parse(body)


def rendered(deployment: SpecDeployment, **settings: Any) -> dict[str, Body]:
    """All objects by kind and name."""
    objects = render_all(deployment, OperatorSettings(**settings), with_pod_monitor=True)
    return {f"{one['kind']}/{one['metadata']['name']}": one for one in objects}


def pod(objects: dict[str, Body], name: str) -> Body:
    """The pod template's spec of a Deployment."""
    spec = objects[f"Deployment/{name}"]["spec"]["template"]["spec"]
    assert isinstance(spec, dict)
    return spec


def test_another_registry_takes_the_place_of_the_public_one_unless_the_object_names_an_image() -> None:
    mirror = {"engine_images": {"vLLM": "registry.example.com:5000/vllm/vllm-openai"}}
    own = made(engine={"type": "vLLM", "image": "mine/vllm:v0.32.0"})

    for pool in ("baseline", "ngram"):
        name = f"assistant-{pool}"
        assert pod(rendered(made()), name)["containers"][0]["image"] == "vllm/vllm-openai:v0.32.0"
        assert pod(rendered(made(), **mirror), name)["containers"][0]["image"] == (
            "registry.example.com:5000/vllm/vllm-openai:v0.32.0"
        )
        assert pod(rendered(own, **mirror), name)["containers"][0]["image"] == "mine/vllm:v0.32.0"


@pytest.mark.parametrize(
    ("engine", "version", "tag"), [("SGLang", "0.5.23", "v0.5.23"), ("TensorRTLLM", "1.4.0rc1", "1.4.0rc1")]
)
def test_another_registry_has_the_tags_of_the_public_one(engine: str, version: str, tag: str) -> None:
    objects = rendered(
        made(engine={"type": engine, "version": version}), engine_images={engine: "mirror.example/engine"}
    )

    assert pod(objects, "assistant-baseline")["containers"][0]["image"] == f"mirror.example/engine:{tag}"


def test_routers_have_the_resources_and_the_number_that_settings_say_and_breakers_follow() -> None:
    resources = Resources(requests={"cpu": "2"}, limits={"memory": "4Gi"})
    router = RouterSettings(replicas=4, resources=resources)
    few, many = rendered(made()), rendered(made(), router=router)

    assert many["Deployment/assistant-router"]["spec"]["replicas"] == 4
    envoy = pod(many, "assistant-router")["containers"][0]
    assert envoy["resources"] == {"requests": {"cpu": "2"}, "limits": {"memory": "4Gi"}}
    # 256 sequences a pod, one pod a pool, and any of both pools' load: what all routers let through stays the same.
    assert "max_requests: 256" in few["ConfigMap/assistant-routes"]["data"]["cds.yaml"]
    assert "max_requests: 128" in many["ConfigMap/assistant-routes"]["data"]["cds.yaml"]


def test_router_pods_say_how_they_are_scraped() -> None:
    template = rendered(made())["Deployment/assistant-router"]["spec"]["template"]
    annotations = template["metadata"]["annotations"]
    port = next(one for one in template["spec"]["containers"][0]["ports"] if one["name"] == "read")

    assert annotations["prometheus.io/scrape"] == "true"
    assert annotations["prometheus.io/port"] == str(port["containerPort"])
    assert annotations["prometheus.io/path"] == "/stats/prometheus"
    assert annotations["prometheus.io/param_filter"].startswith("^(specfleet")


@pytest.mark.parametrize(
    ("source", "block", "interval"),
    [("Direct", "10s", "20s"), ("Prometheus", "60s", "20s"), ("Prometheus", "10s", "5s"), ("Prometheus", "1s", "1s")],
)
def test_the_pod_monitor_scrapes_twice_a_block_where_decisions_rest_on_it(
    source: str, block: str, interval: str
) -> None:
    policy = {"minAcceptancePercent": 30, "block": block}
    settings = PodMonitorSettings(interval_seconds=20, labels={"release": "monitoring", "app.kubernetes.io/name": "x"})
    one = rendered(made(metrics={"source": source}, policy=policy), pod_monitor=settings)["PodMonitor/assistant-router"]
    (endpoint,) = one["spec"]["podMetricsEndpoints"]

    assert endpoint["interval"] == interval
    assert one["metadata"]["labels"]["release"] == "monitoring"
    assert one["metadata"]["labels"]["app.kubernetes.io/name"] == "specfleet"


TEMPLATES: list[tuple[str, Body]] = [
    ("allow_host_namespaces", {"spec": {"hostNetwork": True}}),
    ("allow_host_namespaces", {"spec": {"hostIPC": True, "hostPID": True}}),
    ("allow_privileged", {"spec": {"securityContext": {"seccompProfile": {"type": "Unconfined"}}}}),
    (
        "allow_privileged",
        {"spec": {"containers": [{"name": "engine", "securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}]}},
    ),
    (
        "allow_privileged",
        {
            "spec": {
                "containers": [
                    {"name": "engine", "securityContext": {"privileged": True, "allowPrivilegeEscalation": True}}
                ]
            }
        },
    ),
    ("allow_service_accounts", {"spec": {"serviceAccountName": "trainer"}}),
    (
        "allow_service_accounts",
        {
            "spec": {
                "volumes": [
                    {"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t", "audience": "x"}}]}}
                ]
            }
        },
    ),
    ("allow_host_path", {"spec": {"volumes": [{"name": "data", "hostPath": {"path": "/data"}}]}}),
]


@pytest.mark.parametrize(("setting", "template"), TEMPLATES)
def test_what_a_template_may_ask_for_is_the_administrators_to_say(setting: str, template: Body) -> None:
    one = made(template)
    allowed = DEFAULTS.model_copy(update={setting: True})
    others = DEFAULTS.model_copy(
        update={name: True for name in OperatorSettings.model_fields if name.startswith("allow_") and name != setting}
    )

    refused = validate(one, DEFAULTS)
    assert {finding.reason for finding in refused} <= {
        FindingReason.PRIVILEGED_TEMPLATE,
        FindingReason.HOST_PATH_NOT_ALLOWED,
    }
    assert refused
    assert "ask who runs the operator" in refused[0].message
    assert validate(one, others) == refused
    assert validate(one, allowed) == []
    spec = pod(rendered(one, **{setting: True}), "assistant-ngram")
    for name, value in template["spec"].items():
        if not isinstance(value, list):
            assert (value.items() <= spec[name].items()) if isinstance(value, dict) else spec[name] == value
        elif name == "containers":
            context = spec["containers"][0]["securityContext"]
            for field, wanted in value[0]["securityContext"].items():
                assert context[field] == ({**context[field], **wanted} if isinstance(wanted, dict) else wanted)
        else:
            assert value[0] in spec[name]


def test_privileged_alone_is_refused_before_the_api_server_does() -> None:
    one = made({"spec": {"containers": [{"name": "engine", "securityContext": {"privileged": True}}]}})
    (found,) = validate(one, DEFAULTS.model_copy(update={"allow_privileged": True}))

    assert found.reason is FindingReason.INVALID_TEMPLATE
    assert "allowPrivilegeEscalation: true" in found.message


@pytest.mark.parametrize(
    ("metrics", "settings", "reasons"),
    [
        ({"source": "Prometheus"}, PrometheusSettings(), [FindingReason.PROMETHEUS_UNKNOWN]),
        ({"source": "Prometheus"}, PrometheusSettings(url="http://a"), []),
        ({"source": "Prometheus", "prometheus": {"url": "http://b"}}, PrometheusSettings(), []),
        (
            {"source": "Prometheus", "prometheus": {"url": "http://b"}},
            PrometheusSettings(url="http://a", allow_url_in_resources=False),
            [FindingReason.PROMETHEUS_URL_NOT_ALLOWED],
        ),
        ({"source": "Direct"}, PrometheusSettings(), []),
    ],
)
def test_source_prometheus_needs_an_address_that_may_be_used(
    metrics: Body, settings: PrometheusSettings, reasons: list[FindingReason]
) -> None:
    found = validate(made(metrics=metrics), DEFAULTS.model_copy(update={"prometheus": settings}))

    assert [finding.reason for finding in found] == reasons

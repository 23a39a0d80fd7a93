"""What is said of a Prometheus, by what it answers."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from specfleet.doctor.checks import prometheus
from specfleet.doctor.facts import Get, Page, PageAnswer
from specfleet.doctor.findings import Finding, Item, NotChecked, Seen, Severity
from specfleet.doctor.selectors import endpoint_slices
from tests.unit.doctor.asking import FLEETS, OPERATORS, operator, say


def prometheus_says(answer: PageAnswer, **settings: Any) -> list[Item]:
    """What is said of a Prometheus in the cluster whose Service has an endpoint."""
    one = operator(readyReplicas=1)
    one["spec"]["template"]["spec"]["volumes"] = [{"name": "settings", "configMap": {"name": "s"}}]
    text = yaml.safe_dump({"prometheus": {"url": "http://prometheus.monitoring.svc:9090/base/", **settings}})
    service = "/api/v1/namespaces/monitoring/services"
    through = f"{service}/http:prometheus:9090/proxy/base/api/v1/query?query=vector(1)"
    return say(
        prometheus.check,
        {
            Get("/apis/monitoring.coreos.com/v1"): None,
            OPERATORS: (one,),
            Get("/api/v1/namespaces/specfleet-system/configmaps/s"): {"data": {"settings.yaml": text}},
            FLEETS: (),
            Get(f"{service}/prometheus"): {"metadata": {}},
            endpoint_slices("monitoring", "prometheus"): ({"endpoints": [{"conditions": {"ready": True}}]},),
            Page(through): answer,
        },
    )


ANSWER = '{"status":"success","data":{"resultType":"vector","result":[]}}'


@pytest.mark.parametrize(
    ("answer", "settings", "words"),
    [
        (PageAnswer(200, "application/json", ANSWER), {}, None),
        (PageAnswer(401, "text/plain", ""), {}, "asks for credentials (401)"),
        (PageAnswer(401, "text/plain", ""), {"bearerTokenFile": "/t"}, None),
        (PageAnswer(200, "text/html", "<html>"), {}, "answers 200 with text/html"),
        (PageAnswer(503, "application/json", '{"kind":"Status","apiVersion":"v1","message":"no endpoints"}'), {},
         "does not answer: no endpoints"),
        (PageAnswer(0, "", "no answer within 5 s"), {}, "no answer within 5 s"),
    ],
)  # fmt: skip
def test_what_a_prometheus_answers(answer: PageAnswer, settings: dict[str, Any], words: str | None) -> None:
    found = [one for one in prometheus_says(answer, **settings) if isinstance(one, Finding)]

    assert len(found) == (0 if words is None else 1)
    if words is not None:
        assert words in found[0].found
        assert found[0].severity is Severity.WARNING


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("http://169.254.169.254/latest", Seen),
        ("https://prometheus.example.com", Seen),
        ("http://prometheus.monitoring.svc/../../../secrets", NotChecked),
        ("http://prometheus.monitoring.svc//x", NotChecked),
    ],
)
def test_a_url_that_a_fleets_author_writes_sends_this_machine_nowhere(url: str, kind: type[Item]) -> None:
    """No page is among the answers: asking for one would end in `NotYet`."""
    metrics = {"source": "Prometheus", "prometheus": {"url": url}}
    fleet = {"metadata": {"name": "a", "namespace": "serving"}, "spec": {"metrics": metrics}}

    said = say(prometheus.check, {Get("/apis/monitoring.coreos.com/v1"): None, OPERATORS: (), FLEETS: (fleet,)})

    assert [type(one) for one in said] == [kind, Seen]


def test_a_proxy_that_the_caller_may_not_use_is_not_checked() -> None:
    refused = '{"kind":"Status","apiVersion":"v1","message":"services is forbidden"}'

    said = prometheus_says(PageAnswer(403, "application/json", refused))

    assert [type(one) for one in said] == [NotChecked, Seen]

"""The operator's own metrics page."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from specfleet.metrics.own import OperatorMetrics

BOUNDED = {"namespace", "deployment", "route", "pool", "line", "kind", "verb", "status", "reason", "result", "le"}


def samples(metrics: OperatorMetrics) -> dict[str, list[dict[str, str]]]:
    """Labels by series name."""
    found: dict[str, list[dict[str, str]]] = {}
    for family in text_string_to_metric_families(metrics.page().decode()):
        for one in family.samples:
            found.setdefault(one.name, []).append(dict(one.labels))
    return found


def filled() -> OperatorMetrics:
    metrics = OperatorMetrics()
    metrics.written("apply", "Service", 200, 0.01)
    metrics.pool_ready.labels("a", "one", "ngram").set(1)
    metrics.pool_ready.labels("a", "two", "ngram").set(1)
    metrics.route_score.labels("a", "one", "chat", "Acceptance").set(2.5)
    metrics.switches.labels("a", "one", "baseline").inc()
    return metrics


def test_writes_are_counted_by_verb_kind_and_status() -> None:
    assert samples(filled())["specfleet_operator_api_writes_total"] == [
        {"verb": "apply", "kind": "Service", "status": "200"}
    ]


def test_every_name_is_ours_and_every_label_bounded() -> None:
    for name, series in samples(filled()).items():
        assert name.startswith("specfleet_"), name
        for labels in series:
            assert labels.keys() <= BOUNDED, (name, labels)


def test_series_of_a_deleted_deployment_go() -> None:
    metrics = filled()
    metrics.forget("a", "one")
    left = samples(metrics)
    assert [one["deployment"] for one in left["specfleet_pool_ready_replicas"]] == ["two"]
    assert "specfleet_route_evidence_score" not in left
    assert "specfleet_operator_switches_total" not in left

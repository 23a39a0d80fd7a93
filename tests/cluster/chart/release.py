"""Installs the chart and waits until it is in force."""

from __future__ import annotations

from tests.cluster.chart.client import CHART, Cluster
from tests.cluster.chart.pods import patch


def install(cluster: Cluster, *options: str) -> None:
    """`helm install` of the release specfleet, until its definition is established and its policy refuses."""
    cluster.helm("install", "specfleet", str(CHART), *options)
    cluster.eventually_established()
    forbidden = patch("engine", {"metadata": {"annotations": {"a": "b"}}})
    cluster.eventually_refused(*forbidden, contains="ValidatingAdmissionPolicy")

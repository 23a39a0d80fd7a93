"""SpecDeployment v1alpha1: `spec.metrics`."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

from pydantic import ConfigDict, Field, StringConstraints

from specfleet.api.base import Model, Rule, rules


class MetricsSource(StrEnum):
    """Where the routers' counters are read."""

    DIRECT = "Direct"
    PROMETHEUS = "Prometheus"


class PrometheusSource(Model):
    """A Prometheus of one SpecDeployment."""

    url: Annotated[str, StringConstraints(pattern=r"^https?://[^\s/@?#]+(/[^\s?#]*)?$", max_length=512)] | None = Field(
        None,
        description="Base URL, such as http://prometheus.monitoring:9090. Default: that of the operator's settings. "
        "The settings' credentials are never sent to a URL that is written here.",
    )


class Metrics(Model):
    """Where the figures that decisions rest on are read."""

    model_config = ConfigDict(
        json_schema_extra=rules(
            Rule(
                "self.source == 'Prometheus' || !has(self.prometheus)",
                "source Direct asks the routers and no Prometheus: write source: Prometheus, or remove prometheus",
                ".prometheus",
            )
        )
    )
    source: MetricsSource = Field(
        MetricsSource.DIRECT,
        description="Direct: the operator reads each router. Prometheus: it reads what a Prometheus scraped of them.",
    )
    prometheus: PrometheusSource | None = Field(None, description="Which Prometheus, with source Prometheus.")

"""Pod templates to judge a namespace by: of the fleets that are there, or of the smallest fleet that could be. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from specfleet.api.v1alpha1 import API_VERSION, KIND, SpecDeployment
from specfleet.doctor.facts import Facts, Manifest
from specfleet.doctor.installed import COMPONENT, owned
from specfleet.render.objects import render_all
from specfleet.settings import OperatorSettings

SMALLEST: Manifest = {
    "apiVersion": API_VERSION,
    "kind": KIND,
    "metadata": {"name": "first", "namespace": "default"},
    "spec": {
        "engine": {"type": "vLLM", "version": "0.32.0"},
        "target": {"model": "owner/name"},
        "drafts": [{"name": "ngram", "mode": "NGram"}],
        "pools": {"replicas": 2},
        "policy": {"minAcceptancePercent": 50},
    },
}


@dataclass(frozen=True)
class Template:
    """The pods of one Deployment. `exists`: it is in the cluster; else it is what a first fleet would have."""

    name: str
    component: str
    replicas: int
    pod_spec: Mapping[str, Any]
    exists: bool


def templates(facts: Facts, namespace: str) -> list[Template]:
    """What runs, or is to run, in a namespace."""
    found = [one for one in owned(facts, "/apis/apps/v1/deployments") if one["metadata"].get("namespace") == namespace]
    return [_template(one, exists=True) for one in found] or first_fleet()


def first_fleet() -> list[Template]:
    """Two engine pods, one with speculation and one without, and the router."""
    objects = smallest_objects()
    return [_template(one, exists=False) for one in objects if one["kind"] == "Deployment"]


@lru_cache(maxsize=1)
def smallest_objects() -> list[Manifest]:
    """All objects of the smallest fleet."""
    return render_all(SpecDeployment.parse(SMALLEST), OperatorSettings.model_construct())


def _template(deployment: Manifest, *, exists: bool) -> Template:
    spec = deployment["spec"]
    labels = deployment["metadata"].get("labels") or {}
    replicas = spec.get("replicas")
    return Template(
        name=str(deployment["metadata"]["name"]),
        component=str(labels.get(COMPONENT) or ""),
        replicas=1 if replicas is None else int(replicas),
        pod_spec=spec["template"]["spec"],
        exists=exists,
    )

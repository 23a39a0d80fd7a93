"""How Argo CD and Flux read a SpecDeployment's status."""

from __future__ import annotations

import subprocess
from typing import Any

import cel
import lupa.lua51
import pytest
import yaml

from tests.testbed.api import kubectl_binary
from tests.unit.chart.helm import REPOSITORY

MANIFESTS = REPOSITORY / "manifests"


def condition(kind: str, status: str, message: str = "") -> dict[str, Any]:
    return {"type": kind, "status": status, "reason": "Reason", "message": message}


def fleet(*conditions: dict[str, Any], observed: int = 3, **more: Any) -> dict[str, Any]:
    """A SpecDeployment of generation 3."""
    status = {"observedGeneration": observed, "conditions": list(conditions)} | more
    return {"metadata": {"name": "assistant", "generation": 3}, "status": status}


UNSEEN = {"metadata": {"name": "assistant", "generation": 1}, "status": {"observedGeneration": -1}}
READY = condition("Ready", "True", "both pools and the router serve")
SETTLED = (condition("Reconciling", "False"), condition("Stalled", "False"))
OFF = fleet(READY, *SETTLED, condition("SpeculationActive", "False"), summary={"mode": "0/3 speculative"})
ROLLING = fleet(condition("Ready", "False"), condition("Reconciling", "True", "engine 0.31 -> 0.32"))
STALLED = fleet(condition("Ready", "False"), condition("Stalled", "True", "Service assistant is not ours"))
BROKEN = fleet(condition("Ready", "False", "pool ngram: the image cannot be pulled"), *SETTLED)
STALE = fleet(READY, *SETTLED, observed=2)

ARGO_CD = [
    ("not seen yet", UNSEEN, "Progressing", "waiting for specfleet"),
    ("no status at all", {"metadata": {"generation": 1}}, "Progressing", "waiting for specfleet"),
    ("status of an older generation", STALE, "Progressing", "waiting for specfleet"),
    ("rolling out", ROLLING, "Progressing", "engine 0.31 -> 0.32"),
    ("needs a person", STALLED, "Degraded", "Service assistant is not ours"),
    ("pods do not start", BROKEN, "Degraded", "the image cannot be pulled"),
    ("ready", fleet(READY, *SETTLED), "Healthy", "both pools"),
    ("off by policy", OFF, "Healthy", "0/3 speculative"),
    ("ready not known", fleet(condition("Ready", "Unknown", "just seen")), "Progressing", "just seen"),
]


def argo_cd_health(resource: dict[str, Any]) -> dict[str, str]:
    lua = lupa.lua51.LuaRuntime(unpack_returned_tuples=True)
    lua.globals()["obj"] = lua.table_from(resource, recursive=True)
    health: Any = lua.execute((MANIFESTS / "argocd" / "health.lua").read_text())
    return dict(health.items())


@pytest.mark.parametrize(("resource", "status", "message"), [c[1:] for c in ARGO_CD], ids=[c[0] for c in ARGO_CD])
def test_argo_cd_health(resource: dict[str, Any], status: str, message: str) -> None:
    health = argo_cd_health(resource)

    assert health["status"] == status
    assert message in health["message"]


def test_argo_cd_sees_a_deletion_as_progress() -> None:
    leaving = fleet(READY, *SETTLED)
    leaving["metadata"]["deletionTimestamp"] = "2026-11-29T09:12:04Z"

    assert argo_cd_health(leaving) == {"status": "Progressing", "message": "being deleted"}


def flux_health(resource: dict[str, Any]) -> str:
    """What Flux makes of it: a stale observedGeneration first, then the expressions in Flux's own order."""
    if resource["status"]["observedGeneration"] != resource["metadata"]["generation"]:
        return "inProgress"
    fleets = yaml.safe_load((MANIFESTS / "flux" / "fleets.yaml").read_text())
    expressions = fleets["spec"]["healthCheckExprs"][0]
    for outcome in ("inProgress", "failed", "current"):
        if cel.evaluate(expressions[outcome], resource):
            return outcome
    return "inProgress"


@pytest.mark.parametrize(
    ("resource", "outcome"),
    [
        (UNSEEN, "inProgress"),
        (STALE, "inProgress"),
        (ROLLING, "inProgress"),
        (STALLED, "failed"),
        (BROKEN, "inProgress"),
        (fleet(READY, *SETTLED), "current"),
        (OFF, "current"),
        ({"metadata": {"generation": 3}, "status": {"observedGeneration": 3}}, "inProgress"),
    ],
)
def test_flux_health(resource: dict[str, Any], outcome: str) -> None:
    assert flux_health(resource) == outcome


def test_argo_cds_config_map_carries_the_check_under_the_key_that_it_reads() -> None:
    command = [str(kubectl_binary()), "kustomize", str(MANIFESTS / "argocd")]
    config_map = yaml.safe_load(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    assert config_map["metadata"]["name"] == "argocd-cm"
    key = "resource.customizations.health.specfleet.dev_SpecDeployment"
    assert config_map["data"] == {key: (MANIFESTS / "argocd" / "health.lua").read_text()}

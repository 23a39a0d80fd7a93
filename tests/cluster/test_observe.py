"""Observe on a real API server: nothing moves, status tells what would have, and one field lets it."""

from __future__ import annotations

import json
import shlex

import pytest
from typer.testing import CliRunner

from specfleet.cli.main import app
from tests.cluster.api import eventually
from tests.cluster.conftest import World

pytestmark = pytest.mark.cluster

POLICY = {
    "minAcceptancePercent": 30,
    "initial": "Speculative",
    "block": "2s",
    "dwell": "20s",
    "enforcement": "Observe",
}


def test_what_would_have_happened_outlives_the_operator_and_one_field_makes_it_happen(world: World) -> None:
    world.create(policy=POLICY)
    operator = world.start()
    world.settled()

    def counted() -> bool:
        for router in world.routers:
            router.count("chat", "ngram", measured=30, decode_tokens=1530, accepted=30, drafted=1200)
            router.count("code", "ngram", measured=30, decode_tokens=1500, accepted=900, drafted=1200)
        return bool(world.route("chat")["report"]["wouldBe"] == "baseline")

    eventually("chat would have gone off", counted, 90.0)
    report = world.route("chat")["report"]
    assert (report["switches"], report["policy"]) == (1, "minAcceptancePercent 30")
    assert report["message"].startswith("Would have gone off at ")
    assert "wouldHaveSwitchedAt" not in world.route("code")["report"]
    assert (world.route("chat")["pool"], world.route("chat")["speculativePercent"]["intended"]) == ("ngram", 100)
    operator.kill()
    world.api.delete("Lease", world.namespace, "specfleet")  # the next one need not wait for it to run out
    successor = world.start()
    eventually("it leads", successor.leading)
    world.until("MetricsAvailable", "True")
    assert _lasting(world.route("chat")["report"]) == _lasting(report)
    told = CliRunner().invoke(
        app, ["explain", "assistant", "-n", world.namespace, "--kubeconfig", str(world.kubeconfig)]
    )
    assert told.exit_code == 0, told.output
    assert "Observe (minAcceptancePercent 30): Would have gone off at " in told.stdout
    command = next(line for line in told.stdout.splitlines() if "kubectl patch" in line)
    world.edit(json.loads(shlex.split(command)[-1])["spec"])
    eventually("it goes off", lambda: world.route("chat")["pool"] == "baseline", 30.0)
    assert "report" not in world.route("chat")


def _lasting(report: dict[str, object]) -> dict[str, object]:
    return {name: value for name, value in report.items() if name not in ("offPercent", "message")}

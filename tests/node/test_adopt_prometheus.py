"""Real traffic on the hand-written fleet, decided for by two SpecDeployments: one reads its routers itself, the other
what a Prometheus scraped of its own. And what a replay of the recorded series says before either acts."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.node import adopted
from tests.node.adopted import NAMESPACE
from tests.node.conftest import Fleet
from tests.node.install import REPOSITORY, apply_and_wait, remove
from tests.node.kube import Kube, Manifest, wait_for
from tests.node.prometheus import during, scrape, server
from tests.node.twin import TwinLoad

pytestmark = pytest.mark.node

PROGRAM = REPOSITORY / ".venv" / "bin" / "specfleet"
SPECULATIVE = "ngram"
BLOCK_SECONDS = 15
"""Longer than an answer takes on two cores: the same answer does not end at one moment in both fleets."""
STAY_SECONDS = 30.0
EVIDENCE_SECONDS = 900.0

Adopt = Callable[[str, dict[str, Any]], Fleet]


def say(line: str) -> None:
    print(line)


def specfleet(kube: Kube, *words: str) -> str:
    command = [str(PROGRAM), *words]
    ended = subprocess.run(
        command, capture_output=True, text=True, check=False, env={"KUBECONFIG": str(kube.kubeconfig)}
    )
    assert ended.returncode == 0, f"{' '.join(words)} ended with {ended.returncode}: {ended.stderr}"
    return ended.stdout


def printed(kube: Kube, files: Path, name: str, metrics: dict[str, Any]) -> Manifest:
    """What `adopt` prints for the hand-written fleet, with the page's routes and policy."""
    pair = [f"deployment/{adopted.SPECULATIVE}", "--baseline", f"deployment/{adopted.BASELINE}"]
    manifest: Manifest = yaml.safe_load(specfleet(kube, "adopt", *pair, "--name", name, "-n", NAMESPACE))
    patch = yaml.safe_load((files / "routes.yaml").read_text())["spec"]
    manifest["spec"]["routing"] = patch["routing"]
    manifest["spec"]["policy"].update(patch["policy"], block=f"{BLOCK_SECONDS}s")
    manifest["spec"]["metrics"] = metrics
    return manifest


@pytest.fixture
def adopt(kube: Kube, team: None, operator: str, tmp_path: Path) -> Iterator[Adopt]:
    """Adopts the hand-written fleet under a name and with a source."""
    assert operator
    files = adopted.example_files(tmp_path)
    for file in ("fleet.yaml", "headless.yaml"):
        kube.kubectl("apply", "-f", str(files / file))
    words = ["wait", "--for=condition=Available", "deployment", "-l", "app=assistant", "-n", NAMESPACE]
    kube.kubectl(*words, "--timeout=15m", seconds=920)
    made: list[str] = []

    def adopt(name: str, metrics: dict[str, Any]) -> Fleet:
        manifest = printed(kube, files, name, metrics)
        (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(manifest))
        made.append(name)
        return Fleet(kube, apply_and_wait(kube, manifest, say, seconds=180))

    yield adopt
    for name in made:
        remove(kube, name, NAMESPACE)


def would_be_off(fleet: Fleet) -> str | None:
    """When chat would have gone to baseline under Enforce."""
    report = fleet.route("chat").get("report", {})
    at: str | None = report.get("wouldHaveSwitchedAt") if report.get("wouldBe") == "baseline" else None
    return at


def went_off(fleet: Fleet) -> str | None:
    """When chat went to baseline."""
    history = fleet.route("chat").get("history", [])
    return history[-1]["at"] if history else None


def apart(one: str, other: str) -> float:
    return abs((datetime.fromisoformat(one) - datetime.fromisoformat(other)).total_seconds())


def pools(fleet: Fleet) -> dict[str, str]:
    return {name: fleet.route(name)["pool"] for name in ("code", "json", "chat")}


def others_stay(fleets: tuple[Fleet, Fleet]) -> None:
    for fleet in fleets:
        assert pools(fleet) == {"code": SPECULATIVE, "json": SPECULATIVE, "chat": "baseline"}


def test_direct_prometheus_and_a_replay_agree_on_real_traffic(kube: Kube, adopt: Adopt, tmp_path: Path) -> None:
    (tmp_path / "prometheus").mkdir()
    prometheus = server(tmp_path / "prometheus").start()
    try:
        direct = adopt("by-direct", {"source": "Direct"})
        scraped = adopt("by-prometheus", {"source": "Prometheus", "prometheus": {"url": prometheus.url}})
        fleets = (direct, scraped)
        scrape(prometheus, kube, [(fleet.name, NAMESPACE) for fleet in fleets])
        begun = time.time()
        with TwinLoad((direct.endpoint, scraped.endpoint), adopted.clients()) as load:
            told = [
                wait_for(f"chat of {fleet.name}", partial(would_be_off, fleet), seconds=EVIDENCE_SECONDS, every=2.0)
                for fleet in fleets
            ]
            for fleet in fleets:
                assert set(pools(fleet).values()) == {SPECULATIVE}
            history = replayed(kube, prometheus.url, tmp_path / f"{direct.name}.yaml", begun)
            for fleet in fleets:
                kube.patch("specdeployment", fleet.name, NAMESPACE, {"spec": {"policy": {"enforcement": "Enforce"}}})
            done = [
                wait_for(f"a switch of {fleet.name}", partial(went_off, fleet), seconds=120, every=1.0)
                for fleet in fleets
            ]
            during(STAY_SECONDS, partial(others_stay, fleets))
    finally:
        prometheus.stop()

    print(f"told {told}, replay {history}, done {done}")
    assert load.failures == []
    assert apart(*told) <= BLOCK_SECONDS
    assert apart(*done) <= BLOCK_SECONDS
    assert {name: [one["pool"] for one in moves] for name, moves in history.items()} == {
        "code": [],
        "json": [],
        "chat": ["baseline"],
    }
    # Blocks of the replay begin where it begins, the operator's when it began.
    assert apart(history["chat"][0]["at"], told[0]) <= 2 * BLOCK_SECONDS


def replayed(kube: Kube, url: str, manifest: Path, begun: float) -> dict[str, list[dict[str, Any]]]:
    """The switches of each route that `specfleet replay` finds in the series since `begun`."""
    start = datetime.fromtimestamp(begun).astimezone().isoformat(timespec="seconds")
    words = ["replay", "--prometheus", url, "-f", str(manifest), "--start", start, "--output", "json"]
    document = json.loads(specfleet(kube, *words))
    return {one["route"]: one["switches"] for one in document["routes"]}

"""Real vLLM drafts with every kind of draft that its CPU build runs, and one that never agrees is switched off."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from specfleet.routing.counters import RouteRow
from tests.node import planned, recital, reciters, routers
from tests.node.conftest import Fleet
from tests.node.kube import Kube, wait_for
from tests.node.load import Load
from tests.node.recital import ENFORCE, OBSERVE, POOL, TOKENS, draft
from tests.node.routers import RowKey

pytestmark = pytest.mark.node

NAME = "recital"
CLIENTS = {"letters": 2, "digits": 2}
ALL_ACCEPTED = TOKENS + 1.0
EXPLORATION = range(11)

Drafted = Callable[..., Fleet]


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of the node with the target and all drafts."""
    directory = tmp_path_factory.mktemp("reciters")
    reciters.target(directory / "target")
    reciters.reciter(directory / "letters", reciters.letters_only)
    reciters.stranger(directory / "stranger")
    reciters.eagle(directory / "eagle")
    reciters.medusa(directory / "medusa")
    return directory


@pytest.fixture(scope="module")
def served(kube: Kube, operator: str, namespace: str, models: Path) -> Iterator[Fleet]:
    """One fleet for all tests of this file; what a test changes of it is its draft and its policy."""
    assert operator
    wanted = recital.manifest(NAME, namespace, models / "target", draft("NGram"), OBSERVE)
    with recital.applied(kube, wanted) as fleet:
        yield fleet


@pytest.fixture
def drafted(kube: Kube, served: Fleet, namespace: str, models: Path) -> Drafted:
    """The fleet with another draft and policy, ready; its baseline pod is the same as before."""

    def change(entry: dict[str, Any], policy: dict[str, Any]) -> Fleet:
        kube.apply(recital.manifest(NAME, namespace, models / "target", entry, policy))
        recital.until(served, "Reconciling", "False", seconds=600)
        recital.until(served, "Ready", "True", seconds=60)
        return served

    return change


def counted(fleet: Fleet, load: Load, answers: int) -> dict[RowKey, RouteRow]:
    """What the routers count while each route gets that many answers more."""
    before, had = routers.rows(fleet.kube, fleet.name, fleet.namespace), dict(load.tally.requests)

    def enough() -> bool | None:
        now = load.tally.requests
        return all(now.get(route, 0) >= had.get(route, 0) + answers for route in CLIENTS) or None

    wait_for(f"{answers} answers of each route", enough, seconds=300)
    return routers.since(before, routers.rows(fleet.kube, fleet.name, fleet.namespace))


def acceptance(fleet: Fleet, route: str) -> int | None:
    found: int | None = fleet.route(route).get("acceptancePercent")
    return found


def newly_told(fleet: Fleet, route: str, before: str) -> bool | None:
    """Whether the route has figures of this draft: their message counts the requests that they rest on."""
    now = fleet.route(route)
    return (now["message"] != before and "acceptancePercent" in now) or None


def drafts_fit(fleet: Fleet) -> None:
    said = recital.said(fleet, "DraftCompatible")
    assert (said["status"], said["reason"]) == ("True", "DraftFits"), said
    assert fleet.body()["status"]["preflight"]["outcome"] == "Passed"


@pytest.mark.parametrize(
    ("mode", "checkpoint"),
    [("NGram", None), ("EAGLE", "eagle"), ("Medusa", "medusa")],
)
def test_every_draft_of_a_mode_is_counted_by_route(
    drafted: Drafted, models: Path, tmp_path: Path, mode: str, checkpoint: str | None
) -> None:
    fleet = drafted(draft(mode, models / checkpoint if checkpoint else None), OBSERVE)
    if checkpoint is None:
        assert recital.said(fleet, "DraftCompatible") == {}
    else:
        drafts_fit(fleet)
    before = {route: fleet.route(route)["message"] for route in CLIENTS}
    with Load(recital.endpoint(fleet), recital.clients(NAME, CLIENTS)) as load:
        rows = counted(fleet, load, 10)
        for route in CLIENTS:
            wait_for(f"figures of {route}", partial(newly_told, fleet, route, before[route]), seconds=180)
    recital.all_right(load)
    for route in CLIENTS:
        row = rows[route, POOL, POOL]
        print(f"{mode} {route}: {row}, status {fleet.route(route)}")
        assert row.decode_tokens > 0
        assert routers.tokens_per_step(row) == pytest.approx(ALL_ACCEPTED, rel=0.15)
        assert acceptance(fleet, route) in range(90, 101)
        assert "baseline" not in {key[1] for key in rows}
    files = {recital.TARGET: models / "target"} | ({recital.DRAFT: models / checkpoint} if checkpoint else {})
    planned.agree(planned.plans(fleet, tmp_path, files))


def test_a_draft_model_that_knows_one_route_is_on_for_that_one_alone(
    drafted: Drafted, models: Path, tmp_path: Path
) -> None:
    fleet = drafted(draft("DraftModel", models / "letters"), ENFORCE)
    drafts_fit(fleet)
    with Load(recital.endpoint(fleet), recital.clients(NAME, CLIENTS)) as load:
        wait_for("digits to go to baseline", partial(served_by, fleet, "digits", "baseline"), seconds=300)
        wait_for("the routers to serve it", partial(only_explores, fleet, "digits"), seconds=60)
        rows = counted(fleet, load, 20)
    recital.all_right(load)
    print(fleet.route("digits"), fleet.route("letters"), rows, sep="\n")
    assert acceptance(fleet, "digits") == 0
    assert acceptance(fleet, "letters") in range(90, 101)
    assert fleet.route("letters")["pool"] == POOL
    assert routers.tokens_per_step(rows["letters", POOL, POOL]) == pytest.approx(ALL_ACCEPTED, rel=0.15)
    assert fleet.route("letters").get("history", []) == []
    planned.agree(
        planned.plans(fleet, tmp_path, {recital.TARGET: models / "target", recital.DRAFT: models / "letters"})
    )


def test_a_draft_model_that_never_agrees_is_switched_off(drafted: Drafted, models: Path) -> None:
    fleet = drafted(draft("DraftModel", models / "stranger"), ENFORCE)
    drafts_fit(fleet)
    with Load(recital.endpoint(fleet), recital.clients(NAME, CLIENTS)) as load:
        for route in CLIENTS:
            wait_for(f"{route} to go to baseline", partial(served_by, fleet, route, "baseline"), seconds=300)
            wait_for("the routers to serve it", partial(only_explores, fleet, route), seconds=60)
        counted(fleet, load, 20)
    recital.all_right(load)
    for route in CLIENTS:
        print(fleet.route(route))
        found = acceptance(fleet, route)
        assert found is not None
        assert found <= 3
        assert recital.said(fleet, "Ready")["status"] == "True"
    active = recital.said(fleet, "SpeculationActive")
    assert active["status"] == "False", active


def served_by(fleet: Fleet, route: str, pool: str) -> bool | None:
    return fleet.route(route)["pool"] == pool or None


def only_explores(fleet: Fleet, route: str) -> bool | None:
    return routers.all_serve(fleet.kube, fleet.name, fleet.namespace, route, POOL, EXPLORATION) or None

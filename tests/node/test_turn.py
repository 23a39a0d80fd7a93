"""Real vLLM: a route whose content turns from repetitive to free text goes off, and comes back when it turns again."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.node import prompts, routers
from tests.node.conftest import Fleet
from tests.node.demo import example
from tests.node.install import apply_and_wait, remove
from tests.node.kube import Kube, wait_for
from tests.node.load import Beside
from tests.node.traffic import Ask, Clients, Tally, Traffic

pytestmark = pytest.mark.node

NAME = "turn"
ROUTE = "work"
DRAFT = "ngram"
BLOCK_SECONDS = 30
DWELL_SECONDS = 300  # ten blocks, as by default
OFF_BLOCKS, ON_BLOCKS = 12, 25
CLIENTS = 6


class Turning(Beside):
    """Clients whose content can be changed while they run."""

    def __init__(self, endpoint: str, make: prompts.Maker) -> None:
        super().__init__()
        self.tally = Tally(keep=None)
        self.make = make
        self._endpoint = endpoint
        self._ended = asyncio.Event()

    def _stop(self) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)

    async def _drive(self) -> None:
        clients = [Clients(CLIENTS, lambda draw, count: self.make(draw, count))]
        async with Traffic(self._endpoint, clients, self.tally):
            self._started.set()
            await self._ended.wait()


def of_route(make: prompts.Maker) -> prompts.Maker:
    """The same requests without what would tell their kind to the router."""

    def made(draw: random.Random, count: int) -> Ask:
        asked = make(draw, count)
        body: dict[str, Any] = {key: value for key, value in asked.body.items() if key != "response_format"}
        return Ask(ROUTE, {**body, "model": NAME})

    return made


REPETITIVE, FREE = of_route(prompts.code), of_route(prompts.chat)


@pytest.fixture
def fleet(kube: Kube, operator: str, namespace: str) -> Iterator[Fleet]:
    """The demo's engines with one route that the policy decides about."""
    manifest = example()
    manifest["metadata"] = {"name": NAME, "namespace": namespace}
    manifest["spec"]["routing"]["routes"] = [{"name": ROUTE}]
    manifest["spec"]["policy"] |= {"block": f"{BLOCK_SECONDS}s", "dwell": f"{DWELL_SECONDS}s"}
    if kube.get("specdeployment", "demo", "default") is not None:
        remove(kube, "demo", "default")
    yield Fleet(kube, apply_and_wait(kube, manifest, print))
    remove(kube, NAME, namespace)


def served(fleet: Fleet, pool: str, percents: range) -> Callable[[], bool | None]:
    """Whether the route is decided for `pool`, and every router sends that share of it to speculation."""
    return lambda: (
        (
            fleet.route(ROUTE)["pool"] == pool
            and routers.all_serve(fleet.kube, fleet.name, fleet.namespace, ROUTE, DRAFT, percents)
        )
        or None
    )


def blocks_until(what: str, look: Callable[[], bool | None], most: int) -> float:
    """Wait for it for `most` blocks; how many it took."""
    began = time.monotonic()
    wait_for(what, look, seconds=most * BLOCK_SECONDS)
    return (time.monotonic() - began) / BLOCK_SECONDS


def test_a_route_goes_off_when_its_content_turns_and_comes_back_when_it_turns_again(fleet: Fleet) -> None:
    with Turning(fleet.endpoint, REPETITIVE) as load:
        wait_for("figures of repetitive text", lambda: fleet.route(ROUTE)["reason"] == "Pays" or None, seconds=300)
        assert fleet.route(ROUTE)["pool"] == DRAFT

        load.make = FREE
        off = blocks_until("the route to go off", served(fleet, "baseline", range(11)), OFF_BLOCKS)
        gone_off = fleet.route(ROUTE)

        load.make = REPETITIVE
        on = blocks_until("the route to come back", served(fleet, DRAFT, range(10, 101)), ON_BLOCKS)

    print(f"off after {off:.1f} blocks, back after {on:.1f}; {load.tally.total} requests")
    assert gone_off["reason"] in ("BelowAcceptance", "BelowBreakEven")
    assert [one["pool"] for one in fleet.route(ROUTE)["history"]] == ["baseline", DRAFT]
    assert load.tally.failures == []

"""The example with requests: Envoys as routers, stub engines behind them, and clients whose answers are checked."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cluster.api import Body, eventually
from tests.cluster.envoy_router import EnvoyRouter
from tests.cluster.kubelet import AnyRouter
from tests.cluster.routers import Router
from tests.envoy.harness import Dns, Engine
from tests.node.load import Load, clients
from tests.node.traffic import Answer

if TYPE_CHECKING:
    from tests.cluster.conftest import World

NAME = "assistant"
GOOD, BAD = "0.9", "0.02"
STEP_MS = "10"
EXPLORES = range(1, 11)
QUICK = {"minAcceptancePercent": 30, "initial": "Speculative", "block": "1s", "dwell": "8s"}
"""A policy under which evidence switches a route off within seconds: 4 s in speculation at least, 8 s in baseline."""


@dataclass
class Engines:
    """One engine without and one with speculation, and the DNS that names them."""

    dns: Dns
    baseline: Engine
    speculative: Engine

    @classmethod
    def started(cls) -> Engines:
        """Running; `stop` them."""
        found = cls(
            Dns(),
            Engine(options=("--model", NAME, "--drain-seconds", "1")),
            Engine(options=("--model", NAME, "--drain-seconds", "1", "--draft-tokens", "4")),
        )
        found.dns.table = {f"{NAME}-baseline": [found.baseline.host], f"{NAME}-ngram": [found.speculative.host]}
        found.baseline.start()
        found.speculative.start()
        return found

    def stop(self) -> None:
        """End them."""
        self.baseline.kill()
        self.speculative.kill()
        self.dns.close()


@dataclass
class Requests:
    """Clients at every router; counts what they were answered."""

    loads: list[Load] = field(default_factory=list)

    @property
    def total(self) -> int:
        """Answers so far."""
        return sum(load.tally.total for load in self.loads)

    @property
    def failures(self) -> list[Answer]:
        """Answers that were none."""
        return [failure for load in self.loads for failure in load.tally.failures]

    def go_on(self, more: int = 20) -> None:
        """Wait for so many more answers."""
        wanted = self.total + more
        eventually(f"{more} more answers", lambda: self.total >= wanted)


class LiveFleet:
    """The example in a world: its routers are Envoys, those of other SpecDeployments are not."""

    def __init__(self, world: World, engines: Engines, directory: Path) -> None:
        self.world = world
        self._numbers = count()

        def make(port: int, pod: Body) -> AnyRouter:
            if pod["metadata"]["labels"]["specfleet.dev/deployment"] != NAME:
                return Router(port)
            return EnvoyRouter(port, directory / f"router-{next(self._numbers)}", engines.dns)

        world.kubelet.make_router = make

    @property
    def routers(self) -> list[EnvoyRouter]:
        """Those that run."""
        return [one for one in self.world.kubelet.routers.values() if isinstance(one, EnvoyRouter)]

    def settled(self) -> None:
        """Wait until the operator has settled, and every router reaches both engines."""
        self.world.settled()
        eventually(
            "routers reach the engines",
            lambda: self.routers and all(one.healthy(pool) for one in self.routers for pool in ("baseline", "ngram")),
        )

    def shares(self, route: str) -> set[int]:
        """Percent of a route that the Envoys send to speculation."""
        return {int((one.served or {"routes": {}})["routes"][route]["ngram"]) for one in self.routers}

    def serve(self, route: str, percents: range | int) -> None:
        """Wait until every Envoy serves a share that lies in there."""
        wanted = range(percents, percents + 1) if isinstance(percents, int) else percents
        eventually(f"all routers send {wanted} % of {route} to speculation", lambda: self.shares(route) <= set(wanted))

    @contextlib.contextmanager
    def traffic(self, code: str = GOOD, chat: str = GOOD) -> Iterator[Requests]:
        """One client of each route at each router, with drafts of which this share is accepted."""
        groups = [
            clients("code", NAME, 1, headers=_headers(code, **{"x-route": "code"})),
            clients("chat", NAME, 1, headers=_headers(chat)),
        ]
        with contextlib.ExitStack() as stack:
            yield Requests([stack.enter_context(Load(router.url, groups)) for router in self.routers])


def _headers(acceptance: str, **more: str) -> dict[str, str]:
    return {"x-stub-acceptance": acceptance, "x-stub-step-ms": STEP_MS, **more}

"""An edit of somebody else is told once, in whatever order the answer to our write and the watch come."""

from __future__ import annotations

import asyncio
from copy import deepcopy
from typing import Any, cast

import pytest

from specfleet.api import names
from specfleet.cluster.client import ApiClient
from specfleet.cluster.kinds import CONFIG_MAP, Kind
from specfleet.handlers.carry_out import Executor, Outcome
from specfleet.handlers.memory import Memory
from specfleet.handlers.observed import Observed
from specfleet.handlers.plan import owned_manifest, plan
from specfleet.metrics.own import OperatorMetrics
from tests.unit.handlers.samples import UID, live, owner

KEY = ("serving", "assistant")
WANTED = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "assistant-routes", "labels": names.labels("assistant", "routes")},
    "data": {"weight": "1"},
}


class Server:
    """Holds one object; an apply answers with it, after the watch has shown it or before."""

    def __init__(self, observed: Observed, stored: dict[str, Any], watch_first: bool) -> None:
        self.observed = observed
        self.stored = stored
        self.watch_first = watch_first
        self.applied = 0

    async def apply(self, kind: Kind, manifest: dict[str, Any], force: bool) -> dict[str, Any]:
        self.applied += 1
        before = deepcopy(self.stored)
        for part in ("data", "metadata"):
            self.stored[part].update(deepcopy(manifest[part]))
        if self.stored != before:
            self.stored["metadata"]["resourceVersion"] = str(int(before["metadata"]["resourceVersion"]) + 1)
        if self.watch_first:
            self.observed.put_owned(kind, deepcopy(self.stored))
        await asyncio.sleep(0)
        return deepcopy(self.stored)

    async def edit(self, **data: str) -> None:
        self.stored["data"].update(data)
        meta = self.stored["metadata"]
        meta["resourceVersion"] = str(int(meta["resourceVersion"]) + 1)
        self.observed.put_owned(CONFIG_MAP, deepcopy(self.stored))


def passes(observed: Observed, server: Server, memory: Memory) -> Outcome:
    """One pass of planning and writing."""
    executor = Executor(cast(ApiClient, server), observed, OperatorMetrics())
    made = plan(owner(), [WANTED], observed.owned(KEY), memory.verified)
    return asyncio.run(executor.carry_out(KEY, owner(), made, memory))


@pytest.mark.parametrize("watch_first", [True, False], ids=["watch first", "answer first"])
def test_an_edit_is_told_once(watch_first: bool) -> None:
    observed = Observed()
    server = Server(observed, deepcopy(live(owned_manifest(WANTED, owner()))), watch_first)
    observed.put_owned(CONFIG_MAP, deepcopy(server.stored))
    memory = Memory.new(UID, 30.0, 0.0)
    assert passes(observed, server, memory).corrected == ()
    asyncio.run(server.edit(weight="9"))
    (told,) = passes(observed, server, memory).corrected
    assert (told.what, told.fields) == ("ConfigMap assistant-routes", ("data.weight",))
    assert server.stored["data"]["weight"] == "1"
    assert passes(observed, server, memory).corrected == ()
    assert server.applied == 1


def test_a_write_that_changes_nothing_is_no_edit() -> None:
    observed = Observed()
    server = Server(observed, deepcopy(live(owned_manifest(WANTED, owner()))), watch_first=False)
    observed.put_owned(CONFIG_MAP, deepcopy(server.stored))
    memory = Memory.new(UID, 30.0, 0.0)
    passes(observed, server, memory)
    memory.verified.clear()  # as after a restart of whoever compared
    outcome = passes(observed, server, memory)
    assert (outcome.written, outcome.corrected) == (1, ())

"""Exploring by a key, from the SpecDeployment to the requests: who explores, and what it costs in prefill."""

from __future__ import annotations

import itertools
import json
import re
import signal
import urllib.request

import pytest

from tests.cluster.api import eventually
from tests.cluster.live_fleet import BAD, NAME, QUICK, Engines, LiveFleet

pytestmark = pytest.mark.cluster

KEYS = [f"session-{number}" for number in range(40)]
SHARE = 50


def speculating(fleet: LiveFleet, engines: Engines) -> set[str]:
    """The keys that any router sends to speculation. Two routers that agree have the same ones."""
    found = set()
    for key in KEYS:
        hosts = {asked(router.url, key) for router in fleet.routers}
        if engines.speculative.host in hosts:
            found.add(key)
    return found


def asked(url: str, key: str) -> str:
    """The address of the engine that answers a request with this key."""
    body = json.dumps({"model": NAME, "messages": [], "max_tokens": 8}).encode()
    headers = {"x-session-id": key, "x-stub-host": "", "x-stub-acceptance": BAD, "x-stub-step-ms": "1"}
    request = urllib.request.Request(
        url + "/v1/chat/completions", body, {"content-type": "application/json", **headers}
    )
    with urllib.request.urlopen(request, timeout=10) as answer:
        host: str = answer.headers["x-stub-host"]
    return host


def test_a_conversation_keeps_its_pool_while_its_route_explores_and_the_cost_is_shown(
    fleet: LiveFleet, engines: Engines
) -> None:
    world = fleet.world
    world.create(
        policy={**QUICK, "initial": "Baseline", "exploration": {"maxPercent": SHARE}},
        routing={"affinity": {"header": "x-session-id"}, "routes": [{"name": "chat"}]},
    )
    world.start()
    fleet.settled()
    # Nothing is known of the route's traffic yet: it explores as much as it may.
    fleet.serve("chat", SHARE)
    # Its operator stands still for this look: the requests of the look itself make the traffic known.
    world.operators[0].kill(signal.SIGSTOP)
    first = speculating(fleet, engines)
    world.operators[0].kill(signal.SIGCONT)
    assert 8 <= len(first) <= len(KEYS) - 8
    series = rf'specfleet_route_exploring_prompt_ratio{{.*namespace="{world.namespace}".*}} (\S+)'
    seen = [first]

    def cost() -> float | None:
        seen.append(speculating(fleet, engines))
        found = re.search(series, world.operators[0].get("/metrics"))
        return float(found.group(1)) if found else None

    # As the route's traffic is known and the time off grows, the share sinks: keys leave speculation, none comes.
    prefilled = eventually("what exploring costs is shown", cost)
    for before, after in itertools.pairwise(seen):
        assert after <= before
    assert 0.0 < prefilled < 1.0
    assert world.route("chat")["pool"] == "baseline"

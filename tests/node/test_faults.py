"""Faults on the whole node while requests run: what routers serve, and that no request fails, is asserted in each."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from tests.node import routers
from tests.node.conftest import Fleet, Serve
from tests.node.cut_off import routers_cut_off
from tests.node.install import RELEASE, SYSTEM_NAMESPACE, pods_of
from tests.node.kube import Kube, Manifest, condition, ready_pods, wait_for
from tests.node.load import Load, clients
from tests.node.processes import pids_of
from tests.node.prometheus import during
from tests.node.stub_fleet import DRAFT
from tests.node.test_operator_away import BAD, GOOD, OPERATOR_PROGRAM, POLICY, ROUTES

pytestmark = pytest.mark.node

EXPLORATION, ALL = range(1, 11), range(100, 101)
TEN_MINUTES = 600.0
TAKE_OVER_SECONDS = 15.0


def operator_pods(kube: Kube) -> list[Manifest]:
    return kube.select("pods", SYSTEM_NAMESPACE, "app.kubernetes.io/name=specfleet")


def router_pods(kube: Kube, fleet: Fleet) -> list[Manifest]:
    found = pods_of(kube, fleet.name, fleet.namespace)
    return ready_pods([one for one in found if one["metadata"]["labels"]["app.kubernetes.io/component"] == "router"])


def holder(kube: Kube) -> str:
    """Name of the leading operator's pod."""
    lease = kube.get("lease", RELEASE, SYSTEM_NAMESPACE)
    return str(((lease or {}).get("spec") or {}).get("holderIdentity") or "").partition("_")[0]


def served(fleet: Fleet, route: str, percents: range) -> bool:
    return routers.all_serve(fleet.kube, fleet.name, fleet.namespace, route, DRAFT, percents)


def load_of(fleet: Fleet) -> Load:
    """Two clients of route code, whose drafts are good, and four of chat, whose are bad."""
    return Load(
        fleet.endpoint, [clients("code", fleet.name, 2, headers=GOOD), clients("chat", fleet.name, 4, headers=BAD)]
    )


def go_on(load: Load, more: int = 60) -> None:
    wanted = load.tally.total + more
    wait_for(f"{more} more answers", lambda: load.tally.total >= wanted or None, seconds=120)


def once_off(fleet: Fleet) -> None:
    """Chat was switched off, once; code was not."""
    assert [one["pool"] for one in fleet.route("chat")["history"]] == ["baseline"]
    assert fleet.route("code").get("history", []) == []
    assert served(fleet, "code", ALL)


@pytest.fixture
def two_operators(kube: Kube, operator: str) -> Iterator[None]:
    """A leader and a standby."""
    assert operator
    _scale(kube, 2)
    yield
    _scale(kube, 1)


def _scale(kube: Kube, replicas: int) -> None:
    kube.kubectl("scale", "deployment", RELEASE, "-n", SYSTEM_NAMESPACE, f"--replicas={replicas}")
    kube.kubectl("rollout", "status", f"deployment/{RELEASE}", "-n", SYSTEM_NAMESPACE, "--timeout=180s", seconds=190)
    wait_for("the other pods to be gone", lambda: len(operator_pods(kube)) == replicas or None, seconds=120)


@pytest.mark.usefixtures("two_operators")
def test_a_frozen_leader_is_replaced_in_time_and_thaws_without_a_trace(kube: Kube, serve: Serve) -> None:
    fleet = serve(routes=ROUTES, policy=POLICY)
    leader = next(pod for pod in operator_pods(kube) if pod["metadata"]["name"] == holder(kube))
    name = leader["metadata"]["name"]
    with load_of(fleet) as load:
        pids = pids_of(leader, OPERATOR_PROGRAM)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        frozen = time.monotonic()
        wait_for("another holder of the lease", lambda: holder(kube) not in ("", name) or None, seconds=60, every=0.1)
        taken_over = time.monotonic() - frozen
        print(f"taken over after {taken_over:.1f} s")
        assert taken_over <= TAKE_OVER_SECONDS
        wait_for("chat to be off at all routers", lambda: served(fleet, "chat", EXPLORATION) or None, seconds=120)
        wait_for("the switch in status", lambda: fleet.route("chat").get("history") or None, seconds=30)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):  # the kubelet may have ended it: its probes failed
                os.kill(pid, signal.SIGCONT)
        wait_for("the frozen one to be restarted", lambda: _restarted(kube, name) or None, seconds=120)
        go_on(load)
        assert holder(kube) != name
    once_off(fleet)
    assert load.tally.failures == []


def _restarted(kube: Kube, name: str) -> bool:
    pod = next(one for one in operator_pods(kube) if one["metadata"]["name"] == name)
    return bool(pod["status"]["containerStatuses"][0]["restartCount"] > 0)


def test_a_status_that_is_wiped_is_put_back_and_after_a_crash_traffic_stays(kube: Kube, serve: Serve) -> None:
    fleet = serve(routes=ROUTES, policy=POLICY)
    with load_of(fleet) as load:
        wait_for("chat to be off at all routers", lambda: served(fleet, "chat", EXPLORATION) or None, seconds=120)
        wait_for("the switch in status", lambda: fleet.route("chat").get("history") or None, seconds=30)
        since = fleet.route("chat")["since"]
        _wipe(fleet)
        wait_for("the status to be back", lambda: "routes" in fleet.body()["status"] or None, seconds=30)
        assert fleet.route("chat")["since"] == since
        once_off(fleet)

        kube.kubectl("scale", "deployment", RELEASE, "-n", SYSTEM_NAMESPACE, "--replicas=0")
        wait_for("the operator to be gone", lambda: not operator_pods(kube) or None, seconds=120)
        _wipe(fleet)
        wiped = time.time()
        _scale(kube, 1)
        wait_for("the status to be back", lambda: "routes" in fleet.body()["status"] or None, seconds=120)
        during(10.0, lambda: _as_it_was(fleet))
        chat = fleet.route("chat")
        assert chat["pool"] == "baseline"
        assert datetime.fromisoformat(chat["since"]).timestamp() >= int(wiped)
        assert fleet.route("code")["pool"] == DRAFT
        go_on(load)
    assert load.tally.failures == []


def _wipe(fleet: Fleet) -> None:
    """As a person would, who wants to see what happens."""
    words = ["patch", "specdeployment", fleet.name, "-n", fleet.namespace, "--subresource=status", "--type=merge"]
    fleet.kube.kubectl(*words, "-p", '{"status": null}')


def _as_it_was(fleet: Fleet) -> None:
    assert served(fleet, "chat", EXPLORATION)
    assert served(fleet, "code", ALL)


def test_routers_that_cannot_be_read_for_ten_minutes_move_nothing(kube: Kube, serve: Serve) -> None:
    fleet = serve(routes=ROUTES, policy=POLICY)
    with contextlib.ExitStack() as stack:
        stack.enter_context(routers_cut_off(router_pods(kube, fleet), operator_pods(kube)))
        load = stack.enter_context(load_of(fleet))
        during(TEN_MINUTES, lambda: _nothing_moves(fleet), every=5.0)
        said = condition(fleet.body(), "MetricsAvailable")
        assert said is not None
        assert (said["status"], said["reason"]) == ("False", "RoutersUnreachable")
        assert "the last decision holds" in said["message"]
        print(f"{load.tally.total} requests in ten minutes")

    with load_of(fleet) as after:
        wait_for("chat to be off at all routers", lambda: served(fleet, "chat", EXPLORATION) or None, seconds=180)
        wait_for("the switch in status", lambda: fleet.route("chat").get("history") or None, seconds=30)
        said = condition(fleet.body(), "MetricsAvailable")
        assert said is not None
        assert said["status"] == "True"
        go_on(after)
    once_off(fleet)
    assert load.tally.failures + after.tally.failures == []


def _nothing_moves(fleet: Fleet) -> None:
    assert served(fleet, "chat", ALL)
    assert served(fleet, "code", ALL)
    assert fleet.route("chat").get("history", []) == []
    assert fleet.route("code").get("history", []) == []

"""Election and the gate, on a clock that tests move."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from specfleet.cluster.client import ApiClient
from specfleet.cluster.errors import ApiError, ClusterError, NotLeadingError
from specfleet.cluster.gate import WriteGate
from specfleet.cluster.lease import Elector, Timing


class Clock:
    """A monotonic clock of our own."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class LeaseStore:
    """The one Lease, with the API server's rule on resourceVersions."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.down = False
        self.version = 0

    def write(self, method: str, body: dict[str, Any]) -> dict[str, Any]:
        if self.down:
            raise ClusterError("no answer")
        known = None if self.lease is None else self.lease["metadata"]["resourceVersion"]
        if (method == "POST") != (self.lease is None) or (
            method == "PUT" and body["metadata"].get("resourceVersion") != known
        ):
            raise ApiError(409, "Conflict", "changed")
        self.version += 1
        self.lease = copy.deepcopy(body)
        self.lease["metadata"]["resourceVersion"] = str(self.version)
        return copy.deepcopy(self.lease)


class LeaseClient(ApiClient):
    """Reads and writes the store."""

    def __init__(self, store: LeaseStore) -> None:
        self.store = store

    async def get(self, kind: Any, namespace: str, name: str) -> dict[str, Any] | None:
        if self.store.down:
            raise ClusterError("no answer")
        return copy.deepcopy(self.store.lease)

    async def send_unfenced(self, method: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self.store.write(method, body)


def replica(store: LeaseStore, clock: Clock, name: str) -> tuple[Elector, WriteGate]:
    gate = WriteGate(clock=clock)
    return Elector(LeaseClient(store), gate, "ns", "specfleet", name, lambda: None, Timing(), clock), gate


def test_a_gate_that_was_never_opened_lets_nothing_through() -> None:
    with pytest.raises(NotLeadingError):
        WriteGate().admit()


def test_a_gate_lets_through_until_the_deadline_and_not_at_it() -> None:
    clock = Clock()
    gate = WriteGate(grace_seconds=3.0, clock=clock)
    gate.extend(1006.0)
    assert gate.admit() == 9.0
    clock.now = 1005.9
    assert gate.admit() == pytest.approx(3.1)
    clock.now = 1006.0
    with pytest.raises(NotLeadingError, match="deadline"):
        gate.admit()


def test_a_write_that_was_let_through_ends_before_another_replica_may_lead() -> None:
    assert Timing().deadline + 3.0 < Timing().lease


async def test_the_first_takes_a_new_lease_and_the_second_stands_by() -> None:
    store, clock = LeaseStore(), Clock()
    (first, gate_one), (second, gate_two) = replica(store, clock, "one"), replica(store, clock, "two")
    assert await first._try()
    assert not await second._try()
    assert (gate_one.open, gate_two.open) == (True, False)
    assert store.lease is not None
    assert store.lease["spec"]["holderIdentity"] == "one"


async def test_a_lease_is_taken_over_only_after_it_was_seen_unchanged_for_its_whole_time() -> None:
    store, clock = LeaseStore(), Clock()
    (first, _), (second, gate) = replica(store, clock, "one"), replica(store, clock, "two")
    await first._try()
    clock.now += 100.0  # however long ago: what counts is what this replica has seen
    assert not await second._try()
    clock.now += 9.9
    assert not await second._try()
    clock.now += 0.1
    assert await second._try()
    assert gate.open
    assert store.lease is not None
    assert store.lease["spec"]["leaseTransitions"] == 1


async def test_renewals_keep_the_other_away() -> None:
    store, clock = LeaseStore(), Clock()
    (first, _), (second, _) = replica(store, clock, "one"), replica(store, clock, "two")
    for _ in range(20):
        assert await first._try()
        assert not await second._try()
        clock.now += 2.0


async def test_a_leader_that_cannot_renew_gives_up_at_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    store, clock = LeaseStore(), Clock()
    elector, gate = replica(store, clock, "one")
    await elector._try()

    async def later(seconds: float) -> None:
        clock.now += max(seconds, 0.1)

    monkeypatch.setattr("specfleet.cluster.lease.asyncio.sleep", later)
    store.down = True
    with pytest.raises(NotLeadingError):
        await elector._renewed()
    assert clock.now == pytest.approx(1006.0, abs=0.6)
    assert not gate.open


async def test_a_leader_that_finds_another_holder_gives_up_at_once() -> None:
    store, clock = LeaseStore(), Clock()
    (first, gate), (second, _) = replica(store, clock, "one"), replica(store, clock, "two")
    await first._try()
    await second._try()
    clock.now += 10.0
    assert await second._try()
    assert not await first._try()  # its own copy is out of date: a conflict, then a look
    with pytest.raises(NotLeadingError, match="two"):
        await first._try()
    assert not gate.open


async def test_a_released_lease_is_free_at_once() -> None:
    store, clock = LeaseStore(), Clock()
    (first, gate), (second, _) = replica(store, clock, "one"), replica(store, clock, "two")
    await first._try()
    await first.release()
    assert not gate.open
    assert await second._try()

"""What is remembered between passes."""

from __future__ import annotations

from typing import Any

import pytest

from specfleet.cluster.kinds import DEPLOYMENT
from specfleet.decision.counted import Counted
from specfleet.decision.rule import RouteConfig, start
from specfleet.handlers.memory import DEAD_GRACE_SECONDS, Memory
from specfleet.handlers.observed import Observed
from specfleet.handlers.pods import PodRecord, pod_record
from specfleet.metrics.direct import Served
from specfleet.routing.counters import RouterSample
from tests.unit.handlers.samples import deployment, pod
from tests.unit.handlers.test_decide import NOW, state


def router(name: str) -> PodRecord:
    return pod_record(pod(name, "router", None))


def read(rejected: int) -> RouterSample:
    return RouterSample(NOW, NOW - 60, (), {}, {}, rejected, 0)


def memory(**changes: Any) -> Memory:
    one = Memory.new("uid-1", 60.0, NOW)
    for name, value in changes.items():
        setattr(one, name, value)
    return one


def test_served_is_known_only_where_every_ready_router_says_the_same() -> None:
    a, b = router("a"), router("b")
    one = memory(served={a.uid: Served("v2", {"chat": 4, "code": 100})})
    assert one.serving((a, b), "v2").percent == {}
    one.served[b.uid] = Served("v1", {"chat": 100, "code": 100})
    serving = one.serving((a, b), "v2")
    assert (serving.confirmed, serving.percent) == (False, {"code": 100})
    one.served[b.uid] = Served("v2", {"chat": 4, "code": 100})
    serving = one.serving((a, b), "v2")
    assert (serving.confirmed, serving.percent) == (True, {"chat": 4, "code": 100})
    assert not one.serving((), "v2").confirmed


def test_a_refusal_counts_from_the_last_table_that_was_taken() -> None:
    a = router("a")
    one = memory(samples={a.uid: read(3)}, served={a.uid: Served("v1", {})})
    assert not one.rejected((a,), "v1")  # refusals of the past
    one.samples[a.uid] = read(4)
    assert one.rejected((a,), "v2")
    one.served[a.uid] = Served("v2", {})
    assert not one.rejected((a,), "v2")


def test_a_router_that_is_gone_is_forgotten() -> None:
    a, b = router("a"), router("b")
    one = memory(samples={a.uid: read(0), b.uid: read(0)}, served={a.uid: Served("v", {})})
    one.kept([b])
    assert (set(one.samples), set(one.served)) == ({b.uid}, set())


def test_a_router_that_only_was_not_read_goes_on_from_its_last_sample_in_all_that_counts() -> None:
    a, b = router("a"), router("b")
    one = memory(samples={b.uid: read(0)})
    counts: list[Counted[Any]] = [one.guarding.answers, one.times.counted, one.prefill.counted]
    for counted in counts:
        for uid in (a.uid, b.uid):
            counted.observe(uid, NOW, {uid: 10})
    one.kept([a])
    for counted in counts:
        for uid in (a.uid, b.uid):
            counted.observe(uid, NOW + 30, {uid: 15})
        assert counted.take() == {a.uid: 5}


def test_a_pool_that_was_ready_is_dead_at_once_and_one_that_starts_has_some_seconds() -> None:
    one = memory()
    assert one.dead(state(speculative=0), NOW, starting=True)["ngram"] is False
    assert one.dead(state(speculative=0), NOW + DEAD_GRACE_SECONDS, starting=True)["ngram"] is True
    assert one.dead(state(speculative=1), NOW + 11, starting=True)["ngram"] is False
    assert one.dead(state(speculative=0), NOW + 12, starting=True)["ngram"] is True
    assert memory().dead(state(speculative=0), NOW, starting=False)["ngram"] is True


def test_a_changed_block_starts_counting_anew() -> None:
    one = memory()
    ledger = one.ledger
    one.retimed(60.0, NOW)
    assert one.ledger is ledger
    one.retimed(5.0, NOW)
    assert one.ledger is not ledger
    assert (one.next_block, one.sample_seconds) == (NOW + 5.0, 2.5)


def test_an_object_that_goes_while_others_are_written_is_missed() -> None:
    observed = Observed()
    kept, gone = (deployment(name, "engine", "ngram") for name in ("a", "b"))
    for body in (kept, gone):
        observed.put_owned(DEPLOYMENT, body)
    key = ("serving", "assistant")
    one = memory(
        wanted=frozenset(observed.owned(key)),
        verified={id_: ("digest", record.live) for id_, record in observed.owned(key).items()},
    )
    assert one.agrees(observed.owned(key))
    observed.remove(DEPLOYMENT, gone)
    assert not one.agrees(observed.owned(key))


@pytest.mark.parametrize("seconds", [-3600.0, 3600.0])
def test_a_clock_that_is_set_delays_no_reading_and_ends_no_dwell(seconds: float) -> None:
    a = router("a")
    one = memory(samples={a.uid: read(0)}, routes={"chat": start(RouteConfig(), NOW - 5.0)})
    assert one.clock_read(NOW, 50.0) == 0.0
    one.next_sample, one.next_block, one.silent_until = NOW + 30.0, NOW + 60.0, {a.uid: NOW + 20.0}
    one.dead_since = {"baseline": -1.0, "ngram": NOW - 3.0}
    now = NOW + seconds + 10.0
    assert one.clock_read(now, 60.0) == seconds
    assert one.next_sample <= now
    assert now < one.next_block <= now + one.block_seconds
    assert one.silent_until == {a.uid: now + 10.0}
    assert one.dead_since == {"baseline": -1.0, "ngram": now - 13.0}
    assert now - one.routes["chat"].served_since == 15.0
    assert one.clock_read(now + 10.0, 70.0) == 0.0


def test_a_clock_that_is_disciplined_changes_nothing() -> None:
    one = memory()
    one.clock_read(NOW, 50.0)
    one.next_block = NOW + 7.0
    assert one.clock_read(NOW + 60.4, 110.0) == 0.0
    assert one.next_block == NOW + 7.0


def test_a_status_that_somebody_wiped_is_remembered() -> None:
    one = memory()
    wiped = {"metadata": {"resourceVersion": "9"}, "status": {"observedGeneration": -1}}
    assert one.recalled(wiped) == wiped
    one.written = {"routes": [{"name": "chat"}]}
    assert one.recalled(wiped) == {"metadata": {"resourceVersion": "9"}, "status": {"routes": [{"name": "chat"}]}}

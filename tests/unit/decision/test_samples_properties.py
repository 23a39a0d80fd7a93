"""What holds for every sequence of samples: nothing negative, nothing twice, little lost."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from specfleet.decision.samples import Increment, Ledger, RouteTotals

BEGIN = 1_764_400_000.0
ROUTES = ("chat", "code")


@dataclass
class Router:
    """A simulated router process and the truth about what it served."""

    name: str
    started: float
    counters: dict[str, list[int]] = field(default_factory=dict)

    def serve(self, route: str, requests: int, tokens: int, accepted: int, drafted: int) -> None:
        row = self.counters.setdefault(route, [0, 0, 0, 0])
        for i, n in enumerate((tokens, accepted, drafted, requests)):
            row[i] += n

    def totals(self) -> dict[str, RouteTotals]:
        return {route: RouteTotals(*row) for route, row in self.counters.items()}


@st.composite
def work(draw: st.DrawFn) -> tuple[str, int, int, int, int]:
    """Route, requests, tokens, accepted, drafted that one router serves within an interval."""
    accepted = draw(st.integers(0, 500))
    return (
        draw(st.sampled_from(ROUTES)),
        draw(st.integers(0, 20)),
        accepted + draw(st.integers(0, 500)),
        accepted,
        accepted + draw(st.integers(0, 500)),
    )


actions = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c"]),
        st.sampled_from(["read"] * 6 + ["miss", "restart", "late", "twice", "forget", "take", "jump"]),
        st.sampled_from([1.0, 20.0, 60.0, 60.0, 119.0, 500.0]),
        work(),
    ),
    max_size=60,
)


@given(actions, st.randoms(use_true_random=False))
@settings(max_examples=300, deadline=None)
def test_nothing_is_negative_and_nothing_is_counted_twice(
    script: list[tuple[str, str, float, tuple[str, int, int, int, int]]], rng: random.Random
) -> None:
    ledger, clock, jumped = Ledger(60.0, BEGIN), BEGIN, 0.0
    routers = {name: Router(name, BEGIN - 1e6 + i) for i, name in enumerate("abc")}
    truth = {route: [0, 0, 0, 0] for route in ROUTES}
    counted = {route: [0, 0, 0, 0] for route in ROUTES}
    old_reads: list[tuple[str, float, float, dict[str, RouteTotals]]] = []

    def collect(increments: dict[str, Increment]) -> None:
        for route, one in increments.items():
            numbers = (one.tokens, one.accepted, one.drafted, one.requests)
            assert min(numbers) >= 0
            assert one.accepted <= one.drafted
            counted[route] = [a + b for a, b in zip(counted[route], numbers, strict=True)]

    for name, action, seconds, (route, *numbers) in script:
        clock += seconds
        router = routers[name]
        if action == "restart":
            router.started, router.counters = clock, {}
            clock += 5.0
        router.serve(route, *numbers)
        requests, tokens, accepted, drafted = numbers
        truth[route] = [a + b for a, b in zip(truth[route], (tokens, accepted, drafted, requests), strict=True)]
        if action == "jump":
            jumped += rng.choice([-4000.0, -30.0, 30.0, 4000.0])
        seen = clock + jumped
        # A start is told as the time of reading less whole seconds of uptime.
        started = seen - int(clock - router.started)
        if action in ("read", "twice", "restart", "jump"):
            read = (name, started, seen, router.totals())
            ledger.observe(*read)
            old_reads.append(read)
            if action == "twice":
                ledger.observe(*read)
        elif action == "late" and old_reads:
            name_, started_, at_, totals_ = rng.choice(old_reads[-3:])
            ledger.observe(name_, started_, at_, totals_)
        elif action == "forget":
            ledger.forget(name)
        elif action == "take":
            collect(dict(ledger.take(seen).increments))
    for name in routers:
        ledger.forget(name)
    collect(dict(ledger.take(clock + jumped).increments))
    for route in ROUTES:
        assert all(c <= t for c, t in zip(counted[route], truth[route], strict=True))


@given(st.lists(st.tuples(st.sampled_from(["a", "b"]), work()), max_size=40), st.randoms(use_true_random=False))
@settings(max_examples=100, deadline=None)
def test_the_order_of_sources_does_not_matter(
    script: list[tuple[str, tuple[str, int, int, int, int]]], rng: random.Random
) -> None:
    def run(order: list[str]) -> list[dict[str, Increment]]:
        ledger = Ledger(60.0, BEGIN)
        routers = {name: Router(name, BEGIN - 1e6) for name in "ab"}
        out = []
        for minute, (busy, (route, *numbers)) in enumerate(script):
            routers[busy].serve(route, *numbers)
            for name in order:
                ledger.observe(name, routers[name].started, BEGIN + 60.0 * minute, routers[name].totals())
            out.append(dict(ledger.take(BEGIN + 60.0 * minute).increments))
        return out

    assert run(["a", "b"]) == run(["b", "a"])


@given(st.lists(work(), min_size=3, max_size=30), st.data())
@settings(max_examples=200, deadline=None)
def test_a_restart_loses_at_most_the_interval_it_falls_into(
    script: list[tuple[str, int, int, int, int]], data: st.DataObject
) -> None:
    lost_at = data.draw(st.integers(1, len(script) - 1), label="interval with the restart")
    ledger, router, at = Ledger(60.0, BEGIN), Router("a", BEGIN - 1e6), BEGIN
    ledger.observe("a", router.started, at, router.totals())
    kept = lost = 0
    for i, (route, requests, tokens, accepted, drafted) in enumerate(script):
        if i == lost_at:
            router.serve(route, requests, tokens, accepted, drafted)
            lost = requests
            router.started, router.counters = at + 30.0, {}
        router.serve(route, requests, tokens, accepted, drafted)
        kept += requests
        at += 60.0
        ledger.observe("a", router.started, at, router.totals())
    counted = sum(one.requests for one in ledger.take(at).increments.values())
    in_that_interval = lost + script[lost_at][1]
    assert kept + lost - in_that_interval <= counted <= kept

"""Whatever is measured: no guard raises, and none acts on what is missing."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from specfleet.decision.guards import GUARDS, Kind
from specfleet.decision.measures import Answers, PodSeen, Predicted, RouteSeen, Seen, Slo, Tail
from specfleet.decision.reasons import Reason
from specfleet.decision.types import Pool
from specfleet.decision.watch import Watch

POOLS: st.SearchStrategy[Pool] = st.sampled_from(["speculative", "baseline"])
counts = st.one_of(st.integers(0, 50), st.integers(0, 2**63))
times = st.floats(allow_nan=True, allow_infinity=True)
tails = st.none() | st.builds(Tail, times, counts)
answers = st.builds(Answers, counts, counts, counts, counts, counts, counts, counts, counts, tails, tails)
slos = st.none() | st.builds(
    Slo, st.none() | st.floats(0.001, 1.0), st.none() | st.floats(0.001, 1.0), st.integers(50, 99)
)
routes = st.builds(
    RouteSeen,
    st.sampled_from(["chat", "code"]),
    POOLS,
    POOLS,
    st.floats(0.0, 4e9),
    st.floats(0.0, 4e9),
    st.integers(0, 100),
    st.none() | st.sampled_from(list(Reason)),
    st.text(max_size=5),
    answers,
    answers,
    slos,
    st.none() | counts,
    st.none() | st.builds(Predicted, times, times),
    st.none() | times,
    st.booleans(),
)
maybe = st.none() | counts
podded = st.builds(
    PodSeen,
    st.sampled_from(["a", "b", "c", "d"]),
    st.text(max_size=5),
    POOLS,
    maybe,
    maybe,
    st.none() | times,
    maybe,
    maybe,
    maybe,
    maybe,
    maybe,
    maybe,
    maybe,
    st.none() | times,
)
ready = st.dictionaries(POOLS, st.integers(0, 5))
by_percentile = st.dictionaries(st.integers(50, 99), st.builds(Tail, times, counts))
seen = st.builds(
    Seen,
    st.floats(1.0, 4e9),
    st.floats(1.0, 3600.0),
    st.floats(1.0, 86400.0),
    st.lists(routes, max_size=3, unique_by=lambda route: route.name).map(tuple),
    st.lists(podded, max_size=4).map(tuple),
    ready,
    by_percentile,
    by_percentile,
    st.none() | st.floats(0.0, 4e9),
    st.booleans(),
    st.none() | st.just("Closed."),
    st.booleans(),
)


@settings(deadline=None, max_examples=60)
@given(st.lists(seen, max_size=5))
def test_no_measurement_raises_and_every_route_gets_an_answer(blocks: list[Seen]) -> None:
    watch = Watch()
    for block in blocks:
        outcome = watch.block(block)
        assert set(outcome.guards) == {route.name for route in block.routes}
        for guard in outcome.guards.values():
            assert (guard.off is None) == (guard.why == "")


nothing = st.builds(
    RouteSeen,
    st.just("chat"),
    POOLS,
    POOLS,
    st.floats(0.0, 1e9),
    st.floats(0.0, 1e9),
    st.integers(0, 100),
    st.none() | st.sampled_from([one for one in Reason if one is not Reason.REQUESTS_REFUSED]),
    slo=slos,
    predicted=st.none() | st.builds(Predicted, times, times),
)
blank = st.builds(PodSeen, st.sampled_from(["a", "b", "c"]), st.just(""), POOLS)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(nothing, st.lists(blank, max_size=4), ready), min_size=1, max_size=12))
def test_no_guard_acts_on_what_is_missing(
    blocks: list[tuple[RouteSeen, list[PodSeen], dict[Pool, int]]],
) -> None:
    watch = Watch()
    for place, (route, pods, there) in enumerate(blocks):
        outcome = watch.block(Seen(2e9 + 60.0 * place, 60.0, 600.0, (route,), tuple(pods), there))
        assert outcome.holds == {}
        guard = outcome.guards["chat"]
        assert (guard.off, guard.stay_off, guard.explore, guard.notes) == (None, None, True, ())


def test_only_refusals_end_exploration() -> None:
    assert [row.name for row in GUARDS if row.kind is Kind.OFF and not row.explores] == ["RequestsRefused"]

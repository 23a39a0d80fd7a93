"""The measurements of a day: what makes a point, what is forgotten, and the string they are kept in."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specfleet.decision.curves import (
    KEPT_MINUTES,
    MOST_CHARACTERS,
    MOST_KINDS,
    MOST_POINTS,
    STREAMS,
    Curves,
    PoolCurves,
    Timing,
    decode,
)
from specfleet.decision.state import MAX_TIME

BEGIN = 1_800_000_000.0
MINUTE = 60.0


def timing(requests: int = 10, step_ms: float = 20.0, steps: float = 1000.0) -> Timing:
    return Timing(us=steps * step_ms * 1000.0, steps=steps, requests=requests)


def after(curves: Curves, blocks: int, batch: float = 4.0, at: float = BEGIN, one: Timing | None = None) -> Curves:
    for _ in range(blocks):
        at += MINUTE
        curves = curves.with_block("baseline", at, MINUTE, batch, {STREAMS: one or timing()})
    return curves


def test_five_blocks_make_a_point_of_their_mean() -> None:
    assert after(Curves(), 4).baseline.curve().points == ()
    curves = after(Curves(), 5)
    [point] = curves.baseline.curve().points
    assert point.batch == pytest.approx(4.0, rel=0.01)
    assert point.step_us == pytest.approx(20_000.0, rel=0.005)
    assert (point.requests, point.minute) == (50, BEGIN // 60 + 5)
    assert curves.baseline.curve().requests == 50
    assert curves.speculative.curve().points == ()


def test_a_block_counts_by_the_steps_in_it() -> None:
    curves = after(Curves(), 4, batch=2.0)
    curves = curves.with_block("baseline", BEGIN + 300, MINUTE, 3.0, {STREAMS: timing(10, 40.0, 4000.0)})
    [point] = curves.baseline.curve().points
    assert point.batch == pytest.approx(2.5, rel=0.01)
    assert point.step_us == pytest.approx(30_000.0, rel=0.005)


def test_few_requests_gather_for_an_hour_at_most() -> None:
    curves = after(Curves(), 59, one=timing(0))
    assert curves.baseline.curve().points == ()
    [point] = after(curves, 1, at=BEGIN + 59 * MINUTE, one=timing(3)).baseline.curve().points
    assert point.requests == 3


def test_another_batch_begins_another_point() -> None:
    curves = after(Curves(), 2, batch=1.0)
    curves = after(curves, 1, batch=9.0, at=BEGIN + 2 * MINUTE)
    [point] = curves.baseline.curve().points
    assert (round(point.batch, 1), point.minute) == (1.0, BEGIN // 60 + 2)
    curves = after(curves, 4, batch=9.0, at=BEGIN + 3 * MINUTE)
    assert [round(point.batch) for point in curves.baseline.curve().points] == [1, 9]


def test_a_few_requests_at_another_batch_are_no_point_of_their_own() -> None:
    curves = after(Curves(), 1, batch=1.0, one=timing(4))
    assert after(curves, 1, batch=9.0, at=BEGIN + MINUTE, one=timing(4)).baseline.curve().points == ()


def test_a_pool_forgets_what_is_a_day_older_than_its_newest_point() -> None:
    curves = after(Curves(), 5)
    late = BEGIN + (KEPT_MINUTES + 1) * MINUTE
    assert len(after(curves, 5, at=late - 5 * MINUTE).baseline.curve().points) == 2
    again = after(after(curves, 5, at=late), 5, at=late + 5 * MINUTE)
    assert len(again.baseline.curve().points) == 2
    # At rest it forgets nothing: the other pool's blocks do not age it.
    for hour in range(72):
        curves = curves.with_block("speculative", BEGIN + hour * 3600, MINUTE, 4.0, {STREAMS: timing()})
    assert len(curves.baseline.curve().points) == 1


def test_what_was_seen_at_a_batch_is_kept_for_a_week_while_there_is_nothing_newer_of_it() -> None:
    busy = after(Curves(), 5, batch=16.0)
    day = KEPT_MINUTES * MINUTE

    def later(days: float, batch: float) -> list[int]:
        curves = after(busy, 5, batch=batch, at=BEGIN + days * day)
        return [round(point.batch) for point in curves.baseline.curve().points]

    assert later(6.9, 1.0) == [16, 1]
    assert later(7.1, 1.0) == [1]
    assert later(1.1, 20.0) == [16, 20]  # one alone could be astray
    twice = after(after(busy, 5, batch=20.0, at=BEGIN + day), 5, batch=18.0, at=BEGIN + day + 400.0)
    assert [round(point.batch) for point in twice.baseline.curve().points] == [20, 18]
    assert later(1.1, 22.0) == [16, 22]


def test_what_is_alike_is_merged_and_an_outlier_stays_apart() -> None:
    curves, at = Curves(), BEGIN
    for place in range(100):
        one = timing(step_ms=200.0) if place == 50 else timing(step_ms=20.0 + place % 3)
        curves, at = after(curves, 5, batch=4.0 + place % 5, at=at, one=one), at + 5 * MINUTE
    points = curves.baseline.curve().points
    assert len(points) == MOST_POINTS[True]
    assert sum(point.requests for point in points) == 100 * 50
    assert [point.requests for point in points if point.step_us > 100_000] == [50]


def test_the_load_is_that_of_the_last_hours() -> None:
    assert PoolCurves().batch is None
    day = 24 * 60
    curves = after(Curves(), day, batch=2.0)
    assert curves.baseline.batch == pytest.approx(2.0, rel=0.001)
    curves = after(curves, 30, batch=10.0, at=BEGIN + day * MINUTE)
    assert curves.baseline.batch == pytest.approx(2.0 + 8.0 * (1 - math.exp(-1 / 8)), rel=0.01)
    assert curves.baseline.latest == 10.0
    curves = after(curves, day, batch=10.0, at=BEGIN + (day + 30) * MINUTE)
    assert curves.baseline.batch == pytest.approx(10.0, rel=0.01)
    quiet = curves.with_block("baseline", BEGIN + 200 * 3600, MINUTE, 0.0, {})
    assert quiet.baseline.batch == pytest.approx(0.0, abs=1e-6)


def test_other_pods_are_another_curve() -> None:
    curves = after(Curves(), 5).keyed("a", "b")
    assert curves.baseline.curve().points == ()
    curves = after(curves, 5)
    assert curves.keyed("a", "b") is curves
    other = curves.keyed("a", "c")
    assert len(other.baseline.curve().points) == 1
    assert (other.speculative, other.keyed("d", "c").baseline) == (PoolCurves("c"), PoolCurves("d"))
    with pytest.raises(ValueError, match="expected a key"):
        curves.keyed("a;b", "c")


def test_streams_and_classes_of_whole_answers_stay_apart_and_bounded() -> None:
    curves = Curves()
    for place in range(5):
        at = BEGIN + (place + 1) * MINUTE
        curves = curves.with_block("baseline", at, MINUTE, 1.0, {f"p{n}": timing() for n in range(20)})
    assert len(curves.baseline.kinds) == MOST_KINDS
    assert curves.baseline.curve().points == ()
    assert len(curves.baseline.curve("p0").points) == 1
    many = curves
    for place in range(5, 400):
        many = many.with_block("baseline", BEGIN + (place + 1) * MINUTE, MINUTE, 1.0, {"p0": timing()})
    assert len(many.baseline.curve("p0").points) == MOST_POINTS[False]


@pytest.mark.parametrize(
    ("at", "seconds", "batch"),
    [
        (math.nan, 60.0, 1.0),
        (BEGIN, math.inf, 1.0),
        (BEGIN, 0.0, 1.0),
        (BEGIN, 60.0, -1.0),
        (-1.0, 60.0, 1.0),
        (2 * MAX_TIME, 60.0, 1.0),
        (BEGIN, 60.0, math.nan),
        (BEGIN, 60.0, 2.0**63),
    ],
)
def test_a_block_that_cannot_be_is_left_out(at: float, seconds: float, batch: float) -> None:
    curves = after(Curves(), 3)
    assert curves.with_block("baseline", at, seconds, batch, {STREAMS: timing()}) is curves


@pytest.mark.parametrize(
    "bad",
    [
        Timing(math.nan, 10.0, 1),
        Timing(1.0, math.inf, 1),
        Timing(-1.0, 10.0, 1),
        Timing(0.0, 10.0, 1),
        Timing(1.0, 0.0, 1),
        Timing(1.0, 10.0, -1),
        Timing(2.0**63, 10.0, 1),
    ],
)
def test_a_timing_that_cannot_be_is_left_out_and_its_batch_counts(bad: Timing) -> None:
    curves = Curves().with_block("baseline", BEGIN, MINUTE, 3.0, {STREAMS: bad, "no kind!": timing()})
    assert dict(curves.baseline.kinds) == {}
    assert curves.baseline.batch == 3.0


def test_a_clock_that_was_set_back_leaves_no_time_in_the_future() -> None:
    curves = after(Curves(), 7)
    back = curves.with_block("baseline", BEGIN - 7 * 24 * 3600, MINUTE, 4.0, {})
    curve = back.baseline.curve()
    assert curve.gathered is not None
    assert curve.gathered.since <= BEGIN - 7 * 24 * 3600
    assert [point.minute for point in curve.points] == [int(BEGIN) // 60 - 7 * 24 * 60]
    only_gathered = after(Curves(), 2).with_block("baseline", BEGIN - 3600, MINUTE, 4.0, {})
    assert only_gathered.baseline.curve().gathered is not None
    assert only_gathered.baseline.load_at == BEGIN - 3600


def test_what_was_measured_stays_as_old_as_it_is_when_the_clock_is_set() -> None:
    curves = after(Curves(), 7)
    ahead = curves.shifted(3600.0)
    assert [one.minute for one in ahead.baseline.curve().points] == [int(BEGIN) // 60 + 5 + 60]
    assert (ahead.baseline.load_at, ahead.baseline.batch) == (BEGIN + 420 + 3600, curves.baseline.batch)
    assert ahead.shifted(-3600.0).encode() == curves.encode()
    assert [one.minute for one in curves.shifted(-2e9).baseline.curve().points] == [0]


def test_a_string_is_read_back_as_it_was_written() -> None:
    curves = after(Curves(), 300).keyed("", "x-1_Z")
    for place in range(50):
        curves = curves.with_block("speculative", BEGIN + place * MINUTE, MINUTE, place % 9, {"p2": timing()})
    text = curves.encode()
    again = decode(text)
    assert again.encode() == text
    assert again.baseline.curve().points == curves.baseline.curve().points
    assert again.speculative.curve("p2").points == curves.speculative.curve("p2").points
    assert (again.baseline.batch, again.speculative.key) == (curves.baseline.batch, "x-1_Z")
    assert decode(Curves().encode()) == Curves()


def test_the_string_stays_short() -> None:
    curves, at = Curves(), BEGIN
    for place in range(300):
        at += 300.0
        batch = 0.1 * 1.03**place
        kinds = {STREAMS: timing(), **{f"p{n}": timing(step_ms=10.0 + n) for n in range(12)}}
        for pool in ("baseline", "speculative"):
            curves = curves.with_block(pool, at, 300.0, batch, kinds)
    assert len(curves.baseline.curve().points) == MOST_POINTS[True]
    assert 5_000 < len(curves.encode()) < MOST_CHARACTERS / 2


def forged(body: str) -> str:
    import zlib

    return f"{body};{zlib.crc32(body.encode()):08x}"


def test_what_cannot_be_read_is_nothing_known() -> None:
    text = after(Curves(), 5).encode()
    body = text.rpartition(";")[0]
    assert decode(text) != Curves()
    wrong = [
        None,
        "",
        "x",
        text[:-1],
        text.replace("1;", "2;", 1),
        text * 100,
        "\ud800",
        forged("2" + body[1:]),
        forged("1;,0,0,0"),
        forged(body.replace("streams,", "bad kind,")),
        forged(body.replace(",streams", ",streams,streams")),
        forged(body.replace("streams,", "streams,-")),
        forged(body.replace("streams,", "streams,9999999")),
        forged("1;,nan,0,0;,0,0,0"),
        forged("1;,0,-1,0;,0,0,0"),
        forged("1;k!,0,0,0;,0,0,0"),
        forged("1;,0,0,0,streams,5,AAA;,0,0,0"),
        forged("1;,0,0,0,streams,5,AAAA;,0,0,0"),
        forged("1;,0,0,0,streams,x,AAAAAAAAAAAB;,0,0,0"),
        forged("1;,0,0,0" + ",p,5,AAAAAAAAAAAB" * (MOST_KINDS + 1) + ";,0,0,0"),
    ]
    for one in wrong:
        assert decode(one) == Curves(), one


numbers = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([0.0, 1e-300, 1e300, 2.0**63, -1.0]),
    st.floats(0.0, 1e4),
)
timings = st.builds(Timing, us=numbers, steps=numbers, requests=st.integers(-5, 2**64))
blocks = st.tuples(
    st.sampled_from(["baseline", "speculative"]),
    st.one_of(numbers, st.floats(BEGIN - 1e5, BEGIN + 1e5)),
    st.one_of(numbers, st.just(60.0)),
    numbers,
    st.dictionaries(st.sampled_from([STREAMS, "p0", "p1", "bad kind"]), timings, max_size=3),
)


@given(st.lists(blocks, max_size=40))
@settings(max_examples=200, deadline=None)
def test_nothing_that_is_fed_breaks_it_and_every_state_is_read_back(
    history: list[tuple[str, float, float, float, dict[str, Timing]]],
) -> None:
    curves = Curves()
    for block in history:
        curves = curves.with_block(*block)  # type: ignore[arg-type]
        for pool in (curves.baseline, curves.speculative):
            assert pool.batch is None or 0.0 <= pool.batch < math.inf
            for kind, curve in pool.kinds.items():
                assert len(curve.points) <= MOST_POINTS[kind == STREAMS]
                assert all(0 < point.step_us < math.inf and 0 <= point.batch < math.inf for point in curve.points)
    again = decode(curves.encode())
    for pool, known in ((again.baseline, curves.baseline), (again.speculative, curves.speculative)):
        assert {kind: one.points for kind, one in pool.kinds.items()} == {
            kind: one.points for kind, one in known.kinds.items() if one.points
        }
        assert replace(pool, kinds={}) == replace(known, kinds={})


@given(st.text(max_size=300))
@settings(max_examples=200)
def test_any_text_is_read(text: str) -> None:
    assert decode(text) == Curves()

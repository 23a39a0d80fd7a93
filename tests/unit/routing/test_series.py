"""From what Prometheus has back to samples of each router."""

from __future__ import annotations

from typing import Any

import pytest

from specfleet.routing.counters import RouteRow, WholeAnswers
from specfleet.routing.series import diagnosis, scraped, selector
from tests.unit.metrics.answers import router, series

AT = 1_800_000_000.5
POD = "assistant-router-5d8f7c9b6-x2x4z"
ROUTER = ("serving", POD)
ROW = RouteRow(
    "chat", "ngram", "ngram",
    requests=100, finished=100, measured=100, decode_tokens=4000, accepted=40, drafted=400,
)  # fmt: skip


def raw(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """As Envoy names them."""
    for one in found:
        name = one["metric"]["__name__"]
        one["metric"]["__name__"] = "envoy_server_uptime" if name.endswith("uptime") else f"envoy_{name}"
    return found


@pytest.mark.parametrize("named", [list, raw])
def test_a_scrape_becomes_a_sample_at_its_own_time(named: Any) -> None:
    (one,) = scraped(named(router(AT)))[ROUTER].samples

    assert (one.at, one.started_at) == (AT, AT - 5000)
    assert one.rows == (ROW,)


def test_samples_come_in_order_and_only_what_was_scraped_together_is_put_together() -> None:
    both = [
        {**new, "values": [*old["values"], *new["values"]]}
        for old, new in zip(router(AT), router(AT + 30, uptime=5030, measured=120, decode_tokens=4800), strict=True)
    ]
    both[-2]["values"] = both[-2]["values"][1:]  # the first scrape lost what was measured

    found = scraped(both)[ROUTER]

    assert [one.at for one in found.samples] == [AT, AT + 30]
    assert found.samples[0].rows == ()
    assert (found.samples[1].rows[0].measured, found.samples[1].rows[0].decode_tokens) == (120, 4800)
    assert found.problem is not None
    assert "of route chat some of the counters" in found.problem


def test_a_router_that_is_scraped_twice_counts_once_by_the_newer_scrape() -> None:
    other = [
        {**one, "metric": {**one["metric"], "job": "annotations"}}
        for one in router(AT + 5, uptime=5005, measured=101, decode_tokens=4040)
    ]

    (one,) = scraped([*router(AT), *raw(other)])[ROUTER].samples

    assert (one.at, one.rows[0].measured, one.rows[0].finished) == (AT + 5, 101, 101)


def test_requests_are_summed_over_how_they_ended() -> None:
    more = series(
        "specfleet_requests", AT, 7, namespace="serving", pod=POD, job="routers", route="chat", pool="ngram",
        intended="ngram", code="201", flags="-", phase="body",
    )  # fmt: skip

    (one,) = scraped([*router(AT), more])[ROUTER].samples

    assert one.rows[0].finished == 107


def test_times_errors_and_prompts_of_both_pools_are_read_as_from_the_router_itself() -> None:
    where = {"namespace": "serving", "pod": POD, "job": "routers", "route": "chat"}
    base = {**where, "pool": "baseline", "intended": "baseline"}
    spec = {**where, "pool": "ngram", "intended": "ngram"}
    more = [
        series("specfleet_plain_measured", AT, 7, **base),
        series("specfleet_plain_decode_tokens", AT, 270, **base),
        series("specfleet_prompt_tokens", AT, 900, **base),
        series("specfleet_stream_decode_us", AT, 4_000_000, **base),
        series("specfleet_stream_decode_tokens", AT, 200, **base),
        series("specfleet_stream_tpot", AT, 4, upto_us="19953", **base),
        series("specfleet_stream_tpot", AT, 1, upto_us="inf", **base),
        series("specfleet_stream_ttft", AT, 5, upto_us="1000", **base),
        series("specfleet_stream_ttft", AT, 9, upto_us="1001", **base),
        series("specfleet_whole_us", AT, 500_000, prompt_upto="512", **base),
        series("specfleet_whole_tokens", AT, 70, prompt_upto="512", **base),
        series("specfleet_whole_answers", AT, 2, prompt_upto="512", **base),
        series("specfleet_requests", AT, 3, code="400", flags="-", phase="body", **spec),
        series("specfleet_requests", AT, 2, code="200", flags="DC", phase="body", **spec),
    ]

    (one,) = scraped([*router(AT), *more])[ROUTER].samples

    baseline, ngram = one.rows
    assert (baseline.measured, baseline.decode_tokens, baseline.prompt_tokens) == (7, 270, 900)
    assert (baseline.stream_decode_us, baseline.stream_decode_tokens) == (4_000_000, 200)
    assert baseline.stream_tpot_us.percentile(80) == (15849, 19953)
    assert baseline.stream_tpot_us.total == 5
    assert baseline.stream_ttft_us.total == 5  # a bound that is none of ours is passed over
    assert baseline.whole_by_prompt[1] == WholeAnswers(500_000, 70, 2)
    assert (baseline.whole_us, baseline.whole_answers) == (500_000, 2)
    assert (ngram.requests, ngram.finished, ngram.client_errors, ngram.cancelled) == (105, 100, 3, 2)


@pytest.mark.parametrize("name", ["stream_tpot", "whole_us"])
def test_a_bucket_or_class_that_is_no_count_stays_none(name: str) -> None:
    labels = {"namespace": "serving", "pod": POD, "job": "routers", "route": "chat", "pool": "ngram"}
    labels |= {"intended": "ngram", "upto_us": "inf", "prompt_upto": "inf"}

    (one,) = scraped([*router(AT), series(f"specfleet_{name}", AT, "NaN", **labels)])[ROUTER].samples

    (row,) = one.rows
    assert min(row.stream_tpot_us.counts[-1], row.whole_by_prompt[-1].us) == -1


def test_requests_in_flight_are_kept_by_route_and_pool() -> None:
    where = {"namespace": "serving", "pod": POD, "job": "routers"}
    flying = [
        series("specfleet_active", AT, 3, route="chat", pool="ngram", **where),
        series("specfleet_active", AT, 2, route="code", pool="ngram", **where),
        series("specfleet_active", AT, 4, route="chat", pool="baseline", **where),
    ]

    (one,) = scraped([*router(AT), *flying])[ROUTER].samples

    assert one.active == {"ngram": 5, "baseline": 4}
    assert one.route_active == {"chat": 7, "code": 2}
    assert one.rows == (ROW,)


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "0.5", "1e300"])
def test_what_is_no_count_is_not_taken_for_one(value: str) -> None:
    (one,) = scraped(router(AT, accepted=value))[ROUTER].samples

    assert one.rows[0].accepted < 0  # the data rules leave it out as NotACount


@pytest.mark.parametrize("value", ["NaN", "-5"])
def test_without_a_process_start_a_sample_does_not_count(value: str) -> None:
    assert scraped(router(AT, uptime=value))[ROUTER].samples == ()


def test_without_the_uptime_it_is_said_what_is_dropped() -> None:
    found = scraped(router(AT)[1:])[ROUTER]

    assert found.samples == ()
    assert found.problem == "envoy_server_uptime is dropped on the way, so a restart could not be told: keep it"


def test_the_selector_names_what_is_asked_for() -> None:
    text = selector(["b", "a", "a"], ["chat", "code"], 179.2)

    assert text.endswith("[180s]")
    assert 'namespace=~"a|b"' in text
    assert 'pod=~"(chat|code)-router-.+"' in text
    assert "|envoy_server_uptime" in text
    assert len(text) < 800


@pytest.mark.parametrize(
    ("labels", "words"),
    [
        ([], "no series of any router: nothing scrapes them"),
        ([{"namespace": "a", "pod": "b"}, {}], "without the labels namespace and pod"),
        ([{"namespace": "a"}], "without the labels namespace and pod"),
        ([{"namespace": "a", "pod": "b"}], "of other routers and none of these"),
    ],
)
def test_why_there_is_nothing_is_told_from_what_there_is(labels: list[dict[str, str]], words: str) -> None:
    assert words in diagnosis([{"metric": one, "values": []} for one in labels], "http://prometheus:9090")

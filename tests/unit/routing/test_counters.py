"""Envoy's counters become rows; what is no count is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from specfleet.routing.counters import PROMPT_CLASSES, RouteRow, WholeAnswers, parse_stats

UPTIME = {"name": "server.uptime", "value": 100}
CHAT = "route.chat.pool.ngram.intended.ngram"


def document(*stats: dict[str, Any]) -> bytes:
    """Envoy's answer with an uptime and these."""
    return json.dumps({"stats": [UPTIME, *stats]}).encode()


def stat(name: str, value: Any) -> dict[str, Any]:
    """One of Envoy's values."""
    return {"name": name, "value": value}


def ended(code: int, flags: str, phase: str, labels: str = CHAT) -> dict[str, Any]:
    """One request that ended so."""
    return stat(f"specfleet.requests.{labels}.code.{code}.flags.{flags}.phase.{phase}", 1)


@pytest.mark.parametrize(
    ("code", "flags", "phase", "field"),
    [
        (200, "-", "body", "finished"),
        (400, "-", "body", "client_errors"),
        (404, "-", "headers", "client_errors"),
        (429, "UO", "", "overflow"),
        (500, "-", "body", "server_errors"),
        (503, "UF,URX", "headers", "server_errors"),
        (503, "UH", "headers", "server_errors"),
        (200, "DC", "body", "cancelled"),
        (0, "DC", "", "cancelled"),
        (200, "DR", "headers", "cancelled"),
        (200, "UC", "body", "aborted"),
        (200, "UPE", "body", "aborted"),
        (200, "UC", "headers", "lost_before_first_token"),
    ],
)
def test_how_a_request_ended(code: int, flags: str, phase: str, field: str) -> None:
    (row,) = parse_stats(document(ended(code, flags, phase)), 0).rows
    counts: dict[str, Any] = {"requests": 1, field: 1}
    assert row == RouteRow("chat", "ngram", "ngram", **counts)


def test_rows_are_kept_apart_and_their_outcomes_summed() -> None:
    other = "route.chat.pool.baseline.intended.ngram"
    sample = parse_stats(document(ended(200, "-", "body"), ended(500, "-", "body"), ended(200, "-", "body", other)), 0)
    assert sample.rows == (
        RouteRow("chat", "baseline", "ngram", requests=1, finished=1, failovers=1),
        RouteRow("chat", "ngram", "ngram", requests=2, finished=1, server_errors=1),
    )


def test_attempts_beyond_the_first_are_retries() -> None:
    (row,) = parse_stats(document(ended(200, "-", "body"), stat(f"specfleet.attempts.{CHAT}", 3)), 0).rows
    assert row.retries == 2


def test_usage_without_acceptance_measures_baseline_and_nothing_else() -> None:
    stats = [
        stat(f"specfleet.{name}.route.chat.pool.{pool}.intended.{pool}", value)
        for pool in ("baseline", "ngram")
        for name, value in (("plain_measured", 2), ("plain_decode_tokens", 50))
    ]
    baseline, ngram = parse_stats(document(*stats), 0).rows
    assert (baseline.measured, baseline.decode_tokens) == (2, 50)
    assert (ngram.measured, ngram.decode_tokens) == (0, 0)


def test_times_are_read_by_bucket_and_whole_answers_by_prompt() -> None:
    stats = [
        stat(f"specfleet.stream_tpot.{CHAT}.upto_us.1000", 5),
        stat(f"specfleet.stream_tpot.{CHAT}.upto_us.1259", 4),
        stat(f"specfleet.stream_tpot.{CHAT}.upto_us.inf", 1),
        stat(f"specfleet.stream_ttft.{CHAT}.upto_us.63095734", 2),
        *(
            stat(f"specfleet.whole_{name}.{CHAT}.prompt_upto.{prompt}", value)
            for prompt, of in (("128", (900, 30, 3)), ("inf", (5000, 20, 1)))
            for name, value in zip(("us", "tokens", "answers"), of, strict=True)
        ),
    ]
    (row,) = parse_stats(document(*stats), 0).rows
    assert row.stream_tpot_us.counts[:3] == (5, 4, 0)
    assert row.stream_tpot_us.counts[-1] == 1
    assert row.stream_tpot_us.total == 10
    assert (row.stream_ttft_us.counts[-2], row.stream_ttft_us.total) == (2, 2)
    assert (row.whole_us, row.whole_tokens, row.whole_answers) == (5900, 50, 4)
    assert len(row.whole_by_prompt) == len(PROMPT_CLASSES)
    assert (row.whole_by_prompt[0], row.whole_by_prompt[-1]) == (WholeAnswers(900, 30, 3), WholeAnswers(5000, 20, 1))
    assert set(row.whole_by_prompt[1:-1]) == {WholeAnswers()}


def test_an_engines_refusals_are_told_from_the_routers_own() -> None:
    own = "route.chat.pool..intended.ngram"
    engine, router = (ended(400, "-", "body", where) for where in (CHAT, own))
    rows = parse_stats(document(engine, router), 0).rows
    assert [(row.pool, row.client_errors) for row in rows] == [("", 1), ("ngram", 1)]


def test_what_is_in_flight_and_what_went_wrong() -> None:
    sample = parse_stats(
        document(
            stat("cluster.hosts-baseline.upstream_rq_active", 3),
            stat("cluster.hosts-my-draft.upstream_rq_active", 4),
            stat("cluster.hosts-baseline.membership_healthy", 1),
            stat("cluster.hosts-my-draft.membership_healthy", 0),
            stat("specfleet.active.route.chat.pool.baseline", 2),
            stat("specfleet.active.route.chat.pool.my-draft", 1),
            stat("http.router.rds.specfleet.update_rejected", 1),
            stat("http.router.rds.specfleet.update_failure", 1),
            stat("cluster_manager.cds.update_rejected", 1),
            stat("specfleet.lua_errors", 5),
            stat("specfleet.requests.route..pool..intended..code.404.flags.-.phase.", 6),
        ),
        at=1000.5,
    )
    assert sample.active == {"baseline": 3, "my-draft": 4}
    assert sample.healthy == {"baseline": 1, "my-draft": 0}
    assert sample.route_active == {"chat": 3}
    assert (sample.routes_rejected, sample.lua_errors, sample.unrouted) == (3, 5, 6)
    assert (sample.at, sample.started_at, sample.rows) == (1000.5, 900.5, ())


@pytest.mark.parametrize(
    ("raw", "says"),
    [
        (b"", "not Envoy's JSON"),
        (b"<html>", "not Envoy's JSON"),
        (b"[]", "not Envoy's JSON"),
        (b'{"stats": 5}', "not Envoy's JSON"),
        (b'{"stats": [{"name": "x"}]}', "not Envoy's JSON"),
        (b'{"stats": []}', "no server.uptime"),
        (document(stat("specfleet.lua_errors", -1)), "lua_errors = -1"),
        (document(stat("specfleet.lua_errors", 1.5)), "lua_errors = 1.5"),
        (document(stat("specfleet.lua_errors", "7")), "lua_errors = '7'"),
        (document(stat("specfleet.lua_errors", None)), "lua_errors = None"),
        (b'{"stats": [{"name": "server.uptime", "value": NaN}]}', "server.uptime = nan"),
    ],
)
def test_what_is_no_count_is_refused_with_what_was_found(raw: bytes, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        parse_stats(raw, 0)


def test_counters_of_a_later_version_are_passed_over() -> None:
    raw = document(ended(200, "-", "body"), stat(f"specfleet.something_new.{CHAT}", 7), {"histograms": {}})
    (row,) = parse_stats(raw, 0).rows
    assert row.finished == 1

"""What guards read off an engine's page, for every engine and release that there is a page of."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.api.v1alpha1 import EngineType
from specfleet.metrics.load import LoadPage, parse_load

PAGES = Path(__file__).with_name("pages")
ENGINES = {"vllm": EngineType.VLLM, "sglang": EngineType.SGLANG, "trtllm": EngineType.TENSORRTLLM}


def load(text: str, engine: EngineType = EngineType.VLLM) -> LoadPage:
    return parse_load(text.encode(), 5.0, engine, 4)


@pytest.mark.parametrize(
    ("name", "running", "waiting", "kv_used", "counts"),
    [
        ("vllm-0.32.0", 0, 0, 0.0, (4323, 3118, 1081, 855)),
        ("vllm-0.12.0", 2, 1, None, (1600, 800, 400, 400)),
        ("vllm-0.8.5", 2, 1, None, (1600, 800, 400, 400)),
        ("vllm-0.9.2-v0", 2, 1, None, (None, None, None, None)),
        ("sglang-0.5.13", None, None, None, (3280, 380, None, None)),
        ("sglang-0.5.9", None, None, None, (None, None, None, None)),
        ("trtllm-speculating", 0, 0, None, (1280, 480, 1280, 480)),
        ("trtllm-baseline", 1, 0, None, (None, None, None, None)),
        ("trtllm-before-counters", None, None, None, (None, None, None, None)),
    ],
)
def test_recorded_pages(
    name: str,
    running: int | None,
    waiting: int | None,
    kv_used: float | None,
    counts: tuple[int | None, int | None, int | None, int | None],
) -> None:
    page = load((PAGES / f"{name}.txt").read_text(), ENGINES[name.partition("-")[0]])
    assert (page.at, page.running, page.waiting, page.kv_used) == (5.0, running, waiting, kv_used)
    names = ("trials", "accepted", "first_trials", "first_accepted")
    assert tuple(page.counts.get(one) for one in names) == counts


def test_a_page_of_vllm_in_full() -> None:
    page = load(
        """# HELP vllm:num_requests_running Number
vllm:num_requests_running{engine="0",model_name="a"} 3.0
vllm:num_requests_running{engine="1",model_name="a} 9"} 4.0
vllm:num_requests_waiting{engine="0"} 2.0 1796000000000
vllm:num_requests_waiting_by_reason{reason="capacity"} 7.0
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:kv_cache_usage_perc{engine="1"} 0.95
vllm:num_preemptions_total{engine="0"} 6.0
vllm:num_preemptions_created{engine="0"} 1.7e+09
vllm:spec_decode_num_drafts_total 100.0
vllm:spec_decode_num_draft_tokens_total 400.0
vllm:spec_decode_num_accepted_tokens_total 120.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{position="0"} 60.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{position="10"} 1.0
process_start_time_seconds 1.79e+09
vllm:generation_tokens_total{engine="0"} 500.0"""
    )
    assert page == LoadPage(
        at=5.0,
        started_at=1.79e9,
        running=7,
        waiting=2,
        kv_used=0.95,
        counts={
            "trials": 400,
            "accepted": 120,
            "first_trials": 100,
            "first_accepted": 60,
            "preempted": 6,
            "generated": 500,
        },
    )


def test_kv_cache_by_its_older_name_and_by_blocks() -> None:
    assert load("vllm:gpu_cache_usage_perc 0.5\n").kv_used == 0.5
    blocks = "trtllm_kv_cache_max_blocks 200\ntrtllm_kv_cache_used_blocks 190\n"
    assert load(blocks, EngineType.TENSORRTLLM).kv_used == 0.95
    assert load("trtllm_kv_cache_max_blocks 0\ntrtllm_kv_cache_used_blocks 0\n", EngineType.TENSORRTLLM).kv_used is None


def test_a_page_of_sglang() -> None:
    page = load(
        """sglang:num_running_reqs{tp_rank="0"} 5
sglang:num_queue_reqs{tp_rank="0"} 1
sglang:token_usage{tp_rank="0"} 0.97
sglang:num_retracted_requests_total{tp_rank="0"} 2
sglang:generation_tokens_total{is_streaming="true"} 900
sglang:num_requests_total{is_streaming="true"} 20
sglang:spec_verify_calls_total 400
""",
        EngineType.SGLANG,
    )
    assert (page.running, page.waiting, page.kv_used) == (5, 1, 0.97)
    assert page.counts == {"trials": 1600, "accepted": 480, "preempted": 2, "generated": 900}


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-1", "1e300", "9223372036854775808", "x", ""])
def test_a_value_that_is_no_count_tells_nothing_and_spoils_nothing_else(value: str) -> None:
    page = load(f"vllm:num_requests_waiting {value}\nvllm:num_requests_running 3\nvllm:num_preemptions_total {value}\n")
    assert (page.waiting, page.running, page.counts) == (None, 3, {})


@pytest.mark.parametrize(
    "counters",
    [
        "vllm:spec_decode_num_draft_tokens_total 10\nvllm:spec_decode_num_accepted_tokens_total 11\n",
        "vllm:spec_decode_num_accepted_tokens_total 5\n",
        "vllm:spec_decode_num_draft_tokens_total 10\n",
    ],
)
def test_half_of_a_pair_and_more_accepted_than_drafted_tell_nothing(counters: str) -> None:
    assert load("vllm:spec_decode_num_drafts_total 10\n" + counters).counts == {}


def test_a_kv_cache_more_than_full_tells_nothing() -> None:
    assert load("vllm:kv_cache_usage_perc 93.0\n").kv_used is None


@pytest.mark.parametrize(
    "text", ["", "<html>", "{}", "vllm:num_requests_running", "\n\n\n", "vllm:num_requests_running{"]
)
def test_what_is_no_page_tells_nothing(text: str) -> None:
    assert load(text) == LoadPage(at=5.0)


@given(st.binary(max_size=300), st.sampled_from(list(EngineType)))
def test_no_page_raises(raw: bytes, engine: EngineType) -> None:
    names = (
        b"\nvllm:num_requests_running" + raw + b"\nsglang:token_usage{" + raw + b"\ntrtllm_kv_cache_max_blocks " + raw
    )
    assert parse_load(names, 1.0, engine, 4).at == 1.0

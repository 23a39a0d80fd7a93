"""What guards need of an engine's page: load, and acceptance of this one pod. Nothing else of it is parsed.

A page of vLLM is longer than 100 kB; lines are found by their names, so that a page costs a fraction of a millisecond.
A figure that is missing, or is none, is None: it says nothing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from specfleet.api.v1alpha1 import EngineType

_LABEL = re.compile(rb'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_STARTED = "process_start_time_seconds"
_MOST = 2.0**53  # beyond it these floating-point numbers count no more

# By figure: the series that tell it, of all releases; the first that is there does. Sums over labels, but for KV_USED.
_VLLM: Mapping[str, tuple[str, ...]] = {
    "running": ("vllm:num_requests_running",),
    "waiting": ("vllm:num_requests_waiting",),
    "kv_used": ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
    "preempted": ("vllm:num_preemptions_total",),
    "generated": ("vllm:generation_tokens_total",),
    "rounds": ("vllm:spec_decode_num_drafts_total",),
    "drafted": ("vllm:spec_decode_num_draft_tokens_total",),
    "accepted": ("vllm:spec_decode_num_accepted_tokens_total",),
    "first_accepted": ("vllm:spec_decode_num_accepted_tokens_per_pos_total",),
}
_SGLANG: Mapping[str, tuple[str, ...]] = {
    "running": ("sglang:num_running_reqs",),
    "waiting": ("sglang:num_queue_reqs",),
    "kv_used": ("sglang:token_usage",),
    "preempted": ("sglang:num_retracted_requests_total", "sglang:num_retracted_reqs_total"),
    "generated": ("sglang:generation_tokens_total",),
    "finished": ("sglang:num_requests_total",),
    "rounds": ("sglang:spec_verify_calls_total",),
}
_TRTLLM: Mapping[str, tuple[str, ...]] = {
    "running": ("trtllm_num_requests_running",),
    "waiting": ("trtllm_num_requests_waiting",),
    "kv_used": ("trtllm_kv_cache_utilization",),
    "kv_blocks": ("trtllm_kv_cache_used_blocks",),
    "kv_most": ("trtllm_kv_cache_max_blocks",),
    "generated": ("trtllm_generation_tokens_total",),
    "drafted": ("trtllm_spec_decode_num_draft_tokens_total",),
    "accepted": ("trtllm_spec_decode_num_accepted_tokens_total",),
    "first_drafted": ("trtllm_spec_decode_drafted_tokens_total",),
    "first_accepted": ("trtllm_spec_decode_accepted_tokens_total",),
}
_SERIES: Mapping[EngineType, Mapping[str, tuple[str, ...]]] = {
    EngineType.VLLM: _VLLM,
    EngineType.SGLANG: _SGLANG,
    EngineType.TENSORRTLLM: _TRTLLM,
}
_OF_FIRST = frozenset({"first_drafted", "first_accepted"})  # series by position, of which 0 is meant
_POSITIONS = (b"position", b"token_position")


@dataclass(frozen=True)
class LoadPage:
    """One pod's page. `counts` are cumulative since `started_at`; times are seconds since the epoch.

    Among `counts`: preempted, generated; trials and accepted, over which acceptance is told; first_trials and
    first_accepted, the same of each round's first token. What the page does not tell is not there.
    """

    at: float
    started_at: float | None = None
    running: int | None = None
    waiting: int | None = None
    kv_used: float | None = None
    counts: Mapping[str, int] = field(default_factory=dict)


def parse_load(page: bytes, at: float, engine: EngineType, draft_tokens: int) -> LoadPage:
    """Read a Prometheus text page that arrived at `at`; `draft_tokens` is k. Never raises: rubbish tells nothing."""
    text = b"\n" + page
    found = {figure: _figure(text, figure, names) for figure, names in _SERIES[engine].items()}
    values = {figure: value for figure, value in found.items() if value is not None}
    counts = _COUNTS[engine]({figure: int(value) for figure, value in values.items()}, draft_tokens)
    counts |= {name: int(values[name]) for name in ("preempted", "generated") if name in values}
    kv_used = values.get("kv_used")
    if kv_used is None and values.get("kv_most"):
        kv_used = values.get("kv_blocks", 0.0) / values["kv_most"]
    return LoadPage(
        at=at,
        started_at=_figure(text, _STARTED, (_STARTED,)),
        running=int(values["running"]) if "running" in values else None,
        waiting=int(values["waiting"]) if "waiting" in values else None,
        kv_used=kv_used if kv_used is not None and kv_used <= 1.0 else None,
        counts=counts,
    )


def _figure(text: bytes, figure: str, names: tuple[str, ...]) -> float | None:
    for name in names:
        values = list(_values(text, name.encode(), figure in _OF_FIRST))
        if not values:
            continue
        if not all(0.0 <= value <= _MOST for value in values):
            return None
        return max(values) if figure == "kv_used" else math.fsum(values)
    return None


def _values(text: bytes, name: bytes, of_first: bool) -> Iterator[float]:
    start = text.find(b"\n" + name)
    while start >= 0:
        start += 1 + len(name)
        end = text.find(b"\n", start)
        rest = text[start : end if end >= 0 else len(text)]
        if rest[:1] in (b"{", b" ") and (not of_first or _is_first(rest)):
            yield _number(rest)
        start = text.find(b"\n" + name, start - 1)


def _is_first(rest: bytes) -> bool:
    labels = dict(_LABEL.findall(rest))
    return any(labels.get(position) == b"0" for position in _POSITIONS)


def _number(rest: bytes) -> float:
    """The value after the labels; NaN where there is none."""
    after = rest[rest.rfind(b"}") + 1 :].split()
    try:
        return float(after[0]) if after else math.nan
    except ValueError:
        return math.nan


def _vllm(values: Mapping[str, int], _: int) -> dict[str, int]:
    """Without rounds it is the V0 engine (up to 0.9.2), whose counters of drafts run ahead of what is drafted."""
    if "rounds" not in values:
        return {}
    found = _pair(values, "drafted", "accepted", "trials", "accepted")
    return found | _pair(values, "rounds", "first_accepted", "first_trials", "first_accepted")


def _sglang(values: Mapping[str, int], draft_tokens: int) -> dict[str, int]:
    """All move when a request ends: each verification yields a token of its own, prefill one a request."""
    if not {"rounds", "generated", "finished"} <= values.keys():
        return {}
    trials = values["rounds"] * draft_tokens
    accepted = values["generated"] - values["finished"] - values["rounds"]
    return {"trials": trials, "accepted": min(max(0, accepted), trials)}


def _trtllm(values: Mapping[str, int], _: int) -> dict[str, int]:
    found = _pair(values, "drafted", "accepted", "trials", "accepted")
    return found | _pair(values, "first_drafted", "first_accepted", "first_trials", "first_accepted")


_COUNTS: Mapping[EngineType, Callable[[Mapping[str, int], int], dict[str, int]]] = {
    EngineType.VLLM: _vllm,
    EngineType.SGLANG: _sglang,
    EngineType.TENSORRTLLM: _trtllm,
}


def _pair(values: Mapping[str, int], all_of: str, some_of: str, trials: str, accepted: str) -> dict[str, int]:
    """Both or none: one without the other, or more accepted than there are, says nothing."""
    if all_of not in values or some_of not in values or values[some_of] > values[all_of]:
        return {}
    return {trials: values[all_of], accepted: values[some_of]}

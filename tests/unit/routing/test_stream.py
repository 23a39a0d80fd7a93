"""What the filter makes of a stream, whatever the pieces it arrives in."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.routing.lua import Filter

FILTER = Filter()
USAGE = {"prompt_tokens": 11, "total_tokens": 41, "completion_tokens": 30}
SPEC = {
    "num_spec_steps": 9,
    "num_accepted_draft_tokens": 20,
    "num_draft_tokens": 36,
    "acceptance_histogram": [1, {"x": "}"}],
}
METRICS = {"speculative_decoding": SPEC}


def event(document: dict[str, Any]) -> bytes:
    """One event as vLLM writes it."""
    return b"data: " + json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode() + b"\n\n"


def content(text: str, **more: Any) -> bytes:
    """One event with text."""
    return event({"id": "x", "choices": [{"index": 0, "delta": {"content": text}}], **more})


TEXTS = st.lists(
    st.text(max_size=10) | st.sampled_from(['"usage":{', "\n\n", "data: {", '"choices":[]', "\\"]), max_size=8
)
DONE = b"data: [DONE]\n\n"


def usage_event(**more: Any) -> bytes:
    """The event at the end, with the figures."""
    return event({"id": "x", "choices": [], "usage": USAGE, "metrics": METRICS, **more})


def cut(raw: bytes, places: list[int]) -> list[bytes]:
    """The bytes in pieces."""
    bounds = sorted({0, len(raw), *(place % (len(raw) + 1) for place in places)})
    return [raw[a:b] for a, b in itertools.pairwise(bounds)]


FIGURES = {"completion": 30, "prompt": 11, "accepted": 20, "drafted": 36, "rounds": 9}
CUTS = st.lists(st.integers(0, 5000), max_size=30)


@settings(deadline=None)
@given(TEXTS, CUTS, st.sampled_from([b"", b": keep-alive\n\n", b"event: message\ndata: {}\n\n"]))
def test_the_usage_event_that_we_asked_for_is_hidden_and_nothing_else(
    texts: list[str], places: list[int], extra: bytes
) -> None:
    head = b"".join(content(text, usage=None) for text in texts) + extra
    out, figures, rest = FILTER.stream(cut(head + usage_event() + DONE, places), hide=True)
    assert b"".join(out) == head + DONE
    assert figures == FIGURES
    assert rest == b""


@settings(deadline=None)
@given(TEXTS, CUTS)
def test_a_client_that_asked_gets_its_usage_event_without_our_member(texts: list[str], places: list[int]) -> None:
    head = b"".join(content(text) for text in texts)
    out, figures, _ = FILTER.stream(cut(head + usage_event() + DONE, places), hide=False)
    assert b"".join(out) == head + event({"id": "x", "choices": [], "usage": USAGE}) + DONE
    assert figures == FIGURES


@settings(deadline=None)
@given(TEXTS, CUTS)
def test_continuous_usage_passes_and_the_last_one_counts(texts: list[str], places: list[int]) -> None:
    head = b"".join(content(text, usage={**USAGE, "completion_tokens": 1}) for text in texts)
    out, figures, _ = FILTER.stream(cut(head + usage_event() + DONE, places), hide=False)
    assert b"".join(out) == head + event({"id": "x", "choices": [], "usage": USAGE}) + DONE
    assert figures == FIGURES


@settings(deadline=None)
@given(TEXTS, CUTS)
def test_whole_events_are_never_held_back(texts: list[str], places: list[int]) -> None:
    raw = b"".join(content(text) for text in texts) + DONE
    sent = b""
    seen = b""
    chunks = cut(raw, places)
    out, _, _ = FILTER.stream(chunks, hide=True)
    for chunk, passed in zip(chunks, out, strict=True):
        seen += chunk
        sent += passed
        assert sent == seen[: seen.rfind(b"\n\n") + 2 if b"\n\n" in seen else 0]


@pytest.mark.parametrize("newline", [b"\r\n", b"\n"])
def test_streams_with_carriage_returns_are_read_too(newline: bytes) -> None:
    raw = (content("a") + usage_event() + DONE).replace(b"\n", newline)
    out, figures, _ = FILTER.stream(cut(raw, [7, 60, 61, 62, 63, 64, 65, 66, 67, 68, 69, 70]), hide=True)
    assert b"".join(out) == (content("a") + DONE).replace(b"\n", newline)
    assert figures == FIGURES


@pytest.mark.parametrize(
    "spec",
    [
        None,
        {},
        {"num_spec_steps": None, "num_accepted_draft_tokens": 1, "num_draft_tokens": 2},
        {"num_spec_steps": "9", "num_accepted_draft_tokens": 1, "num_draft_tokens": 2},
    ],
)
def test_without_readable_acceptance_there_is_usage_alone(spec: dict[str, Any] | None) -> None:
    raw = event({"choices": [], "usage": USAGE, "metrics": {"speculative_decoding": spec}})
    _, figures, _ = FILTER.stream([raw], hide=True)
    assert (figures["completion"], figures["prompt"]) == (30, 11)
    assert None in {figures.get(name) for name in ("accepted", "drafted", "rounds")}


def test_an_event_that_never_ends_is_an_error_and_not_a_leak() -> None:
    with pytest.raises(Exception, match="an event of more than"):
        FILTER.stream([b"data: " + b"x" * 600_000, b"x" * 600_000], hide=True)


def test_a_whole_answer_is_read_whatever_its_text_says() -> None:
    text = '"usage":{"completion_tokens":99},"metrics":{'
    document = {"choices": [{"message": {"content": text}, "usage": {"completion_tokens": 7}}], "usage": USAGE}
    assert FILTER.figures(json.dumps(document).encode()) == {"completion": 30, "prompt": 11}
    assert FILTER.figures(json.dumps({**document, "metrics": METRICS}).encode()) == FIGURES
    assert FILTER.figures(b'{"choices":[]}') is None
    assert FILTER.figures(b"no json") is None


def test_what_the_end_of_an_answer_cuts_off_is_not_counted_as_accepted() -> None:
    # Recorded from vLLM 0.32: 24 tokens, 5 rounds, 19 accepted, of which the limit of 24 cut one off.
    spec = {"num_spec_steps": 5, "num_accepted_draft_tokens": 19, "num_draft_tokens": 19}
    usage = {"prompt_tokens": 13, "total_tokens": 37, "completion_tokens": 24}
    found = FILTER.figures(json.dumps({"usage": usage, "metrics": {"speculative_decoding": spec}}).encode())
    assert found == {"completion": 24, "prompt": 13, "drafted": 19, "rounds": 5, "accepted": 18}

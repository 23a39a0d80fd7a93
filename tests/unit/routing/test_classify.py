"""The filter's scan of a request against Python's own json, on what clients send and on what nobody should."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.routing.lua import Filter

FILTER = Filter()
CHAT = "/v1/chat/completions"

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=12), st.sampled_from([0, 1, 0.0, "", 10**30])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
KEYS = st.sampled_from(
    ["model", "stream", "stream_options", "tools", "response_format", "n", "prompt", "min_p", "logit_bias", "messages"]
)
OPTIONS = st.fixed_dictionaries(
    {}, optional={"include_usage": st.sampled_from([True, False, None]), "continuous_usage_stats": st.booleans()}
)
FITTING = st.one_of(
    st.tuples(st.just("stream"), st.booleans()),
    st.tuples(st.just("stream_options"), st.none() | OPTIONS),
    st.tuples(st.just("model"), st.sampled_from(["assistant", "assistant-code", 'q"\\x', "é😀"])),
    st.tuples(st.just("response_format"), st.fixed_dictionaries({"type": st.sampled_from(["text", "json_object"])})),
    st.tuples(st.just("tools"), st.sampled_from([[], [{"type": "function"}], None])),
    st.tuples(st.just("n"), st.sampled_from([None, 1, 2])),
    st.tuples(st.just("prompt"), st.sampled_from(["x", ["x"], ["x", "y"], [1, 2], [[1]], [[1], [2]], []])),
    st.tuples(KEYS, VALUES),
    st.tuples(st.text(max_size=8), VALUES),
)
SPACE = st.text(alphabet=" \t\r\n", max_size=2)


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """JSON objects as text, with keys twice, escapes in keys and white space anywhere."""
    parts = []
    for key, value in draw(st.lists(FITTING, max_size=8)):
        name = json.dumps(key, ensure_ascii=draw(st.booleans()))
        if draw(st.booleans()) and key.isascii() and key:
            name = '"' + "".join(f"\\u{ord(letter):04x}" for letter in key) + '"'
        text = json.dumps(value, ensure_ascii=draw(st.booleans()), indent=draw(st.sampled_from([None, 1])))
        parts.append(draw(SPACE) + name + draw(SPACE) + ":" + draw(SPACE) + text + draw(SPACE))
    text = draw(SPACE) + "{" + (",".join(parts) or draw(SPACE)) + "}" + draw(SPACE)
    return text.encode("utf-8", "surrogatepass")


def short(value: Any) -> str | None:
    """A text as the filter keeps it."""
    return value if isinstance(value, str) and len(value.encode("utf-8", "surrogatepass")) <= 256 else None


def truthy(value: Any) -> bool:
    """Whether a value asks for something, as Python and so vLLM has it; NaN does."""
    return bool(value) or (isinstance(value, float) and math.isnan(value))


def single(body: dict[str, Any]) -> bool:
    """Whether a request asks for one answer."""
    n = body.get("n")
    if n is not None and (isinstance(n, bool) or not isinstance(n, (int, float)) or n != 1):
        return False
    prompt = body.get("prompt")
    return not (isinstance(prompt, list) and len(prompt) > 1 and isinstance(prompt[0], (str, list)))


@settings(deadline=None)
@given(bodies())
def test_the_scan_sees_what_python_sees(raw: bytes) -> None:
    body = json.loads(raw)
    found = FILTER.classify(raw)
    response_format = body.get("response_format")
    kind = response_format.get("type") if isinstance(response_format, dict) else None
    assert found["json"] is True
    assert found.get("model") == short(body.get("model"))
    assert found.get("format") == short(kind)
    assert bool(found.get("tools")) == truthy(body.get("tools"))
    assert bool(found.get("ineligible")) == (truthy(body.get("min_p")) or truthy(body.get("logit_bias")))
    assert bool(found.get("measure")) == single(body)
    assert bool(found.get("stream")) == (single(body) and body.get("stream") is True)


def asks(options: Any) -> bool:
    """Whether the client itself gets usage with these stream_options."""
    return isinstance(options, dict) and options.get("include_usage") not in (None, False)


@settings(deadline=None)
@given(bodies())
def test_an_edited_stream_asks_for_usage_and_is_else_the_same_request(raw: bytes) -> None:
    body = json.loads(raw)
    found = FILTER.classify(raw)
    options = body.get("stream_options")
    ours = bool(found.get("stream")) and not asks(options) and (options is None or isinstance(options, dict))
    assert bool(found.get("hide")) == ours
    if not ours:
        assert "body" not in found
        return
    edited = json.loads(found["body"])
    assert edited.pop("stream_options") == {
        **(options or {}),
        "include_usage": True,
        **({"continuous_usage_stats": False} if "continuous_usage_stats" in (options or {}) else {}),
    }
    body.pop("stream_options", None)
    assert repr(edited) == repr(body)
    assert len(found["body"]) - len(raw) < 100


@settings(deadline=None)
@given(bodies(), st.sampled_from(["assistant-code", 'q"\\x', "é😀"]))
def test_an_alias_is_replaced_and_every_other_byte_of_a_whole_answer_request_stays(raw: bytes, alias: str) -> None:
    body = json.loads(raw)
    found = FILTER.classify(raw, "/v1/responses", aliases=(alias,), served='new"name')
    if body.get("model") != alias:
        assert "body" not in found
        return
    edited = json.loads(found["body"])
    assert repr(edited) == repr({**body, "model": 'new"name'})
    new = b'"new\\u0022name"'
    assert found["body"].count(new) == 1
    before, after = found["body"].split(new)
    assert raw.startswith(before)
    assert raw.endswith(after)


@settings(deadline=None)
@given(st.binary(max_size=200) | st.text(alphabet='{}[]",:\\ntrue01 \n', max_size=60).map(str.encode))
def test_no_bytes_at_all_break_the_scan(raw: bytes) -> None:
    found = FILTER.classify(raw)
    try:
        body = json.loads(raw.decode("utf-8"))
    except ValueError:
        return
    assert found["json"] is isinstance(body, dict)


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"[]",
        b"null",
        b'{"a":1} {"b":2}',
        b'{"a":1}x',
        b'{"a":"unfinished',
        b'{"a":1,}',
        b'{"a" 1}',
        b"{a:1}",
        b"\xff\xfe{\x00}\x00",
        b"\x1f\x8b\x08\x00",
    ],
)
def test_what_is_no_json_object_is_left_alone(raw: bytes) -> None:
    assert FILTER.classify(raw) == {"json": False}


def test_a_hostile_body_is_given_up_after_a_bounded_number_of_steps() -> None:
    assert FILTER.classify(b'{"stream":true,"a":' + b"[" * 5_000_000) == {"json": False}
    assert FILTER.classify(b'{"stream":true,"a":"' + b'\\"' * 400_000 + b'"}') == {"json": False}


def test_a_long_honest_body_is_not() -> None:
    messages = [{"role": "user", "content": 'say "hi" ' * 20} for _ in range(2000)]
    image = "data:image/png;base64," + "A" * 8_000_000
    raw = json.dumps({"messages": [*messages, image], "stream": True, "tools": [1]}).encode()
    found = FILTER.classify(raw)
    assert (found["stream"], found["tools"]) == (True, True)


def test_an_event_stream_key_inside_a_message_is_no_key_of_the_request() -> None:
    raw = b'{"messages":[{"stream":true,"tools":[1],"model":"m"}],"metadata":{"min_p":1}}'
    assert FILTER.classify(raw) == {"json": True, "tools": False, "measure": True}

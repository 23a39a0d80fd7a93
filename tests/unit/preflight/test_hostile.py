"""Files that are cut off, huge, hostile or no files at all: an answer within limits, never a crash."""

from __future__ import annotations

import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.api.v1alpha1 import DraftMode
from specfleet.preflight.bounded import MOST_CONFIG_BYTES, FileProblem, parse_object
from specfleet.preflight.checks import judge
from specfleet.preflight.model import Model
from specfleet.preflight.request import ModelRef
from specfleet.preflight.tensors import header_length, parse_header, parse_index
from specfleet.preflight.tokenizer import parse_tokenizer
from specfleet.preflight.verdict import MOST_MESSAGE_BYTES, Check, Level, Outcome
from tests.unit.preflight.models import CONFIG, Body, request, tokenizer, verdict, write


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (json.dumps(CONFIG).encode()[:-9], "it looks cut off"),
        (b"", "is no JSON"),
        (b"\xff\xfe\x00", "no UTF-8"),
        (b"[1]", "found a list"),
        (b"[" * 500_000, "nested deeper than 32"),
        (b'{"a":' * 40 + b"1" + b"}" * 40, "nested deeper than 32"),
        (b'{"hidden_size": NaN}', "no JSON number"),
        (b'{"hidden_size": ' + b"9" * 6000 + b"}", "number that cannot be"),
        (b'{"a": "' + b"x" * MOST_CONFIG_BYTES + b'"}', "larger than 1048576 bytes"),
    ],
    ids=["cut", "empty", "no-text", "list", "deep-list", "deep-object", "nan", "long-number", "huge"],
)
def test_a_config_that_is_none(tmp_path: Path, data: bytes, said: str) -> None:
    write(tmp_path / "team/target", None, tokenizer())
    write(tmp_path / "team/draft", data, tokenizer())
    found = verdict(tmp_path, request())
    assert found.outcome is Outcome.FAILED
    assert found.findings[0].check is Check.FORMAT
    assert "config.json of the draft team/draft" in found.message
    assert said in found.message


@pytest.mark.parametrize(
    ("member", "value", "said"),
    [
        ("vocab_size", "8", 'should be a whole number, found text: "8"'),
        ("vocab_size", True, "found true or false"),
        ("vocab_size", -8, "found a number: -8"),
        ("vocab_size", 2**80, "found a number"),
        ("architectures", "LlamaForCausalLM", "should be a list of texts"),
        ("torch_dtype", {"a": 1}, "should be text, found an object"),
        ("rope_scaling", [1], "should be an object, found a list"),
        ("max_position_embeddings", 1.5, "should be a whole number"),
    ],
)
def test_members_of_wrong_types(tmp_path: Path, member: str, value: Any, said: str) -> None:
    write(tmp_path / "team/target", None, tokenizer())
    write(tmp_path / "team/draft", CONFIG | {member: value}, tokenizer())
    found = verdict(tmp_path, request())
    assert found.outcome is Outcome.FAILED
    assert any(said in one.message for one in found.findings if one.check is Check.FORMAT)


@pytest.mark.parametrize(
    "document",
    [
        {"model": []},
        {"model": {"vocab": 3}},
        {"model": {"vocab": {"a": "0"}}},
        {"model": {"vocab": {"a": -1}}},
        {"model": {"vocab": {"a": 10**9}}},
        {"model": {"vocab": [["a"], 3]}},
        {"model": {"vocab": {}}, "added_tokens": [{"id": True, "content": "x"}]},
        {"model": {"vocab": {}}, "added_tokens": {"a": 1}},
    ],
)
def test_tokenizers_that_are_none(document: Body) -> None:
    with pytest.raises(FileProblem, match=r"tokenizer\.json of it"):
        parse_tokenizer(document, (), {}, "it")


@pytest.mark.parametrize("data", [b"", b"1234567", struct.pack("<Q", 2**60), struct.pack("<Q", 1)])
def test_headers_of_impossible_length(data: bytes) -> None:
    with pytest.raises(FileProblem):
        header_length(data, "it")


@pytest.mark.parametrize(
    "header",
    [
        b'{"a": 1}',
        b'{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0]}}',
        b'{"a": {"dtype": 4, "shape": [1], "data_offsets": [0, 4]}}',
        b'{"a": {"dtype": "F32"',
    ],
)
def test_headers_that_are_none(header: bytes) -> None:
    with pytest.raises(FileProblem):
        parse_header(header, len(header), "it")
    with pytest.raises(FileProblem, match="cut off"):
        parse_header(header, len(header) + 1, "it")


@pytest.mark.parametrize("file", ["../secret", "/etc/passwd", ".hidden", "a\\b", 3, None])
def test_an_index_leads_to_no_other_place(file: Any) -> None:
    with pytest.raises(FileProblem, match="no file beside it"):
        parse_index({"weight_map": {"a": file}}, "it")


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    write(tmp_path / "team/target", None, tokenizer())
    os.mkfifo(write(tmp_path / "team/draft", None, tokenizer()) / "model.safetensors")
    (tmp_path / "team/draft/config.json").unlink()
    os.mkfifo(tmp_path / "team/draft/config.json")
    assert verdict(tmp_path, request(DraftMode.EAGLE)).outcome is Outcome.UNKNOWN


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
_NAMES = st.sampled_from(
    [*CONFIG, "rope_scaling", "text_config", "eagle_config", "num_nextn_predict_layers", "medusa_num_heads", "dtype",
     "speculators_config", "dflash_config", "target_layer_ids"]
)  # fmt: skip


@given(st.dictionaries(_NAMES, _JSON), st.dictionaries(_NAMES, _JSON), st.sampled_from(list(DraftMode)))
def test_no_config_makes_the_checks_fail_to_answer(ours: Body, theirs: Body, mode: DraftMode) -> None:
    target = Model("target", ModelRef("team/target"), CONFIG | ours)
    draft = Model("draft", ModelRef("team/draft"), CONFIG | theirs)
    for release in ("0.11.0", "0.32.0"):
        found = judge(request(mode, release=release), target, draft)
        assert found.outcome in Outcome
        assert len(found.encode()) <= MOST_MESSAGE_BYTES
        assert all(one.message.isascii() for one in found.findings)
        judge(request(mode, release=release, draft=None), target, None)


@given(st.binary(max_size=400))
def test_no_bytes_make_the_parser_crash(data: bytes) -> None:
    said = ""
    try:
        parse_object(data, "it")
    except FileProblem as problem:
        said = str(problem)
    assert said == "" or said.startswith("it ")


def test_levels_are_ordered() -> None:
    assert list(Level) == [Level.ERROR, Level.UNKNOWN, Level.WARNING]

"""The verdict as a termination message, and the request as the Job gets it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfleet.api.v1alpha1 import DraftMode, SpecDeployment
from specfleet.preflight.job import run_job
from specfleet.preflight.request import REQUEST_VARIABLE, ModelRef, PreflightRequest, decode_request, preflight_request
from specfleet.preflight.verdict import (
    MOST_MESSAGE_BYTES,
    Check,
    Level,
    Outcome,
    PreflightFinding,
    Verdict,
    decode,
)
from tests.unit.preflight.models import CONFIG, request, tokenizer, write


def _error(message: str) -> PreflightFinding:
    return PreflightFinding(Check.TOKENIZER, Level.ERROR, message)


def test_there_and_back() -> None:
    found = Verdict.of([PreflightFinding(Check.ACCESS, Level.UNKNOWN, "not there"), _error("differs")])
    assert decode(found.encode()) == found
    assert found.findings[0].level is Level.ERROR


@given(st.lists(st.text(max_size=2000), max_size=40))
def test_a_message_always_fits_and_keeps_the_outcome(messages: list[str]) -> None:
    found = Verdict.of([_error(message) for message in messages])
    text = found.encode()
    assert len(text.encode()) <= MOST_MESSAGE_BYTES
    decoded = decode(text)
    assert decoded is not None
    assert decoded.outcome is found.outcome


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "Traceback (most recent call last)",
        "{}",
        "[" * 100_000,
        "[" * 4000,
        json.dumps({"specfleetPreflight": 2, "findings": []}),
        json.dumps({"specfleetPreflight": 1}),
        json.dumps({"specfleetPreflight": 1, "findings": [["Tokenizer", "error"]]}),
        json.dumps({"specfleetPreflight": 1, "findings": [["Tokenizer", "fatal", "x"]]}),
        json.dumps({"specfleetPreflight": 1, "findings": [["Tokenizer", "error", 3]]}),
        json.dumps({"specfleetPreflight": 1, "findings": [["Tokenizer", "error", "x"]] * 17}),
        json.dumps({"specfleetPreflight": 1, "findings": []}) + " " * 4096,
    ],
)
def test_what_is_no_verdict(text: str | None) -> None:
    assert decode(text) is None


def test_text_of_a_message_is_plain() -> None:
    text = json.dumps({"specfleetPreflight": 1, "findings": [["Tokenizer", "error", "a\n\x1b[31mb\u202e"]]})
    found = decode(text)
    assert found is not None
    assert found.message == "a  [31mb "


@pytest.mark.parametrize(
    "asked", [request(), request(DraftMode.MTP, draft=None, served_tokens=9, target=ModelRef("/a", None))]
)
def test_requests_there_and_back(asked: PreflightRequest) -> None:
    assert decode_request(asked.encode()) == asked


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"engine": "vLLM"}', "null"])
def test_requests_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match="expected a preflight request"):
        decode_request(text)


@pytest.mark.parametrize(
    "changes",
    [
        {"release": "0.31.0"},
        {"tokens": 5},
        {"mode": DraftMode.EAGLE},
        {"draft": ModelRef("team/draft", "main")},
        {"target": ModelRef("team/other")},
        {"served_tokens": 1024},
    ],
)
def test_the_key_follows_everything_that_a_verdict_depends_on(changes: dict[str, Any]) -> None:
    assert request(**changes).key != request().key
    assert request().key == request().key


def _deployment(draft: dict[str, Any], **engine: Any) -> SpecDeployment:
    return SpecDeployment.parse(
        {
            "apiVersion": "specfleet.dev/v1alpha1",
            "kind": "SpecDeployment",
            "metadata": {"name": "assistant", "namespace": "serving"},
            "spec": {
                "engine": {"type": "vLLM", "version": "0.32.0", **engine},
                "target": {"model": "team/target", "revision": "v1"},
                "drafts": [{"name": "draft", **draft}],
                "pools": {"replicas": 2},
                "routing": {"routes": [{"name": "chat"}]},
                "policy": {"minAcceptancePercent": 30},
            },
        }
    )


@pytest.mark.parametrize(
    ("engine", "served"),
    [
        ({"args": {"max-model-len": "8192"}}, 8192),
        ({"args": {"max-model-len": "8k"}}, 8000),
        ({"args": {"max-model-len": "8K"}}, 8192),
        ({"args": {"max-model-len": "auto"}}, None),
        ({"args": {"max-model-len": "8192"}, "extraArgs": ["--max-model-len=4096"]}, 4096),
        ({"extraArgs": ["--max_model_len", "4096"]}, 4096),
        ({"extraArgs": ["--max-model-len"]}, None),
        ({}, None),
    ],
)
def test_the_length_that_is_served(engine: dict[str, Any], served: int | None) -> None:
    found = preflight_request(_deployment({"mode": "DraftModel", "model": "team/draft"}, **engine))
    assert found is not None
    assert found.served_tokens == served


def test_what_is_asked_of_each_mode() -> None:
    assert preflight_request(_deployment({"mode": "NGram"})) is None
    assert preflight_request(_deployment({"mode": "Suffix"})) is None
    mtp = preflight_request(_deployment({"mode": "MTP"}))
    assert mtp is not None
    assert (mtp.draft, mtp.target) == (None, ModelRef("team/target", "v1"))
    head = preflight_request(_deployment({"mode": "EAGLE3", "model": "team/head", "revision": "abc"}))
    assert head is not None
    assert head.draft == ModelRef("team/head", "abc")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"persistentVolumeClaim": {"claimName": "a"}}, {"persistentVolumeClaim": {"claimName": "b"}}),
        (
            {"persistentVolumeClaim": {"claimName": "a", "path": "x"}},
            {"persistentVolumeClaim": {"claimName": "a", "path": "y"}},
        ),
        (
            {"image": {"reference": "registry.example.com/draft:1"}},
            {"image": {"reference": "registry.example.com/draft:2"}},
        ),
        ({"hostPath": {"path": "/models/x"}}, {"hostPath": {"path": "/models/y"}}),
    ],
)
def test_another_volume_at_the_same_path_is_asked_about_anew(one: dict[str, Any], other: dict[str, Any]) -> None:
    keys = set()
    for source in (one, other, one):
        asked = preflight_request(_deployment({"mode": "DraftModel", "model": "/models/draft", "source": source}))
        assert asked is not None
        assert decode_request(asked.encode()) == asked
        keys.add(asked.key)
    assert len(keys) == 2


def test_how_an_image_is_pulled_and_which_token_is_used_change_no_verdict() -> None:
    image = {"reference": "registry.example.com/draft:1"}
    pairs = [
        ({"image": image}, {"image": image | {"pullPolicy": "Always"}}),
        ({"huggingFace": {}}, {"huggingFace": {"tokenSecretRef": {"name": "hub", "key": "token"}}}),
    ]
    for pair, model in zip(pairs, ("/models/draft", "team/draft"), strict=True):
        asked = [preflight_request(_deployment({"mode": "EAGLE", "model": model, "source": one})) for one in pair]
        assert asked[0] == asked[1]


def test_the_jobs_container_leaves_the_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = write(tmp_path / "target", None, tokenizer())
    draft = write(tmp_path / "draft", CONFIG | {"vocab_size": 9}, tokenizer())
    asked = request(target=ModelRef(str(target)), draft=ModelRef(str(draft)))
    assert run_job({REQUEST_VARIABLE: asked.encode()}, tmp_path / "log") == 0
    found = decode((tmp_path / "log").read_text())
    assert found is not None
    assert found.outcome is Outcome.FAILED
    assert found.message in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "{}", request(draft=ModelRef("/not/there")).encode()])
def test_the_jobs_container_asks_to_be_tried_again(tmp_path: Path, text: str) -> None:
    environment = {REQUEST_VARIABLE: text, "HF_ENDPOINT": "http://127.0.0.1:9"}
    assert run_job(environment, tmp_path / "log") == 1
    found = decode((tmp_path / "log").read_text())
    assert found is not None
    assert found.outcome is Outcome.UNKNOWN

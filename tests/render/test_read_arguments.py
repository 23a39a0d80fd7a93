"""Argument lists of other people's engines, read by us and by the released engines' own parsers."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest
from packaging.version import Version

from specfleet.api.v1alpha1 import EngineType
from specfleet.engines.arguments import ReadArguments, container_variables, read_container
from specfleet.engines.facts import engine_facts
from specfleet.engines.flags import Flag, Given
from specfleet.engines.json_text import read_object
from specfleet.engines.launch import launch
from tests.render.argument_lists import ALL, SGLANG_IMAGE, VLLM_IMAGE, ArgumentList
from tests.render.engine_parsers import SGLANG, Command, ask

pytestmark = pytest.mark.engine

READABLE = [one for one in ALL if not one.means.get("shell") and one.means.get("engine", one) is not None]
SUFFIXES = {"k": 1000, "m": 10**6, "K": 1024, "M": 1024**2}


def read(one: ArgumentList) -> ReadArguments:
    return read_container(one.container)


def command(one: ArgumentList) -> Command:
    """What the engine's program gets after Kubernetes and the shell."""
    container = one.container
    words = [*container.get("command", ()), *container.get("args", ())]
    started = launch(words, container_variables(container))
    given = list(started.words)
    if read(one).engine is EngineType.SGLANG and given and not given[0].startswith("-"):
        given = ["--model-path", *given]  # as `sglang serve` does before it calls the parser
    return Command(tuple(given), started.module)


def of_engine(engine: EngineType) -> list[ArgumentList]:
    return [one for one in READABLE if read(one).engine is engine]


@functools.cache
def answer(engine: EngineType) -> dict[str, Any]:
    """The parser's answers about all lists of an engine; importing it takes many seconds, so it is asked once."""
    return ask(engine, [command(one) for one in of_engine(engine)])


def result(one: ArgumentList) -> dict[str, Any]:
    engine = read(one).engine
    assert engine is not None
    found: dict[str, Any] = answer(engine)["commands"][of_engine(engine).index(one)]
    return found


@pytest.mark.parametrize("one", [one for one in READABLE if one.refused is None], ids=lambda one: one.name)
def test_the_parser_reads_every_flag_as_we_do(one: ArgumentList) -> None:
    found, theirs = read(one), result(one)
    assert "error" not in theirs, theirs
    assert found.engine is not None
    values, asked = theirs["values"], answer(found.engine)

    ours: dict[str, Given] = {}
    dotted = set()
    for given in found.given:
        assert isinstance(given.flag, Flag)
        destination = asked["destinations"][given.flag.spellings[0]]
        if given.member:
            dotted.add(destination)
        else:
            ours[destination] = given
    # `vllm serve` moves --model in front and SGLang's command line does the opposite; the test below compares it.
    compared = {name: given for name, given in ours.items() if name != "model"}
    for destination, given in compared.items():
        assert means_the_same(given, values[destination]), (given, values[destination])
    changed = {name for name, default in asked["defaults"].items() if values.get(name, default) != default}
    assert changed - set(ours) - dotted - {"model", "model_path"} == set()


@pytest.mark.parametrize("one", [one for one in READABLE if one.refused is None], ids=lambda one: one.name)
def test_the_parser_sees_the_model_the_names_the_port_and_the_limit_that_we_see(one: ArgumentList) -> None:
    found, values = read(one), result(one)["values"]

    if found.engine is EngineType.SGLANG:
        assert found.model == values["model_path"]
        assert found.served_names == (() if values["served_model_name"] is None else (values["served_model_name"],))
        assert found.port == values["port"]
        assert values["max_running_requests"] in (None, found.max_sequences)
        return
    assert found.model == (values["model_tag"] or values["model"])
    assert list(found.served_names) == (values["served_model_name"] or [])
    assert found.port == values["port"]
    assert found.max_sequences == values["max_num_seqs"]
    assert found.figures_per_request == (values["per_request_spec_decode_metrics"] != "none")


@pytest.mark.parametrize("one", [one for one in READABLE if one.refused is None], ids=lambda one: one.name)
def test_the_parser_sees_the_speculation_that_we_see(one: ArgumentList) -> None:
    found, values = read(one), result(one)["values"]

    if found.engine is EngineType.SGLANG:
        theirs = {
            name.removeprefix("speculative_"): value
            for name, value in values.items()
            if name.startswith("speculative_") and value != answer(EngineType.SGLANG)["defaults"].get(name)
        }
        assert theirs == (found.speculative or {})
        return
    config = values["speculative_config"] or {
        key: values[name]
        for name, key in (("spec_method", "method"), ("spec_model", "model"), ("spec_tokens", "num_speculative_tokens"))
        if values[name] is not None
    }
    assert {key.replace("-", "_"): value for key, value in config.items()} == dict(found.speculative or {})


@pytest.mark.parametrize("one", [one for one in READABLE if one.refused is not None], ids=lambda one: one.name)
def test_what_the_parser_refuses_was_said(one: ArgumentList) -> None:
    assert one.refused is not None
    theirs = result(one)
    said = (
        theirs["error"]
        if "error" in theirs
        else f"speculative-config of {type(theirs['values']['speculative_config'])}"
    )
    assert one.refused in said
    # As if the image were of the parser's release; one of the time of the spellings takes them.
    newer = VLLM_IMAGE if read(one).engine is EngineType.VLLM else SGLANG_IMAGE
    assert read_container({**one.container, "image": newer}).problems


def test_the_facts_have_the_flags_of_the_sglang_release() -> None:
    asked = answer(EngineType.SGLANG)
    theirs = {word: arity for spellings, arity in asked["flags"] for word in spellings if word not in ("-h", "--help")}
    ours = engine_facts(EngineType.SGLANG).spellings(Version(SGLANG))

    assert asked["version"] == SGLANG
    assert set(theirs) == set(ours)
    assert {word for word, arity in theirs.items() if arity == "none"} == {
        word for word, detail in ours.items() if detail == "switch"
    }


def means_the_same(given: Given, value: Any) -> bool:
    """Whether the parser's value is what the text of the last occurrence says."""
    text = given.value
    if isinstance(value, bool):
        return text is None and value is not given.switched_off
    assert text is not None
    if isinstance(value, int):
        suffix = SUFFIXES.get(text[-1])
        return value == (int(text) if suffix is None else int(text[:-1]) * suffix)
    if isinstance(value, float):
        return float(text) == value
    if isinstance(value, dict):
        return read_object(text) == (value, None)
    if isinstance(value, list) and text.startswith("["):
        return bool(value == json.loads(text))
    if isinstance(value, list):
        # What is given several times, or made an object of: the order and the last words are to be seen.
        words = list(given.values or (text,))
        return all(word.split("=")[0] in str(made) for word, made in zip(words, value[-len(words) :], strict=True))
    # The parser makes objects of some JSON; their text is no longer that of the argument.
    return value == text or (isinstance(value, str) and read_object(text)[0] is not None)

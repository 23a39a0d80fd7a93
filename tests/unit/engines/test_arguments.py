"""Argument lists of engines that somebody else started mean what their authors meant."""

from __future__ import annotations

import pytest

from specfleet.api.v1alpha1 import EngineType
from specfleet.engines.arguments import read_container
from tests.render.argument_lists import ALL, SGLANG, VLLM, ArgumentList


def test_there_are_enough_lists() -> None:
    assert len(ALL) >= 50
    assert len({one.name for one in ALL}) == len(ALL)


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.name)
def test_a_list_means_what_its_author_meant(one: ArgumentList) -> None:
    found = read_container(one.container)

    assert {name: getattr(found, name) for name in one.means} == dict(one.means)
    assert {name: value for name, value in found.flags if name in one.flags} == dict(one.flags)


@pytest.mark.parametrize("one", ALL, ids=lambda one: one.name)
def test_what_cannot_be_seen_or_would_be_refused_is_said_and_nothing_else(one: ArgumentList) -> None:
    problems = read_container(one.container).problems

    assert [part for part in one.says if not any(part in problem for problem in problems)] == []
    assert len(problems) == len(one.says), problems


@pytest.mark.parametrize("one", [*VLLM, *SGLANG], ids=lambda one: one.name)
def test_the_engine_is_told_from_the_words_alone_where_they_name_it(one: ArgumentList) -> None:
    if not one.command or "engine" in one.means or one.means.get("shell"):
        assert read_container(one.container).engine in (None, EngineType.VLLM, EngineType.SGLANG)
        return
    plain = {name: value for name, value in one.container.items() if name != "image"}

    assert read_container(plain).engine is (EngineType.VLLM if one in VLLM else EngineType.SGLANG)

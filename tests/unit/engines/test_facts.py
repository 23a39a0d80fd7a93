"""The tables and all that is rendered, against what the released engines' own sources say. No network."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from specfleet.api.v1alpha1 import EngineType
from specfleet.engines import sglang_tables, vllm_retired, vllm_tables
from specfleet.engines.facts import DATA_FILES, EngineFactTable, engine_facts
from specfleet.engines.flags import Arity, Flag, FlagTable, Stray, Unresolved, arity_problem, parse_table
from specfleet.engines.release import Minor
from specfleet.render.objects import render_all
from tests.render.cases import SETTINGS, case_folders, case_name, read_deployment
from tools.engine_facts.tables import by_release, table_text

VLLM = engine_facts(EngineType.VLLM)
SGLANG = engine_facts(EngineType.SGLANG)
VALUE_OF = {"none": "switch", "one": "value", "many": "value", "optional": "optional"}
TABLED = [Minor(0, minor) for minor in range(vllm_tables.OLDEST.minor, vllm_tables.NEWEST.minor + 1)]
ARITY = {"switch": Arity.NONE, "value": Arity.MANY, "optional": Arity.OPTIONAL}
HELP = {"-h", "--help"}


def newest(release: Minor) -> Version:
    """The newest patch of a minor that was read."""
    found = VLLM.newest_of(release)
    assert found is not None, f"run make engine-facts with a release of {release}"
    return found


@pytest.mark.parametrize("kind", DATA_FILES)
def test_the_data_file_is_what_its_writer_writes(kind: EngineType) -> None:
    text = files("specfleet.engines").joinpath(DATA_FILES[kind]).read_text(encoding="utf-8")
    table = engine_facts(kind)

    assert table_text(json.loads(text)["package"], table.sources, by_release(table)) == text


@pytest.mark.parametrize("table", [VLLM, SGLANG], ids=["vLLM", "SGLang"])
def test_every_release_names_its_wheel_or_why_there_is_none(table: EngineFactTable) -> None:
    for release, source in table.sources.items():
        assert source.missing or (
            f"-{release}-" in source.file.replace("_", "-") and re.fullmatch("[0-9a-f]{64}", source.sha256)
        )


def spellings(flags: tuple[Flag, ...], release: Minor) -> dict[str, str]:
    """Spellings in a table of flags, and what each takes."""
    known = [flag for flag in flags if flag.since <= release and (flag.until is None or release <= flag.until)]
    return {word: VALUE_OF[flag.arity] for flag in known for word in flag.spellings if word not in HELP}


@pytest.mark.parametrize("release", TABLED, ids=str)
def test_the_table_of_vllm_flags_is_what_the_release_has(release: Minor) -> None:
    assert spellings(vllm_tables.all_flags(), release) == VLLM.spellings(newest(release))


def test_the_table_of_sglang_flags_is_what_the_newest_release_has() -> None:
    text = files("specfleet.engines").joinpath("sglang_flags.tsv").read_text(encoding="utf-8")

    assert spellings(parse_table(text), sglang_tables.RELEASE) == SGLANG.spellings(SGLANG.releases[-1])


@pytest.mark.parametrize("flag", sglang_tables.RETIRED, ids=lambda flag: flag.name)
def test_a_retired_sglang_flag_was_known_once_and_is_no_more(flag: Flag) -> None:
    assert any(flag.spellings[0] in SGLANG.spellings(release) for release in SGLANG.releases)
    assert flag.spellings[0] not in SGLANG.spellings(SGLANG.releases[-1])


@pytest.mark.parametrize("name", vllm_retired.GONE_KEYS)
def test_a_gone_key_was_known_once_and_its_sentence_says_until_when(name: str) -> None:
    last = max(fact.until for fact in VLLM.sections["keys"] if fact.name == name)
    said = re.findall(r"since (\d+\.\d+)", vllm_retired.GONE_KEYS[name])[-1]

    following = min(release for release in VLLM.releases if release > last)
    assert str(Minor.of(following)) == said


def pools() -> Iterator[tuple[str, Version, list[str]]]:
    """Name, release and engine arguments of each pool of each fixture whose pools are rendered."""
    for folder in case_folders():
        deployment = read_deployment(folder)
        if deployment.spec.external is not None:
            continue
        for item in render_all(deployment, SETTINGS):
            if item["kind"] == "Deployment":
                for container in item["spec"]["template"]["spec"]["containers"]:
                    if container["name"] == "engine":
                        release = newest(Minor.parse(Path(folder).parent.name))
                        yield f"{case_name(folder)}/{item['metadata']['name']}", release, container["args"]


POOLS = list(pools())
IDS = [name for name, _, _ in POOLS]


def flag_problems(words: list[str], release: Version) -> list[str]:
    """What the release's parser would not take of a command line."""
    flags = [
        Flag(tuple(fact.name.split()), ARITY[fact.detail], vllm_tables.OLDEST, None)
        for fact in VLLM.of("flags", release)
    ]
    problems: list[str | None] = []
    for given in FlagTable(flags, {"-O": "--optimization-level"}).read(words[1:], "args"):
        if isinstance(given, Stray):
            problems.append(given.message)
        elif given.flag is Unresolved.UNKNOWN:
            problems.append(f"{release} does not know {given.spelling}")
        else:
            problems.append(arity_problem(given))
    return [problem for problem in problems if problem is not None]


def config_problems(config: dict[str, Any], release: Version) -> list[str]:
    """What the release would not take of a speculative config."""
    choices: dict[str, set[str]] = {}
    for fact in VLLM.of("choices", release):
        choices.setdefault(fact.name, set()).add(fact.detail)
    problems = [f"{release} has no key {name}" for name in config if name not in VLLM.names("keys", release)]
    if config.get("method") not in VLLM.names("methods", release):
        problems.append(f"{release} has no method {config.get('method')}")
    problems += [
        f"{release} does not take {name}={value}"
        for name, value in config.items()
        if isinstance(value, str) and name in choices and value not in choices[name]
    ]
    return problems


@pytest.mark.parametrize(("name", "release", "words"), POOLS, ids=IDS)
def test_the_release_knows_every_rendered_argument(name: str, release: Version, words: list[str]) -> None:
    assert flag_problems(words, release) == []


@pytest.mark.parametrize(("name", "release", "words"), POOLS, ids=IDS)
def test_the_release_knows_every_key_and_method_of_the_speculative_config(
    name: str, release: Version, words: list[str]
) -> None:
    texts = [word.partition("=")[2] for word in words if word.startswith("--speculative-config=")]

    assert [problem for text in texts for problem in config_problems(json.loads(text), release)] == []


def test_what_a_release_does_not_know_is_found() -> None:
    old, new = Version("0.28.0"), Version("0.33.0")
    words = ["owner/model", "--per-request-spec-decode-metrics=summary", "--enforce-eager=1", "--port"]

    first, second, third = flag_problems(words, old)
    assert first == "0.28.0 does not know --per-request-spec-decode-metrics"
    assert second.startswith("--enforce-eager is a switch and takes no value")
    assert third == "--port needs a value, found none"
    assert config_problems({"method": "medusa"}, new) == ["0.33.0 has no method medusa"]
    assert config_problems({"method": "ngram", "rejection_sample_method": "fly", "fly_window_size": 2}, old) == [
        "0.28.0 has no key fly_window_size",
        "0.28.0 does not take rejection_sample_method=fly",
    ]


@pytest.mark.parametrize("key", vllm_tables.NGRAM_KEYS.values(), ids=lambda key: key.name)
def test_a_draft_argument_begins_with_the_release_that_brought_it(key: vllm_tables.SpeculativeKey) -> None:
    having = [release for release in TABLED if key.name in VLLM.names("keys", newest(release))]

    assert having == [release for release in TABLED if release >= key.since]
    for release in TABLED if key.choices else ():
        theirs = {fact.detail for fact in VLLM.of("choices", newest(release)) if fact.name == key.name}
        assert set(key.choices_of(release)) == theirs


@pytest.mark.parametrize("release", TABLED, ids=str)
def test_the_tables_sort_every_key_of_the_release(release: Minor) -> None:
    theirs = VLLM.names("keys", newest(release))
    sorted_keys = {*vllm_tables.NGRAM_KEYS, *vllm_tables.OTHER_MODES_KEYS, *vllm_tables.OWNED_KEYS}

    assert theirs - sorted_keys == set()
    assert set(vllm_tables.OWNED_KEYS) <= theirs

"""The tables and all that is rendered, against what the released engines' own sources say. No network."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
from packaging.version import Version

from specfleet.api.findings import FindingReason, errors
from specfleet.api.v1alpha1 import DraftMode, EngineType, SpecDeployment
from specfleet.engines import vllm_retired, vllm_tables
from specfleet.engines.capabilities import Checkpoint, capabilities
from specfleet.engines.facts import DATA_FILES, EngineFactTable, engine_facts
from specfleet.engines.flags import Arity, Flag, FlagTable, Stray, Unresolved, arity_problem
from specfleet.engines.registry import engine_module
from specfleet.engines.release import Minor
from specfleet.engines.vllm_drafts import KeyKind, key_choices, key_kind
from specfleet.render.objects import render_all
from tests.render.cases import SETTINGS, case_folders, case_name, read_deployment
from tools.engine_facts.tables import by_release, table_text

VLLM = engine_facts(EngineType.VLLM)
SGLANG = engine_facts(EngineType.SGLANG)
VLLM_ENGINE = engine_module(EngineType.VLLM)
VALUE_OF = {"none": "switch", "one": "value", "many": "value", "optional": "optional"}
TABLED = [Minor(0, minor) for minor in range(vllm_tables.PARSERS_SINCE.minor, vllm_tables.NEWEST.minor + 1)]
RENDERED = [release for release in VLLM.releases if release >= vllm_tables.OLDEST]
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


@pytest.mark.parametrize("name", vllm_retired.HINTS)
def test_a_flag_with_a_hint_was_known_once_and_then_was_not(name: str) -> None:
    known = [f"--{name}" in VLLM.spellings(release) for release in VLLM.releases]

    assert (True, False) in itertools.pairwise(known)


@pytest.mark.parametrize("flag", vllm_retired.UNREAD, ids=lambda flag: flag.name)
def test_a_flag_that_stands_in_its_own_list_is_of_no_release_that_was_read(flag: Flag) -> None:
    assert not any(flag.spellings[0] in VLLM.spellings(release) for release in VLLM.releases)


@pytest.mark.parametrize("name", vllm_retired.GONE_KEYS)
def test_a_gone_key_was_known_once_and_its_sentence_says_until_when(name: str) -> None:
    last = max(fact.until for fact in VLLM.sections["keys"] if fact.name == name)
    said = re.findall(r"since (\d+\.\d+)", vllm_retired.GONE_KEYS[name])[-1]

    following = min(release for release in VLLM.releases if release > last)
    assert str(Minor.of(following)) == said


def pools() -> Iterator[tuple[str, Version, list[str]]]:
    """Name, release and engine arguments of each pool of each fixture whose pools are rendered with vLLM."""
    for folder in case_folders():
        deployment = read_deployment(folder)
        if deployment.spec.external is not None or deployment.spec.engine.type is not EngineType.VLLM:
            continue
        for item in render_all(deployment, SETTINGS):
            if item["kind"] == "Deployment":
                for container in item["spec"]["template"]["spec"]["containers"]:
                    if container["name"] == "engine":
                        release = VLLM.nearest(Version(Path(folder).parent.name))
                        yield f"{case_name(folder)}/{item['metadata']['name']}", release, container["args"]


POOLS = list(pools())
IDS = [name for name, _, _ in POOLS]


@lru_cache
def known_flags(release: Version) -> FlagTable:
    """The flags of a release, as its sources have them."""
    flags = [
        Flag(tuple(fact.name.split()), ARITY[fact.detail], vllm_tables.PARSERS_SINCE, None)
        for fact in VLLM.of("flags", release)
    ]
    level = "--optimization-level"
    return FlagTable(flags, {"-O": level} if level in VLLM.spellings(release) else {})


def flag_problems(words: list[str], release: Version) -> list[str]:
    """What the release's parser would not take of a command line."""
    problems: list[str | None] = []
    for given in known_flags(release).read(words[1:], "args"):
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
    # 0.8.5 and 0.9.0 do eagle3, and no validator of theirs reads the list of names that lacks it.
    unlisted = {"eagle3"} if release < Version("0.9.1") else set()
    if config.get("method") not in VLLM.names("methods", release) | unlisted:
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


MODES = capabilities(EngineType.VLLM)
GRID = [(release, mode) for release in RENDERED for mode in MODES.available(release)]
GRID_IDS = [f"{release}-{mode}" for release, mode in GRID]


def test_every_name_in_the_table_of_modes_is_one_of_a_release() -> None:
    """What no release has is a slip of the pen."""
    methods = {fact.name for fact in VLLM.sections["methods"]}
    keys = {fact.name for fact in VLLM.sections["keys"]}
    choices = {(fact.name, fact.detail) for fact in VLLM.sections["choices"]}
    flags = {word for release in RENDERED for word in VLLM.spellings(release)}

    for mode in MODES.modes:
        assert set(mode.methods) <= methods
        assert mode.args <= keys
        assert {f"--{flag.name}" for flag in mode.flags} <= flags
    assert MODES.common_args | MODES.lossy | MODES.not_offered.keys() | set(vllm_tables.OWNED_KEYS) <= keys
    assert {(name, value) for name, values in MODES.lossy_choices.items() for value in values} <= choices


@pytest.mark.parametrize("release", RENDERED, ids=str)
def test_every_key_of_a_release_is_offered_by_a_mode_or_set_by_specfleet_or_declined(release: Version) -> None:
    offered = {name for mode in MODES.modes for name in MODES.args_of(mode.mode, release)}

    assert VLLM.names("keys", release) - offered - MODES.not_offered.keys() == set(vllm_tables.OWNED_KEYS)


@pytest.mark.parametrize("release", RENDERED, ids=str)
def test_every_method_of_a_release_belongs_to_a_mode_or_is_known_to_have_none(release: Version) -> None:
    ours = {name for mode in MODES.modes for name in mode.methods}
    aliases = {name for name in VLLM.names("methods", release) if name.endswith("_mtp")}
    without = {"ngram_gpu", "mlp_speculator", "custom_class", "extract_hidden_states", "dspark"}

    assert VLLM.names("methods", release) <= ours | aliases | without


def grid_deployment(release: Version, mode: DraftMode, args: dict[str, str]) -> SpecDeployment:
    """A SpecDeployment of one release and mode."""
    row = MODES.of(mode)
    draft: dict[str, Any] = {"name": "drafts", "mode": mode.value, "args": args, "allowLossy": True}
    if row.checkpoint is Checkpoint.DRAFT:
        draft |= {"model": "owner/draft", "revision": "v1"}
    return SpecDeployment.parse(
        {
            "apiVersion": "specfleet.dev/v1alpha1",
            "kind": "SpecDeployment",
            "metadata": {"name": "assistant"},
            "spec": {
                "engine": {"type": "vLLM", "version": str(release)},
                "target": {"model": "owner/model", "revision": "v2"},
                "drafts": [draft],
                "pools": {"replicas": 2},
                "policy": {"minAcceptancePercent": 30},
            },
        }
    )


def one_value(name: str, release: Version) -> str:
    """A value that the release takes for a key."""
    choices = key_choices(name, release)
    examples = {
        KeyKind.TEXT: choices[0] if choices else "x",
        KeyKind.SWITCH: "true",
        KeyKind.NUMBER: "1.5",
        KeyKind.NUMBERS: "[0.5, 0.4, 0.3, 0.2]",
        KeyKind.TRIPLES: "[[1, 8, 4], [9, 99, 0]]",
        KeyKind.INTEGER: "1",
        KeyKind.OBJECT: "{}",
    }
    return examples[key_kind(name, release)]


def words_of(deployment: SpecDeployment, *, speculative: bool) -> list[str]:
    """Arguments of one pool's engine."""
    return list(VLLM_ENGINE.facts(deployment, speculative=speculative).args)


@pytest.mark.parametrize(("release", "mode"), GRID, ids=GRID_IDS)
def test_each_mode_of_each_release_is_rendered_in_words_that_the_release_has(release: Version, mode: DraftMode) -> None:
    together = {"use_heterogeneous_vocab", *(name for name in MODES.lossy if name.startswith("synthetic_"))}
    args = {name: one_value(name, release) for name in MODES.args_of(mode, release) if name not in together}
    for given in ({}, args):
        deployment = grid_deployment(release, mode, given)
        words = words_of(deployment, speculative=True)
        (text,) = [word.partition("=")[2] for word in words if word.startswith("--speculative-config=")]
        config = json.loads(text)

        assert flag_problems(words, release) == []
        assert config_problems(config, release) == []
        assert set(config) >= set(given)
        without = words_of(deployment, speculative=False)
        assert words[: len(without)] == without
        added = [word.partition("=")[0] for word in words[len(without) :]]
        figures = ["--per-request-spec-decode-metrics"] if release >= Version("0.29.0") else []
        assert added == ["--speculative-config", *figures]
        assert flag_problems(without, release) == []


@pytest.mark.parametrize(("release", "mode"), GRID, ids=GRID_IDS)
def test_every_synthetic_way_of_a_release_is_taken(release: Version, mode: DraftMode) -> None:
    for name in MODES.lossy & set(MODES.args_of(mode, release)):
        if name.startswith("synthetic_"):
            given = {"rejection_sample_method": "synthetic", name: one_value(name, release)}
            words = words_of(grid_deployment(release, mode, given), speculative=True)
            text = next(word.partition("=")[2] for word in words if word.startswith("--speculative-config="))

            assert config_problems(json.loads(text), release) == []


def between(first: str, last: str) -> set[Version]:
    """Releases that were read, from one to another."""
    return {release for release in RENDERED if Version(first) <= release <= Version(last)}


ALL = set(RENDERED)
# Read in the released sources by a person, to hold against what the tables make of them.
HAVING: dict[DraftMode, set[Version]] = {
    DraftMode.NGRAM: ALL,
    DraftMode.SUFFIX: ALL - between("0.8.5", "0.11.0"),
    DraftMode.DRAFT_MODEL: ALL - between("0.10.0", "0.14.1"),
    DraftMode.MEDUSA: ALL - {Version("0.33.0")},
    DraftMode.EAGLE: ALL,
    DraftMode.EAGLE3: ALL,
    DraftMode.MTP: ALL - {Version("0.8.5")},
    DraftMode.DFLASH: ALL - between("0.8.5", "0.19.1"),
}
NEAREST = {
    DraftMode.SUFFIX: "use vLLM 0.11.1 or newer",
    DraftMode.DRAFT_MODEL: "use vLLM 0.15.0 or newer",
    DraftMode.MEDUSA: "use vLLM 0.32.0 or older",
    DraftMode.MTP: "use vLLM 0.9.0 or newer",
    DraftMode.DFLASH: "use vLLM 0.20.0 or newer",
}


@pytest.mark.parametrize("release", RENDERED, ids=str)
@pytest.mark.parametrize("mode", DraftMode)
def test_a_mode_is_done_by_exactly_the_releases_that_can_and_else_the_nearest_is_named(
    release: Version, mode: DraftMode
) -> None:
    found = errors(VLLM_ENGINE.check(grid_deployment(release, mode, {})))

    if release in HAVING[mode]:
        assert found == []
        return
    (one,) = found
    assert one.reason is FindingReason.MODE_UNAVAILABLE
    assert NEAREST[mode] in one.message
    assert ", or one of NGram" in one.message


@pytest.mark.parametrize("release", RENDERED, ids=str)
def test_a_change_of_any_rendered_argument_is_found(release: Version) -> None:
    """Each word that is rendered: misspelt, without its value, with one too many."""
    deployment = grid_deployment(release, DraftMode.NGRAM, {})
    words = words_of(deployment, speculative=True)
    for index, word in enumerate(words[1:], start=1):
        name, _, value = word.partition("=")
        for other in (f"{name}x={value}", name):
            assert flag_problems([*words[:index], other, *words[index + 1 :]], release) != [], other
    (text,) = [word.partition("=")[2] for word in words if word.startswith("--speculative-config=")]
    config = json.loads(text)
    for name in config:
        renamed = {f"{key}x" if key == name else key: value for key, value in config.items()}
        assert config_problems(renamed, release) != [], name

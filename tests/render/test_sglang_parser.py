"""Every command line that is rendered for SGLang: by the facts of each release, and by the newest one's own parser."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.version import Version

from specfleet.api.findings import errors
from specfleet.api.v1alpha1 import DraftMode, EngineType, SpecDeployment
from specfleet.engines.arguments import container_variables
from specfleet.engines.launch import launch
from specfleet.engines.registry import engine_module
from specfleet.engines.sglang_tables import OWNED_FLAGS, WHOLE_NUMBERS, table
from specfleet.render.objects import render_all
from specfleet.render.validate import validate
from tests.render.argument_lists import SGLANG as LISTS
from tests.render.argument_lists import ArgumentList
from tests.render.cases import SETTINGS, case_folders, case_name, read_deployment
from tests.render.engine_parsers import SGLANG, Command, ask
from tests.unit.cli.adopted import adopt, around

Document = dict[str, Any]
RELEASES = table().releases
NEWEST = Version(SGLANG)
CHECKPOINTS = {"DraftModel", "Medusa", "EAGLE", "EAGLE3", "DFlash"}
FOLDERS = [folder for folder in case_folders() if folder.parent.parent.name == "sglang"]


def fleet(release: Version, mode: DraftMode, args: dict[str, str] | None = None) -> SpecDeployment:
    """A SpecDeployment of one release and mode."""
    draft: Document = {"name": "draft", "mode": str(mode), "tokens": 3, "args": args or {}}
    if mode in CHECKPOINTS:
        draft |= {"model": "owner/head", "revision": "v2"}
    policy: Document = {"breakEven": {"source": "Fixed", "tokensPerStep": "1.6"}}
    return SpecDeployment.parse(
        {
            "metadata": {"name": "assistant", "namespace": "serving"},
            "spec": {
                "engine": {"type": "SGLang", "version": str(release), "args": {"max-running-requests": "64"}},
                "target": {"model": "owner/target", "revision": "v1"},
                "drafts": [draft],
                "pools": {"replicas": 2},
                "policy": policy,
            },
        }
    )


def argument(name: str) -> str:
    """A value that a draft argument takes."""
    if name == "speculative-num-draft-tokens":
        return "4"
    if name in WHOLE_NUMBERS:
        return "1" if name.endswith(("topk", "breadth")) else "8"
    return "1.0" if "threshold" in name else "auto"


def is_switch(name: str, release: Version) -> bool:
    """Whether a flag of a release takes no value."""
    return table().facts.spellings(release)[f"--{name}"] == "switch"


def with_every_argument(release: Version, mode: DraftMode) -> dict[str, str]:
    """All that a mode takes in a release."""
    return {name: "" if is_switch(name, release) else argument(name) for name in table().args_of(mode, release)}


GRID = [(release, mode) for release in RELEASES for mode in DraftMode]
DONE = [(release, mode) for release, mode in GRID if mode in table().available(release)]


@pytest.mark.parametrize(("release", "mode"), GRID, ids=[f"{release}-{mode}" for release, mode in GRID])
def test_a_release_does_a_mode_exactly_where_its_source_names_it(release: Version, mode: DraftMode) -> None:
    found = errors(validate(fleet(release, mode), SETTINGS))
    algorithms = {"MTP": "NEXTN", "DraftModel": "STANDALONE"}
    named = algorithms.get(mode, mode.upper()) in table().facts.names("methods", release)

    assert [one.reason for one in found] == ([] if named else ["ModeUnavailable"])
    if not named:
        assert "or newer" in found[0].message or "in no release" in found[0].message


@pytest.mark.parametrize("wide", [False, True], ids=["plain", "every-argument"])
@pytest.mark.parametrize(("release", "mode"), DONE, ids=[f"{release}-{mode}" for release, mode in DONE])
def test_every_rendered_flag_is_one_of_its_release_and_has_a_value_where_it_takes_one(
    release: Version, mode: DraftMode, wide: bool
) -> None:
    deployment = fleet(release, mode, with_every_argument(release, mode) if wide else {})
    module, known = engine_module(EngineType.SGLANG), table().facts.spellings(release)
    baseline = module.facts(deployment, speculative=False).args
    speculative = module.facts(deployment, speculative=True).args

    for word in speculative:
        name, equals, value = word.partition("=")
        assert name in known, f"SGLang {release} has no {name}"
        assert bool(equals and value) == (known[name] != "switch"), word
    assert len({word.partition("=")[0] for word in speculative}) == len(speculative)
    assert speculative[: len(baseline)] == baseline
    assert all(word.startswith("--speculative-") for word in speculative[len(baseline) :])
    assert "--max-running-requests=64" in baseline
    assert "--host=0.0.0.0" in baseline


def test_every_owned_flag_is_one_of_some_release() -> None:
    ever = {word.lstrip("-") for fact in table().facts.sections["flags"] for word in fact.name.split()}

    assert set(OWNED_FLAGS) - ever == {"help"}


def test_every_offered_argument_is_one_of_some_release() -> None:
    ever = {word.lstrip("-") for fact in table().facts.sections["flags"] for word in fact.name.split()}

    assert {arg for row in table().modes for arg in row.args} <= ever


def test_every_mode_of_each_fixture_release_is_among_the_fixtures() -> None:
    for release in {folder.parent.name for folder in FOLDERS}:
        modes = {read_deployment(folder).spec.draft.mode for folder in FOLDERS if folder.parent.name == release}

        assert modes == set(table().available(Version(release))), release


def engine_arguments(folder: Path) -> dict[str, list[str]]:
    """Arguments of the engine container by Deployment."""
    return {
        item["metadata"]["name"]: container["args"]
        for item in render_all(read_deployment(folder), SETTINGS)
        if item["kind"] == "Deployment"
        for container in item["spec"]["template"]["spec"]["containers"]
        if container["name"] == "engine"
    }


COMMANDS = {
    f"{case_name(folder)}/{name}": words
    for folder in FOLDERS
    if folder.parent.name == str(NEWEST)
    for name, words in engine_arguments(folder).items()
}


# Of other people's engines: those that can be read, and that this release's parser takes.
CARRIED = [one for one in LISTS if one.means.get("engine", one) is not None and one.refused is None]
# Set by specfleet in every pod that it renders, or said by other fields and compared on their own.
OURS = {"host", "port", "enable_metrics", "tokenizer_metrics_allowed_custom_labels", "max_running_requests", "api_key"}
APART = {"served_model_name", "dist_init_addr", "nnodes", "node_rank"}


@functools.cache
def adopted_fleet(name: str) -> Document:
    """What `adopt --split` prints for a list."""
    one = next(one for one in CARRIED if one.name == name)
    version = () if one.image.endswith(SGLANG) else ("--engine-version", SGLANG)
    ended = adopt("--split", *version, manifests=around(one))
    assert ended.returncode == 0, ended.stderr
    document: Document = yaml.safe_load(ended.stdout)
    return document


def adopted_commands(one: ArgumentList) -> list[Command]:
    """The original, then baseline and the speculative pool, after Kubernetes."""
    document, container = adopted_fleet(one.name), one.container
    started = launch([*container.get("command", ()), *container.get("args", ())], container_variables(container))
    words = started.words if started.module else ("--model-path", *started.words)
    facts = [
        engine_module(EngineType.SGLANG).facts(SpecDeployment.parse(document), speculative=speculative)
        for speculative in (False, True)
    ]
    variables = container_variables(container)
    return [
        Command(tuple(words)),
        *(Command(launch([*pool.command, *pool.args], variables).words) for pool in facts),
    ]


@pytest.fixture(scope="module")
def answer() -> Document:
    """What the released parser makes of every command line; importing it takes several seconds, so once."""
    commands = [Command(tuple(words)) for words in COMMANDS.values()]
    return ask(EngineType.SGLANG, [*commands, *(one for lists in CARRIED for one in adopted_commands(lists))])


@pytest.mark.engine
@pytest.mark.parametrize("name", COMMANDS)
def test_the_parser_takes_the_command_line_and_reads_what_was_meant(answer: Document, name: str) -> None:
    assert answer["version"] == SGLANG
    result, words = answer["commands"][list(COMMANDS).index(name)], dict(w.partition("=")[::2] for w in COMMANDS[name])

    assert "error" not in result, result
    values = result["values"]
    assert values["model_path"] == words["--model-path"]
    assert values["served_model_name"] == words["--served-model-name"]
    assert (values["host"], values["port"]) == ("0.0.0.0", 30000)
    assert values["max_running_requests"] == int(words["--max-running-requests"])
    assert values["enable_metrics"] is True
    assert values["tokenizer_metrics_allowed_custom_labels"] == ["route"]
    assert values["speculative_algorithm"] == words.get("--speculative-algorithm")
    assert values["speculative_draft_model_path"] == words.get("--speculative-draft-model-path")
    tokens = words.get("--speculative-num-draft-tokens")
    assert values["speculative_num_draft_tokens"] == (int(tokens) if tokens else None)


@pytest.mark.engine
@pytest.mark.parametrize("one", CARRIED, ids=lambda one: one.name)
def test_an_adopted_engine_means_what_it_meant(answer: Document, one: ArgumentList) -> None:
    at = len(COMMANDS) + 3 * CARRIED.index(one)
    original, baseline, speculative = answer["commands"][at : at + 3]
    for result in (original, baseline, speculative):
        assert "error" not in result, result
    theirs, plain, ours = (result["values"] for result in (original, baseline, speculative))
    document = adopted_fleet(one.name)

    def different(pool: Document, *, drafts: bool) -> dict[str, tuple[Any, Any]]:
        names = [name for name in theirs if name.startswith("speculative_") == drafts and name not in OURS | APART]
        return {name: (theirs[name], pool.get(name)) for name in names if theirs[name] != pool.get(name)}

    assert different(plain, drafts=False) == {}
    assert plain["speculative_algorithm"] is None
    served = document["spec"]["target"].get("servedName", document["metadata"]["name"])
    assert ours["served_model_name"] == plain["served_model_name"] == served
    assert ours["max_running_requests"] == plain["max_running_requests"] == (theirs["max_running_requests"] or 48)
    if theirs["speculative_algorithm"] is not None:
        # A chain is written out where the original leaves its size or breadth to the engine.
        filled = {name for name, (given, _) in different(ours, drafts=True).items() if given is None}
        assert set(different(ours, drafts=True)) == filled
        assert filled <= {"speculative_eagle_topk", "speculative_num_draft_tokens"}

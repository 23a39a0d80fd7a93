"""Arguments of other people's engines, adopted with --split, rendered, and read by the released vLLM's own parser.

What was carried over means the same there as the original; what is different is listed here by name.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import pytest
import yaml

from specfleet.api.v1alpha1 import EngineType, SpecDeployment
from specfleet.engines.arguments import container_variables, read_container
from specfleet.engines.launch import launch
from specfleet.render.objects import render_all
from tests.render.argument_lists import VLLM, ArgumentList
from tests.render.cases import SETTINGS
from tests.render.engine_parsers import Command, ask
from tests.unit.cli.adopted import adopt, around

pytestmark = pytest.mark.engine

RELEASE = "0.32.0"
# Set by specfleet in every pod it renders, whatever the original says.
OURS = {"host", "port", "shutdown_timeout", "per_request_spec_decode_metrics", "enable_force_include_usage"}
# Said by other fields of the SpecDeployment, or in other words, and compared on their own.
APART = {"model", "model_tag", "served_model_name", "speculative_config", "spec_method", "spec_model", "spec_tokens"}
# What an adopted list loses, each with the reason that must have been told; the API key goes on as a variable.
LOST: dict[str, dict[str, str | None]] = {
    "values-from-environment": {"hf_token": "the token stays in a Secret"},
    "everything-in-command": {"api_key": None},
    "entrypoint-serve": {"async_scheduling": "refuses to start with --async-scheduling and n-gram drafts"},
}
IDENTITY = re.compile(r"engine_id='[-0-9a-f]+'")
UNREADABLE = {one.name for one in VLLM if one.means.get("shell")}
# Its draft model's own configuration says how it drafts, and nobody can see that here.
UNDECIDED = "old-draft-model"
CARRIED = [one for one in VLLM if one.name not in {UNDECIDED, *UNREADABLE} and one.means.get("engine", one) is not None]


def version(one: ArgumentList) -> tuple[str, ...]:
    return () if one.image.endswith(RELEASE) else ("--engine-version", RELEASE)


@functools.cache
def printed(name: str) -> tuple[dict[str, Any], str]:
    """The SpecDeployment of a list, and what was said about it."""
    one = next(one for one in VLLM if one.name == name)
    ended = adopt("--split", *version(one), manifests=around(one))
    assert ended.returncode == 0, ended.stderr
    return yaml.safe_load(ended.stdout), ended.stderr


def rendered(document: dict[str, Any]) -> dict[str, Command]:
    """The command of each pool, after Kubernetes."""
    found = {}
    for item in render_all(SpecDeployment.parse(document), SETTINGS):
        if item["kind"] == "Deployment" and not item["metadata"]["name"].endswith("-router"):
            container = item["spec"]["template"]["spec"]["containers"][0]
            started = launch([*container["command"], *container["args"]], container_variables(container))
            found[item["metadata"]["name"].rsplit("-", 1)[1]] = Command(started.words)
    return found


def original(one: ArgumentList) -> Command:
    container = one.container
    started = launch([*container.get("command", ()), *container.get("args", ())], container_variables(container))
    return Command(started.words, started.module)


@functools.cache
def answers() -> tuple[dict[str, Any], dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """The whole answer, then per list what the parser makes of the original and of each rendered pool."""
    commands: list[Command] = []
    for one in CARRIED:
        document = printed(one.name)[0]
        pools = rendered(document)
        commands += [original(one), pools["baseline"], pools[document["spec"]["drafts"][0]["name"]]]
    whole = ask(EngineType.VLLM, commands)
    parsed = iter(whole["commands"])
    first, pools_of = {}, {}
    for one in CARRIED:
        first[one.name] = next(parsed)
        pools_of[one.name] = {"baseline": next(parsed), "speculative": next(parsed)}
    return whole, first, pools_of


@pytest.mark.parametrize("one", CARRIED, ids=lambda one: one.name)
def test_the_parser_takes_both_pools_and_reads_what_was_meant(one: ArgumentList) -> None:
    document, _ = printed(one.name)
    _, _, pools = answers()
    read = read_container(one.container)
    for name, pool in pools[one.name].items():
        assert "error" not in pool, (name, pool)
        values = pool["values"]
        assert values["model_tag"] == read.model
        assert values["served_model_name"] == [
            document["spec"]["target"].get("servedName", document["metadata"]["name"])
        ]
        assert values["max_num_seqs"] == (read.max_sequences or 256)
    assert pools[one.name]["baseline"]["values"]["speculative_config"] is None


@pytest.mark.parametrize("one", [one for one in CARRIED if one.refused is None], ids=lambda one: one.name)
def test_every_other_argument_means_what_it_meant(one: ArgumentList) -> None:
    whole, first, pools = answers()
    _, said = printed(one.name)
    theirs, ours = first[one.name]["values"], pools[one.name]["baseline"]["values"]
    lost = LOST.get(one.name, {})

    different = {
        name
        for name in whole["defaults"]
        if plain(theirs.get(name)) != plain(ours.get(name)) and name not in OURS | APART | set(lost) | {"max_num_seqs"}
    }
    assert {name: (theirs.get(name), ours.get(name)) for name in different} == {}
    for reason in lost.values():
        assert reason is None or reason in said


def plain(value: Any) -> Any:
    """The value; an identity that the parser draws by lot is not compared."""
    return IDENTITY.sub("", value) if isinstance(value, str) else value


@pytest.mark.parametrize("one", CARRIED, ids=lambda one: one.name)
def test_speculation_is_what_it_was(one: ArgumentList) -> None:
    _, _, pools = answers()
    found = pools[one.name]["speculative"]["values"]["speculative_config"]
    config = dict(read_container(one.container).speculative or {"method": "ngram", "num_speculative_tokens": 4})

    longest, shortest = config.get("prompt_lookup_max"), config.get("prompt_lookup_min")
    if read_container(one.container).speculative is None:
        longest, shortest = 4, 2  # of specfleet, since the original has none
    if config["method"] == "ngram":
        config["prompt_lookup_max"] = longest or shortest or 5
        config["prompt_lookup_min"] = shortest or longest or 5
    if config["method"].endswith("_mtp"):
        config["method"] = "mtp"  # what the release itself makes of its old names
    assert found == config


def test_drafts_that_nobody_can_see_are_refused_with_what_to_do() -> None:
    one = next(one for one in VLLM if one.name == UNDECIDED)
    ended = adopt("--split", *version(one), manifests=around(one))

    assert (ended.returncode, ended.stdout) == (1, "")
    assert "drafts with facebook/opt-125m, and its own configuration decides how" in ended.stderr
    assert "leave out --split" in ended.stderr


@pytest.mark.parametrize("name", sorted(UNREADABLE))
def test_a_script_is_refused_with_what_it_holds(name: str) -> None:
    one = next(one for one in VLLM if one.name == name)
    ended = adopt("--split", manifests=around(one))

    assert (ended.returncode, ended.stdout) == (1, "")
    assert all(part in ended.stderr for part in one.says)

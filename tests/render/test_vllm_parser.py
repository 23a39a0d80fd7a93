"""Every command line that is rendered for vLLM 0.32, read by that release's own parser and configuration classes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.version import Version

from specfleet.api.findings import FindingReason, errors
from specfleet.api.v1alpha1 import SpecDeployment
from specfleet.engines.release import Minor
from specfleet.engines.vllm_drafts import table
from specfleet.engines.vllm_tables import OWNED_FLAGS, all_flags, flags_of
from specfleet.render.objects import render_all
from specfleet.render.validate import validate
from tests.render.cases import SETTINGS, case_folders, case_name, read_deployment
from tests.testbed.api import vllm_python

pytestmark = pytest.mark.engine

RELEASE = Minor(0, 32)
VERSION = Version("0.32.0")
FOLDERS = [folder for folder in case_folders() if folder.parent.name == str(RELEASE)]
SET_BY_THE_ENGINE = {"target_model_config", "target_parallel_config", "draft_model_config", "draft_parallel_config"}
Document = dict[str, Any]

# What argparse makes of each spelling is known only from argparse itself: (word, is it the flag that it looks like).
SPELLINGS = {
    "--speculative-conf={}": "speculative_config",
    "--speculative_config={}": "speculative_config",
    "-sc={}": "speculative_config",
    "--speculative-config.method=ngram": "speculative_config",
    "--spec-tok=3": "spec_tokens",
    "--spec-m=x": None,
    "-tp=2": "tensor_parallel_size",
    "-tp2": None,
    "--tensor-p=2": "tensor_parallel_size",
    "--max-num-seq=7": "max_num_seqs",
    "--max-num-s=7": None,
    "--served_model_name=x": "served_model_name",
    "--shutdown-t=3": "shutdown_timeout",
    "--per-request=summary": "per_request_spec_decode_metrics",
    "--enable-force": "enable_force_include_usage",
    "--no-async-sched": "async_scheduling",
    "-O3": "optimization_level",
    "-qfp8": "quantization",
    "--speculativeconfig={}": None,
    "--hos=1.2.3.4": "host",
    "--ho=1.2.3.4": "host",
    "--h=1.2.3.4": None,
}

UNKNOWN_KEY = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 4, "no_such_key": 1}
SUFFIX = {"method": "suffix", "num_speculative_tokens": 4}
DRAFT_MODEL = {"method": "draft_model", "model": "draft", "num_speculative_tokens": 4}
MODELS = Path(__file__).with_name("models")
LOSSY = {"rejection_sample_method": "synthetic", "synthetic_acceptance_length": "2.5"}


def engine_arguments(folder: Path) -> dict[str, list[str]]:
    """Arguments of the engine container by Deployment."""
    found = {}
    for item in render_all(read_deployment(folder), SETTINGS):
        if item["kind"] == "Deployment":
            for container in item["spec"]["template"]["spec"]["containers"]:
                if container["name"] == "engine":
                    found[item["metadata"]["name"]] = container["args"]
    return found


def speculative_config(arguments: list[str]) -> Document | None:
    """The JSON of `--speculative-config`, None without it."""
    texts = [word.partition("=")[2] for word in arguments if word.startswith("--speculative-config=")]
    return json.loads(texts[0]) if texts else None


COMMANDS = {
    f"{case_name(folder)}/{name}": arguments
    for folder in FOLDERS
    for name, arguments in engine_arguments(folder).items()
}
CONFIGS = {name: config for name, words in COMMANDS.items() if (config := speculative_config(words)) is not None}


def tiny(config: Document, tensor: int = 1) -> Document:
    """The question about a config: its model and target are folders here that hold a config.json of that kind."""
    method = config["method"]
    if method == "ngram":
        return {"config": config}
    target = MODELS / ("target-with-mtp" if method == "mtp" else "target")
    names = {"draft_model": "draft"} | {one: one for one in ("eagle", "eagle3", "medusa", "dflash")}
    replaced = {"model": str(MODELS / names[method])} if "model" in config else {}
    return {"config": config | replaced, "target": str(target), "tensor": tensor, "packaged": True}


def tensor_of(words: list[str]) -> int:
    """The tensor parallelism of a command line."""
    return next(int(word.partition("=")[2]) for word in words if word.startswith("--tensor-parallel-size="))


REFUSED: dict[str, tuple[Document, str]] = {
    "a key that there is not": ({"config": UNKNOWN_KEY}, "no_such_key"),
    "suffix without its package": (tiny(SUFFIX) | {"packaged": False}, "Arctic Inference is required"),
    "a draft of another vocabulary": (
        tiny(DRAFT_MODEL) | {"config": DRAFT_MODEL | {"model": str(MODELS / "other-vocabulary")}},
        "same vocabulary size",
    ),
    "a draft split otherwise": (
        tiny(DRAFT_MODEL | {"draft_tensor_parallel_size": 3}, tensor=2),
        "cannot be other value than 1 or target model",
    ),
    "synthetic acceptance without a rate": (
        tiny(DRAFT_MODEL | {"rejection_sample_method": "synthetic"}),
        "requires exactly one of",
    ),
    "a rate without synthetic acceptance": (tiny(DRAFT_MODEL | {"synthetic_acceptance_length": 2}), "only valid with"),
    "another vocabulary and probabilistic drafts": (
        tiny(DRAFT_MODEL | {"use_heterogeneous_vocab": True, "draft_sample_method": "probabilistic"}),
        "greedy draft",
    ),
}
"""What specfleet refuses before the engine would, and a word of what the engine says."""


@pytest.fixture(scope="module")
def answer() -> Document:
    """vLLM's own answers about everything here; importing it takes several seconds, so it is asked once."""
    question = {
        "commands": [*COMMANDS.values(), *(["owner/model", word] for word in SPELLINGS)],
        "configs": [
            *(tiny(config, tensor_of(COMMANDS[name])) for name, config in CONFIGS.items()),
            *(question for question, _ in REFUSED.values()),
        ],
    }
    script = Path(__file__).with_name("read_vllm_parser.py")
    ended = subprocess.run(
        [str(vllm_python()), str(script)], input=json.dumps(question), capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    found: Document = json.loads(ended.stdout)
    assert found["version"].startswith(f"{RELEASE}.")
    return found


@pytest.mark.parametrize("name", COMMANDS)
def test_the_parser_takes_the_command_line_and_reads_what_was_meant(answer: Document, name: str) -> None:
    result = answer["commands"][list(COMMANDS).index(name)]

    assert "error" not in result, result
    values, words = result["values"], COMMANDS[name]
    assert values["model_tag"] == words[0]
    assert values["port"] == 8000
    assert values["shutdown_timeout"] == 300
    served = [word.partition("=")[2] for word in words if word.startswith("--served-model-name=")]
    assert values["served_model_name"] == served
    assert values["speculative_config"] == speculative_config(words)
    assert values["per_request_spec_decode_metrics"] == ("summary" if name in CONFIGS else "none")
    assert values["enable_force_include_usage"] is False


@pytest.mark.parametrize("name", CONFIGS)
def test_the_engine_takes_every_key_and_value_of_the_speculative_config(answer: Document, name: str) -> None:
    found = answer["configs"][list(CONFIGS).index(name)]

    assert found == {
        "method": CONFIGS[name]["method"],
        "tokens": CONFIGS[name]["num_speculative_tokens"],
        "revision": CONFIGS[name].get("revision"),
    }


def test_every_mode_of_the_release_is_among_the_fixtures() -> None:
    modes = {read_deployment(folder).spec.draft.mode for folder in FOLDERS}

    assert modes == set(table().available(VERSION))


@pytest.mark.parametrize("name", REFUSED)
def test_the_engine_refuses_what_specfleet_refuses_before_it(answer: Document, name: str) -> None:
    index = len(CONFIGS) + list(REFUSED).index(name)

    assert REFUSED[name][1] in answer["configs"][index]["error"]


def test_the_table_has_the_flags_of_the_release(answer: Document) -> None:
    ours = {
        (flag.spellings, flag.arity.value)
        for flag in all_flags()
        if flag.since <= RELEASE and (flag.until is None or flag.until >= RELEASE)
    }

    assert {(tuple(spellings), arity) for spellings, arity in answer["flags"]} == ours


def test_the_facts_have_the_keys_of_the_release(answer: Document) -> None:
    facts = table().facts

    assert set(answer["keys"]) - SET_BY_THE_ENGINE == facts.names("keys", table().read(VERSION))


def test_owned_flags_are_flags() -> None:
    names = {flag.name for flag in all_flags()}

    assert set(OWNED_FLAGS) <= names


@pytest.mark.parametrize("word", SPELLINGS)
def test_a_spelling_is_read_as_the_engine_reads_it(answer: Document, word: str) -> None:
    index = len(COMMANDS) + list(SPELLINGS).index(word)
    result, destination = answer["commands"][index], SPELLINGS[word]
    given = flags_of(VERSION).given(word, "here")

    if destination is None:
        assert "error" in result
        assert not given.matched
    else:
        assert "error" not in result
        assert result["values"][destination] not in (None, [])
        assert given.matched.lstrip("-").replace("-", "_").removeprefix("no_") == destination or given.matched in (
            "-sc",
            "-tp",
            "-q",
            "--optimization-level",
        )


def test_flags_that_vllm_reads_as_owned_are_refused(answer: Document) -> None:
    owned = {name.replace("-", "_") for name in OWNED_FLAGS}
    document = yaml.safe_load((FOLDERS[0] / "cr.yaml").read_text())
    for word, destination in SPELLINGS.items():
        if destination not in owned:
            continue
        document["spec"]["engine"]["args"] = {}
        document["spec"]["engine"]["extraArgs"] = [word]

        found = errors(validate(SpecDeployment.parse(document), SETTINGS))

        assert [one.reason for one in found] == [FindingReason.OWNED_FLAG], word

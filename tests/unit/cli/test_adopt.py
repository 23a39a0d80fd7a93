"""`specfleet adopt` with what stays as it runs: External pools in Observe, and everything that it must refuse."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from specfleet.engines.arguments import read_container
from tests.render.argument_lists import ALL, ArgumentList
from tests.unit.cli.adopted import (
    LLAMA,
    PAIR,
    PLAIN,
    SPECULATIVE,
    Manifest,
    adopt,
    adopted,
    around,
    deployment,
    engine,
    service,
)
from tests.unit.cli.test_validate_and_render import program, specfleet

BOTH = ("deployment/llama-ngram", "--baseline", "deployment/llama-plain")
ADOPTABLE = [one for one in ALL if one.means.get("engine", one) is not None]


def test_a_pair_becomes_two_external_pools_that_observe() -> None:
    ended = adopt(*BOTH, manifests=PAIR)

    assert ended.returncode == 0
    assert yaml.safe_load(ended.stdout) == {
        "apiVersion": "specfleet.dev/v1alpha1",
        "kind": "SpecDeployment",
        "metadata": {"name": "llama-ngram", "namespace": "serving"},
        "spec": {
            "engine": {"type": "vLLM", "version": "0.32.0"},
            "target": {"model": LLAMA, "servedName": "llama"},
            "drafts": [{"name": "ngram", "mode": "NGram", "tokens": 5}],
            "pools": {
                "strategy": "External",
                "external": {
                    "speculative": {"service": "llama-ngram-pods", "port": 8000},
                    "baseline": {"service": "llama-plain-pods", "port": 8000},
                },
            },
            "policy": {"enforcement": "Observe", "initial": "Speculative"},
        },
    }
    assert ended.stderr == ""


def test_what_is_printed_is_valid_and_always_the_same() -> None:
    first, second = adopt(*BOTH, manifests=PAIR), adopt(*BOTH, manifests=PAIR)

    assert first.stdout == second.stdout
    assert specfleet("validate", "--strict", "-f", "-", stdin=first.stdout).returncode == 0


def test_one_deployment_that_speculates_is_the_speculative_side() -> None:
    found = adopted("deployment/llama-ngram", manifests=PAIR)

    assert found["spec"]["pools"]["external"] == {"speculative": {"service": "llama-ngram-pods", "port": 8000}}
    assert found["spec"]["policy"] == {"enforcement": "Observe", "initial": "Speculative"}


def test_one_deployment_that_does_not_is_the_baseline_and_is_told_what_is_missing() -> None:
    ended = adopt("llama-plain", manifests=PAIR)
    found = yaml.safe_load(ended.stdout)

    assert found["spec"]["pools"]["external"] == {"baseline": {"service": "llama-plain-pods", "port": 8000}}
    assert "drafts" not in found["spec"]
    assert "adopt it with --baseline deployment/llama-plain" in ended.stderr


def test_the_only_engine_in_a_file_needs_no_name() -> None:
    web = deployment("web", {"name": "nginx", "image": "nginx:1.29"})

    assert adopted(manifests=(web, SPECULATIVE, *PAIR[2:]))["metadata"]["name"] == "llama-ngram"


def test_the_installed_program_prints_yaml_on_standard_output_and_notes_beside_it() -> None:
    loud = copy.deepcopy(SPECULATIVE)
    loud["spec"]["template"]["spec"]["containers"][0]["args"].append("--swap-space=4")
    ended = program(
        "kubectl-specfleet", "adopt", "-f", "-", "deploy/llama-ngram", stdin=yaml.safe_dump_all((loud, *PAIR[1:]))
    )

    assert ended.returncode == 0
    assert [one["kind"] for one in yaml.safe_load_all(ended.stdout)] == ["SpecDeployment"]
    assert "does not know the flag --swap-space: 0.8 to 0.17 had it" in ended.stderr
    assert "does not know the flag --swap-space: 0.8 to 0.17 had it" in ended.stdout


@pytest.mark.parametrize("one", ADOPTABLE, ids=lambda one: one.name)
def test_every_list_of_arguments_is_adopted_as_it_runs(one: ArgumentList) -> None:
    ended = adopt(manifests=around(one))
    assert ended.returncode == 0, ended.stderr
    found, read = yaml.safe_load(ended.stdout), read_container(one.container)

    assert specfleet("validate", "-f", "-", stdin=ended.stdout).returncode == 0
    assert read.engine is not None
    assert found["spec"]["engine"]["type"] == read.engine.value
    drafts = found["spec"].get("drafts", [])
    assert [draft["mode"] for draft in drafts] == ([read.mode] if read.mode is not None else [])
    if drafts and read.draft_tokens is not None and read.draft_tokens <= 32:
        assert drafts[0]["tokens"] == read.draft_tokens
    side = "baseline" if read.speculative is None and not read.shell else "speculative"
    assert found["spec"]["pools"]["external"] == {side: {"service": "server-pods", "port": 8000}}
    for problem in read.problems:
        assert problem in ended.stderr


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"--per-request-spec-decode-metrics=summary": None}, "add the argument --per-request-spec-decode-metrics"),
        ({"--max-num-seqs=128": None}, "write it as pools.external.speculative.maxSequences"),
        ({"--max-num-seqs=128": "--disable-log-stats"}, "start it with no --disable-log-stats"),
        ({"--max-num-seqs=128": "--enable-force-include-usage"}, "puts usage on every chunk"),
        ({"--max-num-seqs=128": "--headless"}, "one engine spans several pods (--headless)"),
    ],
)  # fmt: skip
def test_an_argument_that_figures_need_is_named_with_the_line_to_add(change: dict[str, Any], said: str) -> None:
    assert said in adopt(*BOTH, manifests=(with_words(SPECULATIVE, change), *PAIR[1:])).stderr


def test_the_name_avoids_what_is_there() -> None:
    taken = service("llama-ngram", "gateway")
    router = deployment("llama-ngram-spec-router", engine(LLAMA))

    assert adopted(*BOTH, manifests=(*PAIR, taken))["metadata"]["name"] == "llama-ngram-spec"
    assert adopted(*BOTH, manifests=(*PAIR, taken, router))["metadata"]["name"] == "llama-ngram-spec2"
    assert adopted(*BOTH, "--name", "chat", manifests=(*PAIR, taken))["metadata"]["name"] == "chat"
    assert "exists already" in adopt(*BOTH, "--name", "llama-plain-pods", manifests=PAIR).stderr


def test_adopting_once_more_keeps_the_name_of_what_was_adopted() -> None:
    fleet = adopted(*BOTH, "--name", "fleet", manifests=PAIR)
    made = service("fleet", "router")
    made["metadata"]["labels"] = {"specfleet.dev/deployment": "fleet"}
    foreign = copy.deepcopy(fleet)
    foreign["spec"]["pools"]["external"] = {"speculative": {"service": "other", "port": 8000}}

    assert adopted(*BOTH, "--name", "fleet", manifests=(*PAIR, made, fleet)) == fleet
    ended = adopt(*BOTH, "--name", "fleet", manifests=(*PAIR, foreign))
    assert "SpecDeployment/fleet exists already, choose another name" in ended.stderr


def test_a_long_or_odd_name_becomes_one_that_the_schema_takes() -> None:
    name = "0." + "long-" * 12 + "name"
    found = adopted(manifests=(deployment(name, engine(LLAMA)), service("pods", name)))

    assert len(found["metadata"]["name"]) <= 45
    assert found["metadata"]["name"].startswith("s-0-long-")


def test_a_headless_service_is_preferred_and_a_cluster_ip_is_warned_of() -> None:
    plain = service("a-first", "llama-ngram", clusterIP="10.0.0.1")

    both = adopt("llama-ngram", manifests=(*PAIR, plain))
    alone = adopt("llama-ngram", manifests=(SPECULATIVE, plain))

    assert yaml.safe_load(both.stdout)["spec"]["pools"]["external"]["speculative"]["service"] == "llama-ngram-pods"
    assert "a-first would do as well" in both.stderr
    assert yaml.safe_load(alone.stdout)["spec"]["pools"]["external"]["speculative"]["service"] == "a-first"
    assert "has a cluster IP" in alone.stderr


@pytest.mark.parametrize(
    ("services", "said"),
    [
        ((), "no Service in standard input selects the pods of Deployment llama-ngram."),
        ((service("all", "llama-ngram", selector={"team": "a"}),), "Service all selects pods of llama-plain too"),
        ((service("admin", "llama-ngram", 9000),), "Service admin has no port that leads to the engine's (8000)"),
        ((service("web", "llama-ngram", "web"),), "Service web has no port that leads to the engine's (8000)"),
        ((service("udp", "llama-ngram", ports=[{"port": 8000, "protocol": "UDP"}]),), "has no port that leads to"),
        ((service("out", "llama-ngram", type="ExternalName"),), "no Service in standard input selects"),
    ],
)
def test_without_a_service_of_its_own_it_says_which_one_to_create(services: tuple[Manifest, ...], said: str) -> None:
    speculative, plain = copy.deepcopy(SPECULATIVE), copy.deepcopy(PLAIN)
    for one in (speculative, plain):
        one["spec"]["template"]["metadata"]["labels"]["team"] = "a"
    ended = adopt("llama-ngram", manifests=(speculative, plain, *services))

    assert (ended.returncode, ended.stdout) == (1, "")
    assert said in ended.stderr
    written = yaml.safe_load(ended.stderr.split("try again:\n")[1])
    assert written["spec"]["selector"] == {"app": "llama-ngram"}
    assert written["spec"]["ports"] == [{"name": "http", "port": 8000, "targetPort": 8000}]
    assert adopt("llama-ngram", manifests=(speculative, plain, written)).returncode == 0


def test_a_service_that_leads_to_a_proxy_in_the_pod_is_told_apart() -> None:
    proxied = deployment(
        "llama", engine(LLAMA, "--port=8200"), initContainers=[{"name": "proxy", "ports": [{"containerPort": 8000}]}]
    )

    said = adopt("llama", manifests=(proxied, service("front", "llama", 8000))).stderr

    assert "Service front has no port that leads to the engine's (8200); it leads to container proxy of the pod" in said


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("deployment/nope",), "found none: Deployments there are llama-ngram, llama-plain"),
        ((), "has several Deployments that run an engine (llama-ngram, llama-plain): name one"),
        (("statefulset/llama",), "adopt reads Deployments, found StatefulSet llama: write a SpecDeployment with"),
        (("sts/llama",), "found StatefulSet llama"),
        (("leaderworkersets/llama",), "select the leaders only"),
        (("lws/llama",), "select the leaders only"),
        (("inferenceservice.serving.kserve.io/llama",), "NAME-predictor"),
        (("isvc/llama",), "NAME-predictor"),
        (("pod/llama-0",), "adopt the Deployment that made it"),
        (("widget/llama",), "found widget llama"),
        (("deployment/",), "expected deployment/NAME"),
        (("llama-plain", "--baseline", "llama-ngram"), "the two are swapped"),
        (("llama-ngram", "--baseline", "llama-ngram"), "name two Deployments"),
        (("llama-ngram", "--container", "web"), "no container web: its containers are server"),
        (("llama-ngram", "--name", "Bad_Name"), "--name Bad_Name: expected at most 45"),
    ],
)
def test_what_cannot_be_adopted_is_answered_with_what_to_do(arguments: tuple[str, ...], said: str) -> None:
    ended = adopt(*arguments, manifests=PAIR)

    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("specfleet adopt: ")
    assert said in ended.stderr


def test_two_that_do_not_speculate_and_two_that_do_are_no_pair() -> None:
    other = copy.deepcopy(PLAIN)
    other["metadata"]["name"] = "other"
    twice = copy.deepcopy(SPECULATIVE)
    twice["metadata"]["name"] = "twice"

    assert (
        "neither other nor llama-plain speculates"
        in adopt("other", "--baseline", "llama-plain", manifests=(other, *PAIR)).stderr
    )
    assert (
        "twice speculates too (NGram)" in adopt("llama-ngram", "--baseline", "twice", manifests=(twice, *PAIR)).stderr
    )


def test_pools_that_differ_are_told_how() -> None:
    other = deployment("llama-plain", engine("Qwen/Qwen3-8B", "--max-num-seqs=1", image="vllm/vllm-openai:v0.31.0"))
    said = adopt(*BOTH, manifests=(SPECULATIVE, other, *PAIR[2:])).stderr

    assert "the pools serve different names (llama-ngram: llama; llama-plain: Qwen/Qwen3-8B)" in said
    assert "the pools run different releases (llama-ngram 0.32.0 and llama-plain 0.31.0)" in said


def test_two_engines_are_no_pair() -> None:
    other = deployment(
        "llama-plain", {"name": "s", "image": "lmsysorg/sglang:v0.5.23", "args": ["sglang", "serve", LLAMA]}
    )

    assert "one Deployment runs vLLM, the other SGLang" in adopt(*BOTH, manifests=(SPECULATIVE, other)).stderr


def test_a_deployment_without_an_engine_or_with_several_is_answered() -> None:
    web = deployment("web", {"name": "nginx", "image": "nginx:1.29"})
    double = deployment("double", engine(LLAMA))
    double["spec"]["template"]["spec"]["containers"].append({**engine(LLAMA), "name": "second"})
    router = deployment("router", {"name": "r", "command": ["python3", "-m", "sglang_router.launch_router"]})

    assert "has no container that runs vLLM or SGLang; found nginx" in adopt("web", manifests=(web,)).stderr
    assert "SGLang's router" in adopt("router", manifests=(router,)).stderr
    assert (
        "several engine containers (server, second): name one with --container"
        in adopt("double", manifests=(double,)).stderr
    )
    assert adopt("double", "--container", "second", manifests=(double, service("d", "double"))).returncode == 0
    assert "Add its Service to the manifests" in adopt("double", "--container", "server", manifests=(double,)).stderr
    assert "has no Deployment that runs vLLM or SGLang; Deployments there are web" in adopt(manifests=(web,)).stderr


def test_what_specfleet_made_is_not_adopted() -> None:
    ours = copy.deepcopy(SPECULATIVE)
    ours["metadata"]["labels"] = {"specfleet.dev/deployment": "llama"}

    assert "was made by specfleet" in adopt("llama-ngram", manifests=(ours,)).stderr


def test_other_kinds_in_a_file_are_named() -> None:
    stateful = {**copy.deepcopy(SPECULATIVE), "kind": "StatefulSet"}

    assert "found StatefulSet llama-ngram" in adopt(manifests=(stateful,)).stderr
    assert "llama-ngram in standard input is a StatefulSet" in adopt("llama-ngram", manifests=(stateful,)).stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{{ .Values.image }}: x\na: {{ b }}\n", "render a chart first, with helm template"),
        ("kind: Deployment\n  bad: [", "standard input is no YAML: line 2"),
        ("", "has no Deployment that runs vLLM or SGLang; Deployments there are none at all"),
        ("kind: Deployment\nmetadata: {name: a}\nspec: {}\n", "no list spec.template.spec.containers"),
        (
            "kind: Deployment\nmetadata: {name: a}\n"
            "spec: {template: {spec: {containers: [{name: c, args: vllm serve}]}}}\n",
            "expected a list as args of container c, found str",
        ),
        ("- 1\n- kind\n", "has no Deployment"),
    ],
)
def test_a_text_that_is_no_manifest_is_answered(text: str, said: str) -> None:
    ended = specfleet("adopt", "-f", "-", stdin=text)

    assert (ended.returncode, ended.stdout) == (1, "")
    assert said in ended.stderr


def test_a_file_that_is_not_there_and_no_input_at_all_end_with_two() -> None:
    assert specfleet("adopt", "-f", "/nowhere.yaml").returncode == 2
    assert "expected deployment/NAME, or -f with a manifest" in specfleet("adopt").stderr
    assert adopt("llama-ngram", "--split", "--baseline", "llama-plain", manifests=PAIR).returncode == 2
    assert adopt("llama-ngram", "--engine-version", "0.32.0", manifests=PAIR).returncode == 2


def test_a_list_and_a_second_namespace_are_understood() -> None:
    far = copy.deepcopy(SPECULATIVE)
    far["metadata"]["namespace"] = "far"
    whole: Manifest = {"apiVersion": "v1", "kind": "List", "items": list(PAIR)}

    assert adopted("llama-ngram", manifests=(whole,))["metadata"]["namespace"] == "serving"
    assert "several namespaces (far, serving): name one with -n" in adopt("llama-ngram", manifests=(whole, far)).stderr
    assert adopted("llama-ngram", "-n", "serving", manifests=(whole, far))["metadata"]["namespace"] == "serving"


def test_no_text_of_a_manifest_can_change_what_is_printed() -> None:
    hostile = 'x\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: "\x07'
    words = {"--max-num-seqs=128": f"--{hostile}", "--served-model-name=llama": f"--served-model-name={hostile}"}
    ended = adopt("llama-ngram", manifests=(with_words(SPECULATIVE, words), *PAIR[1:]))

    assert ended.returncode == 0, ended.stderr
    assert [one["kind"] for one in yaml.safe_load_all(ended.stdout)] == ["SpecDeployment"]
    assert "\x07" not in ended.stdout


def with_words(manifest: Manifest, change: Mapping[str, str | None]) -> Manifest:
    """The Deployment with some of its arguments replaced, or without them."""
    changed = copy.deepcopy(manifest)
    container = changed["spec"]["template"]["spec"]["containers"][0]
    words = [change.get(word, word) for word in container["args"]]
    container["args"] = [word for word in words if word is not None]
    return changed

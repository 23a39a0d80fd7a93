"""`specfleet validate` and `specfleet render` as a person or a pipeline uses them: processes, files, exit statuses."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from specfleet.api.v1alpha1 import DraftMode
from specfleet.cli.main import app
from tests.unit.engines.test_vllm import BASE

REPOSITORY = Path(__file__).resolve().parents[3]
Document = dict[str, Any]


@dataclass(frozen=True)
class Ended:
    """What one run said, and how it ended."""

    returncode: int
    stdout: str
    stderr: str


def specfleet(*arguments: str, stdin: str = "") -> Ended:
    """One run of the command line in this process: starting Python anew takes longer than most of these tests."""
    result = CliRunner().invoke(app, list(arguments), input=stdin)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return Ended(result.exit_code, result.stdout, result.stderr)


def program(name: str, *arguments: str, stdin: str = "") -> Ended:
    """One run of the installed program as a process."""
    path = Path(sys.executable).with_name(name)
    ended = subprocess.run([str(path), *arguments], input=stdin, capture_output=True, text=True, check=False)
    return Ended(ended.returncode, ended.stdout, ended.stderr)


def text(*documents: Any) -> str:
    """Documents as one YAML text."""
    return yaml.safe_dump_all(documents)


def changed(**spec: Any) -> Document:
    """The base with other parts of spec."""
    return {**BASE, "spec": {**BASE["spec"], **spec}}


def lines(ended: Ended) -> list[list[str]]:
    """Findings as lists of severity, reason, path and message."""
    return [line.split("\t") for line in ended.stdout.splitlines()]


def test_what_is_right_says_nothing_and_ends_with_0() -> None:
    ended = program("specfleet", "validate", "-f", "-", stdin=text(BASE))

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("document", "reason", "path"),
    [
        (changed(polcy={}), "UnknownField", "spec.polcy"),
        (changed(pools={}), "RuleViolated", "spec.pools.replicas"),
        (changed(pools={"replicas": "two"}), "InvalidValue", "spec.pools.replicas"),
        (changed(policy={}), "RuleViolated", "spec.policy"),
        (changed(target={"model": "https://huggingface.co/a/b"}), "RuleViolated", "spec.target.model"),
        (changed(engine={"type": "vLLM", "image": "a/vllm:latest"}), "ReleaseUnknown", "spec.engine.image"),
        (
            changed(target={"model": "/models/x", "source": {"hostPath": {"path": "/srv/x"}}}),
            "HostPathNotAllowed",
            "spec.target.source.hostPath",
        ),
        (
            changed(pools={"replicas": 2, "template": {"spec": {"hostNetwork": True}}}),
            "PrivilegedTemplate",
            "spec.pools.template.spec.hostNetwork",
        ),
        ({**BASE, "apiVersion": "specfleet.dev/v2"}, "UnsupportedVersion", "apiVersion"),
        ({**BASE, "metadata": {"name": "a" * 46}}, "RuleViolated", "metadata.name"),
        (changed(engine={"type": "vLLM", "version": "0.32.0", "args": {"": "1"}}), "InvalidValue", "spec.engine.args."),
    ],
)
def test_an_error_is_one_line_of_four_columns_and_ends_with_1(document: Document, reason: str, path: str) -> None:
    ended = specfleet("validate", "-f", "-", stdin=text(document))

    assert ended.returncode == 1
    assert ended.stderr == ""
    ((severity, found, where, message),) = lines(ended)
    assert (severity, found, where) == ("error", reason, path)
    assert message


@pytest.mark.parametrize(
    ("document", "advice"),
    [
        (changed(engine={"type": "vLLM", "version": 0.32}), "write it in quotes"),
        (changed(pools={"replicas": "2"}), "write it without quotes"),
        (changed(policy={"minAcceptancePercent": 30, "block": "90"}), "for instance 60s"),
        (changed(policy={"breakEven": {"source": "Fixed", "tokensPerStep": 1.6}}), "write it in quotes"),
    ],
)
def test_the_message_says_what_to_write_instead(document: Document, advice: str) -> None:
    ((*_, message),) = lines(specfleet("validate", "-f", "-", stdin=text(document)))

    assert advice in message


@pytest.mark.parametrize(
    ("policy", "path"),
    [
        ({"enforcement": "Observe", "minAcceptancePercent": 30}, "spec.policy.enforcement"),
        ({"exploration": {"maxPercent": 0}, "minAcceptancePercent": 30}, "spec.policy.exploration.maxPercent"),
    ],
)
def test_a_policy_that_can_learn_nothing_is_a_warning(policy: Document, path: str) -> None:
    silent = specfleet("validate", "-f", "-", stdin=text(changed(policy=policy)))
    told = specfleet("validate", "-f", "-", stdin=text(changed(policy={**policy, "initial": "Speculative"})))

    assert [line[:3] for line in lines(silent)] == [["warning", "NothingToWatch", path]]
    assert lines(told) == []


def test_a_warning_ends_with_0_and_with_strict_with_1() -> None:
    pipeline = changed(target={"model": "owner/model", "parallelism": {"pipeline": 2}})

    relaxed = specfleet("validate", "-f", "-", stdin=text(pipeline))
    strict = specfleet("validate", "--strict", "-f", "-", stdin=text(pipeline))

    assert [line[:2] for line in lines(relaxed)] == [["warning", "UntestedCombination"]]
    assert (relaxed.returncode, strict.returncode) == (0, 1)
    assert relaxed.stdout == strict.stdout


def test_other_kinds_are_passed_over_and_each_object_is_named() -> None:
    other = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}}
    first = {**changed(policy={}), "metadata": {"name": "first", "namespace": "a"}}
    second = {**changed(polcy={}), "metadata": {"name": "second"}}
    listed = {"apiVersion": "v1", "kind": "List", "items": [second, BASE]}

    ended = specfleet("validate", "-f", "-", stdin=text(other, first, None, listed))

    assert [(reason, path) for _, reason, path, _ in lines(ended)] == [
        ("RuleViolated", "a/first:spec.policy"),
        ("UnknownField", "second:spec.polcy"),
    ]


def test_the_same_name_twice_is_an_error() -> None:
    ended = specfleet("validate", "-f", "-", stdin=text(BASE, BASE))

    assert [line[:2] for line in lines(ended)] == [["error", "DuplicateName"]]


def test_a_file_without_one_is_a_warning() -> None:
    ended = specfleet("validate", "-f", "-", stdin=text({"apiVersion": "v1", "kind": "Secret"}))

    assert ended.returncode == 0
    assert lines(ended)[0][:2] == ["warning", "NothingFound"]


@pytest.mark.parametrize(
    "stdin",
    ["a: [1", "a: 1\na: 2", "\tx: 1", "a: *nothing", "!!python/object/apply:os.system ['true']", "a: b: c"],
)
def test_what_is_no_yaml_is_a_finding_with_its_place(stdin: str) -> None:
    ended = specfleet("validate", "-f", "-", stdin=stdin)

    assert ended.returncode == 1
    assert ended.stderr == ""
    ((severity, reason, path, message),) = lines(ended)
    assert (severity, reason) == ("error", "SyntaxError")
    assert path.startswith("line ")
    assert message.startswith("the text is no YAML: ")


def test_a_date_or_a_binary_in_it_is_a_finding_not_a_trace() -> None:
    ended = specfleet("validate", "-f", "-", stdin=text(BASE).replace("owner/model", "2026-11-29"))

    assert ended.returncode == 1
    assert lines(ended)[0][1:3] == ["RuleViolated", "spec.target.model"]


@pytest.mark.parametrize("command", ["validate", "render"])
def test_a_file_that_is_not_there_is_one_sentence_on_standard_error(command: str) -> None:
    ended = specfleet(command, "-f", "/no/such/file.yaml")

    assert (ended.returncode, ended.stdout) == (2, "")
    assert ended.stderr == f"specfleet {command}: cannot read /no/such/file.yaml: No such file or directory\n"


def test_settings_decide_what_is_allowed(tmp_path: Path) -> None:
    volume = changed(target={"model": "/models/x", "source": {"hostPath": {"path": "/srv/x"}}})
    allowing, broken = tmp_path / "settings.yaml", tmp_path / "broken.yaml"
    allowing.write_text("allowHostPath: true\nrouterImage: registry.example/envoy:1\n")
    broken.write_text("allowHostPaths: true\n")

    allowed = specfleet("render", "--settings", str(allowing), "-f", "-", stdin=text(volume))
    refused = specfleet("validate", "--settings", str(broken), "-f", "-", stdin=text(volume))

    assert allowed.returncode == 0
    assert "image: registry.example/envoy:1\n" in allowed.stdout
    assert refused.returncode == 2
    assert "known settings are allow_host_namespaces" in refused.stderr


def test_render_writes_all_objects_in_a_fixed_order_without_owners() -> None:
    ended = specfleet("render", "-f", "-", stdin=text(BASE))

    objects = list(yaml.safe_load_all(ended.stdout))
    assert ended.returncode == 0
    assert [(item["kind"], item["metadata"]["name"]) for item in objects] == [
        ("ServiceAccount", "assistant-pods"),
        ("ConfigMap", "assistant-router"),
        ("ConfigMap", "assistant-routes"),
        ("Service", "assistant-baseline"),
        ("Service", "assistant-ngram"),
        ("Service", "assistant"),
        ("PodDisruptionBudget", "assistant-baseline"),
        ("PodDisruptionBudget", "assistant-ngram"),
        ("PodDisruptionBudget", "assistant-router"),
        ("Deployment", "assistant-baseline"),
        ("Deployment", "assistant-ngram"),
        ("Deployment", "assistant-router"),
    ]
    assert all(item["metadata"]["namespace"] == "serving" for item in objects)
    assert "ownerReferences" not in ended.stdout
    assert specfleet("render", "-f", "-", stdin=text(BASE)).stdout == ended.stdout


def test_render_of_an_invalid_object_writes_findings_and_no_object() -> None:
    ended = specfleet("render", "-f", "-", stdin=text(BASE, {**changed(policy={}), "metadata": {"name": "bad"}}))

    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith("error\tRuleViolated\tbad:spec.policy\t")


def test_kubectl_finds_it_by_its_own_name() -> None:
    ended = program("kubectl-specfleet", "validate", "--help")

    assert ended.returncode == 0
    assert ended.stdout.startswith("Usage: kubectl specfleet validate")


def test_the_help_names_every_command_and_an_unknown_one_is_refused() -> None:
    shown, unknown = program("specfleet", "--help"), program("specfleet", "rendr")

    assert all(f"\n  {name} " in shown.stdout for name in ("validate", "render", "explain", "replay", "run", "drain"))
    assert unknown.returncode == 2
    assert "No such command 'rendr'" in unknown.stderr
    assert "Traceback" not in unknown.stderr


EXAMPLES = REPOSITORY / "manifests" / "examples"


@pytest.mark.parametrize(
    "file",
    sorted(file for kind in ("vllm", "sglang", "trtllm", "external") for file in EXAMPLES.glob(f"{kind}-*.yaml")),
    ids=lambda f: f.stem,
)
def test_the_examples_are_valid_to_the_last_warning(file: Path) -> None:
    ended = specfleet("validate", "--strict", "-f", str(file))
    reasons = [line.split("\t")[1] for line in ended.stdout.splitlines()]

    assert reasons == (["PackageNeeded"] if file.stem == "vllm-suffix" else [])


@pytest.mark.parametrize(
    ("engine", "without"),
    [("vllm", set()), ("sglang", {"Suffix", "Medusa"}), ("trtllm", {"Suffix", "Medusa", "EAGLE"})],
)
def test_every_draft_mode_that_is_rendered_has_an_example(engine: str, without: set[str]) -> None:
    documents = [yaml.safe_load(file.read_text()) for file in EXAMPLES.glob(f"{engine}-*.yaml")]
    modes = {document["spec"]["drafts"][0]["mode"] for document in documents}

    assert modes == {mode.value for mode in DraftMode} - without

"""Generated files, tables and values of the API."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import yaml

from specfleet.api import crd, reference
from specfleet.api.base import Model, duration, quantity_bytes
from specfleet.api.conditions import CONDITION_SENTENCES, REASONS, ConditionType, Reason, markdown_tables
from specfleet.api.findings import FINDING_SENTENCES, FindingReason, error
from specfleet.api.offline import parse
from specfleet.api.schema import object_schema, structural
from tests.unit.engines.test_vllm import BASE


def test_the_committed_crd_is_that_of_the_models() -> None:
    texts = {path.name: path.read_text() for path in crd.DIRECTORY.glob("*.yaml")}

    assert texts == crd.generated_files(), "run make crds"


def test_the_check_says_which_file_is_stale(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(crd, "DIRECTORY", tmp_path)

    assert crd.main(["--check"]) == 1
    assert "crds/specfleet.dev_specdeployments.yaml differs" in capsys.readouterr().err
    assert crd.main([]) == 0
    assert crd.main(["--check"]) == 0


def test_the_schema_is_structural_and_bounded() -> None:
    def walk(node: dict[str, Any], path: str) -> None:
        assert not {"$ref", "anyOf", "allOf", "title", "$defs", "const"} & set(node), path
        assert node["type"] in ("object", "array", "string", "integer", "boolean"), path
        if node["type"] == "array":
            assert node["maxItems"] <= 64, path
            walk(node["items"], f"{path}[]")
        if "additionalProperties" in node:
            assert node["maxProperties"] <= 64, path
        if node.get("x-kubernetes-preserve-unknown-fields"):
            assert path == ".spec.pools.template"
        for name, sub in node.get("properties", {}).items():
            walk(sub, f"{path}.{name}")

    walk(object_schema(), "")


def test_a_float_in_a_model_is_refused() -> None:
    class WithFloat(Model):
        share: float

    with pytest.raises(ValueError, match="floats have no place in the API"):
        structural(WithFloat)


def test_every_condition_reason_and_finding_has_its_sentence() -> None:
    assert set(CONDITION_SENTENCES) == set(ConditionType)
    assert set(REASONS) == set(Reason)
    assert set(FINDING_SENTENCES) == set(FindingReason)
    assert {kind for entry in REASONS.values() for kind in entry.conditions} == set(ConditionType)
    tables = markdown_tables()
    assert all(f"`{name}`" in tables for name in (*ConditionType, *Reason, *FindingReason))


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("60s", timedelta(minutes=1)),
        ("1h30m", timedelta(hours=1.5)),
        ("250ms", timedelta(seconds=0.25)),
        ("0s", timedelta(0)),
    ],
)
def test_a_duration_is_read(text: str, length: timedelta) -> None:
    assert duration(text) == length


@pytest.mark.parametrize("text", ["", "60", "1d", "-1s", "1s\n", " 1s", "1.5h", "9" * 30 + "h"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a duration such as 60s"):
        duration(text)


def test_bytes_are_read() -> None:
    assert quantity_bytes("16Mi") == 16 * 1024 * 1024
    assert quantity_bytes("1k") == 1000
    with pytest.raises(ValueError, match="expected bytes such as 16Mi"):
        quantity_bytes("16MB")


def test_a_finding_is_one_line_whatever_it_holds() -> None:
    line = error(FindingReason.INVALID_VALUE, "spec.engine.args[a\tb]", "found 'x\ny'").line()

    assert line == "error\tInvalidValue\tspec.engine.args[a b]\tfound 'x y'"


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"apiVersion": "specfleet.dev/v1alpha1", "kind": "SpecDeployment"},
        {**BASE, "metadata": {"name": 5}},
        {**BASE, "metadata": None},
        {**BASE, "spec": None},
        {**BASE, "spec": []},
        {**BASE, "spec": {**BASE["spec"], "drafts": {"name": "x"}}},
        {
            **BASE,
            "spec": {**BASE["spec"], "engine": {"type": "vLLM", "args": {1: "x"}, "version": "0.32.0", "x": {1, 2}}},
        },
        {**BASE, "spec": {**BASE["spec"], "routing": {"routes": "all"}}},
        {**BASE, "spec": {**BASE["spec"], "policy": {"block": "9" * 31 + "h", "minAcceptancePercent": 3}}},
    ],
)
def test_no_document_makes_the_check_fail(document: dict[str, Any]) -> None:
    deployment, findings = parse(document)

    assert deployment is None
    assert findings
    assert all(finding.message and "\n" not in finding.line() for finding in findings)


def test_a_document_as_stored_by_the_server_is_right() -> None:
    stored = {
        **BASE,
        "metadata": {**BASE["metadata"], "uid": "1", "generation": 3, "managedFields": [], "labels": {"a": "b"}},
        "status": {"observedGeneration": 3},
    }

    deployment, findings = parse(stored)

    assert findings == []
    assert deployment is not None
    assert (deployment.metadata.uid, deployment.metadata.generation) == ("1", 3)


def test_a_misspelt_field_is_answered_with_the_right_one() -> None:
    document = yaml.safe_load(yaml.safe_dump(BASE))
    document["spec"]["pools"]["min_baseline"] = 1

    _, (finding,) = parse(document)

    assert finding.path == "spec.pools.min_baseline"
    assert finding.message.endswith("did you mean minBaseline?")


def test_the_pages_have_the_tables_of_the_models() -> None:
    pages = {page.name: page.read_text(encoding="utf-8") for page in reference.DIRECTORY.glob("*.md")}

    stale = [name for name, text in pages.items() if reference.renewed(text) != text]

    assert stale == [], "run python -m specfleet.api.reference"
    assert "<!-- generated: spec -->" in pages["specdeployment.md"]
    assert "<!-- generated: conditions -->" in pages["conditions.md"]

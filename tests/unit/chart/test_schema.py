"""Values that make no sense are refused by Helm before anything is installed, with the place named."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.unit.chart.helm import CHART, helm, template

REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"replica": 2}, "replica"),
    ({"crds": {"enable": True}}, "/crds"),
    ({"metrics": {"podMonitor": {"enabled": "yes"}}}, "/metrics/podMonitor/enabled"),
    ({"metrics": {"podMonitor": {"interval": "half a minute"}}}, "/metrics/podMonitor/interval"),
    ({"replicas": -1}, "/replicas"),
    ({"replicas": "two"}, "/replicas"),
    ({"allowHostPath": "false"}, "/allowHostPath"),
    ({"watchNamespaces": ["Serving"]}, "/watchNamespaces/0"),
    ({"watchNamespaces": ["serving", "serving"]}, "/watchNamespaces"),
    ({"image": {"digest": "sha256:abc"}}, "/image/digest"),
    ({"image": {"repository": "https://ghcr.io/specfleet"}}, "/image/repository"),
    ({"image": {"pullPolicy": "Sometimes"}}, "/image/pullPolicy"),
    ({"routerImage": {"tag": ""}}, "/routerImage/tag"),
    ({"resources": {"request": {"cpu": 1}}}, "/resources"),
    ({"podAnnotations": {"example.com/note": True}}, "/podAnnotations"),
    ({"extraEnv": [{"value": "x"}]}, "/extraEnv/0"),
    ({"fullnameOverride": "Specfleet"}, "/fullnameOverride"),
]


@pytest.mark.parametrize(("values", "place"), REFUSED, ids=[json.dumps(values) for values, _ in REFUSED])
def test_helm_refuses_values_that_make_no_sense(values: dict[str, Any], place: str) -> None:
    ended = template(values)

    assert ended.returncode != 0
    assert "values don't meet the specifications of the schema" in ended.stderr
    assert place in ended.stderr


def test_an_account_that_is_not_created_must_be_named() -> None:
    ended = template({"serviceAccount": {"create": False}})

    assert ended.returncode != 0
    assert "write the name of an existing account in serviceAccount.name" in ended.stderr


def test_every_default_value_is_described_in_the_schema() -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = json.loads((CHART / "values.schema.json").read_text())

    undescribed = []

    def walk(value: dict[str, Any], part: dict[str, Any], path: str) -> None:
        for key, below in value.items():
            described = part.get("properties", {}).get(key)
            if described is None or not described.get("description"):
                undescribed.append(f"{path}.{key}")
            elif isinstance(below, dict) and "properties" in described and below:
                walk(below, described, f"{path}.{key}")

    walk({key: value for key, value in values.items() if key != "resources"}, schema, "")
    assert undescribed == []


def test_helm_lint_finds_nothing() -> None:
    ended = helm("lint", str(CHART), "--strict")

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "[WARNING]" not in ended.stdout

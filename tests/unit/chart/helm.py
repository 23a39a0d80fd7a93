"""Runs the real Helm on the chart and reads what it renders."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.testbed.api import helm_binary

REPOSITORY = Path(__file__).resolve().parents[3]
CHART = REPOSITORY / "charts" / "specfleet"
NAMESPACE = "specfleet-system"

Object = dict[str, Any]


def helm(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """The outcome of one Helm command."""
    return subprocess.run([str(helm_binary()), *arguments], capture_output=True, text=True, input=stdin, check=False)


def template(values: Mapping[str, Any], *arguments: str) -> subprocess.CompletedProcess[str]:
    """`helm template` of a release named specfleet with these values."""
    command = ("template", "specfleet", str(CHART), "--namespace", NAMESPACE, "--kube-version", "1.30.0")
    return helm(*command, "--values", "-", *arguments, stdin=yaml.safe_dump(dict(values)))


def rendered(values: Mapping[str, Any] | None = None, *arguments: str) -> list[Object]:
    """The objects of the release."""
    ended = template(values or {}, *arguments)
    assert ended.returncode == 0, ended.stderr
    return [document for document in yaml.safe_load_all(ended.stdout) if document]


def of_kind(objects: list[Object], kind: str) -> list[Object]:
    """Those objects that are of this kind."""
    return [document for document in objects if document["kind"] == kind]


def the(objects: list[Object], kind: str, name: str | None = None) -> Object:
    """The one object of that kind (and name)."""
    found = [one for one in of_kind(objects, kind) if name in (None, one["metadata"]["name"])]
    assert len(found) == 1, f"expected one {kind} {name or ''}, found {[one['metadata']['name'] for one in found]}"
    return found[0]


def rules_of(objects: list[Object]) -> Iterator[tuple[str, str, tuple[str, ...], tuple[str, ...]]]:
    """(kind of role, its name, resources as group/resource, verbs) of every rule."""
    for role in [*of_kind(objects, "ClusterRole"), *of_kind(objects, "Role")]:
        for rule in role["rules"]:
            resources = tuple(f"{group}/{name}" for group in rule["apiGroups"] for name in rule["resources"])
            yield role["kind"], role["metadata"]["name"], resources, tuple(rule["verbs"])

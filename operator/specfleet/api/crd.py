"""Writes the CustomResourceDefinition into `crds/`: `python -m specfleet.api.crd [--check]`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import yaml

from specfleet.api.schema import object_schema
from specfleet.api.v1alpha1 import CATEGORIES, GROUP, KIND, PLURAL, SHORT_NAMES, SINGULAR, VERSION

DIRECTORY = Path(__file__).resolve().parents[3] / "crds"
HEADER = "# Generated from the models in operator/specfleet/api by `make crds`. Do not edit.\n"

COLUMNS: tuple[tuple[str, str, str, int], ...] = (
    ("Ready", ".status.conditions[?(@.type=='Ready')].status", "Whether both pools and the router serve.", 0),
    ("Mode", ".status.summary.mode", "How many routes are served with speculation.", 0),
    ("Acceptance", ".status.summary.acceptance", "Accepted over drafted tokens, all routes.", 0),
    ("Engine", ".spec.engine.type", "Serving engine.", 1),
    ("Draft", ".spec.drafts[0].mode", "How draft tokens are made.", 1),
    ("Upgrade", ".status.upgrade.pool", "The pool that takes a change of engine pods now; empty without one.", 1),
    ("Replicas", ".spec.pools.replicas", "Engine pods, both pools together.", 1),
)


def custom_resource_definition() -> dict[str, Any]:
    """The CustomResourceDefinition of SpecDeployment."""
    columns = [
        {
            "name": name,
            "type": "integer" if name == "Replicas" else "string",
            "jsonPath": path,
            "description": description,
            "priority": priority,
        }
        for name, path, description, priority in COLUMNS
    ]
    columns.insert(3, {"name": "Age", "type": "date", "jsonPath": ".metadata.creationTimestamp"})
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{PLURAL}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": KIND,
                "listKind": f"{KIND}List",
                "plural": PLURAL,
                "singular": SINGULAR,
                "shortNames": list(SHORT_NAMES),
                "categories": list(CATEGORIES),
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": columns,
                    "schema": {"openAPIV3Schema": object_schema()},
                }
            ],
        },
    }


def generated_files() -> dict[str, str]:
    """Text of every generated file, by its name in `crds/`."""
    # Through JSON: parts that occur twice would else be written as anchors, which people do not read.
    plain = json.loads(json.dumps(custom_resource_definition()))
    document = yaml.safe_dump(plain, sort_keys=False, width=120, allow_unicode=True)
    return {f"{GROUP}_{PLURAL}.yaml": HEADER + document}


def main(arguments: list[str]) -> int:
    """Writes the files, or with `--check` says which differ. Returns the exit status."""
    if arguments not in ([], ["--check"]):
        print("usage: python -m specfleet.api.crd [--check]", file=sys.stderr)
        return 2
    stale = 0
    for name, text in generated_files().items():
        path = DIRECTORY / name
        if path.exists() and path.read_text() == text:
            continue
        if arguments:
            print(f"crds/{name} differs from the models: run make crds", file=sys.stderr)
            stale = 1
        else:
            DIRECTORY.mkdir(exist_ok=True)
            path.write_text(text)
            print(f"wrote crds/{name}")
    return stale


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

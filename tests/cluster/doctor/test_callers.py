"""Who asks: what `specfleet doctor` does with fewer rights, other contexts, or no cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.cluster.api import Body
from tests.cluster.doctor.bed import (
    ASSISTANT,
    FLEETS,
    Bed,
    condition,
    fleet_status,
    path_of,
)

pytestmark = pytest.mark.cluster


def viewer(bed: Bed, tmp_path: Path, rules: list[Body]) -> Path:
    """A kubeconfig of a service account of the fleets' namespace with these rights there."""
    bed.make({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "reader", "namespace": FLEETS}})
    group = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    bed.make({**group, "kind": "Role", "metadata": {"name": "reader", "namespace": FLEETS}, "rules": rules})
    bed.make(
        {
            **group,
            "kind": "RoleBinding",
            "metadata": {"name": "reader", "namespace": FLEETS},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "reader"},
            "subjects": [{"kind": "ServiceAccount", "name": "reader", "namespace": FLEETS}],
        }
    )
    token = bed.api.request(
        "POST",
        path_of("ServiceAccount", "reader/token", FLEETS),
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}},
    )["status"]["token"]
    config = yaml.safe_load(bed.kubeconfig.read_text())
    for user in config["users"]:
        user["user"] = {"token": token}
    for context in config["contexts"]:
        context["context"]["namespace"] = FLEETS
    target = tmp_path / "kubeconfig"
    target.write_text(yaml.safe_dump(config))
    return target


def test_what_may_not_be_read_is_not_checked_and_breaks_nothing(bed: Bed, tmp_path: Path) -> None:
    rules = [{"apiGroups": ["specfleet.dev"], "resources": ["specdeployments"], "verbs": ["list"]}]
    kubeconfig = viewer(bed, tmp_path, rules)
    bed.change(
        ASSISTANT,
        {"status": fleet_status(condition("Stalled", "True", "NameTaken", "It exists"))},
        "status",
    )

    result = bed.doctor("-n", FLEETS, kubeconfig=kubeconfig)
    shown = bed.doctor("-n", FLEETS, kubeconfig=kubeconfig, output="text").out

    assert result.code == 1
    assert [one["check"] for one in result.report["findings"]] == ["fleets"]
    skipped = {one["check"] for one in result.report["notChecked"]}
    assert {"accelerators", "kubelets", "dns", "operator", "leader", "definition", "left-behind"} <= skipped
    assert "not checked  kubelets, accelerators: nodes is forbidden" in shown
    assert "of them could not be made in full" in shown.splitlines()[-1]


def test_nothing_wrong_and_not_everything_checked_is_not_called_well(bed: Bed, tmp_path: Path) -> None:
    rules = [{"apiGroups": ["specfleet.dev"], "resources": ["specdeployments"], "verbs": ["list"]}]

    result = bed.doctor("-n", FLEETS, kubeconfig=viewer(bed, tmp_path, rules), output="text")

    assert result.code == 0
    assert "All is well" not in result.out
    assert result.out.splitlines()[-1].startswith("Nothing wrong was found in ")


def test_who_sees_one_namespace_is_told_that_others_were_not_looked_at(bed: Bed, tmp_path: Path) -> None:
    rules = [{"apiGroups": ["specfleet.dev"], "resources": ["specdeployments"], "verbs": ["list"]}]
    bed.change(ASSISTANT, {"status": fleet_status(condition("Stalled", "True", "NameTaken", "It exists"))}, "status")

    report = bed.doctor(kubeconfig=viewer(bed, tmp_path, rules)).report

    assert [one["check"] for one in report["findings"]] == ["fleets"]
    skipped = [one["why"] for one in report["notChecked"] if one["check"] == "fleets"]
    assert [why.partition(":")[0] for why in skipped] == [f"other namespaces than {FLEETS}"]


def test_a_cluster_that_does_not_answer(bed: Bed, tmp_path: Path) -> None:
    config = yaml.safe_load(bed.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    elsewhere = tmp_path / "kubeconfig"
    elsewhere.write_text(yaml.safe_dump(config))

    result = bed.doctor(kubeconfig=elsewhere)

    assert (result.code, result.out) == (2, "")
    assert "expected an answer of the API server https://127.0.0.1:1" in result.error


def test_credentials_that_are_refused(bed: Bed, tmp_path: Path) -> None:
    config = yaml.safe_load(bed.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": "expired"}
    stale = tmp_path / "kubeconfig"
    stale.write_text(yaml.safe_dump(config))

    result = bed.doctor(kubeconfig=stale)

    assert result.code == 2
    assert "does not accept the credentials (401)" in result.error


def test_a_context_is_chosen_by_name(bed: Bed, tmp_path: Path) -> None:
    config = yaml.safe_load(bed.kubeconfig.read_text())
    broken = {"name": "broken", "cluster": {**config["clusters"][0]["cluster"], "server": "https://127.0.0.1:1"}}
    config["clusters"].append(broken)
    user = config["users"][0]["name"]
    config["contexts"] += [
        {"name": "broken", "context": {"cluster": "broken", "user": user}},
        {"name": "good", "context": {"cluster": config["clusters"][0]["name"], "user": user}},
    ]
    config["current-context"] = "broken"
    several = tmp_path / "kubeconfig"
    several.write_text(yaml.safe_dump(config))

    assert bed.doctor("--context", "good", kubeconfig=several).code == 0
    unknown = bed.doctor("--context", "other", kubeconfig=several)
    assert unknown.code == 2
    assert "name one of them with --context" in unknown.error

"""What an administrator chooses in values, and what the cluster then gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from specfleet.settings import OperatorSettings, load_settings
from tests.unit.chart.helm import CHART, NAMESPACE, REPOSITORY, helm, of_kind, rendered, rules_of, the

POD_MONITORS = ("--api-versions", "monitoring.coreos.com/v1/PodMonitor")
MODES: list[dict[str, Any]] = [{}, {"watchNamespaces": ["serving"]}]


def crd_files() -> list[Path]:
    return sorted((REPOSITORY / "crds").glob("*.yaml"))


def test_the_chart_carries_the_generated_definitions_verbatim() -> None:
    copies = {path.name: path.read_text() for path in (CHART / "files" / "crds").glob("*.yaml")}

    assert copies == {path.name: path.read_text() for path in crd_files()}
    assert copies


def test_definitions_are_rendered_as_generated_but_for_their_metadata() -> None:
    generated = {one["metadata"]["name"]: one for one in map(yaml.safe_load, (p.read_text() for p in crd_files()))}

    found = {one["metadata"]["name"]: one for one in of_kind(rendered(), "CustomResourceDefinition")}

    assert found.keys() == generated.keys()
    for name, definition in found.items():
        assert definition["spec"] == generated[name]["spec"]
        assert definition["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}
        assert definition["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "Helm"


def test_definitions_go_with_the_release_where_keep_is_off() -> None:
    for definition in of_kind(rendered({"crds": {"keep": False}}), "CustomResourceDefinition"):
        assert "annotations" not in definition["metadata"]


def test_definitions_can_come_from_elsewhere() -> None:
    assert of_kind(rendered({"crds": {"enabled": False}}), "CustomResourceDefinition") == []


@pytest.mark.parametrize("values", MODES)
def test_the_operator_has_no_verb_on_secrets_and_no_wildcard(values: dict[str, Any]) -> None:
    rules = list(rules_of(rendered(values)))

    assert rules
    for _, role, resources, verbs in rules:
        assert not any("secrets" in resource or "*" in resource for resource in resources), role
        assert "*" not in verbs, role


@pytest.mark.parametrize("values", MODES)
def test_the_operator_never_writes_a_specdeployment_itself(values: dict[str, Any]) -> None:
    for _, role, resources, verbs in rules_of(rendered(values)):
        if "specfleet.dev/specdeployments" in resources and not role.endswith(("-admin", "-view")):
            assert set(verbs) <= {"get", "list", "watch"}


@pytest.mark.parametrize("values", MODES)
def test_without_pod_patch_there_is_neither_the_verb_nor_the_policy(values: dict[str, Any]) -> None:
    with_it = rendered(values)
    without = rendered({**values, "podPatch": {"enabled": False}})

    def pod_verbs(objects: list[dict[str, Any]]) -> set[str]:
        return {verb for *_, resources, verbs in rules_of(objects) if "/pods" in resources for verb in verbs}

    assert pod_verbs(with_it) == {"get", "list", "watch", "patch"}
    assert len(of_kind(with_it, "ValidatingAdmissionPolicyBinding")) == 1
    assert pod_verbs(without) == {"get", "list", "watch"}
    assert of_kind(without, "ValidatingAdmissionPolicy") == []
    assert of_kind(without, "ValidatingAdmissionPolicyBinding") == []


def test_the_policy_bounds_rights_that_somebody_else_grants_too() -> None:
    objects = rendered({"rbac": {"create": False}})

    assert list(of_kind(objects, "RoleBinding")) == []
    assert len(of_kind(objects, "ValidatingAdmissionPolicyBinding")) == 1


def test_named_namespaces_get_roles_and_the_cluster_gets_none() -> None:
    objects = rendered({"watchNamespaces": ["serving", "staging"], "rbac": {"aggregate": False}})

    assert of_kind(objects, "ClusterRole") == []
    assert of_kind(objects, "ClusterRoleBinding") == []
    for kind in ("Role", "RoleBinding"):
        places = sorted(role["metadata"]["namespace"] for role in of_kind(objects, kind))
        assert places == ["serving", NAMESPACE, "staging"]


def test_settings_are_what_the_operator_reads(tmp_path: Path) -> None:
    objects = rendered(
        {
            "image": {"repository": "registry.example.com/specfleet", "tag": "1.2.3"},
            "routerImage": {"repository": "registry.example.com/envoy", "tag": "v1"},
            "allowHostPath": True,
            "watchNamespaces": ["serving"],
        }
    )

    file = tmp_path / "settings.yaml"
    file.write_text(the(objects, "ConfigMap")["data"]["settings.yaml"])

    settings = load_settings(file)
    assert settings.model_fields_set == OperatorSettings.model_fields.keys()
    assert settings.operator_image == "registry.example.com/specfleet:1.2.3"
    assert settings.router_image == "registry.example.com/envoy:v1"
    assert settings.allow_host_path is True
    assert settings.watch_namespaces == ["serving"]


def test_what_prometheus_asks_for_is_mounted_and_named_in_the_settings(tmp_path: Path) -> None:
    objects = rendered(
        {
            "prometheus": {
                "url": "https://prometheus.monitoring:9090",
                "bearerToken": {"secret": "reader", "key": "jwt"},
                "ca": {"configMap": "authority"},
            }
        }
    )
    file = tmp_path / "settings.yaml"
    file.write_text(the(objects, "ConfigMap")["data"]["settings.yaml"])
    settings = load_settings(file).prometheus
    spec = the(objects, "Deployment")["spec"]["template"]["spec"]
    mounts = {one["name"]: one["mountPath"] for one in spec["containers"][0]["volumeMounts"]}
    sources = next(one["projected"]["sources"] for one in spec["volumes"] if one["name"] == "prometheus")
    files = {Path(mounts["prometheus"]) / item["path"] for one in sources for item in next(iter(one.values()))["items"]}

    assert settings.url == "https://prometheus.monitoring:9090"
    assert set(settings.files().values()) == files
    assert sources[0]["secret"] == {"name": "reader", "items": [{"key": "jwt", "path": "token"}]}


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        (
            {"url": "http://a", "serviceAccountToken": True, "basicAuth": {"secret": "b"}},
            "basicAuth.secret and serviceAccountToken exclude each other: write one of them",
        ),
        ({"bearerToken": {"secret": "a"}}, "bearerToken.secret is for the server at prometheus.url: write that too"),
        ({"url": "prometheus:9090"}, "prometheus.url"),
    ],
)
def test_settings_of_prometheus_that_cannot_be_are_refused_before_anything_is_installed(
    values: dict[str, Any], sentence: str
) -> None:
    ended = helm("template", "specfleet", str(CHART), "--values", "-", stdin=yaml.safe_dump({"prometheus": values}))

    assert ended.returncode != 0
    assert sentence in ended.stderr.replace("/", ".")


def test_a_changed_setting_rolls_the_operator_and_nothing_else_does() -> None:
    def checksum(values: dict[str, Any]) -> str:
        metadata = the(rendered(values), "Deployment")["spec"]["template"]["metadata"]
        return str(metadata["annotations"]["checksum/settings"])

    assert checksum({"allowHostPath": True}) != checksum({})
    assert checksum({"podDisruptionBudget": {"enabled": False}}) == checksum({})


def test_a_digest_wins_over_the_tag() -> None:
    digest = "sha256:" + "a" * 64
    objects = rendered({"image": {"tag": "1.2.3", "digest": digest}})

    container = the(objects, "Deployment")["spec"]["template"]["spec"]["containers"][0]
    assert container["image"] == f"ghcr.io/specfleet/specfleet@{digest}"


@pytest.mark.parametrize(
    ("enabled", "arguments", "count"),
    [("auto", (), 0), ("auto", POD_MONITORS, 1), (True, (), 1), (False, POD_MONITORS, 0)],
)
def test_the_pod_monitor_has_three_states(enabled: Any, arguments: tuple[str, ...], count: int) -> None:
    objects = rendered({"metrics": {"podMonitor": {"enabled": enabled}}}, *arguments)

    assert len(of_kind(objects, "PodMonitor")) == count


@pytest.mark.parametrize(("replicas", "count"), [(1, 0), (2, 1)])
def test_a_single_replica_has_no_budget_that_would_block_a_drain(replicas: int, count: int) -> None:
    assert len(of_kind(rendered({"replicas": replicas}), "PodDisruptionBudget")) == count


def test_everything_that_selects_the_operator_selects_its_pods_and_only_them() -> None:
    objects = rendered({"networkPolicy": {"enabled": True}, "metrics": {"podMonitor": {"enabled": True}}})
    labels = the(objects, "Deployment")["spec"]["template"]["metadata"]["labels"].items()
    check = the(objects, "Pod")["metadata"]["labels"].items()

    selectors = [
        the(objects, "Deployment")["spec"]["selector"]["matchLabels"],
        the(objects, "Service")["spec"]["selector"],
        the(objects, "PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
        the(objects, "PodMonitor")["spec"]["selector"]["matchLabels"],
        the(objects, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"],
    ]

    for selector in selectors:
        assert selector.items() <= labels
        assert not selector.items() <= check


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({}, "watches all namespaces"),
        ({"watchNamespaces": ["serving"]}, "watches the namespaces serving"),
        ({"podPatch": {"enabled": False}}, "up to 90 s later"),
        ({"crds": {"keep": False}}, "deletes every SpecDeployment"),
        ({"crds": {"enabled": False}}, "must come from elsewhere"),
        ({"replicas": 1}, "nothing is decided"),
    ],
)
def test_notes_say_what_a_choice_costs(values: dict[str, Any], sentence: str) -> None:
    ended = helm(
        *("install", "specfleet", str(CHART), "--namespace", NAMESPACE, "--dry-run=client", "--values", "-"),
        stdin=yaml.safe_dump(values),
    )

    assert ended.returncode == 0, ended.stderr
    assert sentence in ended.stdout

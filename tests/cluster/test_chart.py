"""The chart on a real API server: what it installs works, and what it forbids is refused."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.testbed.api import ensure_control_plane, helm_binary, kubectl_binary
from tests.unit.chart.pages import examples

pytestmark = pytest.mark.cluster

CHART = Path(__file__).resolve().parents[2] / "charts" / "specfleet"
NAMESPACE = "specfleet-system"
OPERATOR = f"system:serviceaccount:{NAMESPACE}:specfleet"
CRD = "specdeployments.specfleet.dev"
ANNOTATION = "specfleet.dev/routes-version"
DEADLINE_SECONDS = 30.0


@dataclass(frozen=True)
class Cluster:
    """An API server and the two clients that a person uses."""

    kubeconfig: Path

    def run(self, *command: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """One command with this cluster as its own."""
        environment = {**os.environ, "KUBECONFIG": str(self.kubeconfig)}
        return subprocess.run(command, capture_output=True, text=True, input=stdin, env=environment, check=False)

    def kubectl(self, *arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        """One kubectl command, whatever its outcome."""
        return self.run(str(kubectl_binary()), *arguments, stdin=stdin)

    def must(self, *arguments: str, stdin: str = "") -> str:
        """The output of a kubectl command that has to succeed."""
        ended = self.kubectl(*arguments, stdin=stdin)
        assert ended.returncode == 0, f"kubectl {' '.join(arguments)}: {ended.stderr}"
        return ended.stdout

    def helm(self, *arguments: str, namespace: str = NAMESPACE) -> str:
        """The output of a Helm command that has to succeed."""
        ended = self.run(str(helm_binary()), *arguments, "--namespace", namespace)
        assert ended.returncode == 0, f"helm {' '.join(arguments)}: {ended.stderr}"
        return ended.stdout

    def can(self, user: str, verb: str, resource: str, namespace: str) -> bool:
        """The API server's own answer on who may do what; `resource` is KIND, KIND/NAME or KIND:SUBRESOURCE."""
        kind, _, subresource = resource.partition(":")
        scope = ["--namespace", namespace] if namespace else ["--all-namespaces"]
        options = ["--as", user, "--subresource", subresource, *scope, "--quiet"]
        return self.kubectl("auth", "can-i", verb, kind, *options).returncode == 0

    def eventually(self, *arguments: str, contains: str) -> None:
        """Wait until the combined output of a kubectl command contains a text."""
        deadline = time.monotonic() + DEADLINE_SECONDS
        while True:
            ended = self.kubectl(*arguments)
            if contains in ended.stdout + ended.stderr:
                return
            assert time.monotonic() < deadline, f"no {contains!r} in: {ended.stdout}{ended.stderr}"
            time.sleep(0.2)


def pod(name: str, component: str, owner: str = "specfleet") -> str:
    """A pod that fits the strictest pod security standard."""
    return yaml.safe_dump(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": name,
                "labels": {
                    "app.kubernetes.io/name": owner,
                    "app.kubernetes.io/component": component,
                    "specfleet.dev/deployment": "assistant",
                },
                "annotations": {"example.com/kept": "yes", ANNOTATION: "v1"},
            },
            "spec": {"automountServiceAccountToken": False, "containers": [{"name": "main", "image": "example/image"}]},
        }
    )


def namespace(name: str, **labels: str) -> str:
    """A Namespace with labels."""
    return yaml.safe_dump({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """An API server with controllers, the namespaces and three pods in them."""
    plane = ensure_control_plane(tmp_path_factory.mktemp("chart") / "state", controllers=True)
    cluster = Cluster(plane.kubeconfig)
    restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
    cluster.must("apply", "-f", "-", stdin=namespace(NAMESPACE, **restricted))
    for name in ("serving", "other"):
        cluster.must("apply", "-f", "-", stdin=namespace(name))
        cluster.eventually("get", "serviceaccount", "default", "--namespace", name, contains="default")
    for manifest in (pod("router", "router"), pod("engine", "engine"), pod("foreign", "router", owner="nginx")):
        cluster.must("create", "--namespace", "serving", "-f", "-", stdin=manifest)
    yield cluster
    plane.stop()


@pytest.fixture(scope="module")
def installed(cluster: Cluster) -> Cluster:
    """The cluster with the chart installed, its definitions established and its policy in force."""
    cluster.helm("install", "specfleet", str(CHART))
    cluster.must("wait", "--for=condition=Established", f"crd/{CRD}", "--timeout=30s")
    cluster.eventually(
        *patch("engine", {"metadata": {"annotations": {"a": "b"}}}), contains="ValidatingAdmissionPolicy"
    )
    return cluster


def patch(name: str, change: dict[str, Any]) -> tuple[str, ...]:
    """A merge patch of a pod as the operator's account."""
    return (
        "patch",
        "pod",
        name,
        "--namespace",
        "serving",
        "--as",
        OPERATOR,
        "--patch",
        json.dumps(change),
        "--type=merge",
    )


def test_the_kind_is_served_with_its_columns_and_short_name(installed: Cluster) -> None:
    assert "No resources found" in installed.kubectl("get", "specdep", "--all-namespaces").stderr
    assert "GROUP:      specfleet.dev" in installed.must("explain", "specdeployments.spec.policy")


@pytest.mark.parametrize(("page", "example"), list(examples()), ids=[page for page, _ in examples()])
def test_examples_of_the_manual_are_accepted(installed: Cluster, page: str, example: dict[str, Any]) -> None:
    assert "created (server dry run)" in installed.must(
        *("create", "--dry-run=server", "-f", "-"), stdin=yaml.safe_dump(example)
    )


ALLOWED = [
    ("list", "specdeployments.specfleet.dev", ""),
    ("watch", "specdeployments.specfleet.dev", ""),
    ("patch", "specdeployments.specfleet.dev:status", "serving"),
    ("create", "deployments.apps", "serving"),
    ("patch", "deployments.apps", "serving"),
    ("delete", "deployments.apps", "serving"),
    ("patch", "services", "serving"),
    ("patch", "configmaps", "serving"),
    ("patch", "serviceaccounts", "serving"),
    ("patch", "poddisruptionbudgets.policy", "serving"),
    ("patch", "pods", "serving"),
    ("create", "events.events.k8s.io", "serving"),
    ("create", "leases.coordination.k8s.io", NAMESPACE),
    ("update", "leases.coordination.k8s.io/specfleet", NAMESPACE),
]
FORBIDDEN = [
    ("get", "secrets", "serving"),
    ("list", "secrets", NAMESPACE),
    ("patch", "specdeployments.specfleet.dev", "serving"),
    ("update", "specdeployments.specfleet.dev:finalizers", "serving"),
    ("delete", "specdeployments.specfleet.dev", "serving"),
    ("create", "pods", "serving"),
    ("delete", "pods", "serving"),
    ("create", "pods:exec", "serving"),
    ("patch", "pods:status", "serving"),
    ("patch", "pods:ephemeralcontainers", "serving"),
    ("create", "serviceaccounts:token", "serving"),
    ("get", "leases.coordination.k8s.io/specfleet", "serving"),
    ("update", "leases.coordination.k8s.io/another", NAMESPACE),
    ("create", "clusterroles.rbac.authorization.k8s.io", ""),
    ("create", "rolebindings.rbac.authorization.k8s.io", "serving"),
    ("patch", "customresourcedefinitions.apiextensions.k8s.io", ""),
    ("patch", "nodes", ""),
    ("patch", "namespaces", ""),
]


@pytest.mark.parametrize(("verb", "resource", "place"), ALLOWED)
def test_the_operator_may_do_its_work(installed: Cluster, verb: str, resource: str, place: str) -> None:
    assert installed.can(OPERATOR, verb, resource, place)


@pytest.mark.parametrize(("verb", "resource", "place"), FORBIDDEN)
def test_the_operator_may_do_nothing_else(installed: Cluster, verb: str, resource: str, place: str) -> None:
    assert not installed.can(OPERATOR, verb, resource, place)


def test_roles_of_the_cluster_learn_the_kind(installed: Cluster) -> None:
    for role in ("admin", "edit", "view"):
        installed.must(
            "create", "rolebinding", role, f"--clusterrole={role}", f"--user={role}", "--namespace", "serving"
        )
    installed.eventually("get", "clusterrole", "admin", "view", "-o", "yaml", contains="specdeployments")

    def verbs(user: str) -> set[str]:
        asked = ("get", "create", "patch", "delete")
        return {verb for verb in asked if installed.can(user, verb, CRD, "serving")}

    assert verbs("admin") == {"get", "create", "patch", "delete"}
    assert verbs("edit") == {"get"}
    assert verbs("view") == {"get"}


def test_the_operator_may_set_the_one_annotation_of_a_router_pod(installed: Cluster) -> None:
    installed.must(*patch("router", {"metadata": {"annotations": {ANNOTATION: "0a1b2c"}}}))

    annotations = json.loads(installed.must("get", "pod", "router", "--namespace", "serving", "-o", "json"))["metadata"]
    assert annotations["annotations"] == {"example.com/kept": "yes", ANNOTATION: "0a1b2c"}


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("engine", {"metadata": {"annotations": {ANNOTATION: "v2"}}}, "router pods only"),
    ("foreign", {"metadata": {"annotations": {ANNOTATION: "v2"}}}, "router pods only"),
    ("router", {"metadata": {"annotations": {"example.com/new": "x"}}}, "specfleet.dev/routes-version only"),
    (
        "router",
        {"metadata": {"annotations": {"example.com/kept": "no"}}},
        "specfleet.dev/routes-version only",
    ),
    (
        "router",
        {"metadata": {"annotations": {"example.com/kept": None}}},
        "specfleet.dev/routes-version only",
    ),
    ("router", {"metadata": {"annotations": {ANNOTATION: "two words"}}}, "at most 64 letters"),
    ("router", {"metadata": {"annotations": {ANNOTATION: "x" * 65}}}, "at most 64 letters"),
    ("router", {"metadata": {"labels": {"specfleet.dev/deployment": "other"}}}, "labels, finalizers or owners"),
    ("router", {"metadata": {"labels": {"new": "label"}}}, "labels, finalizers or owners"),
    ("router", {"metadata": {"finalizers": ["example.com/hang"]}}, "labels, finalizers or owners"),
    ("router", {"spec": {"activeDeadlineSeconds": 1}}, "a router pod's spec"),
]


@pytest.mark.parametrize(("name", "change", "message"), REFUSED)
def test_the_operator_may_change_nothing_else_of_a_pod(
    installed: Cluster, name: str, change: dict[str, Any], message: str
) -> None:
    before = installed.must("get", "pod", name, "--namespace", "serving", "-o", "jsonpath={.metadata.resourceVersion}")

    ended = installed.kubectl(*patch(name, change))

    after = installed.must("get", "pod", name, "--namespace", "serving", "-o", "jsonpath={.metadata.resourceVersion}")
    assert ended.returncode != 0
    assert message in ended.stderr
    assert after == before


def test_an_image_cannot_be_swapped_either(installed: Cluster) -> None:
    containers = [{"name": "main", "image": "example/other"}]
    change = json.dumps({"spec": {"containers": containers}})

    ended = installed.kubectl(
        *("patch", "pod", "router", "--namespace", "serving", "--as", OPERATOR, "--patch", change, "--type=strategic")
    )

    assert ended.returncode != 0
    assert "a router pod's spec" in ended.stderr


def test_the_policy_binds_the_operator_only(installed: Cluster) -> None:
    installed.must("annotate", "pod", "engine", "--namespace", "serving", "example.com/by=admin")


def test_the_api_server_finds_no_fault_in_the_policys_expressions(installed: Cluster) -> None:
    name = "specfleet-system-specfleet-pod-patch"
    installed.eventually("get", "validatingadmissionpolicy", name, "-o", "yaml", contains="typeChecking")

    policy = json.loads(installed.must("get", "validatingadmissionpolicy", name, "-o", "json"))

    assert policy["status"]["typeChecking"] == {}


def test_the_operators_pods_fit_the_restricted_standard(installed: Cluster) -> None:
    installed.eventually("get", "pods", "--namespace", NAMESPACE, contains="specfleet-")

    pods = json.loads(installed.must("get", "pods", "--namespace", NAMESPACE, "-o", "json"))["items"]

    assert len(pods) == 2


def test_the_test_pod_of_the_chart_fits_the_restricted_standard(installed: Cluster) -> None:
    hooks = installed.helm("get", "hooks", "specfleet")

    assert "created (server dry run)" in installed.must(
        *("create", "--namespace", NAMESPACE, "--dry-run=server", "-f", "-"), stdin=hooks
    )


def test_the_check_tells_what_works_from_what_does_not(installed: Cluster, tmp_path: Path) -> None:
    config = json.loads(installed.must("config", "view", "--raw", "--flatten", "-o", "json"))
    address = config["clusters"][0]["cluster"]["server"].removeprefix("https://")
    authority = installed.must(
        *("get", "configmap", "kube-root-ca.crt", "--namespace", NAMESPACE, "-o", "jsonpath={.data.ca\\.crt}")
    )
    (tmp_path / "ca.crt").write_text(authority)
    (tmp_path / "token").write_text(installed.must("create", "token", "specfleet", "--namespace", NAMESPACE))
    host, _, port = address.partition(":")
    environment = {
        **{key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")},
        "SPECFLEET_CHECK_ACCOUNT": str(tmp_path),
        "KUBERNETES_SERVICE_HOST": host,
        "KUBERNETES_SERVICE_PORT": port,
    }
    nobody = "http://127.0.0.1:1"

    ended = subprocess.run(
        [sys.executable, str(CHART / "files" / "check.py"), nobody], capture_output=True, text=True, env=environment
    )

    assert ended.returncode == 1
    assert [line.split(":")[0] for line in ended.stdout.splitlines()] == [
        "FAILED  the operator is well (/healthz)",
        "FAILED  the operator is ready (/readyz)",
        "ok      the CustomResourceDefinition is installed",
        "ok      the operator's account may read SpecDeployments",
    ]


@pytest.fixture
def fleet_chart(tmp_path: Path) -> Path:
    """A chart of a user's own that holds the SpecDeployment of the README."""
    chart = tmp_path / "fleet"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: fleet\nversion: 1.0.0\n")
    example = next(example for page, example in examples() if page == "README.md")
    (chart / "templates" / "fleet.yaml").write_text(yaml.safe_dump(example))
    return chart


def test_helm_waits_for_a_specdeployment_until_its_status_says_ready(installed: Cluster, fleet_chart: Path) -> None:
    wait = ("install", "fleet", str(fleet_chart), "--namespace", "serving", "--wait", "--timeout")
    too_early = installed.run(str(helm_binary()), *wait, "3s")
    assert too_early.returncode != 0
    assert "SpecDeployment/serving/assistant" in too_early.stderr
    installed.helm("uninstall", "fleet", namespace="serving")

    environment = {**os.environ, "KUBECONFIG": str(installed.kubeconfig)}
    waiting = subprocess.Popen([str(helm_binary()), *wait, "60s"], env=environment)
    try:
        installed.eventually("get", "specdeployment", "assistant", "--namespace", "serving", contains="assistant")
        assert waiting.poll() is None
        ready = {
            "observedGeneration": 1,
            "conditions": [
                {
                    "type": "Ready",
                    "status": "True",
                    "reason": "Serving",
                    "message": "both pools and the router serve",
                    "lastTransitionTime": "2026-11-29T09:12:04Z",
                    "observedGeneration": 1,
                }
            ],
        }
        status = ("patch", "specdeployment", "assistant", "--namespace", "serving", "--subresource=status")
        installed.must(*status, "--type=merge", "--patch", json.dumps({"status": ready}))
        assert waiting.wait(DEADLINE_SECONDS) == 0
    finally:
        waiting.kill()
        waiting.wait()
        installed.helm("uninstall", "fleet", namespace="serving")


def test_helm_does_not_call_an_operator_installed_whose_pods_do_not_start(installed: Cluster) -> None:
    chosen = ("--set", "crds.enabled=false", "--set", "podPatch.enabled=false", "--set", "rbac.aggregate=false")
    command = ("install", "broken", str(CHART), "--namespace", "other", *chosen, "--wait", "--timeout", "3s")

    ended = installed.run(str(helm_binary()), *command)

    installed.helm("uninstall", "broken", namespace="other")
    assert ended.returncode != 0
    assert "Deployment/other/broken-specfleet" in ended.stderr


def test_a_release_for_named_namespaces_reaches_no_other(installed: Cluster) -> None:
    chosen = ("--set", "watchNamespaces={serving}", "--set", "crds.enabled=false", "--set", "podPatch.enabled=false")
    installed.helm("install", "scoped", str(CHART), *chosen, namespace="other")
    account = "system:serviceaccount:other:scoped-specfleet"

    try:
        assert installed.can(account, "list", CRD, "serving")
        assert installed.can(account, "patch", "deployments.apps", "serving")
        assert not installed.can(account, "list", CRD, "")
        assert not installed.can(account, "patch", "deployments.apps", "other")
        assert not installed.can(account, "patch", "pods", "serving")
    finally:
        installed.helm("uninstall", "scoped", namespace="other")


def test_an_upgrade_brings_new_fields_and_an_uninstall_keeps_what_users_wrote(
    installed: Cluster, tmp_path: Path
) -> None:
    newer = tmp_path / "specfleet"
    shutil.copytree(CHART, newer)
    (definition,) = (newer / "files" / "crds").glob("*.yaml")
    document = yaml.safe_load(definition.read_text())
    schema = document["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"]["spec"]["properties"]["laterField"] = {"type": "string", "description": "Of a later release."}
    definition.write_text(yaml.safe_dump(document, sort_keys=False))
    fleet = yaml.safe_dump(
        {
            "apiVersion": "specfleet.dev/v1alpha1",
            "kind": "SpecDeployment",
            "metadata": {"name": "assistant", "namespace": "serving"},
            "spec": {
                "engine": {"type": "vLLM", "version": "0.32.0"},
                "target": {"model": "meta-llama/Llama-3.1-8B-Instruct"},
                "drafts": [{"name": "ngram", "mode": "NGram"}],
                "pools": {"replicas": 2},
                "policy": {"minAcceptancePercent": 30},
            },
        }
    )
    installed.must("apply", "-f", "-", stdin=fleet)
    assert "does not exist" in installed.kubectl("explain", "specdeployments.spec.laterField").stderr

    installed.helm("upgrade", "specfleet", str(newer))
    installed.eventually("explain", "specdeployments.spec.laterField", contains="Of a later release.")

    installed.helm("uninstall", "specfleet")
    kept = installed.must("get", "specdeployments", "--namespace", "serving", "-o", "name")
    assert kept.strip() == "specdeployment.specfleet.dev/assistant"
    for kind in ("deployment", "validatingadmissionpolicy", "clusterrole"):
        left = installed.must("get", kind, "--all-namespaces", "-l", "helm.sh/chart", "-o", "name")
        assert left == ""

    installed.helm("install", "specfleet", str(CHART))
    assert "assistant" in installed.must("get", "specdeployments", "--namespace", "serving")

"""What the chart starts fits its namespace and works with the rights it is given."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.chart.client import CHART, DEADLINE_SECONDS, NAMESPACE, Cluster
from tests.cluster.chart.operator_process import operator_as
from tests.unit.chart.pages import examples

pytestmark = pytest.mark.cluster


def test_the_kind_is_served_with_its_columns_and_short_name(installed: Cluster) -> None:
    assert "No resources found" in installed.kubectl("get", "specdep", "--all-namespaces").stderr
    assert "GROUP:      specfleet.dev" in installed.must("explain", "specdeployments.spec.policy")


@pytest.mark.parametrize(("page", "example"), list(examples()), ids=[page for page, _ in examples()])
def test_examples_of_the_manual_are_accepted(installed: Cluster, page: str, example: dict[str, Any]) -> None:
    assert "created (server dry run)" in installed.must(
        *("create", "--dry-run=server", "-f", "-"), stdin=yaml.safe_dump(example)
    )


def test_the_operators_pods_fit_the_restricted_standard(installed: Cluster) -> None:
    one_letter_each = "jsonpath={range .items[*]}p{end}"
    installed.eventually("get", "pods", "--namespace", NAMESPACE, "-o", one_letter_each, contains="pp")

    pods = json.loads(installed.must("get", "pods", "--namespace", NAMESPACE, "-o", "json"))["items"]

    assert len(pods) == 2


def test_the_test_pod_of_the_chart_fits_the_restricted_standard(installed: Cluster) -> None:
    hooks = installed.helm("get", "hooks", "specfleet")

    assert "created (server dry run)" in installed.must(
        *("create", "--namespace", NAMESPACE, "--dry-run=server", "-f", "-"), stdin=hooks
    )


def check(installed: Cluster, tmp_path: Path, operator: str) -> subprocess.CompletedProcess[str]:
    """Run what `helm test` runs, with the operator's token."""
    config = json.loads(installed.must("config", "view", "--raw", "--flatten", "-o", "json"))
    address = config["clusters"][0]["cluster"]["server"].removeprefix("https://")
    read = ("get", "configmap", "kube-root-ca.crt", "--namespace", NAMESPACE, "-o", "jsonpath={.data.ca\\.crt}")
    installed.eventually(*read, contains="CERTIFICATE")
    authority = installed.must(*read)
    (tmp_path / "ca.crt").write_text(authority)
    (tmp_path / "token").write_text(installed.must("create", "token", "specfleet", "--namespace", NAMESPACE))
    host, _, port = address.partition(":")
    environment = {
        **{key: value for key, value in os.environ.items() if not key.lower().endswith("_proxy")},
        "SPECFLEET_CHECK_ACCOUNT": str(tmp_path),
        "KUBERNETES_SERVICE_HOST": host,
        "KUBERNETES_SERVICE_PORT": port,
    }
    command = [sys.executable, str(CHART / "files" / "check.py"), operator]
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_the_check_tells_what_works_from_what_does_not(installed: Cluster, tmp_path: Path) -> None:
    ended = check(installed, tmp_path, operator="http://127.0.0.1:1")

    assert ended.returncode == 1
    assert [line.split(":")[0] for line in ended.stdout.splitlines()] == [
        "FAILED  the operator is well (/healthz)",
        "FAILED  the operator is ready (/readyz)",
        "ok      the CustomResourceDefinition is installed",
        "ok      the operator's account may read SpecDeployments",
    ]


def test_the_operator_does_its_work_with_the_rights_that_the_chart_grants(installed: Cluster, tmp_path: Path) -> None:
    example = next(example for page, example in examples() if page == "README.md")
    installed.must("apply", "-f", "-", stdin=yaml.safe_dump(example))

    with operator_as(installed, "specfleet", NAMESPACE, tmp_path) as operator:
        operator.await_ready()
        checked = check(installed, tmp_path, operator.url)
        for kind, name in (
            *(("deployment", f"assistant-{pool}") for pool in ("baseline", "ngram", "router")),
            *(("service", name) for name in ("assistant", "assistant-baseline", "assistant-ngram")),
            *(("configmap", name) for name in ("assistant-router", "assistant-routes")),
        ):
            installed.eventually("get", kind, name, "--namespace", "serving", contains=f"{name} ")
        status = ("get", "specdeployment", "assistant", "--namespace", "serving", "-o", "jsonpath={.status}")
        installed.eventually(*status, contains='"type":"Ready"')
        operator.process.terminate()
        code = operator.process.wait(DEADLINE_SECONDS)

    log = operator.log.read_text()
    assert checked.returncode == 0, checked.stdout
    assert code == 0, log
    assert "forbidden" not in log.lower()
    lease = ("get", "lease", "specfleet", "--namespace", NAMESPACE, "-o", "jsonpath={.spec.holderIdentity}")
    assert installed.must(*lease) == ""
    installed.must("delete", "specdeployment", "assistant", "--namespace", "serving")
    installed.eventually_refused(
        "get", "deployment", "assistant-router", "--namespace", "serving", contains="not found"
    )

"""A watch that the API server refuses for good: the process says why, gives its lease back and ends."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.cluster.api import Api, eventually
from tests.cluster.operator_process import ROOT, OperatorProcess
from tests.cluster.routers import free_port
from tests.testbed import api as testbed

pytestmark = pytest.mark.cluster

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


def test_a_leader_whose_crd_is_deleted_ends_and_the_next_one_waits_for_it(tmp_path: Path) -> None:
    plane = testbed.ensure_control_plane(tmp_path / "plane")
    crd = yaml.safe_load((ROOT / "crds/specfleet.dev_specdeployments.yaml").read_text())
    api = Api(plane.kubeconfig)
    operators: list[OperatorProcess] = []

    def started() -> OperatorProcess:
        log = tmp_path / f"operator-{len(operators)}.log"
        operators.append(OperatorProcess(plane.kubeconfig, "default", free_port(), log))
        return operators[-1]

    try:
        api.request("POST", CRDS, crd)
        leader = started().ready()
        eventually("it leads", leader.leading)

        api.request("DELETE", f"{CRDS}/specdeployments.specfleet.dev")

        eventually("it ends", lambda: leader.process.poll() is not None, 30.0)
        assert leader.process.returncode == 1
        assert "is the CustomResourceDefinition specdeployments.specfleet.dev still there" in leader.log.read_text()
        lease = api.get("Lease", "default", "specfleet")
        assert lease is not None
        assert not lease["spec"].get("holderIdentity")

        following = started()
        eventually("it waits for the CRD", lambda: "install it" in following.log.read_text())
        assert following.stop() == 0
    finally:
        for one in operators:
            if one.process.poll() is None:
                one.kill()
        plane.stop()

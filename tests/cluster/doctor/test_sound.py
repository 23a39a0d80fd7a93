"""On a sound set-up there is nothing to say, and nothing is written."""

from __future__ import annotations

import pytest

from tests.cluster.doctor.bed import (
    Bed,
)

pytestmark = pytest.mark.cluster


def test_on_a_sound_set_up_one_line_says_that_all_is_well(bed: Bed) -> None:
    result = bed.doctor(output="text")

    assert result.code == 0
    assert result.error == ""
    assert result.out.startswith("All is well: ")
    assert result.out.count("\n") == 1


def test_what_was_checked_is_shown_on_request(bed: Bed) -> None:
    lines = bed.doctor("-v", output="text").out.splitlines()

    assert "seen  leader: specfleet-a leads in specfleet-system" in lines
    assert "seen  accelerators: 8 nvidia.com/gpu on 1 node(s)" in lines
    assert lines[-1].startswith("All is well: ")


def test_it_writes_nothing(bed: Bed) -> None:
    def versions() -> list[str]:
        kinds = ("configmaps", "services", "pods", "events", "secrets", "serviceaccounts")
        paths = [f"/api/v1/{kind}" for kind in kinds] + [
            "/apis/apps/v1/deployments",
            "/apis/specfleet.dev/v1alpha1/specdeployments",
        ]
        return [
            f"{one['metadata']['namespace']}/{one['metadata']['name']}@{one['metadata']['resourceVersion']}"
            for path in paths
            for one in bed.api.request("GET", path)["items"]
        ]

    before = versions()
    bed.doctor()

    assert versions() == before

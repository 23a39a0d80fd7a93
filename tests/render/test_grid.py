"""Every engine, release in its table and draft mode, and no mode: rendered, or refused with what to take instead.

Whether what is rendered is in words of the release is tested beside the facts of each engine.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from packaging.version import Version

from specfleet.api.findings import FindingReason, errors
from specfleet.api.v1alpha1 import DraftMode, EngineType, SpecDeployment
from specfleet.engines import sglang_tables, trtllm_tables, vllm_drafts, vllm_tables
from specfleet.render.objects import render_all
from specfleet.render.validate import validate
from tests.render.cases import SETTINGS

WITH_FILES = {DraftMode.DRAFT_MODEL, DraftMode.MEDUSA, DraftMode.EAGLE, DraftMode.EAGLE3, DraftMode.DFLASH}
RELEASES: Mapping[EngineType, Sequence[Version]] = {
    EngineType.VLLM: [one for one in vllm_drafts.table().facts.releases if one >= vllm_tables.OLDEST],
    EngineType.SGLANG: sglang_tables.table().releases,
    EngineType.TENSORRTLLM: trtllm_tables.table().releases,
}
GRID = [(engine, release) for engine, releases in RELEASES.items() for release in releases]
ALTERNATIVE = re.compile(r"\b(use|or newer|or older|one of|with vLLM|on vLLM)\b")


def fleet(engine: EngineType, release: Version, mode: DraftMode) -> SpecDeployment:
    """A SpecDeployment of one release and mode."""
    source = {"persistentVolumeClaim": {"claimName": "drafts"}}
    files: dict[str, Any] = {"model": "/models/draft", "source": source} if mode in WITH_FILES else {}
    return SpecDeployment.parse(
        {
            "metadata": {"name": "assistant", "namespace": "serving"},
            "spec": {
                "engine": {"type": engine.value, "version": str(release)},
                "target": {"model": "owner/model", "revision": "v2"},
                "drafts": [{"name": "draft", "mode": mode.value, "tokens": 3, **files}],
                "pools": {"replicas": 2},
                "policy": {"minAcceptancePercent": 30},
            },
        }
    )


def engines(objects: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Engine containers by pool."""
    found = {}
    for item in objects:
        labels = item["metadata"]["labels"]
        if item["kind"] == "Deployment" and labels["app.kubernetes.io/component"] == "engine":
            (container,) = item["spec"]["template"]["spec"]["containers"]
            found[labels["specfleet.dev/pool"]] = container
    return found


@pytest.mark.parametrize(("engine", "release"), GRID, ids=[f"{engine}-{release}" for engine, release in GRID])
def test_every_combination_is_rendered_or_refused_with_an_alternative(engine: EngineType, release: Version) -> None:
    rendered = []
    for mode in DraftMode:
        deployment = fleet(engine, release, mode)
        found = errors(validate(deployment, SETTINGS))
        if found:
            assert [one.reason for one in found] == [FindingReason.MODE_UNAVAILABLE], mode
            assert ALTERNATIVE.search(found[0].message), found[0].message
            continue
        pools = engines(render_all(deployment, SETTINGS))
        assert pools.keys() == {"baseline", "draft"}
        assert not any("specul" in word for word in pools["baseline"]["args"])
        assert pools["baseline"]["image"] == pools["draft"]["image"]
        assert str(release) in pools["baseline"]["image"]
        rendered.append(mode)

    assert rendered, "a release that can draft nothing is in no table"

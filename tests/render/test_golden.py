"""What is rendered, down to the last field."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.version import Version

from specfleet.api.findings import errors
from specfleet.api.v1alpha1 import Draft, EngineType, SpecDeployment
from specfleet.engines.protocol import EngineFacts
from specfleet.engines.vllm import VLLM
from specfleet.render.meta import OwnerRef, content_hash
from specfleet.render.objects import render_all
from specfleet.render.validate import validate, validate_document
from tests.render.cases import (
    FIXTURES,
    SETTINGS,
    case_folders,
    case_name,
    golden_text,
    is_external,
    read_deployment,
    read_pools,
    rendered,
)

FOLDERS = pytest.mark.parametrize("folder", case_folders(), ids=case_name)
SPLIT = pytest.mark.parametrize("folder", [one for one in case_folders() if not is_external(one)], ids=case_name)
EXTERNAL = pytest.mark.parametrize("folder", [one for one in case_folders() if is_external(one)], ids=case_name)
FIRST_SPLIT = FIXTURES / "vllm" / "0.29" / "ngram"
Document = dict[str, Any]


@FOLDERS
def test_the_objects_are_those_of_the_golden_file(folder: Path) -> None:
    assert golden_text(folder) == (folder / "objects.yaml").read_text(), "run python -m tests.render.regenerate"


@pytest.mark.parametrize("name", ["vllm/0.9.1/medusa", "vllm/0.18.0/mtp", "vllm/0.33/eagle3"])
def test_an_argument_that_is_left_out_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = FIXTURES / name
    golden, facts = (folder / "objects.yaml").read_text(), VLLM.facts
    words = facts(VLLM(), read_deployment(folder), speculative=True).args
    for word in words:

        def without(*given: Any, left_out: str = word, **asked: Any) -> EngineFacts:
            found = facts(*given, **asked)
            return replace(found, args=tuple(one for one in found.args if one != left_out))

        monkeypatch.setattr(VLLM, "facts", without)
        assert golden_text(folder) != golden, word


@FOLDERS
def test_the_fixture_is_valid(folder: Path) -> None:
    deployment, findings = validate_document(yaml.safe_load((folder / "cr.yaml").read_text()), SETTINGS)

    assert errors(findings) == []
    assert deployment is not None


def deployments(objects: list[Document]) -> dict[str, Document]:
    """Pod templates by name of the Deployment."""
    return {item["metadata"]["name"]: item["spec"]["template"] for item in objects if item["kind"] == "Deployment"}


def without_the_drafts_own(draft: Draft, template: Document, baseline: Document) -> None:
    """Takes away what the draft's files need: its volume, and the Hub where the target comes from elsewhere."""
    if draft.source is None:
        return
    (engine,) = template["spec"]["containers"]
    if draft.source.hugging_face is None:
        assert [mount["mountPath"] for mount in engine["volumeMounts"] if mount["name"] == "draft"] == [draft.model]
        template["spec"]["volumes"] = [one for one in template["spec"]["volumes"] if one["name"] != "draft"]
        engine["volumeMounts"] = [one for one in engine["volumeMounts"] if one["name"] != "draft"]
    else:
        names = {"HF_TOKEN", "HF_HUB_OFFLINE"}
        assert "HF_HUB_OFFLINE" not in {one["name"] for one in engine["env"]}
        offline = [one for one in baseline["spec"]["containers"][0]["env"] if one["name"] in names]
        engine["env"] = [one for one in engine["env"] if one["name"] not in names] + offline


def without_the_file(template: Document, baseline: Document) -> None:
    """Gives a pool the name and the hash of baseline's file; what differs in it has a test of its own."""
    name = "specfleet.dev/engine-files"
    assert template["metadata"]["annotations"][name] != baseline["metadata"]["annotations"][name]
    template["metadata"]["annotations"][name] = baseline["metadata"]["annotations"][name]
    for one, other in zip(template["spec"]["volumes"], baseline["spec"]["volumes"], strict=True):
        if one["name"] == "engine-files":
            assert one["configMap"]["name"] != other["configMap"]["name"]
            one["configMap"] = other["configMap"]


@pytest.mark.parametrize("folder", [one for one in case_folders() if one.parts[-3] == "trtllm"], ids=case_name)
def test_files_of_pools_differ_in_speculation_alone_and_pods_carry_their_hash(folder: Path) -> None:
    deployment = read_deployment(folder)
    objects = {(item["kind"], item["metadata"]["name"]): item for item in render_all(deployment, SETTINGS)}
    pools = [f"{deployment.name}-baseline", f"{deployment.name}-{deployment.spec.draft.name}"]
    found = [objects.get(("ConfigMap", f"{name}-config")) for name in pools]

    baseline, speculative = (yaml.safe_load(one["data"]["config.yaml"]) for one in found if one is not None)
    assert speculative.pop("speculative_config")["decoding_type"]
    assert speculative == baseline
    counts = Version(folder.parent.name) >= Version("1.3.0rc13")
    assert counts == ({"return_perf_metrics", "enable_iter_perf_stats"} <= set(baseline))
    for name, one in zip(pools, found, strict=True):
        assert one is not None
        pod = objects["Deployment", name]["spec"]["template"]
        text = one["data"]["config.yaml"]
        assert pod["metadata"]["annotations"]["specfleet.dev/engine-files"] == content_hash("config.yaml", text)
        assert {"name": "engine-files", "configMap": {"name": f"{name}-config"}} in pod["spec"]["volumes"]


@SPLIT
def test_pools_differ_in_their_label_and_in_speculation_alone(folder: Path) -> None:
    deployment = read_deployment(folder)
    draft = deployment.spec.draft.name
    templates = deployments(render_all(deployment, SETTINGS))

    baseline = yaml.safe_dump(templates[f"{deployment.name}-baseline"])
    speculative: Document = copy.deepcopy(templates[f"{deployment.name}-{draft}"])
    arguments = speculative["spec"]["containers"]
    engine = next(container for container in arguments if container["name"] == "engine")
    added = [word for word in engine["args"] if "spec" in word.split("=")[0]]
    engine["args"] = [word for word in engine["args"] if word not in added]
    without_the_drafts_own(deployment.spec.draft, speculative, templates[f"{deployment.name}-baseline"])
    if deployment.spec.engine.type is EngineType.TENSORRTLLM:
        assert added == []
        without_the_file(speculative, templates[f"{deployment.name}-baseline"])

    names = [word.split("=")[0] for word in added]
    if deployment.spec.engine.type is EngineType.VLLM:
        figures = Version(folder.parent.name) >= Version("0.29")
        assert names == ["--speculative-config", *(["--per-request-spec-decode-metrics"] if figures else [])]
    elif deployment.spec.engine.type is EngineType.SGLANG:
        assert names[0] == "--speculative-algorithm"
        assert all(name.startswith("--speculative-") for name in names)
    assert (
        yaml.safe_dump(speculative).replace(f"specfleet.dev/pool: {draft}", "specfleet.dev/pool: baseline") == baseline
    )


ROUTING_AND_POLICY_EDITS: tuple[Document, ...] = (
    {"routing": {"routes": [{"name": "only"}]}},
    {"routing": {"maxRequestBytes": "1Mi", "tenantHeader": "x-other", "routes": [{"name": "rest"}]}},
    {"policy": {"enforcement": "Observe"}},
    {"policy": {"minAcceptancePercent": 90, "initial": "Baseline", "block": "5s", "dwell": "1h"}},
)


@FOLDERS
@pytest.mark.parametrize("edit", ROUTING_AND_POLICY_EDITS, ids=["routes", "limits", "observe", "policy"])
def test_no_change_of_routing_or_policy_changes_a_pod_template(folder: Path, edit: Document) -> None:
    before = yaml.safe_load((folder / "cr.yaml").read_text())
    edit = copy.deepcopy(edit)
    if "breakEven" in before["spec"]["policy"] and edit.get("policy", {}).pop("minAcceptancePercent", None):
        # Drafts that are trees take no percentage.
        edit["policy"]["breakEven"] = {"source": "Fixed", "tokensPerStep": "2.2"}
    after = {**before, "spec": {**before["spec"], **edit}}

    first = render_all(SpecDeployment.parse(before), SETTINGS)
    second = render_all(SpecDeployment.parse(after), SETTINGS)

    assert deployments(second) == deployments(first)
    names = [item["metadata"]["name"] for one, item in zip(first, second, strict=True) if one != item]
    assert set(names) <= {f"{before['metadata']['name']}-routes"}


@SPLIT
def test_a_switch_and_a_resize_change_one_config_map_and_no_router(folder: Path) -> None:
    deployment = read_deployment(folder)
    movable = next(route.name for route in deployment.spec.routing.routes if route.speculation == "Auto")

    def rendered(weight: int) -> dict[str, Document]:
        objects = render_all(deployment, SETTINGS, {movable: weight})
        return {f"{item['kind']}/{item['metadata']['name']}": item for item in objects}

    before, after = rendered(0), rendered(100)

    assert [name for name in before if before[name] != after[name]] == [f"ConfigMap/{deployment.name}-routes"]


@EXTERNAL
def test_external_pools_get_a_router_and_nothing_else(folder: Path) -> None:
    name = read_deployment(folder).name

    objects = [f"{item['kind']}/{item['metadata']['name']}" for item in rendered(folder)]

    assert objects == [
        f"ServiceAccount/{name}-pods",
        f"ConfigMap/{name}-router",
        f"ConfigMap/{name}-routes",
        f"Service/{name}",
        f"PodDisruptionBudget/{name}-router",
        f"Deployment/{name}-router",
    ]


@EXTERNAL
@pytest.mark.parametrize("what", ["switch", "pods"])
def test_a_switch_and_more_pods_change_at_most_the_config_map_of_external_pools(folder: Path, what: str) -> None:
    deployment, seen = read_deployment(folder), read_pools(folder)
    assert seen is not None
    share = {route.name: 50 for route in deployment.spec.routing.routes if what == "switch"}
    more = {name: replace(pool, pods=pool.pods * 2) for name, pool in seen.items()} if what == "pods" else seen

    before, after = rendered(folder), render_all(deployment, SETTINGS, share, external=more)

    changed = [item["metadata"]["name"] for one, item in zip(before, after, strict=True) if one != item]
    known = all(pool.max_sequences for pool in seen.values())
    assert changed == ([f"{deployment.name}-routes"] if (known if what == "pods" else len(seen) == 2) else [])


def test_a_resize_changes_replicas_and_breakers_but_no_pod_template() -> None:
    document = yaml.safe_load((FIRST_SPLIT / "cr.yaml").read_text())
    larger = copy.deepcopy(document)
    larger["spec"]["pools"]["replicas"] = 40

    first = render_all(SpecDeployment.parse(document), SETTINGS)
    second = render_all(SpecDeployment.parse(larger), SETTINGS)

    assert deployments(second) == deployments(first)
    changed = [item["metadata"]["name"] for one, item in zip(first, second, strict=True) if one != item]
    assert changed == ["assistant-routes", "assistant-baseline", "assistant-ngram"]


@pytest.mark.parametrize(
    ("edit", "changed"),
    [
        ({"engine": {"config": "kv_cache_config: {free_gpu_memory_fraction: 0.5}"}}, ["baseline", "eagle3"]),
        ({"drafts": [{"tokens": 5}]}, ["eagle3"]),
    ],
    ids=["config", "draft"],
)
def test_a_change_of_an_engines_file_rolls_the_pods_that_read_it(edit: Document, changed: list[str]) -> None:
    document = yaml.safe_load((FIXTURES / "trtllm" / "1.4.0rc1" / "eagle3" / "cr.yaml").read_text())
    after = copy.deepcopy(document)
    after["spec"]["engine"] |= edit.get("engine", {})
    after["spec"]["drafts"][0] |= edit.get("drafts", [{}])[0]

    first, second = (render_all(SpecDeployment.parse(one), SETTINGS) for one in (document, after))

    differing = [
        f"{item['kind']}/{item['metadata']['name']}" for one, item in zip(first, second, strict=True) if one != item
    ]
    names = [f"assistant-{pool}" for pool in changed]
    assert differing == [*(f"ConfigMap/{name}-config" for name in names), *(f"Deployment/{name}" for name in names)]
    for name in names:
        before, now = (deployments(objects)[name] for objects in (first, second))
        assert before["metadata"]["annotations"] != now["metadata"]["annotations"]
        assert before["spec"] == now["spec"]


def test_every_object_carries_its_owner_where_there_is_one_and_none_offline() -> None:
    deployment = read_deployment(FIRST_SPLIT)

    owned = render_all(deployment, SETTINGS, {}, OwnerRef("assistant", "1234"), with_pod_monitor=True)
    offline = render_all(deployment, SETTINGS)

    assert {item["metadata"]["ownerReferences"][0]["uid"] for item in owned} == {"1234"}
    assert owned[-1]["kind"] == "PodMonitor"
    assert all("ownerReferences" not in item["metadata"] for item in offline)


def test_nothing_is_rendered_from_an_object_with_errors() -> None:
    document = yaml.safe_load((FIRST_SPLIT / "cr.yaml").read_text())
    document["spec"]["engine"]["args"] = {"speculative-config": "{}"}
    deployment = SpecDeployment.parse(document)

    with pytest.raises(ValueError, match="specfleet sets --speculative-config"):
        render_all(deployment, SETTINGS)
    assert errors(validate(deployment, SETTINGS))

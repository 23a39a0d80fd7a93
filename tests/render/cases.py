"""The golden fixtures: a SpecDeployment in, all its objects out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from specfleet.api.names import ANNOTATION_BOOTSTRAP
from specfleet.api.v1alpha1 import DraftMode, SpecDeployment
from specfleet.cli.render import manifest_yaml
from specfleet.engines.external import ExternalPod, ExternalPool, ExternalPools
from specfleet.render.objects import render_all
from specfleet.settings import OperatorSettings

FIXTURES = Path(__file__).resolve().parent
APP = "app.kubernetes.io"
SETTINGS = OperatorSettings(
    router_image="registry.example/envoy:1.40.0",
    operator_image="registry.example/specfleet:0.1.0",
    allow_host_path=True,
    watch_namespaces=[],
)


def case_folders() -> list[Path]:
    """One folder per engine, release and variant."""
    return sorted(path.parent for path in FIXTURES.glob("*/*/*/cr.yaml"))


def case_name(folder: Path) -> str:
    """Such as `vllm/0.32/ngram`."""
    return str(folder.relative_to(FIXTURES))


def read_deployment(folder: Path) -> SpecDeployment:
    """The fixture's SpecDeployment."""
    return SpecDeployment.parse(yaml.safe_load((folder / "cr.yaml").read_text()))


def read_pools(folder: Path) -> ExternalPools | None:
    """What `pools.yaml` says of External pools as they were seen; None where the fixture has none."""
    path = folder / "pools.yaml"
    if not path.exists():
        return None
    return {name: _pool(name, **seen) for name, seen in yaml.safe_load(path.read_text()).items()}


def _pool(name: str, *, pods: int, **facts: Any) -> ExternalPool:
    seen = [
        ExternalPod(
            name=f"{name}-{number}", ip=f"10.0.0.{number}", ready=True, args=(), image="", uid=f"{name}{number}"
        )
        for number in range(pods)
    ]
    return ExternalPool(name=name, pods=tuple(seen), **facts)


def is_external(folder: Path) -> bool:
    """Whether somebody else runs the fixture's pods."""
    return read_deployment(folder).spec.external is not None


def rendered(folder: Path, weights: Mapping[str, int] | None = None) -> list[dict[str, Any]]:
    """All objects of a fixture."""
    return render_all(read_deployment(folder), SETTINGS, weights, external=read_pools(folder))


def golden_text(folder: Path) -> str:
    """What `objects.yaml` should hold.

    That is everything but the bootstrap, which is one constant and has tests of its own; of other modes than NGram the
    engines only, since the router's objects depend on no mode.
    """
    manifests = [_without_bootstrap(manifest) for manifest in rendered(folder)]
    if not is_external(folder) and read_deployment(folder).spec.draft.mode is not DraftMode.NGRAM:
        manifests = [one for one in manifests if one["metadata"]["labels"][f"{APP}/component"] == "engine"]
    return manifest_yaml(manifests)


def _without_bootstrap(manifest: dict[str, Any]) -> dict[str, Any]:
    if manifest["kind"] == "ConfigMap" and manifest["metadata"]["name"].endswith("-router"):
        return {**manifest, "data": dict.fromkeys(manifest["data"], "constant")}
    if manifest["kind"] == "Deployment" and manifest["metadata"]["name"].endswith("-router"):
        manifest["spec"]["template"]["metadata"]["annotations"][ANNOTATION_BOOTSTRAP] = "hash of the bootstrap"
    return manifest

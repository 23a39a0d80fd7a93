"""Brings up what the demo, the node tests and the switch benchmark share: node, operator image, chart."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.node.kube import Kube, KubeError, Manifest, condition, is_true, pod_lines, ready_pods, wait_for
from tests.testbed import api

REPOSITORY = Path(__file__).resolve().parent.parent.parent
CHART = REPOSITORY / "charts" / "specfleet"
RELEASE = "specfleet"
SYSTEM_NAMESPACE = "specfleet-system"
IMAGE_NAME = "specfleet.dev/testbed/specfleet"
READY_SECONDS = 900.0

Say = Callable[[str], None]


def operator_image() -> str:
    """The operator image of this checkout, built if the node does not have it; its tag follows from the sources."""
    tag = f"{IMAGE_NAME}:{_digest_of_sources()}"
    api.build_image(tag, REPOSITORY / "Dockerfile", REPOSITORY)
    return tag


def _digest_of_sources() -> str:
    digest = hashlib.sha256()
    single = [REPOSITORY / name for name in ("Dockerfile", "pyproject.toml", "uv.lock")]
    package = sorted(
        path for path in (REPOSITORY / "operator").rglob("*") if path.is_file() and path.suffix not in (".pyc",)
    )
    for path in [*single, *package]:
        digest.update(str(path.relative_to(REPOSITORY)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]


def chart_values(image: str, *, replicas: int = 1, settings: Mapping[str, str] | None = None) -> list[str]:
    """`--set` options of helm for the test bed's images; `settings` are values beside them."""
    repository, _, tag = image.rpartition(":")
    router_repository, _, router_tag = api.router_image().rpartition(":")
    values = {
        "image.repository": repository,
        "image.tag": tag,
        "image.pullPolicy": "IfNotPresent",
        "routerImage.repository": router_repository,
        "routerImage.tag": router_tag,
        "replicas": str(replicas),
        "allowHostPath": "true",
        **(settings or {}),
    }
    options = []
    for key, value in values.items():
        # A tag of digits only is still a string.
        options += ["--set-string" if key.endswith("tag") else "--set", f"{key}={value}"]
    return options


def install_operator(kube: Kube, image: str, *, replicas: int = 1, settings: Mapping[str, str] | None = None) -> None:
    """`helm upgrade --install --wait` of the chart.

    Raises:
        KubeError: it did not become ready; says what the operator's pods say.
    """
    _clear_interrupted(kube)
    try:
        kube.helm(
            "upgrade",
            "--install",
            RELEASE,
            str(CHART),
            "--namespace",
            SYSTEM_NAMESPACE,
            "--create-namespace",
            "--wait",
            "--timeout",
            "5m",
            *chart_values(image, replicas=replicas, settings=settings),
        )
    except KubeError as error:
        pods = kube.select("pods", SYSTEM_NAMESPACE)
        raise KubeError("\n".join([str(error), *pod_lines(pods)])) from error


def _clear_interrupted(kube: Kube) -> None:
    """Take away a release whose installation was cut off: helm would refuse to touch it."""
    releases = json.loads(kube.helm("list", "--namespace", SYSTEM_NAMESPACE, "--output", "json"))
    if any(one["name"] == RELEASE and one["status"].startswith("pending") for one in releases):
        kube.helm("uninstall", RELEASE, "--namespace", SYSTEM_NAMESPACE, "--wait")


def apply_and_wait(kube: Kube, manifest: Manifest, say: Say, *, seconds: float = READY_SECONDS) -> Manifest:
    """Apply a SpecDeployment and wait until it is ready; returns it.

    Raises:
        KubeError: refused, stalled or not ready in time; says what the object and its pods say.
    """
    name, namespace = manifest["metadata"]["name"], manifest["metadata"]["namespace"]
    kube.apply(manifest)

    def look() -> Manifest | None:
        found = kube.get("specdeployment", name, namespace)
        stalled = condition(found, "Stalled")
        if stalled is not None and stalled["status"] == "True":
            raise KubeError(f"{name} cannot be served: {stalled['reason']}: {stalled['message']}")
        return found if is_true(found) else None

    def progress(gone: float) -> None:
        pods = pods_of(kube, name, namespace)
        ready = ready_pods(pods)
        waiting = pod_lines([pod for pod in pods if pod not in ready])
        say(f"  after {gone:.0f} s: {len(ready)} of {len(pods)} pods ready; {'; '.join(waiting)}")

    try:
        return wait_for(f"{name} to be Ready", look, seconds=seconds, every=1.0, say=progress)
    except KubeError as error:
        raise KubeError("\n".join([str(error), *diagnosis(kube, name, namespace)])) from error


def pods_of(kube: Kube, name: str, namespace: str) -> list[Manifest]:
    """Engine and router pods of one SpecDeployment."""
    return kube.select("pods", namespace, f"app.kubernetes.io/name=specfleet,app.kubernetes.io/instance={name}")


def diagnosis(kube: Kube, name: str, namespace: str) -> list[str]:
    """What a person would look at next: conditions, pods, and how to see more."""
    found = kube.get("specdeployment", name, namespace)
    conditions = ((found or {}).get("status") or {}).get("conditions") or []
    lines = [f"  {one['type']}={one['status']} {one['reason']}: {one['message']}" for one in conditions]
    lines += [f"  {line}" for line in pod_lines(pods_of(kube, name, namespace))]
    lines.append('  look further with: eval "$(python3 -m tests.testbed env)"; kubectl describe pods')
    return lines


def remove(kube: Kube, name: str, namespace: str, *, seconds: float = 300.0) -> None:
    """Delete a SpecDeployment and wait until its pods are gone, so that the name is free again."""
    kube.delete("specdeployment", name, namespace)
    wait_for(
        f"the pods of {name} to be gone",
        lambda: not pods_of(kube, name, namespace) or None,
        seconds=seconds,
        every=1.0,
    )


def cluster_ip(kube: Kube, name: str, namespace: str) -> str:
    """The URL of a SpecDeployment's Service, as this machine reaches it."""
    service = kube.get("service", name, namespace)
    if service is None:
        raise KubeError(f"expected a Service {namespace}/{name}, found none")
    return f"http://{service['spec']['clusterIP']}:{service['spec']['ports'][0]['port']}"

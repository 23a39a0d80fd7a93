"""What a running engine's pod has beside its arguments, as env, source and `pools.template`. Pure."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from specfleet.cli.adopting.scene import AdoptError, pod_labels
from specfleet.cli.adopting.side import Side
from specfleet.engines.vllm import STARTUP
from specfleet.render.engine import CACHE_VOLUME, CONTAINER, MODEL_VOLUME, SHARED_MEMORY_PATH, SHARED_MEMORY_VOLUME
from specfleet.settings import OperatorSettings

Node = dict[str, Any]

ACCELERATORS = ("nvidia.com/", "amd.com/gpu", "gpu.intel.com/", "habana.ai/", "google.com/tpu", "aws.amazon.com/neuron")
_DEFAULTS: dict[str, Any] = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "securityContext": {},
    "serviceAccountName": "default",
    "serviceAccount": "default",
    "enableServiceLinks": False,
    "automountServiceAccountToken": False,
}
"""Pod fields that the API server fills in, or that are rendered so anyway."""
_OURS = frozenset({"containers", "volumes", "initContainers", "terminationGracePeriodSeconds", "serviceAccount"})
_DEFAULT_GRACE_SECONDS = 30
_CARRIED_CONTAINER = ("resources", "securityContext", "volumeMounts", "volumeDevices", "workingDir")
_SAID_ELSEWHERE = frozenset(
    {
        *("name", "image", "command", "args", "env", "envFrom", "ports", "imagePullPolicy", "stdin", "tty"),
        *("startupProbe", "readinessProbe", "livenessProbe", "terminationMessagePath", "terminationMessagePolicy"),
    }
)
_ENV_SOURCES = frozenset({"secretKeyRef", "configMapKeyRef", "fieldRef", "resourceFieldRef"})


@dataclass
class CarriedPod:
    """What is carried over.

    Args:
        accelerator: the extended resource, empty for none.
        hub_token: Secret key of the Hub's token.
        volumes: of the source pod, by name, as they were.
        mounts: of the source container, as they were.
    """

    accelerator: str = ""
    env: list[Node] = field(default_factory=list)
    hub_token: Node | None = None
    template: Node = field(default_factory=dict)
    volumes: dict[str, Node] = field(default_factory=dict)
    mounts: list[Node] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def carried_pod(side: Side, settings: OperatorSettings, accelerators: int, api_key: Node | None) -> CarriedPod:
    """Everything of the pod but the flags.

    Args:
        accelerators: how many a rendered pod asks for.
        api_key: `valueFrom` of the variable VLLM_API_KEY.
    """
    source = copy.deepcopy((side.deployment["spec"]["template"].get("spec")) or {})
    container = copy.deepcopy(side.container)
    pod = CarriedPod()
    pod.volumes = {str(one.get("name")): one for one in source.get("volumes") or []}
    pod.mounts = list(container.get("volumeMounts") or [])
    _environment(container, side.read.model or "", pod, api_key)
    resources = _resources(container.get("resources") or {}, accelerators, pod)
    engine: Node = {field: container[field] for field in _CARRIED_CONTAINER if container.get(field)}
    engine["resources"] = resources
    startup = _startup(container.get("startupProbe") or {}, container.get("livenessProbe") or {})
    if startup:
        engine["startupProbe"] = startup
    for name in sorted(set(container) - set(_CARRIED_CONTAINER) - _SAID_ELSEWHERE):
        pod.notes.append(f"{name} of the engine's container is specfleet's own")
    if container.get("envFrom"):
        pod.notes.append("envFrom: the variables cannot be checked there: write them in spec.engine.env")
    spec = _pod_fields(source, pod)
    others = [one for one in source.get("containers") or [] if one.get("name") != side.container.get("name")]
    for field_name, found in (("initContainers", source.get("initContainers") or []), ("containers", others)):
        if found:
            names = ", ".join(str(one.get("name")) for one in found)
            pod.notes.append(f"{field_name} {names} go along as they are: do they still fit beside specfleet's engine?")
            spec[field_name] = found
    _volumes(spec, engine, side.read.model or "", pod, settings)
    body = {key: value for key, value in engine.items() if value not in ({}, [])}
    if body:
        spec["containers"] = [{"name": CONTAINER, **body}, *spec.get("containers", [])]
    pod.template = _template(side, spec, pod)
    return pod


def _template(side: Side, spec: Node, pod: CarriedPod) -> Node:
    metadata = (side.deployment["spec"]["template"].get("metadata")) or {}
    annotations = {
        key: value
        for key, value in (metadata.get("annotations") or {}).items()
        if key not in ("kubectl.kubernetes.io/restartedAt", "kubectl.kubernetes.io/default-container")
    }
    labels = pod_labels(side.deployment)
    if labels:
        pod.notes.append(
            f"labels of the pods ({', '.join(sorted(labels))}) stay behind, or Services of the old pods would select "
            "the new ones too: add those that are needed under pools.template.metadata.labels"
        )
    template: Node = {}
    if annotations:
        template["metadata"] = {"annotations": annotations}
    if spec:
        template["spec"] = spec
    return template


def _environment(container: Node, model: str, pod: CarriedPod, api_key: Node | None) -> None:
    for variable in {str(one.get("name")): one for one in container.get("env") or []}.values():
        name, source = str(variable.get("name")), variable.get("valueFrom")
        if source and not set(source) <= _ENV_SOURCES:
            pod.notes.append(f"the variable {name}: {', '.join(source)} cannot be written in spec.engine.env")
        elif name == "HF_TOKEN" and source and source.get("secretKeyRef") and not model.startswith("/"):
            secret = source["secretKeyRef"]
            pod.hub_token = {"name": secret["name"], "key": secret["key"]}
        elif source:
            pod.env.append({"name": name, "valueFrom": source})
        else:
            pod.env.append({"name": name, "value": str(variable.get("value") or "")})
            if name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN") and variable.get("value"):
                pod.notes.append(f"the variable {name} holds a token in plain text: put it into a Secret")
    if api_key is not None and not any(one["name"] == "VLLM_API_KEY" for one in pod.env):
        pod.env.append({"name": "VLLM_API_KEY", "valueFrom": api_key})


def _resources(resources: Node, accelerators: int, pod: CarriedPod) -> Node:
    """Requests and limits without the accelerator, which is asked for by its own field."""
    limits, requests = dict(resources.get("limits") or {}), dict(resources.get("requests") or {})
    names = sorted(name for name in {**limits, **requests} if name.startswith(ACCELERATORS))
    if names:
        pod.accelerator = names[0]
        count = str(limits.pop(names[0], requests.get(names[0])))
        requests.pop(names[0], None)
        if count != str(accelerators):
            pod.notes.append(
                f"the pods ask for {count} {names[0]}, and their parallelism needs {accelerators}: that is what "
                "specfleet asks for"
            )
    kept = {"limits": limits, "requests": requests}
    claims = {"claims": resources["claims"]} if resources.get("claims") else {}
    return {key: value for key, value in kept.items() if value} | claims


def _startup(startup: Node, liveness: Node) -> Node:
    """The start-up time that was allowed, where it is longer than what is rendered."""
    longest = _seconds(startup, 0) if startup else int(liveness.get("initialDelaySeconds") or 0)
    if longest <= STARTUP.longest_seconds:
        return {}
    return {"failureThreshold": -(-longest // STARTUP.period_seconds), "periodSeconds": STARTUP.period_seconds}


def _seconds(probe: Node, delay: int) -> int:
    period, failures = int(probe.get("periodSeconds") or 10), int(probe.get("failureThreshold") or 3)
    return int(probe.get("initialDelaySeconds") or delay) + period * failures


def _pod_fields(source: Node, pod: CarriedPod) -> Node:
    """Fields of the pod; the validator refuses those that specfleet does not hand on."""
    spec: Node = {}
    for name in sorted(set(source) - _OURS):
        value = source[name]
        if value in (None, {}, [], "") or _DEFAULTS.get(name) == value:
            continue
        if name == "topologySpreadConstraints":
            pod.notes.append("topologySpreadConstraints select the old pods' labels: specfleet spreads its own pods")
        else:
            spec[name] = value
    grace = source.get("terminationGracePeriodSeconds", _DEFAULT_GRACE_SECONDS)
    if grace != _DEFAULT_GRACE_SECONDS:
        spec["terminationGracePeriodSeconds"] = grace
    return spec


def _volumes(spec: Node, engine: Node, model: str, pod: CarriedPod, settings: OperatorSettings) -> None:
    """Volumes with their mounts, without those that specfleet mounts itself or that it may not mount."""
    refused = {}
    for name, volume in pod.volumes.items():
        why = _refused(volume, settings)
        if why is not None:
            refused[name] = why
    users = [engine, *spec.get("containers", []), *spec.get("initContainers", [])]
    for user in users:
        mounts = [one for one in user.get("volumeMounts") or [] if str(one.get("name")) not in refused]
        if user is engine:
            mounts = [one for one in mounts if not _mounted_by_us(one, model)]
        user["volumeMounts"] = mounts
    used = {str(one.get("name")) for user in users for one in user["volumeMounts"]}
    kept = []
    for name, volume in pod.volumes.items():
        if name in refused:
            if not _is_source(name, model, pod):
                pod.notes.append(f"volume {name}: {refused[name]}")
        elif name in used:
            kept.append(volume)
    renamed = {name: f"{name}-volume" for name in (MODEL_VOLUME, CACHE_VOLUME, SHARED_MEMORY_VOLUME) if name in used}
    for item in [*kept, *(one for user in users for one in user["volumeMounts"])]:
        item["name"] = renamed.get(str(item["name"]), item["name"])
    kept += _shared_memory(pod)
    if kept:
        spec["volumes"] = kept
    for user in users:
        if not user["volumeMounts"]:
            del user["volumeMounts"]


def _refused(volume: Mapping[str, Any], settings: OperatorSettings) -> str | None:
    if "hostPath" in volume and not settings.allow_host_path:
        return "a directory of the node, which the operator's setting allowHostPath does not allow"
    projected = (volume.get("projected") or {}).get("sources") or []
    if any("serviceAccountToken" in one for one in projected):
        return "a token of the API server, which engine pods do not get"
    return None


def _mounted_by_us(mount: Mapping[str, Any], model: str) -> bool:
    path = str(mount.get("mountPath")).rstrip("/")
    return path == SHARED_MEMORY_PATH or (model.startswith("/") and path == model.rstrip("/"))


def _is_source(name: str, model: str, pod: CarriedPod) -> bool:
    return model.startswith("/") and any(str(mount.get("name")) == name for mount, _ in _mounts_of(model, pod))


def _shared_memory(pod: CarriedPod) -> Iterator[Node]:
    """The size of /dev/shm, where one was set; the volume itself is rendered."""
    for mount in pod.mounts:
        if str(mount.get("mountPath")).rstrip("/") == SHARED_MEMORY_PATH:
            limit = (pod.volumes.get(str(mount.get("name")), {}).get("emptyDir") or {}).get("sizeLimit")
            if limit is not None:
                yield {"name": SHARED_MEMORY_VOLUME, "emptyDir": {"medium": "Memory", "sizeLimit": limit}}


def _mounts_of(model: str, pod: CarriedPod) -> list[tuple[Node, str]]:
    """Mounts that hold the model's path, the nearest first, with the path inside of them."""
    path = model.rstrip("/")
    found = []
    for mount in pod.mounts:
        root = str(mount.get("mountPath")).rstrip("/")
        if path == root or path.startswith(f"{root}/"):
            found.append((mount, path[len(root) :].strip("/")))
    return sorted(found, key=lambda one: -len(str(one[0].get("mountPath"))))


def model_source(side: Side, pod: CarriedPod, model: str) -> Node:
    """`target.source` of a model on a volume. Raises AdoptError where the volume is no claim and no directory."""
    mounts = _mounts_of(model, pod)
    if not mounts:
        raise AdoptError(
            f"{side.name}: the model {model} lies in the image or is made by the container itself; specfleet renders "
            "models of the Hub, of claims and of node directories: leave out --split"
        )
    mount, inside = mounts[0]
    volume = pod.volumes.get(str(mount.get("name")), {})
    path = "/".join(part for part in (str(mount.get("subPath") or "").strip("/"), inside) if part)
    if "persistentVolumeClaim" in volume:
        claim: Node = {"claimName": volume["persistentVolumeClaim"].get("claimName")}
        return {"persistentVolumeClaim": claim | ({"path": path} if path else {})}
    if "hostPath" in volume:
        root = str(volume["hostPath"].get("path")).rstrip("/")
        return {"hostPath": {"path": f"{root}/{path}".rstrip("/") or "/"}}
    if "image" in volume and not path:
        return {"image": {key: volume["image"][key] for key in ("reference", "pullPolicy") if key in volume["image"]}}
    kind = ", ".join(sorted(set(volume) - {"name"})) or "unknown"
    if "image" in volume:
        kind = "image, in a directory of it"
    raise AdoptError(
        f"{side.name}: the model {model} is on a volume of kind {kind}, and specfleet renders claims, whole images and "
        "node directories: leave out --split"
    )

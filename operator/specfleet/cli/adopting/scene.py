"""What is there to adopt: Deployments and Services, as manifests have them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from specfleet.api.names import LABEL_DEPLOYMENT
from specfleet.api.v1alpha1 import KIND

Manifest = dict[str, Any]

DEPLOYMENT_WORDS = ("deployment", "deployments", "deploy", "deployment.apps", "deployments.apps")
_BY_HAND = "write a SpecDeployment with pools.strategy External by hand, for the Service that selects its pods"
OTHER_KINDS: dict[str, str] = {
    "StatefulSet": _BY_HAND,
    "DaemonSet": _BY_HAND,
    "ReplicaSet": "adopt the Deployment that made it",
    "Pod": "adopt the Deployment that made it",
    "Job": "it ends by itself, so there is nothing to route to",
    "LeaderWorkerSet": f"{_BY_HAND}: it must select the leaders only (leaderworkerset.sigs.k8s.io/worker-index: '0')",
    "InferenceService": "adopt the Deployment that KServe made of it (NAME-predictor, in Standard mode), "
    "or name that Service in a SpecDeployment with pools.strategy External",
    "LLMInferenceService": "adopt the Deployment that KServe made of it",
    "RayService": f"{_BY_HAND}; its Serve application must be the engine's own OpenAI server",
    "RayCluster": _BY_HAND,
    "Rollout": _BY_HAND,
}
_WORDS = {
    "sts": "StatefulSet",
    "ds": "DaemonSet",
    "rs": "ReplicaSet",
    "po": "Pod",
    "lws": "LeaderWorkerSet",
    "isvc": "InferenceService",
    "ro": "Rollout",
}


class AdoptError(Exception):
    """It cannot be adopted; the text says why and what to do."""


@dataclass(frozen=True)
class Scene:
    """The namespace around what is adopted.

    Args:
        where: `namespace serving` or the file's name, for sentences.
        namespace: empty where a manifest names none.
        others: kind and name of engine-like workloads that are no Deployments.
        fleets: SpecDeployments that are there already.
        live: whether it is a cluster's.
    """

    where: str
    namespace: str
    deployments: tuple[Manifest, ...]
    services: tuple[Manifest, ...]
    others: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    fleets: tuple[Manifest, ...] = ()
    live: bool = False

    def deployment(self, name: str) -> Manifest:
        """The Deployment of that name. Raises AdoptError."""
        for one in self.deployments:
            if name_of(one) == name:
                return one
        names = ", ".join(sorted(name_of(one) for one in self.deployments)) or "none"
        other = next((kind for kind, other in self.others if other == name), None)
        if other is not None:
            raise AdoptError(f"{name} in {self.where} is a {other}: {OTHER_KINDS.get(other, _BY_HAND)}")
        raise AdoptError(
            f"expected a Deployment {name} in {self.where}, found none: Deployments there are {names}; "
            "name another namespace with -n"
        )

    def clashes(self, name: str, objects: set[str], same: Callable[[Manifest], bool]) -> list[str]:
        """What keeps a SpecDeployment from being called `name`, as `Kind/name`.

        Args:
            objects: `Kind/name` of what specfleet would make for it.
            same: whether a SpecDeployment is of what is adopted; adopting once more changes that one.
        """
        others = [one for one in (*self.deployments, *self.services) if _labels(one).get(LABEL_DEPLOYMENT) != name]
        found = {f"{one.get('kind')}/{name_of(one)}" for one in others} & objects
        found |= {f"{KIND}/{name}" for one in self.fleets if name_of(one) == name and not same(one)}
        return sorted(found)


def name_of(manifest: Manifest) -> str:
    """The object's name."""
    return str((manifest.get("metadata") or {}).get("name") or "")


def _labels(manifest: Manifest) -> dict[str, Any]:
    return dict((manifest.get("metadata") or {}).get("labels") or {})


def pod_labels(deployment: Manifest) -> dict[str, str]:
    """Labels of the Deployment's pods."""
    template = (deployment.get("spec") or {}).get("template") or {}
    return dict((template.get("metadata") or {}).get("labels") or {})


def deployment_name(word: str) -> str:
    """NAME of `deployment/NAME` or of a bare NAME. Raises AdoptError for other kinds."""
    kind, slash, name = word.rpartition("/")
    if not slash or kind.lower() in DEPLOYMENT_WORDS:
        if name:
            return name
        raise AdoptError(f"expected deployment/NAME, found {word!r}")
    plain = kind.lower().split(".")[0]
    full = {**_WORDS, **{known.lower(): known for known in OTHER_KINDS}}
    found = full.get(plain) or full.get(plain.removesuffix("s")) or kind
    raise AdoptError(f"adopt reads Deployments, found {found} {name}: {OTHER_KINDS.get(found, _BY_HAND)}")


def scene_of_text(text: str, file: str, namespace: str | None) -> Scene:
    """The scene in a YAML text. Raises AdoptError."""
    try:
        documents = [one for item in yaml.safe_load_all(text) for one in _expanded(item)]
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        place = f"line {mark.line + 1}: " if mark is not None else ""
        hint = "; render a chart first, with helm template" if "{{" in text else ""
        said = getattr(problem, "problem", None) or str(problem)
        raise AdoptError(f"{file} is no YAML: {place}{said}{hint}") from None
    except (ValueError, RecursionError) as problem:
        raise AdoptError(f"{file} is no YAML: {problem}") from None
    found = [one for one in documents if isinstance(one, dict) and isinstance(one.get("metadata") or {}, dict)]
    deployments = [one for one in found if one.get("kind") == "Deployment"]
    spaces = sorted({str(_namespace(one)) for one in deployments if _namespace(one)})
    if namespace is None and len(spaces) > 1:
        raise AdoptError(f"{file} has Deployments of several namespaces ({', '.join(spaces)}): name one with -n")
    space = namespace or (spaces[0] if spaces else "")
    inside = [one for one in found if not space or _namespace(one) in (None, "", space)]
    return Scene(
        file,
        space,
        tuple(_checked(one, file) for one in inside if one.get("kind") == "Deployment"),
        tuple(one for one in inside if one.get("kind") == "Service" and one.get("apiVersion") == "v1"),
        tuple((str(one["kind"]), name_of(one)) for one in inside if one.get("kind") in OTHER_KINDS),
        fleets=tuple(one for one in inside if one.get("kind") == KIND),
    )


def _namespace(manifest: Mapping[str, Any]) -> str | None:
    return (manifest.get("metadata") or {}).get("namespace")


def _expanded(item: Any) -> Iterator[Any]:
    if isinstance(item, dict) and str(item.get("kind", "")).endswith("List") and isinstance(item.get("items"), list):
        yield from item["items"]
    else:
        yield item


def _checked(manifest: Manifest, file: str) -> Manifest:
    """The Deployment, if it has the shape of one."""
    spec = manifest.get("spec")
    template = spec.get("template") if isinstance(spec, dict) else None
    pod = template.get("spec") if isinstance(template, dict) else None
    containers = pod.get("containers") if isinstance(pod, dict) else None
    if not isinstance(containers, list) or not all(isinstance(one, dict) for one in containers):
        raise AdoptError(
            f"Deployment {name_of(manifest)} in {file} has no list spec.template.spec.containers: is it whole?"
        )
    for one in containers:
        for field in ("command", "args", "env"):
            if not isinstance(one.get(field) or [], list):
                found = type(one[field]).__name__
                raise AdoptError(
                    f"Deployment {name_of(manifest)} in {file}: expected a list as {field} of container "
                    f"{one.get('name')}, found {found}"
                )
    return manifest


def is_rendered(deployment: Manifest) -> bool:
    """Whether specfleet made it."""
    return LABEL_DEPLOYMENT in _labels(deployment)

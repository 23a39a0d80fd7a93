"""A SpecDeployment whose pools specfleet runs itself, from the arguments of an engine that runs already. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from packaging.version import Version

from specfleet.api.findings import Finding, FindingReason, errors
from specfleet.api.models import MODEL_ID
from specfleet.api.names import endpoint
from specfleet.api.v1alpha1 import EngineType
from specfleet.cli.adopting.dialect import DIALECTS, Dialect
from specfleet.cli.adopting.document import Adopted, free_name, manifest
from specfleet.cli.adopting.draft import draft_of
from specfleet.cli.adopting.flags import Flags, carried_flags
from specfleet.cli.adopting.pod import CarriedPod, carried_pod, model_source
from specfleet.cli.adopting.scene import AdoptError, Manifest, Scene
from specfleet.cli.adopting.side import Side
from specfleet.engines.release import parse_version, tag_version
from specfleet.engines.sglang import DEFAULT_MAX_SEQUENCES
from specfleet.render.validate import validate_document
from specfleet.settings import OperatorSettings

MOST_REPAIRS = 200
_SERVED_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]{0,252}")
_REVISION = re.compile(r"[A-Za-z0-9._/-]{1,128}")
_DROPPABLE = re.compile(r"spec\.(engine\.(args|extraArgs|env)|drafts\[0\]\.args|pools\.template)[.\[].*")
_STEP = re.compile(r"\.(?P<key>[A-Za-z0-9_-]+)|\[(?P<item>[^\]]*)\]")


@dataclass(frozen=True)
class SplitOptions:
    """What the user said beside the Deployment."""

    name: str | None
    engine_version: str | None
    settings: OperatorSettings


def _maker(side: Side) -> str:
    """What has to be deleted for the old pods to go."""
    owners = (side.deployment.get("metadata") or {}).get("ownerReferences") or []
    makers = [f"{one.get('kind')}/{one.get('name')}" for one in owners if one.get("controller")]
    return f"{makers[0]}, which makes deployment/{side.name}" if makers else f"deployment/{side.name}"


def _model(fleet: Manifest) -> object:
    return ((fleet.get("spec") or {}).get("target") or {}).get("model")


def split(scene: Scene, side: Side, options: SplitOptions) -> Adopted:
    """Split pools with the Deployment's engine. Raises AdoptError."""
    if side.read.shell:
        raise AdoptError(f"{side.name}: {'; '.join(side.read.problems)}")
    dialect = DIALECTS.get(side.engine)
    if dialect is None:
        raise AdoptError(
            f"{side.name} runs {side.engine.value}, and --split carries the arguments of "
            f"{' and '.join(DIALECTS)} only: leave out --split"
        )
    notes = list(scene.notes)
    engine, release = _release(side, dialect, options, notes)
    flags = carried_flags(side.read, dialect, release, side.container)
    pod = carried_pod(side, options.settings, flags.accelerators, flags.api_key)
    target, source_notes = _target(side, flags, pod)
    draft = draft_of(side, release)
    spec: dict[str, Any] = {
        "engine": engine | {"args": flags.args, "extraArgs": flags.extra_words(), "env": pod.env},
        "target": target,
        "drafts": [draft.body],
        "pools": _pools(side, pod, notes),
        "policy": {"enforcement": "Observe"} | ({"initial": "Speculative"} if draft.speculated else {}),
    }
    name = free_name(
        options.name, side.name, (draft.body["name"],), scene, lambda fleet: _model(fleet) == target["model"]
    )
    whole = manifest(name, scene.namespace, spec)
    notes += [*flags.notes, *draft.notes, *source_notes, *pod.notes]
    if side.engine is EngineType.SGLANG and side.read.max_sequences is None:
        notes.append(
            f"without --max-running-requests {side.name} runs as many requests as it has room for, and both pools get "
            f"{DEFAULT_MAX_SEQUENCES}: write engine.args max-running-requests for more"
        )
    notes += _repair(whole, flags, options.settings)
    _prune(spec)
    where = endpoint(name, scene.namespace or "NAMESPACE")
    comments = (
        f"Adopted from {scene.where}: deployment/{side.name}, container {side.container.get('name')}, as pools that "
        "specfleet runs.",
        f"These pods come beside those that run now. When clients use {where}, delete {_maker(side)}.",
    )
    return Adopted(whole, comments, tuple(dict.fromkeys(notes)))


def _release(side: Side, dialect: Dialect, options: SplitOptions, notes: list[str]) -> tuple[dict[str, Any], Version]:
    """`spec.engine` without flags, and the release that is rendered for."""
    name = dialect.engine.value
    image = str(side.container.get("image") or "")
    tagged = tag_version(image)
    if tagged is not None and side.read.release_hint is None:
        tagged = None
    asked = options.engine_version
    if asked is None:
        if tagged is None:
            raise AdoptError(
                f"{side.name}: the image {image or '(none)'} names no {name} release: write which one it is with "
                f"--engine-version, for instance {dialect.example}"
            )
        if tagged < dialect.oldest:
            raise AdoptError(
                f"{side.name} runs {name} {tagged}, which is older than what specfleet renders: name the release to "
                f"run with --engine-version, {dialect.oldest} or newer, or leave out --split"
            )
        return {"type": name, "image": image}, tagged
    version = parse_version(asked)
    if version is None or version < dialect.oldest:
        raise AdoptError(f"--engine-version {asked}: expected {_article(name)} release from {dialect.oldest} on")
    if tagged is not None and tagged.release[: len(version.release)] != version.release:
        notes.append(f"the image {image} is {name} {tagged}: the public image of {version} takes its place")
        return {"type": name, "version": str(version)}, version
    return {"type": name, "version": str(version), "image": image}, version


def _article(name: str) -> str:
    return f"an {name}" if name.startswith("S") else f"a {name}"


def _target(side: Side, flags: Flags, pod: CarriedPod) -> tuple[dict[str, Any], list[str]]:
    model = side.read.model
    notes: list[str] = []
    if model is None:
        raise AdoptError(f"{side.name}: its arguments name no model")
    if not re.fullmatch(MODEL_ID, model) or ".." in model:
        raise AdoptError(
            f"{side.name}: the model {model!r} is neither an id such as owner/name nor an absolute path of a volume, "
            "which is what specfleet can render: leave out --split"
        )
    target: dict[str, Any] = {"model": model}
    if flags.revision is not None and _REVISION.fullmatch(flags.revision):
        target["revision"] = flags.revision
    served = side.served_names[0]
    if _SERVED_NAME.fullmatch(served):
        target["servedName"] = served
    else:
        notes.append(f"clients send the model name {served}, which cannot be a servedName: they must send the new one")
    notes += [f"the further name {other}: add a route with match.model {other}" for other in side.served_names[1:]]
    if model.startswith("/"):
        target["source"] = model_source(side, pod, model)
    elif pod.hub_token is not None:
        target["source"] = {"huggingFace": {"tokenSecretRef": pod.hub_token}}
    sizes = {name: size for name, size in flags.parallelism.items() if size != 1}
    if sizes:
        target["parallelism"] = sizes
    return target, notes


def _pools(side: Side, pod: CarriedPod, notes: list[str]) -> dict[str, Any]:
    replicas = (side.deployment.get("spec") or {}).get("replicas", 1)
    replicas = replicas if isinstance(replicas, int) else 1
    if replicas < 2:
        notes.append(f"{side.name} has {replicas} replica(s): the two pools need 2")
    pools: dict[str, Any] = {"replicas": max(2, replicas), "accelerator": {"resource": pod.accelerator}}
    if pod.template:
        pools["template"] = pod.template
    return pools


def _repair(whole: dict[str, Any], flags: Flags, settings: OperatorSettings) -> list[str]:
    """Takes out what the validator refuses, one thing at a time, and says so. Raises AdoptError for the rest."""
    notes: list[str] = []
    for _ in range(MOST_REPAIRS):
        wrong = errors(validate_document(whole, settings)[1])
        if not wrong:
            return notes
        first = next((one for one in wrong if _DROPPABLE.fullmatch(one.path)), None)
        if first is None:
            said = "; ".join(f"{one.path}: {one.message}" for one in wrong)
            raise AdoptError(f"it cannot be rendered: {said}. Without --split it is adopted as it runs")
        notes.append(_drop(whole["spec"], first, flags))
    raise AdoptError("it cannot be rendered: too much of it is refused")


def _drop(spec: dict[str, Any], finding: Finding, flags: Flags) -> str:
    if finding.reason is FindingReason.LOSSY_NOT_ALLOWED:
        spec["drafts"][0]["allowLossy"] = True
        return f"{finding.path} changes what the target would have answered: allowLossy: true is set, as it ran so"
    if finding.path.startswith("spec.engine.extraArgs"):
        index = int(finding.path.split("[", 1)[1].rstrip("]").split("]")[0])
        words = flags.drop_extra(index)
        spec["engine"]["extraArgs"] = flags.extra_words()
        return f"{' '.join(words)}: {finding.message}"
    shown = _remove(spec, finding.path.removeprefix("spec"))
    return f"{shown}: {finding.message}"


def _remove(spec: dict[str, Any], path: str) -> str:
    """Removes the node at a finding's path; returns how to call it."""
    steps = [match["key"] if match["key"] is not None else match["item"] for match in _STEP.finditer(path)]
    node: Any = spec
    for step in steps[:-1]:
        node = node[_place(node, step)]
    last = _place(node, steps[-1])
    value = node.pop(last)
    if path.startswith(".engine.args"):
        return f"--{steps[-1]}" + (f" {value}" if value else "")
    if path.startswith(".engine.env"):
        return f"the variable {steps[-1]}"
    if path.startswith(".drafts"):
        return f"{steps[-1]} of the speculative config"
    return f"{'.'.join(str(step) for step in steps[2:])} of the pods"


def _place(node: Any, step: str) -> Any:
    if isinstance(node, list):
        if step.isdigit():
            return int(step)
        return next(index for index, item in enumerate(node) if item.get("name") == step)
    return step


def _prune(spec: dict[str, Any]) -> None:
    """Leaves out what is empty."""
    engine = spec["engine"]
    for key in ("args", "extraArgs", "env"):
        if not engine[key]:
            del engine[key]
    if spec["drafts"][0].get("args") == {}:
        del spec["drafts"][0]["args"]
    if spec["pools"]["accelerator"] == {"resource": "nvidia.com/gpu"}:
        del spec["pools"]["accelerator"]
    template = _without_empty(spec["pools"].pop("template", {}))
    if template:
        spec["pools"]["template"] = template


def _without_empty(node: Any) -> Any:
    """The template without maps and lists that a repair left empty, and without containers that say only their name."""
    if isinstance(node, Mapping):
        kept = {key: _without_empty(value) for key, value in node.items()}
        return {key: value for key, value in kept.items() if value not in ({}, []) or node[key] in ({}, [])}
    return node

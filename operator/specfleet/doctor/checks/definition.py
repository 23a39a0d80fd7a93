"""The CustomResourceDefinition: there, served, and of the operator's version?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from specfleet.api.crd import custom_resource_definition
from specfleet.api.v1alpha1 import GROUP, PLURAL, VERSION
from specfleet.doctor.facts import Facts, Manifest
from specfleet.doctor.findings import Item, Seen, error, info
from specfleet.doctor.installed import Installed, operators

NAME = f"{PLURAL}.{GROUP}"
PATH = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{NAME}"
_ABOUT = f"CustomResourceDefinition {NAME}"
_APPLY = "helm upgrade with crds.enabled=true, or: kubectl apply --server-side -f crds/ of the operator's version"


def check(facts: Facts) -> Iterator[Item]:
    """What is installed of the API."""
    body = facts.get(PATH)
    if body is None:
        yield from _none(operators(facts))
        return
    problems = list(_state(body))
    yield from problems
    running = operators(facts)
    if not running:
        yield _left(body)
    elif not problems:
        yield from list(_release(facts, body, running[0])) or [Seen(f"{NAME} is established and is the operator's")]


def _none(running: list[Installed]) -> Iterator[Item]:
    if not running:
        yield Seen("not installed yet")
        return
    yield error(
        _ABOUT, "an operator is installed and the definition is not", "it: the operator waits and is not ready", _APPLY
    )


def _state(body: Manifest) -> Iterator[Item]:
    if body["metadata"].get("deletionTimestamp"):
        yield error(
            _ABOUT,
            "it is being deleted, and every SpecDeployment with it",
            "a definition that stays",
            f"kubectl get specdeployments -A shows what it waits for; afterwards {_APPLY}",
        )
        return
    conditions = {one.get("type"): one for one in (body.get("status") or {}).get("conditions") or ()}
    for kind in ("NamesAccepted", "Established"):
        one = conditions.get(kind) or {}
        if one.get("status") != "True":
            yield error(
                _ABOUT,
                f"{kind} is not True: {one.get('message') or 'the API server has not said why'}",
                "a definition that is established, with its names its own",
                "remove or rename the definition that has one of its names: kubectl get crd",
            )
            return
    served = [str(one.get("name")) for one in body["spec"].get("versions") or () if one.get("served")]
    if VERSION not in served:
        yield error(
            _ABOUT,
            f"it serves {', '.join(served) or 'no version'}",
            f"{VERSION}: it is of another release",
            _APPLY,
        )


def _left(body: Manifest) -> Item:
    """Without an operator: not wrong, but Helm asks whose it is."""
    annotations = body["metadata"].get("annotations") or {}
    release = annotations.get("meta.helm.sh/release-name")
    place = annotations.get("meta.helm.sh/release-namespace")
    whose = f" by the Helm release {place}/{release}" if release else ""
    how = f"install with that release's name and namespace ({release} in {place})" if release else "helm install"
    return info(
        _ABOUT,
        f"the definition is installed{whose}, and no operator is",
        "an operator, or no definition",
        f"{how}, or add --take-ownership; kubectl delete crd {NAME} deletes every SpecDeployment too",
    )


def _release(facts: Facts, body: Manifest, one: Installed) -> Iterator[Item]:
    label = str((body["metadata"].get("labels") or {}).get("app.kubernetes.io/version") or "")
    if label and one.version and label != one.version:
        yield error(
            _ABOUT,
            f"it is of release {label}, the operator {one.namespace}/{one.name} of {one.version}",
            "the same release: fields that the definition does not know are dropped without a word",
            _APPLY,
        )
        return
    if one.version and one.version != facts.scope.version:
        yield info(
            one.about,
            f"the operator is of release {one.version}, this command of {facts.scope.version}",
            "the same release: the contents of the definition were not compared",
            "use the specfleet of the operator's release",
        )
        return
    place = difference(_schema(custom_resource_definition()), _schema(body))
    if place is not None:
        yield error(
            _ABOUT,
            f"its schema is not that of release {facts.scope.version}: it differs at {place}",
            "the operator's own: fields that the definition does not know are dropped without a word",
            _APPLY,
        )


def difference(wanted: Any, found: Any, path: str = "") -> str | None:
    """Path of the first part that differs, descriptions aside; None where nothing does."""
    if isinstance(wanted, Mapping) and isinstance(found, Mapping):
        return _first(wanted, found, path)
    if isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        inner_ones = (difference(one, other, path) for one, other in zip(wanted, found, strict=True))
        return next((one for one in inner_ones if one is not None), None)
    return None if wanted == found else path or "."


def _first(wanted: Mapping[str, Any], found: Mapping[str, Any], path: str) -> str | None:
    for key in sorted({*wanted, *found}):
        if key == "description" and isinstance(wanted.get(key, found.get(key)), str):
            continue
        here = path if key in ("properties", "items") else f"{path}.{key}"
        if key not in wanted or key not in found:
            return here or "."
        inner = difference(wanted[key], found[key], here)
        if inner is not None:
            return inner
    return None


def _schema(definition: Mapping[str, Any]) -> Any:
    for one in definition["spec"]["versions"]:
        if one["name"] == VERSION:
            return (one.get("schema") or {}).get("openAPIV3Schema")
    return None

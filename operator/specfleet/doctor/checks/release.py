"""Helm's record of a release: stuck, failed, or of an operator that is gone. Only names and labels are read."""

from __future__ import annotations

from collections.abc import Iterator

from specfleet.doctor.facts import Facts, Manifest
from specfleet.doctor.findings import Item, Seen, error, warning
from specfleet.doctor.installed import Installed, operators

_TYPE = "type=helm.sh/release.v1"
_USUAL = "specfleet"


def check(facts: Facts) -> Iterator[Item]:
    """The newest record of the operator's release, or of one with the usual name where there is no operator."""
    running = operators(facts)
    if running and not any(_release(one) for one in running):
        yield Seen("the operator was not installed by Helm")
        return
    places = {(one.namespace, name): one for one in running if (name := _release(one))}
    wanted: dict[tuple[str, str], Installed | None] = {**places} or {(facts.scope.operator_namespace, _USUAL): None}
    for (namespace, name), one in wanted.items():
        found = facts.listed(
            f"/api/v1/namespaces/{namespace}/secrets", f"owner=helm,name={name}", _TYPE, names_only=True
        )
        newest = max(found, key=_revision, default=None)
        if newest is None:
            yield Seen(f"Helm has no record of a release {name} in namespace {namespace}")
            continue
        yield _judged(namespace, name, str((newest["metadata"].get("labels") or {}).get("status") or ""), one)


def _judged(namespace: str, name: str, status: str, one: Installed | None) -> Item:
    about = f"Helm release {namespace}/{name}"
    if status.startswith("pending-") or status == "uninstalling":
        return error(
            about,
            f"it is {status}: an earlier helm command was interrupted or still runs",
            "deployed: Helm refuses every other command until then",
            f"if no helm command runs: helm rollback {name} -n {namespace}, or, after a first install, helm uninstall "
            f"{name} -n {namespace}",
        )
    if status == "failed":
        return warning(
            about,
            "its last install or upgrade failed",
            "deployed",
            f"helm history {name} -n {namespace} says why; then helm upgrade {name} again",
        )
    if status == "deployed" and one is None:
        return error(
            about,
            "Helm has it as deployed, and its operator Deployment is not there",
            "the Deployment that the release has made",
            f"helm upgrade {name} charts/specfleet -n {namespace} --reset-then-reuse-values makes it again; helm "
            f"uninstall {name} -n {namespace} ends it",
        )
    return Seen(f"Helm release {namespace}/{name} is {status or 'recorded'}")


def _release(one: Installed) -> str:
    return str((one.body["metadata"].get("annotations") or {}).get("meta.helm.sh/release-name") or "")


def _revision(secret: Manifest) -> int:
    text = str((secret["metadata"].get("labels") or {}).get("version") or "0")
    return int(text) if text.isdigit() else 0

"""The rights that the operator works with, and those that installing it takes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from specfleet.doctor.facts import Right

MONITORING = "monitoring.coreos.com"
_WRITTEN = ("get", "list", "watch", "create", "patch", "delete")

# (group, resource, verbs) in the whole cluster, or in each namespace that is watched.
OPERATOR: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("specfleet.dev", "specdeployments", ("get", "list", "watch")),
    ("specfleet.dev", "specdeployments/status", ("patch",)),
    ("", "configmaps", _WRITTEN),
    ("", "serviceaccounts", _WRITTEN),
    ("", "services", _WRITTEN),
    ("apps", "deployments", _WRITTEN),
    ("batch", "jobs", _WRITTEN),
    ("policy", "poddisruptionbudgets", _WRITTEN),
    (MONITORING, "podmonitors", ("get", "list", "create", "patch", "delete")),
    ("", "pods", ("get", "list", "watch")),
    ("", "persistentvolumeclaims", ("get",)),
    ("discovery.k8s.io", "endpointslices", ("list",)),
    ("events.k8s.io", "events", ("create",)),
)
PATCH_PODS = ("", "pods", ("patch",))
LEASE = "specfleet"


def operator_rights(namespace: str, *, monitors: bool = True) -> Iterator[Right]:
    """What the operator needs in `namespace`; empty is the whole cluster. `monitors`: there are PodMonitors."""
    for group, resource, verbs in OPERATOR:
        for verb in verbs if monitors or group != MONITORING else ():
            yield right(group, resource, verb, namespace)


def lease_rights(namespace: str) -> Iterator[Right]:
    """What leader election needs in the operator's own namespace."""
    yield Right("coordination.k8s.io", "leases", "create", namespace)
    for verb in ("get", "update"):
        yield Right("coordination.k8s.io", "leases", verb, namespace, LEASE)


def right(group: str, resource: str, verb: str, namespace: str = "") -> Right:
    """A right on RESOURCE or RESOURCE/SUBRESOURCE."""
    plain, _, subresource = resource.partition("/")
    return Right(group, plain, verb, namespace, subresource=subresource)


@dataclass(frozen=True)
class InstallPart:
    """What a part of the chart takes to be installed, and how to do without it."""

    rights: tuple[Right, ...]
    without: str


def install_parts(namespace: str, *, make_namespace: bool) -> Iterator[InstallPart]:
    """What `helm install` with default values creates, for an operator in `namespace`."""
    if make_namespace:
        yield InstallPart(
            (Right("", "namespaces", "create"),),
            f"have the namespace {namespace} made by somebody who may, or name an existing one",
        )
    yield InstallPart(
        (Right("apiextensions.k8s.io", "customresourcedefinitions", "create"),),
        "have the files of crds/ applied by somebody who may, and install with --set crds.enabled=false",
    )
    yield InstallPart(
        tuple(Right("rbac.authorization.k8s.io", what, "create") for what in ("clusterroles", "clusterrolebindings")),
        "install with --set 'watchNamespaces={NAMESPACE}' --set rbac.aggregate=false, which takes Roles only",
    )
    yield InstallPart(
        tuple(
            Right("admissionregistration.k8s.io", what, "create")
            for what in ("validatingadmissionpolicies", "validatingadmissionpolicybindings")
        ),
        "install with --set podPatch.enabled=false; a switch then takes up to 90 s",
    )
    namespaced = (
        ("", "configmaps"),
        ("", "secrets"),  # where Helm keeps the record of the release
        ("", "serviceaccounts"),
        ("", "services"),
        ("apps", "deployments"),
        ("policy", "poddisruptionbudgets"),
        ("rbac.authorization.k8s.io", "roles"),
        ("rbac.authorization.k8s.io", "rolebindings"),
    )
    yield InstallPart(
        tuple(Right(group, what, "create", namespace) for group, what in namespaced),
        f"install as somebody who is admin of namespace {namespace}",
    )

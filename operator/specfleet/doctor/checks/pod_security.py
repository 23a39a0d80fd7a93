"""Pod Security: does the level that a namespace enforces let a fleet's pods in?

The controls of the standards baseline and restricted (Kubernetes' page "Pod Security Standards") that a pod template of
ours can meet or miss; SELinux, AppArmor, sysctls and /proc masks are never set by what is rendered.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from specfleet.doctor.facts import Facts, Get
from specfleet.doctor.findings import Item, NotChecked, Seen, error, warning
from specfleet.doctor.installed import containers, fleet_namespaces
from specfleet.doctor.sample import Template, templates

LABEL = "pod-security.kubernetes.io/enforce"
_ADDABLE = frozenset(
    {"AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD", "NET_BIND_SERVICE", "SETFCAP",
     "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT"}
)  # fmt: skip
_VOLUMES = frozenset(
    {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret",
     "image"}
)  # fmt: skip
_PROFILES = ("RuntimeDefault", "Localhost")


def check(facts: Facts) -> Iterator[Item]:
    """Each namespace of fleets: the pods that it would refuse."""
    namespaces = fleet_namespaces(facts)
    facts.prepare(*(Get(f"/api/v1/namespaces/{namespace}") for namespace in namespaces))
    for namespace in namespaces:
        body = facts.get(f"/api/v1/namespaces/{namespace}")
        if body is None:
            yield NotChecked(f"there is no namespace {namespace}: its labels are not known")
            continue
        level = str((body["metadata"].get("labels") or {}).get(LABEL) or "privileged")
        refused = False
        for template in templates(facts, namespace):
            missed = list(violations(template.pod_spec, level))
            if missed:
                refused = True
                yield _refused(namespace, level, template, missed)
        if not refused:
            yield Seen(f"namespace {namespace} enforces {level}, which lets a fleet's pods in")


def violations(pod: Mapping[str, Any], level: str) -> Iterator[str]:
    """What a pod misses of a level: privileged, baseline or restricted. Other levels are judged as privileged."""
    if level not in ("baseline", "restricted"):
        return
    yield from _baseline(pod)
    if level == "restricted":
        yield from _restricted(pod)


def _refused(namespace: str, level: str, template: Template, missed: list[str]) -> Item:
    found = f"namespace {namespace} enforces the pod security level {level}; {template.component} pods miss: "
    found += "; ".join(missed)
    expected = f"pods that meet {level}, or a level that lets them in"
    action = (
        "set it in pools.template (runAsNonRoot: true, and runAsUser where the image's user is root), or: kubectl "
        f"label namespace {namespace} {LABEL}=baseline --overwrite"
    )
    if any("hostPath" in one for one in missed):
        action = f"use a claim or an image instead of hostPath, or: kubectl label namespace {namespace} {LABEL}-"
    kind = error if template.exists else warning
    about = f"Deployment {namespace}/{template.name}" if template.exists else f"Namespace {namespace}"
    return kind(about, found, expected, action)


def _baseline(pod: Mapping[str, Any]) -> Iterator[str]:
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(field):
            yield f"{field} is set"
    for volume in pod.get("volumes") or ():
        if "hostPath" in volume:
            yield f"volume {volume.get('name')} is a hostPath"
    if _profile(pod) == "Unconfined":
        yield "seccompProfile is Unconfined"
    for container in containers(pod):
        security, name = container.get("securityContext") or {}, container.get("name")
        if security.get("privileged"):
            yield f"container {name} is privileged"
        added = set((security.get("capabilities") or {}).get("add") or ())
        if added - _ADDABLE:
            yield f"container {name} adds the capabilities {', '.join(sorted(added - _ADDABLE))}"
        if any(port.get("hostPort") for port in container.get("ports") or ()):
            yield f"container {name} has a hostPort"
        if _profile(container) == "Unconfined":
            yield f"container {name}: seccompProfile is Unconfined"


def _restricted(pod: Mapping[str, Any]) -> Iterator[str]:
    whole = pod.get("securityContext") or {}
    for volume in pod.get("volumes") or ():
        kinds = set(volume) - {"name"}
        if kinds and not kinds & (_VOLUMES | {"hostPath"}):
            yield f"volume {volume.get('name')} is a {', '.join(sorted(kinds))}"
    for container in containers(pod):
        security, name = container.get("securityContext") or {}, container.get("name")
        if security.get("allowPrivilegeEscalation") is not False:
            yield f"container {name}: allowPrivilegeEscalation is not false"
        if "ALL" not in ((security.get("capabilities") or {}).get("drop") or ()):
            yield f"container {name} does not drop all capabilities"
        if security.get("runAsNonRoot", whole.get("runAsNonRoot")) is not True:
            yield f"container {name}: runAsNonRoot is not true"
        if security.get("runAsUser", whole.get("runAsUser")) == 0:
            yield f"container {name}: runAsUser is 0"
        if (_profile(container) or _profile(pod)) not in _PROFILES:
            yield f"container {name} has no seccompProfile RuntimeDefault"


def _profile(part: Mapping[str, Any]) -> str | None:
    kind = ((part.get("securityContext") or {}).get("seccompProfile") or {}).get("type")
    return None if kind is None else str(kind)

"""What `pools.template` may not say: what specfleet owns, and rights that it does not hand on. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from specfleet.api.findings import Finding, FindingReason, error
from specfleet.api.v1alpha1 import GROUP, SpecDeployment
from specfleet.engines.protocol import EngineFacts
from specfleet.engines.vllm_tables import OWNED_ENV
from specfleet.render.engine import (
    CACHE_VOLUME,
    CONTAINER,
    DRAFT_VOLUME,
    MODEL_VOLUME,
    SHARED_MEMORY_PATH,
    SHARED_MEMORY_VOLUME,
)
from specfleet.render.engine_files import FILES_VOLUME
from specfleet.render.template import merge_keys
from specfleet.settings import OperatorSettings

ROOT = "spec.pools.template"

_OWNED_LABELS = ("name", "instance", "component", "managed-by")

OWNED_POD_FIELDS: dict[str, str] = {
    "automountServiceAccountToken": "engine pods get no token of the API server",
    "enableServiceLinks": "it is false: a Service named vllm would break vLLM",
    "restartPolicy": "pods of a Deployment are always restarted",
    "activeDeadlineSeconds": "pods of a Deployment run until they are replaced",
    "ephemeralContainers": "they are added to running pods only, by kubectl debug",
}
OWNED_CONTAINER_FIELDS: dict[str, str] = {
    "image": "write spec.engine.image",
    "command": "write flags in spec.engine.args",
    "args": "write flags in spec.engine.args or spec.engine.extraArgs",
    "ports": "the router and the probes use port 8000",
    "lifecycle": "the pod has to go on serving for a while after it has left the Services",
    "envFrom": "variables cannot be checked there: write them in spec.engine.env",
}
CONTAINER_OBJECTS = ("resources", "startupProbe", "readinessProbe", "livenessProbe", "securityContext")
KEPT_CONTAINER_FIELDS = ("env", "volumeMounts", "resources", "startupProbe", "readinessProbe", "securityContext")
PRIVILEGED_POD_FIELDS: dict[str, str] = {
    "hostNetwork": "the host's network",
    "hostPID": "the host's processes",
    "hostIPC": "the host's shared memory (/dev/shm is a memory volume already)",
}
ALLOWED_CAPABILITIES = frozenset({"NET_BIND_SERVICE"})


def template_findings(
    deployment: SpecDeployment, facts: EngineFacts | None, settings: OperatorSettings
) -> Iterator[Finding]:
    """Everything that is wrong with the template; `facts` are None where the engine's release is unknown."""
    template = deployment.spec.pools.template
    shape = list(_shape_findings(template, merge_keys(), ROOT))
    yield from shape
    if shape:
        return
    removed = list(_removal_findings(template, deployment))
    yield from removed
    if removed:
        return
    yield from _metadata_findings(template)
    for field in template:
        if field not in ("metadata", "spec"):
            yield error(
                FindingReason.INVALID_TEMPLATE,
                f"{ROOT}.{field}",
                "a PodTemplateSpec has metadata and spec, nothing else",
            )
    spec = template.get("spec") or {}
    yield from _pod_findings(spec, deployment, facts)
    yield from _privilege_findings(spec, settings)


def _shape_findings(node: Mapping[str, Any], table: Mapping[str, Any], path: str) -> Iterator[Finding]:
    """Merging needs lists of named items where Kubernetes merges by name."""
    for name, value in node.items():
        place = f"{path}.{name}"
        entry = table.get(name, {})
        if str(name).startswith("$"):
            yield error(
                FindingReason.INVALID_TEMPLATE,
                place,
                "patch directives are not supported: write the fields to merge; null removes a field",
            )
        elif value is None or not entry:
            continue
        elif "key" in entry:
            yield from _list_findings(value, entry, place)
        elif not isinstance(value, Mapping):
            yield error(FindingReason.INVALID_TEMPLATE, place, f"expected an object, found {type(value).__name__}")
        else:
            yield from _shape_findings(value, entry["fields"], place)


def _list_findings(value: Any, entry: Mapping[str, Any], path: str) -> Iterator[Finding]:
    if not isinstance(value, list):
        yield error(FindingReason.INVALID_TEMPLATE, path, f"expected a list, found {type(value).__name__}")
        return
    key = entry["key"]
    for index, item in enumerate(value):
        place = f"{path}[{index}]"
        if not isinstance(item, Mapping) or (key and not isinstance(item.get(key), (str, int))):
            yield error(FindingReason.INVALID_TEMPLATE, place, f"expected an object with {key}, by which items merge")
        else:
            yield from _shape_findings(item, entry.get("fields", {}), place)


def _removal_findings(template: Mapping[str, Any], deployment: SpecDeployment) -> Iterator[Finding]:
    """null removes a field; not those that pods cannot do without."""
    spec = template.get("spec") or {}
    owned: list[tuple[str, Mapping[str, Any], tuple[str, ...]]] = [
        (ROOT, template, ("metadata", "spec")),
        (f"{ROOT}.metadata", template.get("metadata") or {}, ("labels",)),
        (f"{ROOT}.spec", spec, ("containers", "volumes")),
    ]
    for index, volume in enumerate(spec.get("volumes") or []):
        if volume["name"] == SHARED_MEMORY_VOLUME:
            owned.append((f"{ROOT}.spec.volumes[{index}]", volume, ("emptyDir",)))
    for index, container in enumerate(spec.get("containers") or []):
        if container["name"] == CONTAINER:
            path = f"{ROOT}.spec.containers[{index}]"
            owned.append((path, container, KEPT_CONTAINER_FIELDS))
            for field in CONTAINER_OBJECTS:
                if container.get(field) is not None and not isinstance(container[field], Mapping):
                    found = type(container[field]).__name__
                    yield error(FindingReason.INVALID_TEMPLATE, f"{path}.{field}", f"expected an object, found {found}")
            context = container.get("securityContext")
            if isinstance(context, Mapping):
                owned.append((f"{path}.securityContext", context, ("allowPrivilegeEscalation", "capabilities")))
            resources = container.get("resources")
            if isinstance(resources, Mapping) and deployment.spec.pools.accelerator.resource:
                owned.append((f"{path}.resources", resources, ("limits", "requests")))
    for path, node, fields in owned:
        for field in fields:
            if field in node and node[field] is None:
                yield error(
                    FindingReason.OWNED_TEMPLATE_FIELD,
                    f"{path}.{field}",
                    "null would remove what specfleet sets there: write only the fields to add or change",
                )


def _metadata_findings(template: Mapping[str, Any]) -> Iterator[Finding]:
    for field, value in (template.get("metadata") or {}).items():
        path = f"{ROOT}.metadata.{field}"
        if field not in ("labels", "annotations"):
            yield error(FindingReason.OWNED_TEMPLATE_FIELD, path, "only labels and annotations can be added to pods")
        elif not isinstance(value, Mapping):
            yield error(FindingReason.INVALID_TEMPLATE, path, f"expected an object, found {type(value).__name__}")
        else:
            for key in value:
                group, _, name = str(key).rpartition("/")
                if group == GROUP or (group == "app.kubernetes.io" and name in _OWNED_LABELS and field == "labels"):
                    yield error(
                        FindingReason.OWNED_TEMPLATE_FIELD,
                        f"{path}[{key}]",
                        "specfleet sets it: choose a key of your own",
                    )


def _pod_findings(spec: Mapping[str, Any], deployment: SpecDeployment, facts: EngineFacts | None) -> Iterator[Finding]:
    path = f"{ROOT}.spec"
    for field, why in OWNED_POD_FIELDS.items():
        if field in spec:
            yield error(FindingReason.OWNED_TEMPLATE_FIELD, f"{path}.{field}", f"specfleet sets it: {why}")
    grace = spec.get("terminationGracePeriodSeconds", 0)
    least = facts.grace_seconds if facts is not None else 0
    if "terminationGracePeriodSeconds" in spec and (type(grace) is not int or grace < least):
        yield error(
            FindingReason.OWNED_TEMPLATE_FIELD,
            f"{path}.terminationGracePeriodSeconds",
            f"requests in flight need {least} s to finish: write at least that, found {grace!r}",
        )
    ours = {MODEL_VOLUME, CACHE_VOLUME}
    if facts is not None and facts.draft_mount is not None:
        ours.add(DRAFT_VOLUME)
    if facts is not None and facts.files:
        ours.add(FILES_VOLUME)
    for index, volume in enumerate(spec.get("volumes") or []):
        place = f"{path}.volumes[{index}]"
        if volume["name"] in ours:
            yield error(
                FindingReason.OWNED_TEMPLATE_FIELD,
                place,
                f"volume {volume['name']} is specfleet's: choose another name, or write the source of target or "
                "draft, or pools.storage",
            )
        if volume["name"] == SHARED_MEMORY_VOLUME and set(volume) - {"name", "emptyDir"}:
            yield error(FindingReason.OWNED_TEMPLATE_FIELD, place, "volume shm is /dev/shm: only emptyDir can be set")
    for index, container in enumerate(spec.get("containers") or []):
        if container["name"] == CONTAINER:
            yield from _container_findings(container, f"{path}.containers[{index}]", deployment, facts)


def _container_findings(
    container: Mapping[str, Any], path: str, deployment: SpecDeployment, facts: EngineFacts | None
) -> Iterator[Finding]:
    for field, hint in OWNED_CONTAINER_FIELDS.items():
        if field in container:
            yield error(FindingReason.OWNED_TEMPLATE_FIELD, f"{path}.{field}", f"specfleet sets it: {hint}")
    resource = deployment.spec.pools.accelerator.resource
    for group in ("limits", "requests"):
        amounts = (container.get("resources") or {}).get(group) or {}
        if resource and isinstance(amounts, Mapping) and resource in amounts:
            yield error(
                FindingReason.OWNED_TEMPLATE_FIELD,
                f"{path}.resources.{group}[{resource}]",
                "the count follows from target.parallelism: change that",
            )
    for index, variable in enumerate(container.get("env") or []):
        name = variable["name"]
        ours = facts is not None and any(fact.name == name for fact in facts.env)
        if ours or name in ("VLLM_PORT", "VLLM_API_KEY"):
            why = OWNED_ENV.get(str(name), "write it in spec.engine.env")
            yield error(
                FindingReason.OWNED_TEMPLATE_FIELD, f"{path}.env[{index}]", f"{name} is not yours to set: {why}"
            )
    owned = {SHARED_MEMORY_PATH, deployment.spec.rendered_target.model}
    if facts is not None:
        owned |= {path for path in (facts.cache_mount, facts.draft_mount) if path is not None}
        owned |= {file.directory for file in facts.files}
    for index, mount in enumerate(container.get("volumeMounts") or []):
        if str(mount["mountPath"]).rstrip("/") in owned:
            yield error(
                FindingReason.OWNED_TEMPLATE_FIELD,
                f"{path}.volumeMounts[{index}]",
                f"{mount['mountPath']} is where specfleet mounts a volume: choose another path",
            )


def _privilege_findings(spec: Mapping[str, Any], settings: OperatorSettings) -> Iterator[Finding]:
    """Rights that the administrator's settings do not hand on."""
    if not settings.allow_host_namespaces:
        yield from _host_findings(spec)
    if not settings.allow_service_accounts:
        yield from _account_findings(spec)
    if not settings.allow_host_path:
        for index, volume in enumerate(spec.get("volumes") or []):
            if "hostPath" in volume:
                yield error(
                    FindingReason.HOST_PATH_NOT_ALLOWED,
                    f"{ROOT}.spec.volumes[{index}].hostPath",
                    "the operator's setting allowHostPath is false: use a claim, or ask who runs the operator",
                )
    for place, context in _security_contexts(spec):
        if context is not None and not isinstance(context, Mapping):
            yield error(FindingReason.INVALID_TEMPLATE, place, f"expected an object, found {type(context).__name__}")
        elif context is not None and not settings.allow_privileged:
            yield from _security_findings(context, place)
        elif context is not None and context.get("privileged") and context.get("allowPrivilegeEscalation") is not True:
            yield error(
                FindingReason.INVALID_TEMPLATE,
                f"{place}.privileged",
                "Kubernetes takes it together with allowPrivilegeEscalation: true only: write that too",
            )


def _host_findings(spec: Mapping[str, Any]) -> Iterator[Finding]:
    for field, what in PRIVILEGED_POD_FIELDS.items():
        if spec.get(field):
            yield _privileged(f"{ROOT}.spec.{field}", what, "allowHostNamespaces")
    for place, container in _containers(spec):
        for number, port in enumerate(container.get("ports") or []):
            if port.get("hostPort"):
                yield _privileged(f"{place}.ports[{number}].hostPort", "a port of the host", "allowHostNamespaces")


def _account_findings(spec: Mapping[str, Any]) -> Iterator[Finding]:
    for field in ("serviceAccountName", "serviceAccount"):
        if field in spec:
            yield _privileged(f"{ROOT}.spec.{field}", "the rights of another service account", "allowServiceAccounts")
    for index, volume in enumerate(spec.get("volumes") or []):
        projected = volume.get("projected")
        sources = projected.get("sources") if isinstance(projected, Mapping) else None
        if isinstance(sources, list) and any(
            isinstance(one, Mapping) and "serviceAccountToken" in one for one in sources
        ):
            place = f"{ROOT}.spec.volumes[{index}].projected"
            yield _privileged(place, "a token of the API server", "allowServiceAccounts")


def _containers(spec: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for kind in ("initContainers", "containers"):
        for index, container in enumerate(spec.get(kind) or []):
            yield f"{ROOT}.spec.{kind}[{index}]", container


def _security_contexts(spec: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    yield f"{ROOT}.spec.securityContext", spec.get("securityContext")
    for place, container in _containers(spec):
        yield f"{place}.securityContext", container.get("securityContext")


_UNCONFINED: Callable[[Any], bool] = lambda value: isinstance(value, Mapping) and value.get("type") == "Unconfined"  # noqa: E731

_SECURITY_RULES: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("privileged", bool, "all rights on the host"),
    ("allowPrivilegeEscalation", bool, "more rights than its parent process"),
    ("procMount", lambda value: value not in (None, "Default"), "an unmasked /proc"),
    ("seccompProfile", _UNCONFINED, "an unconfined seccomp profile"),
    ("appArmorProfile", _UNCONFINED, "an unconfined AppArmor profile"),
    (
        "windowsOptions",
        lambda value: isinstance(value, Mapping) and bool(value.get("hostProcess")),
        "a process of the host",
    ),
)


def _security_findings(context: Mapping[str, Any], path: str) -> Iterator[Finding]:
    for field, forbidden, what in _SECURITY_RULES:
        if field in context and forbidden(context[field]):
            yield _privileged(f"{path}.{field}", what, "allowPrivileged")
    capabilities = context.get("capabilities")
    added = capabilities.get("add") if isinstance(capabilities, Mapping) else None
    beyond = [str(one) for one in added or () if one not in ALLOWED_CAPABILITIES] if isinstance(added, list) else []
    if beyond:
        yield _privileged(f"{path}.capabilities.add", f"capabilities {', '.join(beyond)}", "allowPrivileged")


def _privileged(path: str, what: str, setting: str) -> Finding:
    return error(
        FindingReason.PRIVILEGED_TEMPLATE,
        path,
        f"the template asks for {what}, and the operator's setting {setting} is false: remove it, "
        "or ask who runs the operator",
    )

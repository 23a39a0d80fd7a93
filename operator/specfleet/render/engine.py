"""The engine Deployment of one pool."""

from __future__ import annotations

from dataclasses import replace

from specfleet.api.names import BASELINE_POOL, labels, pool_object, selector, service_account_object
from specfleet.api.v1alpha1 import EnvVar, Source, SpecDeployment
from specfleet.engines.protocol import EngineFacts, EnvFact, ProbeFact
from specfleet.render.engine_files import files_annotations, files_mounts, files_volumes
from specfleet.render.meta import DEFAULT_CONTAINER, Manifest, OwnerRef, metadata, soft_spread
from specfleet.render.start import USUAL_START, Start
from specfleet.render.template import merge_pod_template

CONTAINER = "engine"
SHARED_MEMORY_VOLUME = "shm"
MODEL_VOLUME = "model"
DRAFT_VOLUME = "draft"
CACHE_VOLUME = "cache"
SHARED_MEMORY_PATH = "/dev/shm"  # noqa: S108 - a path inside the pod
# The group that recent vLLM images run with can write a cache volume that is group-owned by it.
CACHE_GROUP = 2000
IMAGE_PULL_SECONDS = 900


def engine_deployment(
    deployment: SpecDeployment, pool: str, facts: EngineFacts, owner: OwnerRef | None, start: Start = USUAL_START
) -> Manifest:
    """Engine pods of `pool`. No pod is added beyond the replicas in a rollout: GPU clusters run full."""
    pools = deployment.spec.pools
    facts = replace(facts, startup=start.probe(facts.startup))
    template = merge_pod_template(_pod_template(deployment, pool, facts), pools.template)
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(deployment, pool_object(deployment.name, pool), "engine", owner, pool),
        "spec": {
            "replicas": pools.baseline_replicas if pool == BASELINE_POOL else pools.speculative_replicas,
            "revisionHistoryLimit": 3,
            "progressDeadlineSeconds": start.deadline(_start_seconds(template, facts)) + IMAGE_PULL_SECONDS,
            "selector": {"matchLabels": selector(deployment.name, "engine", pool)},
            "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
            "template": template,
        },
    }


def surging(manifest: Manifest) -> Manifest:
    """An engine Deployment that is rolled by a pod more, and never by one less."""
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
    return {**manifest, "spec": {**manifest["spec"], "strategy": strategy}}


def _pod_template(deployment: SpecDeployment, pool: str, facts: EngineFacts) -> Manifest:
    match_labels = selector(deployment.name, "engine", pool)
    security: Manifest = {"seccompProfile": {"type": "RuntimeDefault"}}
    if deployment.spec.pools.storage.cache is not None:
        security |= {"fsGroup": CACHE_GROUP, "fsGroupChangePolicy": "OnRootMismatch"}
    return {
        "metadata": {
            "labels": labels(deployment.name, "engine", pool),
            "annotations": {DEFAULT_CONTAINER: CONTAINER, **files_annotations(facts)},
        },
        "spec": {
            "serviceAccountName": service_account_object(deployment.name),
            "automountServiceAccountToken": False,
            # A Service named vllm would set VLLM_PORT to an address, which vLLM takes for a number.
            "enableServiceLinks": False,
            "terminationGracePeriodSeconds": facts.grace_seconds,
            "securityContext": security,
            "topologySpreadConstraints": soft_spread(match_labels),
            "containers": [_container(deployment, facts)],
            "volumes": _volumes(deployment, facts) + files_volumes(deployment, pool, facts),
        },
    }


def _container(deployment: SpecDeployment, facts: EngineFacts) -> Manifest:
    spec = deployment.spec
    container: Manifest = {
        "name": CONTAINER,
        "image": facts.image,
        "command": list(facts.command),
        "args": list(facts.args),
        "env": env_manifests(deployment, facts),
        "ports": [{"name": "http", "containerPort": facts.port, "protocol": "TCP"}],
        "startupProbe": _probe(facts.startup),
        "readinessProbe": _probe(facts.readiness),
        "livenessProbe": _probe(facts.liveness),
        # What the engine said last, for the sentence in condition Ready.
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "lifecycle": {"preStop": _pre_stop(facts)},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": _mounts(deployment, facts) + files_mounts(facts),
    }
    resource = spec.pools.accelerator.resource
    if resource:
        count = str(facts.accelerators)
        container["resources"] = {"limits": {resource: count}, "requests": {resource: count}}
    return container


def env_manifests(deployment: SpecDeployment, facts: EngineFacts) -> list[Manifest]:
    """Variables of the engine container: those of the facts, then the user's."""
    return [_env_fact(fact) for fact in facts.env] + [_env_var(one) for one in deployment.spec.engine.env]


def model_volumes(deployment: SpecDeployment, facts: EngineFacts) -> tuple[list[Manifest], list[Manifest]]:
    """Volumes with models and the cache, and their mounts, all to be read only."""
    names = (MODEL_VOLUME, DRAFT_VOLUME, CACHE_VOLUME)
    volumes = [one for one in _volumes(deployment, facts) if one["name"] in names]
    mounts = [{**one, "readOnly": True} for one in _mounts(deployment, facts) if one["name"] in names]
    return volumes, mounts


def _volumes(deployment: SpecDeployment, facts: EngineFacts) -> list[Manifest]:
    spec = deployment.spec
    volumes: list[Manifest] = []
    if facts.shared_memory:
        volumes.append({"name": SHARED_MEMORY_VOLUME, "emptyDir": {"medium": "Memory"}})
    if facts.model_mount is not None:
        volumes += _model_volume(MODEL_VOLUME, spec.rendered_target.source)
    if facts.draft_mount is not None:
        volumes += _model_volume(DRAFT_VOLUME, spec.draft.source)
    if spec.pools.storage.cache is not None:
        claim = spec.pools.storage.cache.persistent_volume_claim
        volumes.append({"name": CACHE_VOLUME, "persistentVolumeClaim": {"claimName": claim}})
    return volumes


def _model_volume(name: str, source: Source | None) -> list[Manifest]:
    if source is not None and source.persistent_volume_claim is not None:
        claim = source.persistent_volume_claim.claim_name
        return [{"name": name, "persistentVolumeClaim": {"claimName": claim}}]
    if source is not None and source.image is not None:
        image = source.image.model_dump(mode="json", by_alias=True, exclude_none=True)
        return [{"name": name, "image": image}]
    if source is not None and source.host_path is not None:
        return [{"name": name, "hostPath": {"path": source.host_path.path, "type": "Directory"}}]
    return []


def _model_mount(name: str, path: str, source: Source | None) -> Manifest:
    mount: Manifest = {"name": name, "mountPath": path, "readOnly": True}
    if source is not None and source.persistent_volume_claim is not None and source.persistent_volume_claim.path:
        mount["subPath"] = source.persistent_volume_claim.path
    return mount


def _mounts(deployment: SpecDeployment, facts: EngineFacts) -> list[Manifest]:
    spec = deployment.spec
    mounts: list[Manifest] = []
    if facts.shared_memory:
        mounts.append({"name": SHARED_MEMORY_VOLUME, "mountPath": SHARED_MEMORY_PATH})
    if facts.model_mount is not None:
        mounts.append(_model_mount(MODEL_VOLUME, facts.model_mount, spec.rendered_target.source))
    if facts.draft_mount is not None:
        mounts.append(_model_mount(DRAFT_VOLUME, facts.draft_mount, spec.draft.source))
    if spec.pools.storage.cache is not None:
        mounts.append({"name": CACHE_VOLUME, "mountPath": facts.cache_mount})
    return mounts


def _pre_stop(facts: EngineFacts) -> Manifest:
    if facts.drain is not None:
        return {"exec": {"command": list(facts.drain)}}
    return {"sleep": {"seconds": facts.pre_stop_seconds}}


def _probe(fact: ProbeFact) -> Manifest:
    return {
        "httpGet": {"path": fact.path, "port": "http"},
        "periodSeconds": fact.period_seconds,
        "timeoutSeconds": fact.timeout_seconds,
        "failureThreshold": fact.failure_threshold,
    }


def _env_fact(fact: EnvFact) -> Manifest:
    if fact.secret is not None:
        name, key = fact.secret
        return {"name": fact.name, "valueFrom": {"secretKeyRef": {"name": name, "key": key}}}
    return {"name": fact.name, "value": fact.value}


def _env_var(variable: EnvVar) -> Manifest:
    rendered: Manifest = variable.model_dump(mode="json", by_alias=True, exclude_none=True)
    return rendered


def _start_seconds(template: Manifest, facts: EngineFacts) -> int:
    """How long the start-up probe of the merged template lets the engine take."""
    for container in template["spec"]["containers"]:
        if container.get("name") == CONTAINER:
            probe = container.get("startupProbe") or {}
            period, failures = probe.get("periodSeconds"), probe.get("failureThreshold")
            if isinstance(period, int) and isinstance(failures, int):
                return period * failures
    return facts.startup.longest_seconds

"""Files that an engine is started with: a ConfigMap per pool, and what its pods need of it."""

from __future__ import annotations

from specfleet.api.names import ANNOTATION_ENGINE_FILES, files_object
from specfleet.api.v1alpha1 import SpecDeployment
from specfleet.engines.protocol import EngineFacts
from specfleet.render.meta import Manifest, OwnerRef, content_hash, metadata

FILES_VOLUME = "engine-files"


def files_config_map(deployment: SpecDeployment, pool: str, facts: EngineFacts, owner: OwnerRef | None) -> Manifest:
    """The files of one pool, each under its name."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(deployment, files_object(deployment.name, pool), "engine", owner, pool),
        "data": {file.name: file.text for file in facts.files},
    }


def files_annotations(facts: EngineFacts) -> dict[str, str]:
    """What makes pods change with their files: an engine reads them only as it starts."""
    if not facts.files:
        return {}
    return {ANNOTATION_ENGINE_FILES: content_hash(*(text for file in facts.files for text in (file.name, file.text)))}


def files_volumes(deployment: SpecDeployment, pool: str, facts: EngineFacts) -> list[Manifest]:
    """The volume with the files."""
    if not facts.files:
        return []
    return [{"name": FILES_VOLUME, "configMap": {"name": files_object(deployment.name, pool)}}]


def files_mounts(facts: EngineFacts) -> list[Manifest]:
    """Where it is mounted in the engine's container."""
    directories = sorted({file.directory for file in facts.files})
    return [{"name": FILES_VOLUME, "mountPath": directory, "readOnly": True} for directory in directories]

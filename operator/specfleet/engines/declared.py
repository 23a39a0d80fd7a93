"""What a SpecDeployment says of an engine in the same words for each: release, mounts, variables, Hub access. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from packaging.version import Version

from specfleet.api.findings import Finding, FindingReason, error, errors
from specfleet.api.v1alpha1 import Engine, EngineType, EnvVar, SpecDeployment, SpecDeploymentSpec
from specfleet.engines.protocol import EnvFact
from specfleet.engines.release import agree, image_tag, is_image_reference, parse_version, tag_version

CACHE_MOUNT = "/var/cache/specfleet"
MOST_SEQUENCES = 1_000_000


def require_sound(deployment: SpecDeployment, findings: list[Finding]) -> None:
    """Raises ValueError where one of the findings is an error."""
    problems = errors(findings)
    if problems:
        raise ValueError(f"{deployment.name} cannot be rendered: {problems[0].path}: {problems[0].message}")


def sequences(text: str | None) -> int | None:
    """The value of a flag that limits what runs at once; None where it is no whole number from 1."""
    if text is None or not text.isascii() or not text.isdigit():
        return None
    return int(text) if 1 <= int(text) <= MOST_SEQUENCES else None


def declared_release(
    engine: Engine, *, public_image: str, newest: str, in_full: bool
) -> tuple[Version | None, list[Finding]]:
    """The release by `engine.version` and the image tag, and what is wrong with them.

    Args:
        public_image: repository of the engine's own image, for examples.
        newest: the newest release that is known, for examples.
        in_full: whether the engine changes with every release, so that all three numbers have to be said.
    """

    def vague(version: Version) -> bool:
        return in_full and len(version.release) < 3

    image, text = engine.image, engine.version
    if image is not None and not is_image_reference(image):
        return None, [
            error(
                FindingReason.INVALID_VALUE,
                "spec.engine.image",
                f"expected an image reference such as {public_image}:v{newest}, without a scheme and with the "
                f"repository in lower case, found {image!r}",
            )
        ]
    tagged = tag_version(image) if image is not None else None
    if tagged is not None and tagged.major > 0 and text is not None and engine.type is not EngineType.TENSORRTLLM:
        tagged = None  # a private image with a numbering of its own: no release of vLLM and SGLang begins with 1
    stated = parse_version(text) if text is not None else None
    if text is not None and (stated is None or vague(stated)):
        asked = f"{engine.type.value} changes with every release: write one in full" if in_full else "write a release"
        return None, [
            error(FindingReason.INVALID_VALUE, "spec.engine.version", f'{asked} such as "{newest}", found {text!r}')
        ]
    if stated is not None and tagged is not None and not agree(stated, tagged):
        return stated, [
            error(
                FindingReason.RELEASE_MISMATCH,
                "spec.engine.version",
                f"engine.version says {stated}, the image tag {image_tag(image or '')} says {tagged}: "
                "make them one release, or remove engine.version",
            )
        ]
    version = stated or tagged
    if version is None or vague(version):
        tag = image_tag(image or "")
        what = f"tag {tag!r} names no {'full ' if in_full else ''}release" if tag else "the reference has no tag"
        return None, [
            error(
                FindingReason.RELEASE_UNKNOWN,
                "spec.engine.image",
                f'{what}: write engine.version, for instance "{newest}", or an image with a release tag',
            )
        ]
    return version, []


def model_mount(spec: SpecDeploymentSpec) -> str | None:
    """Where a volume with the target is mounted: where its model says that it lies; None for a Hub model."""
    model = spec.rendered_target.model
    return model if model.startswith("/") else None


def draft_mount(spec: SpecDeploymentSpec) -> str | None:
    """Where a volume of the draft's own is mounted; None without one."""
    source = spec.draft.source
    return spec.draft.model if source is not None and source.hugging_face is None else None


def owned_variable(
    spec: SpecDeploymentSpec,
    variable: EnvVar,
    owned: Mapping[str, str],
    caches: frozenset[str] = frozenset({"HF_HOME"}),
) -> Iterator[Finding]:
    """What is wrong with a variable that specfleet sets itself or relies on, if it does so here.

    Args:
        owned: names, and what to do instead.
        caches: those of them that are set only where there is a cache claim.
    """
    why = owned.get(variable.name)
    sources = (spec.rendered_target.source, spec.draft.source)
    has_token = any(
        source is not None and source.hugging_face is not None and source.hugging_face.token_secret_ref is not None
        for source in sources
    )
    if why is None or (variable.name == "HF_TOKEN" and not has_token):
        return
    if variable.name in caches and spec.pools.storage.cache is None:
        return
    path = f"spec.engine.env[{variable.name}]"
    yield error(FindingReason.OWNED_ENV, path, f"{variable.name} is not yours to set: {why}")


def hub_env(spec: SpecDeploymentSpec, *, speculative: bool) -> Iterator[EnvFact]:
    """The token for the Hub, or word that nothing is to be asked for there."""
    target, draft = spec.rendered_target.source, spec.draft.source if speculative else None
    hubs = [source.hugging_face for source in (target, draft) if source is not None and source.hugging_face is not None]
    token = next((hub.token_secret_ref for hub in hubs if hub.token_secret_ref is not None), None)
    if token is not None:
        yield EnvFact("HF_TOKEN", secret=(token.name, token.key))
    needs_hub = target is None or bool(hubs)
    if not needs_hub and not any(variable.name == "HF_HUB_OFFLINE" for variable in spec.engine.env):
        yield EnvFact("HF_HUB_OFFLINE", "1")

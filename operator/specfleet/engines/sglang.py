"""SGLang behind the engine protocol: its releases, how it is started, and what it cannot do. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from packaging.version import Version

from specfleet.api.findings import Finding, FindingReason, error, warning
from specfleet.api.v1alpha1 import SpecDeployment, SpecDeploymentSpec
from specfleet.engines.declared import (
    CACHE_MOUNT,
    declared_release,
    draft_mount,
    hub_env,
    model_mount,
    require_sound,
    sequences,
)
from specfleet.engines.protocol import EngineFacts, EnvFact, ProbeFact
from specfleet.engines.running import IDLE_SECONDS, running_engine
from specfleet.engines.sglang_arguments import MAX_RUNNING, env_findings, flag_findings, last_flags
from specfleet.engines.sglang_drafts import draft_findings, speculative_args
from specfleet.engines.sglang_tables import OLDEST, ROUTE_LABEL, table

PORT = 30000
ALIVE_PATH = "/v1/models"
DEFAULT_MAX_SEQUENCES = 48
"""What SGLang takes under speculation where nothing is said; without it, the pools would differ."""
KEEP_ALIVE_SECONDS = 120
KEEP_ALIVE_SINCE = Version("0.5.10")
"""The first release in which it can be set; before it the engine closes unused connections after 5 s."""
PRE_STOP_SECONDS = 45
SHUTDOWN_SECONDS = 300
ROUTER_IDLE_SECONDS = 30
PUBLIC_IMAGE = "lmsysorg/sglang"
_LABELS_FLAG = "tokenizer-metrics-allowed-custom-labels"


class SGLang:
    """The engine module of SGLang."""

    def check(self, deployment: SpecDeployment) -> list[Finding]:
        """Everything in the object that this release of SGLang cannot do, in the order of the spec."""
        spec = deployment.spec
        version, found = _release(spec)
        release = max(version or table().newest, OLDEST)
        found += flag_findings(spec, release)
        found += env_findings(spec)
        found += draft_findings(spec, release)
        return found

    def facts(self, deployment: SpecDeployment, *, speculative: bool) -> EngineFacts:
        """Facts of one pool.

        Raises:
            ValueError: the object has errors by `check`.
        """
        require_sound(deployment, self.check(deployment))
        spec = deployment.spec
        version, _ = _release(spec)
        assert version is not None
        health = running_engine(spec.engine.type, str(version)).health_path
        parallelism = spec.rendered_target.parallelism
        max_sequences = _max_sequences(spec, version)
        shared = "enable-dp-attention" in last_flags(spec.engine, version)
        return EngineFacts(
            release=str(version),
            image=spec.engine.image or f"{PUBLIC_IMAGE}:v{version.public}",
            command=("python3", "-m", "sglang.launch_server"),
            args=_args(deployment, version, max_sequences, speculative),
            env=tuple(_env(spec, version, speculative)),
            port=PORT,
            health_path=health,
            startup=ProbeFact(health, period_seconds=10, timeout_seconds=5, failure_threshold=180),
            readiness=ProbeFact(health, period_seconds=5, timeout_seconds=5, failure_threshold=3),
            liveness=ProbeFact(ALIVE_PATH, period_seconds=10, timeout_seconds=10, failure_threshold=6),
            shared_memory=True,
            model_mount=model_mount(spec),
            draft_mount=draft_mount(spec) if speculative else None,
            cache_mount=CACHE_MOUNT,
            # With DP attention the ranks share the accelerators of tensor parallelism.
            accelerators=parallelism.tensor * parallelism.pipeline * (1 if shared else parallelism.data),
            max_sequences=max_sequences,
            pre_stop_seconds=PRE_STOP_SECONDS,
            shutdown_seconds=SHUTDOWN_SECONDS,
            refused_fields=(),
            figures_per_request=False,
            idle_seconds=ROUTER_IDLE_SECONDS if version >= KEEP_ALIVE_SINCE else IDLE_SECONDS,
            route_label=ROUTE_LABEL if _has_labels(version) else None,
        )


def _release(spec: SpecDeploymentSpec) -> tuple[Version | None, list[Finding]]:
    """The release by `engine.version` and the image tag, and what is wrong with them."""
    version, found = declared_release(spec.engine, public_image=PUBLIC_IMAGE, newest=str(table().newest), in_full=True)
    if version is None or found:
        return version, found
    return version, list(_supported(version))


def _supported(version: Version) -> Iterator[Finding]:
    newest = table().newest
    if version < OLDEST:
        yield error(
            FindingReason.RELEASE_TOO_OLD,
            "spec.engine",
            f"SGLang {version} is older than what specfleet renders: use {OLDEST} or newer; a draft's revision cannot "
            "be said before it",
        )
    if version > newest:
        yield warning(
            FindingReason.RELEASE_UNTESTED,
            "spec.engine",
            f"SGLang {version} is newer than {newest}, the newest release that specfleet knows: it is rendered like "
            f"{newest}",
        )


def _has_labels(version: Version) -> bool:
    return table().knows(_LABELS_FLAG, table().nearest(version))


def _max_sequences(spec: SpecDeploymentSpec, release: Version) -> int:
    given = last_flags(spec.engine, release).get(MAX_RUNNING)
    return (sequences(given.value) if given is not None else None) or DEFAULT_MAX_SEQUENCES


def _args(deployment: SpecDeployment, release: Version, max_sequences: int, speculative: bool) -> tuple[str, ...]:
    spec = deployment.spec
    target = spec.rendered_target
    parallelism = target.parallelism
    args = [
        f"--model-path={target.model}",
        f"--served-model-name={deployment.served_name}",
        "--host=0.0.0.0",
        f"--port={PORT}",
        f"--tp-size={parallelism.tensor}",
        f"--pp-size={parallelism.pipeline}",
        f"--dp-size={parallelism.data}",
        f"--{MAX_RUNNING}={max_sequences}",
        "--enable-metrics",
    ]
    if _has_labels(release):
        args.append(f"--{_LABELS_FLAG}={ROUTE_LABEL}")
    if target.revision is not None and not target.model.startswith("/"):
        args.append(f"--revision={target.revision}")
    args += [
        f"--{key}={value}" if value else f"--{key}"
        for key, value in sorted(spec.engine.args.items())
        if key != MAX_RUNNING
    ]
    args += spec.engine.extra_args
    if speculative:
        args += speculative_args(spec, release)
    return tuple(args)


def _env(spec: SpecDeploymentSpec, release: Version, speculative: bool) -> Iterator[EnvFact]:
    if release >= KEEP_ALIVE_SINCE:
        yield EnvFact("SGLANG_TIMEOUT_KEEP_ALIVE", str(KEEP_ALIVE_SECONDS))
    if spec.pools.storage.cache is not None:
        yield EnvFact("HF_HOME", f"{CACHE_MOUNT}/huggingface")
    yield from hub_env(spec, speculative=speculative)

"""vLLM behind the engine protocol: its releases, how it is started, and what it cannot do. Pure."""

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
from specfleet.engines.drain import drain_command
from specfleet.engines.flags import Given, Unresolved
from specfleet.engines.protocol import EngineFacts, EnvFact, ProbeFact
from specfleet.engines.release import Minor
from specfleet.engines.running import IDLE_SECONDS
from specfleet.engines.vllm_arguments import GENERATION, env_findings, flag_findings, given_flags
from specfleet.engines.vllm_drafts import draft_findings, speculative_config, table
from specfleet.engines.vllm_tables import (
    DRAINS_SINCE,
    KEEP_ALIVE_SINCE,
    NEWEST,
    OLDEST,
    PARSERS_SINCE,
    has_figures,
    knows_generations,
    refused_fields,
)

PORT = 8000
HEALTH_PATH = "/health"
DEFAULT_MAX_SEQUENCES = 256
KEEP_ALIVE_SECONDS = 120
ROUTER_IDLE_SECONDS = 30
PRE_STOP_SECONDS = 45
SHUTDOWN_SECONDS = 300
PUBLIC_IMAGE = "vllm/vllm-openai"
STARTUP = ProbeFact(HEALTH_PATH, period_seconds=10, timeout_seconds=5, failure_threshold=180)


DRAIN = drain_command(
    port=PORT,
    path="/metrics",
    gauge="vllm:num_requests_(?:running|waiting)",
    leave_seconds=PRE_STOP_SECONDS,
    most_seconds=SHUTDOWN_SECONDS,
)


class VLLM:
    """The engine module of vLLM."""

    def check(self, deployment: SpecDeployment) -> list[Finding]:
        """Everything in the object that this release of vLLM cannot do, in the order of the spec."""
        spec = deployment.spec
        version, found = _release(spec)
        known = version is not None and version >= OLDEST and Minor.of(version) <= NEWEST
        release = version if version is not None and known else _nearest(version)
        found += flag_findings(spec, release, known)
        found += env_findings(spec, release)
        found += draft_findings(spec, release, _max_sequences(spec, release))
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
        max_sequences = _max_sequences(spec, version)
        parallelism = spec.rendered_target.parallelism
        return EngineFacts(
            release=str(version),
            image=spec.engine.image or f"{PUBLIC_IMAGE}:v{version.public}",
            command=("vllm", "serve"),
            args=_args(deployment, version, max_sequences, speculative),
            env=tuple(_env(spec, version, speculative)),
            port=PORT,
            health_path=HEALTH_PATH,
            startup=STARTUP,
            readiness=ProbeFact(HEALTH_PATH, period_seconds=5, timeout_seconds=5, failure_threshold=3),
            liveness=ProbeFact(HEALTH_PATH, period_seconds=10, timeout_seconds=10, failure_threshold=6),
            shared_memory=True,
            model_mount=model_mount(spec),
            draft_mount=draft_mount(spec) if speculative else None,
            cache_mount=CACHE_MOUNT,
            accelerators=parallelism.tensor * parallelism.pipeline * parallelism.data,
            # Each data-parallel rank schedules as many of its own.
            max_sequences=max_sequences * parallelism.data,
            pre_stop_seconds=PRE_STOP_SECONDS,
            shutdown_seconds=SHUTDOWN_SECONDS,
            refused_fields=refused_fields(version),
            figures_per_request=has_figures(version),
            idle_seconds=ROUTER_IDLE_SECONDS if version >= KEEP_ALIVE_SINCE else IDLE_SECONDS,
            drain=None if version >= DRAINS_SINCE else DRAIN,
        )


def _release(spec: SpecDeploymentSpec) -> tuple[Version | None, list[Finding]]:
    """The release by `engine.version` and the image tag, and what is wrong with them."""
    version, found = declared_release(spec.engine, public_image=PUBLIC_IMAGE, newest=f"{NEWEST}.0", in_full=False)
    if version is None or found:
        return version, found
    return version, [*_supported(version), *_full_version(spec, version)]


def _nearest(version: Version | None) -> Version:
    """The release that stands in for one that is not in the tables, or not known at all."""
    return table().read(version or Version(str(NEWEST)))


def _supported(version: Version) -> Iterator[Finding]:
    if version < OLDEST:
        yield error(
            FindingReason.RELEASE_TOO_OLD,
            "spec.engine",
            f"vLLM {version} is older than what specfleet renders: use vLLM {OLDEST} or newer",
        )
    if Minor.of(version) > NEWEST:
        yield warning(
            FindingReason.RELEASE_UNTESTED,
            "spec.engine",
            f"vLLM {version} is newer than {NEWEST}, the newest release that specfleet knows: it is rendered like "
            f"{NEWEST}",
        )


def _full_version(spec: SpecDeploymentSpec, version: Version) -> Iterator[Finding]:
    if len(version.release) < 3 and Minor.of(version) < PARSERS_SINCE:
        yield error(
            FindingReason.INVALID_VALUE,
            "spec.engine.version" if spec.engine.version else "spec.engine.image",
            f"vLLM {version} changed with patch releases, as all did before {PARSERS_SINCE}: write one in full, for "
            f'instance engine.version: "{table().read(version)}"',
        )
    elif spec.engine.image is None and len(version.release) < 3:
        yield error(
            FindingReason.INVALID_VALUE,
            "spec.engine.version",
            f'the public image needs a full release: write for instance "{version}.0", or an image',
        )


def _max_sequences(spec: SpecDeploymentSpec, release: Version) -> int:
    value = DEFAULT_MAX_SEQUENCES
    for given in given_flags(spec.engine, release):
        if isinstance(given, Given) and not isinstance(given.flag, Unresolved) and given.flag.name == "max-num-seqs":
            value = sequences(given.value) or value
    return value


def _args(deployment: SpecDeployment, release: Version, max_sequences: int, speculative: bool) -> tuple[str, ...]:
    spec = deployment.spec
    target = spec.rendered_target
    parallelism = target.parallelism
    args = [
        target.model,
        f"--served-model-name={deployment.served_name}",
        "--host=0.0.0.0",
        f"--port={PORT}",
        f"--tensor-parallel-size={parallelism.tensor}",
        f"--pipeline-parallel-size={parallelism.pipeline}",
        f"--data-parallel-size={parallelism.data}",
        f"--max-num-seqs={max_sequences}",
    ]
    if release >= DRAINS_SINCE:
        args.append(f"--shutdown-timeout={SHUTDOWN_SECONDS}")
    if target.revision is not None and not target.model.startswith("/"):
        args.append(f"--revision={target.revision}")
    args += [_flag(key, value) for key, value in sorted(spec.engine.args.items()) if not _is_max_sequences(key)]
    args += spec.engine.extra_args
    if speculative:
        args.append(f"--speculative-config={speculative_config(spec, release)}")
        if has_figures(release):
            args.append("--per-request-spec-decode-metrics=summary")
    return tuple(args)


def _is_max_sequences(key: str) -> bool:
    return key.replace("_", "-") == "max-num-seqs"


def _flag(key: str, value: str) -> str:
    return f"--{key}={value}" if value else f"--{key}"


def _env(spec: SpecDeploymentSpec, release: Version, speculative: bool) -> Iterator[EnvFact]:
    if release >= KEEP_ALIVE_SINCE:
        yield EnvFact("VLLM_HTTP_TIMEOUT_KEEP_ALIVE", str(KEEP_ALIVE_SECONDS))
    if knows_generations(release):
        # Both pools alike: left to itself, vLLM would change the engine for what V1 cannot do, in one pool alone.
        yield EnvFact(GENERATION, "0" if table().on_first_engine(spec.draft.mode, release) else "1")
    if spec.pools.storage.cache is not None:
        yield EnvFact("HF_HOME", f"{CACHE_MOUNT}/huggingface")
        yield EnvFact("VLLM_CACHE_ROOT", f"{CACHE_MOUNT}/vllm")
    yield from hub_env(spec, speculative=speculative)

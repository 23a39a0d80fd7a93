"""TensorRT-LLM behind the engine protocol: its releases, how it is started, and what it cannot do. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

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
)
from specfleet.engines.drain import connections_command
from specfleet.engines.protocol import EngineFacts, EnvFact, FileFact, ProbeFact
from specfleet.engines.running import IDLE_SECONDS
from specfleet.engines.trtllm_arguments import MAX_BATCH, env_findings, flag_findings, max_sequences
from specfleet.engines.trtllm_config import config_findings, config_text, read_config
from specfleet.engines.trtllm_drafts import draft_findings, speculative_config
from specfleet.engines.trtllm_tables import COUNTING_SINCE, OLDEST, PENALTIES_REFUSED_SINCE, table

PORT = 8000
HEALTH_PATH = "/health"
METRICS_PATH = "/prometheus/metrics"
DEFAULT_MAX_SEQUENCES = 64
"""The engine's own default of 2,048 is more than a pod can run, and the router's limits follow from it."""
PRE_STOP_SECONDS = 45
SHUTDOWN_SECONDS = 300
DRAIN = connections_command(port=PORT, leave_seconds=PRE_STOP_SECONDS, most_seconds=SHUTDOWN_SECONDS)
"""After SIGTERM it ends its processes and is not known to let requests finish, so they get their time before. Its page
does not tell in every release what runs, but its server closes unused connections after 5 s."""
PUBLIC_IMAGE = "nvcr.io/nvidia/tensorrt-llm/release"
CONFIG_DIRECTORY = "/etc/specfleet/engine"
CONFIG_FILE = "config.yaml"
PENALTIES = ("presence_penalty", "frequency_penalty", "repetition_penalty")


class TensorRTLLM:
    """The engine module of TensorRT-LLM."""

    def check(self, deployment: SpecDeployment) -> list[Finding]:
        """Everything in the object that this release of TensorRT-LLM cannot do, in the order of the spec."""
        spec = deployment.spec
        version, found = _release(spec)
        release = max(version or table().newest, OLDEST)
        found += flag_findings(spec, release)
        found += env_findings(spec)
        found += config_findings(spec.engine.config or "")
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
        sequences = max_sequences(spec.engine, version, DEFAULT_MAX_SEQUENCES)
        return EngineFacts(
            release=str(version),
            image=spec.engine.image or f"{PUBLIC_IMAGE}:{version.public}",
            command=("trtllm-serve",),
            args=_args(deployment, version, sequences),
            env=tuple(_env(spec, speculative)),
            port=PORT,
            health_path=HEALTH_PATH,
            startup=ProbeFact(HEALTH_PATH, period_seconds=10, timeout_seconds=5, failure_threshold=360),
            readiness=ProbeFact(HEALTH_PATH, period_seconds=5, timeout_seconds=5, failure_threshold=3),
            # A rank that died leaves the server answering 503 for good.
            liveness=ProbeFact(HEALTH_PATH, period_seconds=10, timeout_seconds=10, failure_threshold=6),
            shared_memory=True,
            model_mount=model_mount(spec),
            draft_mount=draft_mount(spec) if speculative else None,
            cache_mount=CACHE_MOUNT,
            accelerators=spec.rendered_target.parallelism.tensor,
            max_sequences=sequences,
            pre_stop_seconds=PRE_STOP_SECONDS,
            shutdown_seconds=SHUTDOWN_SECONDS,
            refused_fields=_refused_fields(spec, version),
            figures_per_request=False,
            idle_seconds=IDLE_SECONDS,
            drain=DRAIN,
            files=(FileFact(CONFIG_FILE, CONFIG_DIRECTORY, _file(spec, version, speculative)),),
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
            f"TensorRT-LLM {version} is older than what specfleet renders: use {OLDEST} or newer, the first with a "
            "stable API of its PyTorch backend",
        )
    elif version > newest:
        yield warning(
            FindingReason.RELEASE_UNTESTED,
            "spec.engine",
            f"TensorRT-LLM {version} is newer than {newest}, the newest release that specfleet knows: it is rendered "
            f"like {newest}",
        )


def _refused_fields(spec: SpecDeploymentSpec, release: Version) -> tuple[str, ...]:
    allowed = spec.draft.args.get("enable_penalty") == "true"
    return () if allowed or release < PENALTIES_REFUSED_SINCE else PENALTIES


def _args(deployment: SpecDeployment, release: Version, sequences: int) -> tuple[str, ...]:
    spec = deployment.spec
    parallelism = spec.rendered_target.parallelism
    file_flag = "config" if table().flag("--config", release) is not None else "extra_llm_api_options"
    args = [
        spec.rendered_target.model,
        "--host=0.0.0.0",
        f"--port={PORT}",
        "--backend=pytorch",
        f"--tp_size={parallelism.tensor}",
        f"--pp_size={parallelism.pipeline}",
        f"--{MAX_BATCH}={sequences}",
        f"--{file_flag}={CONFIG_DIRECTORY}/{CONFIG_FILE}",
    ]
    if table().flag("--served_model_name", release) is not None:
        args.append(f"--served_model_name={deployment.served_name}")
    given = {key: value for key, value in sorted(spec.engine.args.items()) if key != MAX_BATCH}
    args += [f"--{key}={value}" if value else f"--{key}" for key, value in given.items()]
    return (*args, *spec.engine.extra_args)


def _file(spec: SpecDeploymentSpec, release: Version, speculative: bool) -> str:
    target = spec.rendered_target
    own: dict[str, Any] = {}
    if target.revision is not None and not target.model.startswith("/"):
        own["revision"] = target.revision
    if release >= COUNTING_SINCE:
        # Both pools alike: what they cost, they cost both.
        own |= {"return_perf_metrics": True, "enable_iter_perf_stats": True}
    drafts = speculative_config(spec, release) if speculative else None
    return config_text(own, drafts, read_config(spec.engine.config or ""))


def _env(spec: SpecDeploymentSpec, speculative: bool) -> Iterator[EnvFact]:
    if spec.pools.storage.cache is not None:
        yield EnvFact("HF_HOME", f"{CACHE_MOUNT}/huggingface")
    yield from hub_env(spec, speculative=speculative)

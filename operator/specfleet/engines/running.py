"""What a router has to know of an engine that somebody else runs, by engine and release. Pure.

Of an engine whose release is not known, what is taken is right for the newest and does no harm to an older one.
"""

from __future__ import annotations

from dataclasses import dataclass

from specfleet.api.v1alpha1 import EngineType
from specfleet.engines.release import parse_version
from specfleet.engines.vllm_tables import refused_fields

# SGLang's /health makes the engine generate a token, so a busy one fails it. /ready came with this release; before it
# the model list tells that the server answers, with 401 where the server wants a key.
_SGLANG_READY_SINCE = (0, 5, 20)


IDLE_SECONDS = 3
"""How long a router keeps an unused connection: vLLM and SGLang close theirs after 5 s unless told otherwise."""


@dataclass(frozen=True)
class RunningEngine:
    """How to check an engine and what not to send it.

    Args:
        health_path: answers 200 as long as the engine can serve, without costing it a token.
        also_healthy: other statuses that say the same.
        refused_fields: request body members that it refuses under speculation.
    """

    health_path: str
    also_healthy: tuple[int, ...]
    refused_fields: tuple[str, ...]


def running_engine(kind: EngineType, release: str | None) -> RunningEngine:
    """The facts of one engine; `release` such as `0.32.0`, or None where nobody can tell."""
    version = parse_version(release) if release is not None else None
    if kind is EngineType.SGLANG:
        if version is not None and version.release >= _SGLANG_READY_SINCE:
            return RunningEngine("/ready", (), ())
        return RunningEngine("/v1/models", (401,), ())
    return RunningEngine("/health", (), refused_fields(version))

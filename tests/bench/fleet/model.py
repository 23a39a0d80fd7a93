"""Step times, and the batch that a pool runs under them (docs/decisions/0860-fleet-simulation.md has the sources).

A step over n tokens with C tokens of KV cache takes a + b n + kappa C: Llama-3.1-8B on an H100, by the public fit of
SpecDecode-Bench; a draft of three tokens takes 2.14 ms more. One step of baseline computes one token a sequence, one of
speculation k + 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from specfleet.decision.types import Pool

K = 3
STEP_SECONDS = 7.10e-3
TOKEN_SECONDS = 21.0e-6
CACHE_SECONDS = 0.0393e-6  # a token of KV cache
DRAFT_SECONDS = 2.14e-3  # k tokens
CONTEXT = 1000.0  # tokens of KV cache a sequence
MOST_BATCH = 256.0  # sequences a replica runs; further ones wait

POOLS: tuple[Pool, ...] = ("speculative", "baseline")


def step_seconds(pool: Pool, batch: float) -> float:
    """Seconds of one decode step of a replica that runs `batch` sequences."""
    fixed, slope = _line(pool)
    return fixed + slope * batch


def break_even(batch: float) -> float:
    """L*: time of a step under speculation over that of one in baseline, at the same batch."""
    return step_seconds("speculative", batch) / step_seconds("baseline", batch)


def _line(pool: Pool) -> tuple[float, float]:
    if pool == "baseline":
        return STEP_SECONDS, TOKEN_SECONDS + CACHE_SECONDS * CONTEXT
    return STEP_SECONDS + DRAFT_SECONDS, TOKEN_SECONDS * (K + 1) + CACHE_SECONDS * CONTEXT


def batch_of(pool: Pool, steps_a_second: float, replicas: float) -> float:
    """Sequences that a replica runs in an open loop: B = (steps a second of a replica) x T(B), by Little's law.

    `steps_a_second` is what the pool's traffic needs: requests a second x decode tokens / tokens per step. `MOST_BATCH`
    where that is more than the replicas can do.
    """
    if steps_a_second <= 0.0:
        return 0.0
    if replicas <= 0.0:
        return MOST_BATCH
    fixed, slope = _line(pool)
    needed = steps_a_second / replicas
    if needed * slope >= 1.0:
        return MOST_BATCH
    return min(MOST_BATCH, needed * fixed / (1.0 - needed * slope))


@dataclass(frozen=True, slots=True)
class Load:
    """One route's traffic: requests a second, the share for speculation, decode tokens a request, tokens per step."""

    requests: float
    share: float
    tokens: float
    tokens_per_step: float


def batches(loads: Sequence[Load], replicas: dict[Pool, float]) -> dict[Pool, float]:
    """The batch of each pool's replicas under the traffic of all routes."""
    needed: dict[Pool, float] = {
        "speculative": sum(one.requests * one.share * one.tokens / one.tokens_per_step for one in loads),
        "baseline": sum(one.requests * (1.0 - one.share) * one.tokens for one in loads),
    }
    return {pool: batch_of(pool, needed[pool], replicas[pool]) for pool in POOLS}

"""Compares a plan with what a running engine reports of its own KV cache. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from specfleet.api.v1alpha1 import EngineType
from specfleet.sizing.reading import SizingProblem

TOLERANCE = 0.02
_INFO = "vllm:cache_config_info"
_SGLANG = "sglang:max_total_num_tokens"
_NUMBER = re.compile(r"[0-9]{1,12}")


@dataclass(frozen=True)
class LiveCache:
    """KV cache of one engine, as it reports it.

    Args:
        blocks: on one accelerator.
        block_size: tokens.
    """

    blocks: int
    block_size: int

    @property
    def tokens(self) -> int:
        """Blocks times their size: tokens that fit where all layers keep every token."""
        return self.blocks * self.block_size


@dataclass(frozen=True)
class Comparison:
    """Plan and report.

    Args:
        planned, reported: blocks times their size.
        difference: of the plan, as a share of the report; above 0 the plan promises too much.
    """

    planned: int
    reported: int
    difference: float

    @property
    def agrees(self) -> bool:
        """Whether they are within 2 %."""
        return abs(self.difference) <= TOLERANCE

    def __str__(self) -> str:
        share = f"{100 * self.difference:+.1f} %"
        return f"planned {self.planned} tokens in KV blocks, the engine reports {self.reported} ({share})"


def read_cache_config(page: str) -> list[LiveCache]:
    """What vLLM's metrics page says of its cache, one entry an engine (data-parallel ranks are several).

    Raises:
        SizingProblem: the page is no Prometheus text, has no `vllm:cache_config_info`, or one without its figures.
    """
    try:
        families = [family for family in text_string_to_metric_families(page) if family.name in (_INFO, _INFO[:-5])]
    except ValueError as problem:
        raise SizingProblem(f"the metrics page cannot be read: {problem}") from None
    found = [_live(sample.labels) for family in families for sample in family.samples]
    if not found:
        raise SizingProblem(f"the metrics page has no {_INFO}: is it vLLM's, and has the engine started?")
    return found


def reported_tokens(page: str, engine: EngineType) -> int:
    """Tokens of KV cache of one pod, by its metrics page: vLLM's blocks times their size, or SGLang's own figure.

    Only the lines about it are read. Raises SizingProblem where the page does not tell.
    """
    name = _SGLANG if engine is EngineType.SGLANG else _INFO
    lines = [line for line in page.splitlines() if line.startswith((f"{name}{{", f"{name} "))]
    if engine is EngineType.VLLM:
        return sum(one.tokens for one in read_cache_config("\n".join(lines) + "\n"))
    try:
        samples = [one for family in text_string_to_metric_families("\n".join(lines) + "\n") for one in family.samples]
    except ValueError as problem:
        raise SizingProblem(f"the metrics page cannot be read: {problem}") from None
    tokens = sum(int(one.value) for one in samples if 0 < one.value < 1 << 50)
    if not tokens:
        raise SizingProblem(f"the metrics page has no {name}: this release does not tell, or has not started yet")
    return tokens


def _live(labels: Mapping[str, str]) -> LiveCache:
    blocks, size = labels.get("num_gpu_blocks", ""), labels.get("block_size", "")
    if not _NUMBER.fullmatch(blocks) or not _NUMBER.fullmatch(size) or not int(size):
        raise SizingProblem(
            f"{_INFO} has num_gpu_blocks={blocks!r} and block_size={size!r}: the engine has not counted its blocks yet"
        )
    return LiveCache(int(blocks), int(size))


def compare(counted_tokens: int | None, engines: Iterable[LiveCache]) -> Comparison:
    """A pod's plan against what its engines report.

    Args:
        counted_tokens: `PoolRoom.counted_tokens`.

    Raises:
        SizingProblem: the engines report no cache, or the plan knows of no single size of block.
    """
    reported = sum(engine.tokens for engine in engines)
    if not reported:
        raise SizingProblem("the engine reports no KV cache: it has not counted its blocks yet")
    if counted_tokens is None:
        raise SizingProblem(
            "this target and draft have KV blocks of several sizes, so the engine's count of blocks cannot be compared "
            "with the plan: read the number of sequences from its log, Maximum concurrency"
        )
    return Comparison(counted_tokens, reported, counted_tokens / reported - 1)

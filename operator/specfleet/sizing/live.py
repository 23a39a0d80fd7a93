"""Compares a plan with what a running engine reports of its own KV cache. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from specfleet.sizing.reading import SizingProblem

TOLERANCE = 0.02
_INFO = "vllm:cache_config_info"


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
        """Tokens that fit, for models whose layers all keep every token."""
        return self.blocks * self.block_size


@dataclass(frozen=True)
class Comparison:
    """Plan and report.

    Args:
        planned, reported: tokens.
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
        return f"planned {self.planned} KV tokens, the engine reports {self.reported} ({100 * self.difference:+.1f} %)"


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


def _live(labels: Mapping[str, str]) -> LiveCache:
    blocks, size = labels.get("num_gpu_blocks", ""), labels.get("block_size", "")
    if not blocks.isdigit() or not size.isdigit() or not int(size):
        raise SizingProblem(
            f"{_INFO} has num_gpu_blocks={blocks!r} and block_size={size!r}: the engine has not counted its blocks yet"
        )
    return LiveCache(int(blocks), int(size))


def compare(planned_tokens: int, engines: Iterable[LiveCache]) -> Comparison:
    """Planned KV tokens of a pod against what its engines report. Raises SizingProblem where they report none."""
    reported = sum(engine.tokens for engine in engines)
    if not reported:
        raise SizingProblem("the engine reports no KV cache: it has not counted its blocks yet")
    return Comparison(planned_tokens, reported, planned_tokens / reported - 1)

"""How an engine lays sequences out in blocks: bytes a token and a sequence on one accelerator. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from specfleet.sizing.dtypes import dtype_bytes
from specfleet.sizing.layers import Kind, Layer

_ALIGN = 16
_PAD_BELOW = 1.5


@dataclass(frozen=True)
class Held:
    """What one layer keeps on one accelerator.

    Args:
        token_bytes: of a token; 0 for a state.
        state_bytes: of a sequence's state; 0 for attention.
    """

    kind: Kind
    token_bytes: int
    window: int | None = None
    state_bytes: int = 0


def held(layers: Iterable[Layer], *, tensor: int, kv_bytes: int, model_bytes: int, tokens: int = 0) -> list[Held]:
    """The layers as one of `tensor` accelerators holds them.

    Key-value heads are divided among min(tensor, heads) accelerators; beyond that each has a copy of one.

    Args:
        model_bytes: bytes of the model's dtype, in which states are kept.
        tokens: k, drafted a round: a state keeps that many more values of its convolution.
    """
    found = []
    for layer in layers:
        if layer.kind is Kind.NOTHING:
            continue
        if layer.state is not None:
            state = layer.state
            own = dtype_bytes(state.recurrent_dtype, "config.json") if state.recurrent_dtype else model_bytes
            convolution = state.channels * (state.kernel - 1 + tokens) * model_bytes
            found.append(Held(layer.kind, 0, None, math.ceil((convolution + state.recurrent * own) / tensor)))
        else:
            heads = math.ceil(layer.heads / min(tensor, layer.heads))
            found.append(Held(layer.kind, heads * layer.width * kv_bytes, layer.window))
    return found


def token_bytes(layers: Iterable[Held]) -> int:
    """Bytes that one more token of a long sequence takes: of the layers that keep all tokens."""
    return sum(layer.token_bytes for layer in layers if layer.kind is Kind.FULL)


@dataclass(frozen=True)
class Blocks:
    """How sequences are laid out.

    Args:
        size: tokens a block.
        grouped: layers that keep different things share blocks of one size, in groups of as many layers, as vLLM does;
            else each kind has a pool of its own.
    """

    size: int = 16
    grouped: bool = True


def sequence_bytes(layers: Sequence[Held], tokens: int, slots: int, drafted: int, blocks: Blocks) -> int:
    """Bytes of one sequence of `tokens` tokens that needs `slots` more while it runs.

    A sliding layer keeps the blocks that its window touches. A state takes one block, and one more for each of the
    `drafted` tokens, to go back to (vLLM 0.32: `v1/kv_cache_interface.py`).
    """
    page = max((layer.token_bytes for layer in layers), default=0)
    largest_state = max((layer.state_bytes for layer in layers), default=0)
    size = blocks.size
    if largest_state and page and blocks.grouped:
        # Attention's block grows until its page holds a state.
        size = max(size, math.ceil(math.ceil(largest_state / page) / _ALIGN) * _ALIGN)
    whole = math.ceil((tokens + slots) / size)

    def count(layer: Held) -> int:
        if layer.kind is Kind.STATE:
            return 1 + drafted
        if layer.window is None:
            return whole
        return min(whole, math.ceil((layer.window - 1 + slots) / size) + 1)

    def bytes_of(layer: Held) -> int:
        if layer.kind is Kind.STATE:
            return size * page if blocks.grouped and page else layer.state_bytes
        return size * layer.token_bytes

    buckets: dict[tuple[Kind, int | None], list[Held]] = {}
    for layer in layers:
        buckets.setdefault((layer.kind, layer.window), []).append(layer)
    one_page = len({layer.token_bytes for layer in layers if layer.kind is not Kind.STATE}) == 1
    group = _group_size([len(bucket) for bucket in buckets.values()]) if blocks.grouped and one_page else 1
    return sum(
        math.ceil(len(bucket) / group) * group * count(bucket[0]) * bytes_of(bucket[0])
        if group > 1
        else sum(count(layer) * bytes_of(layer) for layer in bucket)
        for bucket in buckets.values()
    )


def _group_size(counts: Sequence[int]) -> int:
    """Layers of a group: the fewest of a kind, or the most where they are nearly as many."""
    if len(counts) < 2:
        return 1
    return max(counts) if max(counts) < _PAD_BELOW * min(counts) else min(counts)


def kv_tokens(memory: int, layers: Sequence[Held], blocks: Blocks, *, tokens: int = 0) -> int:
    """Tokens that `memory` bytes of KV cache on one accelerator hold.

    For models whose layers keep different things the figure depends on the sequences' length: `tokens`.
    """
    if memory <= 0:
        return 0
    if all(layer.kind is Kind.FULL for layer in layers):
        block = blocks.size * token_bytes(layers)
        return memory // block * blocks.size if block else 0
    length = max(tokens, 1)
    return int(memory / sequence_bytes(layers, length, 0, 0, blocks) * length)

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


@dataclass(frozen=True)
class Layout:
    """Layers in blocks, on one accelerator.

    Args:
        size: tokens of a block: as asked, or more where a state has to fit a block of attention.
        page: bytes of a layer's part of a block, the widest layer's.
        group: layers that one block holds; None where each layer or kind has blocks of its own.
        buckets: layers that keep the same.
    """

    size: int
    page: int
    group: int | None
    buckets: tuple[tuple[Held, ...], ...]

    @property
    def block_bytes(self) -> int | None:
        """Bytes of one block as the engine counts blocks; None where it has several kinds of them."""
        if self.group is not None:
            return self.group * self.size * self.page
        if len(self.buckets) == 1:
            return sum(self.layer_bytes(layer) for layer in self.buckets[0])
        return None

    def layer_bytes(self, layer: Held) -> int:
        """Bytes of a layer's part of a block."""
        if layer.kind is not Kind.STATE:
            return self.size * layer.token_bytes
        return layer.state_bytes if self.group is None else self.size * self.page

    def sequence_bytes(self, tokens: int, slots: int, drafted: int) -> int:
        """Bytes of one sequence of `tokens` tokens that needs `slots` more while it runs.

        A sliding layer keeps the blocks that its window touches. A state takes one block, and one more for each of
        the `drafted` tokens, to go back to (vLLM 0.32: `v1/kv_cache_interface.py`).
        """
        whole = math.ceil((tokens + slots) / self.size)
        total = 0
        for bucket in self.buckets:
            first = bucket[0]
            if first.kind is Kind.STATE:
                held_blocks = 1 + drafted
            elif first.window is None:
                held_blocks = whole
            else:
                held_blocks = min(whole, math.ceil((first.window - 1 + slots) / self.size) + 1)
            if self.group is not None:
                total += math.ceil(len(bucket) / self.group) * self.group * held_blocks * self.layer_bytes(first)
            else:
                total += held_blocks * sum(self.layer_bytes(layer) for layer in bucket)
        return total


def layout(layers: Sequence[Held], blocks: Blocks) -> Layout:
    """How the layers are laid out.

    Kinds of layers share blocks only where each layer's part has one size: a draft with other key-value heads in a
    model with windows has not.
    """
    page = max((layer.token_bytes for layer in layers), default=0)
    state = max((layer.state_bytes for layer in layers), default=0)
    buckets: dict[tuple[Kind, int | None], list[Held]] = {}
    for layer in layers:
        buckets.setdefault((layer.kind, layer.window), []).append(layer)
    widths = {layer.token_bytes for layer in layers if layer.kind is not Kind.STATE}
    grouped = blocks.grouped and len(widths) == 1 and len(buckets) > 1
    size = blocks.size
    if grouped and state:
        size = max(size, math.ceil(math.ceil(state / page) / _ALIGN) * _ALIGN)
    counts = [len(bucket) for bucket in buckets.values()]
    return Layout(size, page, _group_size(counts) if grouped else None, tuple(map(tuple, buckets.values())))


def _group_size(counts: Sequence[int]) -> int:
    """Layers of a group: the fewest of a kind, or the most where they are nearly as many."""
    return max(counts) if max(counts) < _PAD_BELOW * min(counts) else min(counts)


def kv_tokens(memory: int, layers: Sequence[Held], blocks: Blocks, *, tokens: int = 0) -> int:
    """Tokens that `memory` bytes of KV cache on one accelerator hold.

    For models whose layers keep different things the figure depends on the sequences' length: `tokens`.
    """
    laid = layout(layers, blocks)
    if memory <= 0 or not laid.buckets:
        return 0
    if all(layer.kind is Kind.FULL for layer in layers):
        return memory // (blocks.size * token_bytes(layers)) * blocks.size
    length = max(tokens, 1)
    return int(memory / laid.sequence_bytes(length, 0, 0) * length)

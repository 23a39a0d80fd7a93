"""What a draft adds to a pod: KV cache, weights, and slots of each running sequence. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from specfleet.api.v1alpha1 import DraftMode
from specfleet.sizing.layers import Kind, Layer
from specfleet.sizing.parameters import Weights, head_layer_parameters, mtp_weights, read_bytes, weights
from specfleet.sizing.reading import SizingProblem
from specfleet.sizing.shape import ModelShape

EAGLE3_STATES = 3
"""Hidden states of the target that an EAGLE-3 head takes in (arXiv:2503.01840, 3.1)."""
WITHOUT_CHECKPOINT = frozenset({DraftMode.NGRAM, DraftMode.SUFFIX})


@dataclass(frozen=True)
class DraftCost:
    """What a draft adds.

    Args:
        layers: that keep something of each sequence.
        weights: its bytes, in all.
        tensor: how many accelerators share its KV heads and weights; 1: each has all of it.
        slots: that a running sequence needs beyond the one of plain decoding: k scheduled tokens and the lookahead.
        tokens: k, drafted a round.
        round_bytes: weights that are read to draft them, at a batch of one.
        kv_bytes: of a KV element; None: as the target's.
    """

    layers: tuple[Layer, ...]
    weights: Weights
    tensor: int
    slots: int
    tokens: int
    dtype_bytes: int
    round_bytes: int = 0
    kv_bytes: int | None = None


NO_DRAFT = DraftCost((), Weights(0, 0, 0, 0), 1, 0, 0, 0)


def draft_cost(
    mode: DraftMode, tokens: int, lookahead: int, target: ModelShape, draft: ModelShape | None, *, tensor: int
) -> DraftCost:
    """What one draft costs.

    Args:
        tokens: k, drafted a round.
        lookahead: slots that the engine keeps free ahead of a sequence in this mode.
        draft: shape of its checkpoint; None for modes that have none.
        tensor: accelerators that share it; 1 where each holds a copy.

    Raises:
        SizingProblem: the mode needs a checkpoint's shape that is missing, the target has no layers for MTP, or it is
            not known what an output layer weighs that the draft shares.
    """
    slots = tokens + lookahead
    if mode in WITHOUT_CHECKPOINT:
        return replace(NO_DRAFT, slots=slots, tokens=tokens)
    if mode is DraftMode.MTP and draft is None:
        return _mtp(target, tokens, slots, tensor)
    if draft is None:
        raise SizingProblem(f"mode {mode} drafts with a checkpoint, and its config.json is missing")
    if mode is DraftMode.MEDUSA:
        heads = _medusa(draft)
        return DraftCost((), heads, tensor, slots, tokens, draft.dtype_bytes, heads.total)
    weighed = _head(mode, target, draft) if mode in _HEADS else weights(draft)
    once = read_bytes(weighed, draft.experts) + (weights(target).output if mode in _ON_TARGETS_OUTPUT else 0)
    passes = 1 if mode is DraftMode.DFLASH else tokens  # a block is drafted in one pass
    return DraftCost(draft.layers, weighed, tensor, slots, tokens, draft.dtype_bytes, passes * once)


_HEADS = frozenset({DraftMode.EAGLE, DraftMode.EAGLE3, DraftMode.DFLASH})
_ON_TARGETS_OUTPUT = frozenset({DraftMode.EAGLE, DraftMode.DFLASH})


def _mtp(target: ModelShape, tokens: int, slots: int, tensor: int) -> DraftCost:
    if not target.mtp_layers:
        raise SizingProblem(
            "mode MTP needs layers for multi-token prediction, and the target's config.json names none "
            "(num_nextn_predict_layers): take the unquantised checkpoint, or another mode"
        )
    full = [layer for layer in target.layers if layer.kind is Kind.FULL]
    if not full:
        raise SizingProblem("the target has no layer with full attention to tell what its MTP layers keep")
    weighed = mtp_weights(target)
    once = read_bytes(weighed, target.experts) // target.mtp_layers + weights(target).output  # a token drafted, a layer
    layers = (full[-1],) * target.mtp_layers
    return DraftCost(layers, weighed, tensor, slots, tokens, target.dtype_bytes, tokens * once)


def _head(mode: DraftMode, target: ModelShape, head: ModelShape) -> Weights:
    """A head on the target's hidden states, which shares the target's embedding.

    EAGLE and DFlash use the target's output layer, too; EAGLE-3 has one of its own, often of fewer entries.
    """
    if head.parameter_bytes is not None:
        return Weights(0, 0, 0, head.parameter_bytes)
    if mode is DraftMode.EAGLE3:
        fused, inputs = head.fused_layers or EAGLE3_STATES, 2 * head.hidden
        own_head = (head.draft_vocab or head.vocab) * head.hidden
    elif mode is DraftMode.EAGLE:
        # The projection takes the embedding beside the hidden state.
        fused, inputs, own_head = 2, head.hidden, 0
    else:
        if head.fused_layers is None:
            raise SizingProblem("the DFlash checkpoint's config.json does not name target_layer_ids")
        fused, inputs, own_head = head.fused_layers, head.hidden, 0
    layers = len(head.layers) * head_layer_parameters(head, inputs)
    fusing = fused * target.hidden * head.hidden
    return Weights(0, 0, 0, (fusing + layers + own_head + head.hidden) * head.dtype_bytes)


def _medusa(heads: ModelShape) -> Weights:
    """Residual blocks and an output layer for each head (arXiv:2401.10774, 2.1)."""
    if heads.parameter_bytes is not None:
        return Weights(0, 0, 0, heads.parameter_bytes)
    block = heads.hidden * heads.hidden + heads.hidden
    output = (heads.draft_vocab or heads.vocab) * heads.hidden
    return Weights(0, 0, 0, heads.medusa_heads * (heads.medusa_layers * block + output) * heads.dtype_bytes)

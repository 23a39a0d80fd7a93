"""Whether heads belong to their target: sizes, layers, and that they are there at all. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from specfleet.api.v1alpha1 import DraftMode, EngineType
from specfleet.preflight.model import Fields
from specfleet.preflight.request import PreflightRequest
from specfleet.preflight.verdict import Check, Level, PreflightFinding

MTP_LAYERS = (
    "num_nextn_predict_layers",
    "mtp_num_hidden_layers",
    "num_mtp_modules",
    "num_mtp_layers",
    "mtp_num_layers",
    "n_predict",
)
_LAYER = re.compile(r"(?:^|\.)layers\.([0-9]{1,4})\.")
_MTP = re.compile(r"(?:^|\.)(?:mtp|nextn|mtp_[a-z]+|nextn_[a-z]+|mtp\d+)(?:\.|$)")
_MEDUSA = re.compile(r"^(?:model\.)?(?:medusa_head\.|medusa_heads\.|blocks\.)?([0-9]{1,3})\.")
_LAYERS_READ = ("eagle_aux_hidden_state_layer_ids", "target_layer_ids")


def head_findings(request: PreflightRequest, target: Fields, draft: Fields | None) -> Iterator[PreflightFinding]:
    """Everything about heads for modes that have some."""
    if request.mode is DraftMode.MTP and draft is None:
        yield from _mtp(request, target)
    elif draft is not None and request.mode is DraftMode.MEDUSA:
        yield from _medusa(request, target, draft)
    elif draft is not None and request.mode in (DraftMode.EAGLE, DraftMode.EAGLE3, DraftMode.DFLASH):
        yield from _kind(request, draft)
        yield from _hidden(request, target, draft)
        yield from _layers(target, draft)
        yield from _vocabulary(target, draft)


def _kind(request: PreflightRequest, draft: Fields) -> Iterator[PreflightFinding]:
    """A checkpoint that says what it is, and is meant for another mode."""
    names = " ".join((*draft.texts("architectures"), draft.text("speculators_model_type", "model_type") or "")).lower()
    is_third = "eagle3" in names or "eagle-3" in names
    if request.mode is DraftMode.EAGLE and is_third:
        yield _error(Check.HEADS, f"the {draft.model} is an EAGLE-3 head: write mode: EAGLE3")
    if "medusa" in names:
        yield _error(Check.HEADS, f"the {draft.model} has Medusa heads: write mode: Medusa, or name another draft")
    if request.mode is not DraftMode.DFLASH and "dflash" in names:
        yield _error(Check.HEADS, f"the {draft.model} is a DFlash draft: write mode: DFlash")


def _hidden(request: PreflightRequest, target: Fields, draft: Fields) -> Iterator[PreflightFinding]:
    """The head's first layer takes two (EAGLE) or several (EAGLE-3, DFlash) hidden states of the target."""
    wanted = target.whole("hidden_size", "n_embd", "d_model")
    own = draft.whole("hidden_size", "n_embd", "d_model")
    tensors = draft.model.tensors
    if tensors is None:
        yield _unknown_heads(draft)
    elif not (first := tensors.ending("fc.weight")):
        yield _error(
            Check.HEADS,
            f"the {draft.model} has no layer fc.weight among its {len(tensors.by_name)} tensors, with which every "
            f"{request.mode} head begins: it is another kind of checkpoint",
        )
    elif wanted and (shape := next(iter(first.values())).shape) is not None:
        states = 2 if request.mode is DraftMode.EAGLE else 3
        fits = len(shape) == 2 and shape[1] % wanted == 0 and shape[1] >= wanted
        if request.mode is DraftMode.EAGLE:
            fits = len(shape) == 2 and shape[1] == 2 * wanted
        if not fits:
            yield _error(
                Check.SHAPE,
                f"fc.weight of the {draft.model} has shape {list(shape)}, and {states} hidden states of the "
                f"{target.model} are {states} x {wanted} = {states * wanted} wide: the head was made for another model",
            )
        return
    said = draft.whole("target_hidden_size") or own
    if wanted and said and said != wanted:
        yield _error(
            Check.SHAPE,
            f"hidden_size is {wanted} in the {target.model} and {said} in the {draft.model}: the head was made for "
            "another model",
        )


def _layers(target: Fields, draft: Fields) -> Iterator[PreflightFinding]:
    """Layers of the target whose output the head takes."""
    layers = target.whole("num_hidden_layers", "n_layer")
    parts = (draft.top, draft.part("eagle_config"), draft.part("dflash_config"))
    for name in _LAYERS_READ:
        value = next((part[name] for part in parts if name in part), None)
        taken = draft.numbers(value, name)
        if layers and taken and max(taken) > layers:
            yield _error(
                Check.SHAPE,
                f"the {draft.model} takes the output of layer {max(taken)} ({name}), and the {target.model} has "
                f"{layers} layers: the head was made for another model",
            )


def _vocabulary(target: Fields, draft: Fields) -> Iterator[PreflightFinding]:
    """A reduced draft vocabulary is mapped into the target's; the map's length says which target that is."""
    size = target.whole("vocab_size")
    tensors = draft.model.tensors
    found = tensors.ending("t2d") if tensors is not None else {}
    shape = next(iter(found.values())).shape if found else None
    own = shape[0] if shape else draft.whole("target_vocab_size", "vocab_size")
    if size and own and own != size:
        where = "its map t2d" if shape else "vocab_size"
        yield PreflightFinding(
            Check.VOCABULARY_SIZE,
            Level.ERROR if shape else Level.WARNING,
            f"the {target.model} has {size} tokens, and {where} of the {draft.model} is for {own}",
        )


def _medusa(request: PreflightRequest, target: Fields, draft: Fields) -> Iterator[PreflightFinding]:
    tensors = draft.model.tensors
    heads = draft.whole("medusa_num_heads", "num_heads")
    wanted = target.whole("hidden_size", "n_embd", "d_model")
    own = draft.whole("hidden_size")
    if tensors is None:
        yield _unknown_heads(draft)
    else:
        numbers = {int(match[1]) for name in tensors.by_name if (match := _MEDUSA.match(name))}
        if not numbers:
            yield _error(
                Check.HEADS, f"none of the {len(tensors.by_name)} tensors of the {draft.model} is a Medusa head"
            )
            return
        if heads is not None and len(numbers) < heads:
            yield _error(
                Check.HEADS,
                f"config.json of the {draft.model} says {heads} Medusa heads, and its tensors are of {len(numbers)}",
            )
        heads = len(numbers)
        shapes = [one.shape for name, one in tensors.by_name.items() if _MEDUSA.match(name) and one.shape]
        inner = [shape[1] for shape in shapes if len(shape) == 2]
        own = inner[0] if inner else own
    if heads and request.tokens > heads:
        yield _error(
            Check.HEADS,
            f"drafts[].tokens is {request.tokens}, and the {draft.model} has {heads} heads, one for each token: write "
            f"tokens: {heads} or less",
        )
    if wanted and own and wanted != own:
        yield _error(
            Check.SHAPE,
            f"hidden_size is {wanted} in the {target.model}, and the heads of the {draft.model} take {own}: they were "
            "made for another model",
        )


def _mtp(request: PreflightRequest, target: Fields) -> Iterator[PreflightFinding]:
    said = target.whole(*MTP_LAYERS)
    if not said:
        yield _error(
            Check.HEADS,
            f"config.json of the {target.model} names no MTP layers ({MTP_LAYERS[0]} and the like): take another mode, "
            "or a target that has them",
        )
        return
    tensors = target.model.tensors
    if tensors is None:
        yield _unknown_heads(target)
    else:
        layers = target.whole("num_hidden_layers", "n_layer")
        present = [name for name in tensors.by_name if _is_mtp(name, layers)]
        if not present:
            yield _error(
                Check.HEADS,
                f"config.json of the {target.model} says {said} MTP layer(s), and none of its {len(tensors.by_name)} "
                "tensors is of one: repacked and quantised checkpoints often leave them out; take one that kept them",
            )
    if request.engine is EngineType.VLLM and request.tokens > said and request.tokens % said:
        yield _error(
            Check.HEADS,
            f"drafts[].tokens is {request.tokens}, and vLLM takes at most the {said} MTP layers of the target or a "
            f"multiple of them: write tokens: {said}, or {said * (request.tokens // said + 1)}",
        )


def _is_mtp(name: str, layers: int | None) -> bool:
    if _MTP.search(name):
        return True
    match = _LAYER.search(name)
    return match is not None and layers is not None and int(match[1]) >= layers


def _unknown_heads(fields: Fields) -> PreflightFinding:
    return PreflightFinding(
        Check.HEADS,
        Level.WARNING,
        f"no safetensors file of the {fields.model} was found: whether the heads are there, and fit, was not seen "
        "(files of other kinds can hold code, and are not opened)",
    )


def _error(check: Check, message: str) -> PreflightFinding:
    return PreflightFinding(check, Level.ERROR, message)

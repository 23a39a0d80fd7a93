"""How long a sequence a model takes, and whether a draft follows its target to the end. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from specfleet.api.v1alpha1 import DraftMode, EngineType
from specfleet.engines.release import Minor
from specfleet.preflight.model import Fields
from specfleet.preflight.request import PreflightRequest
from specfleet.preflight.verdict import Check, Level, PreflightFinding

_POSITIONS = (
    "max_position_embeddings",
    "n_positions",
    "max_seq_len",
    "max_sequence_length",
    "model_max_length",
    "seq_length",
)
_STRETCHED = ("yarn", "linear", "dynamic")
_HEADS = (DraftMode.EAGLE, DraftMode.EAGLE3, DraftMode.DFLASH)
RAISES_POSITIONS = Minor(0, 29)
"""From here on vLLM raises the positions of EAGLE heads to the target's (vLLM issue 48894)."""


def positions(fields: Fields) -> int | None:
    """Positions of a model, rope scaling included; None where its config does not tell."""
    plain = fields.whole(*_POSITIONS)
    if not plain:
        return None
    scaling = fields.part("rope_scaling") or fields.part("rope_parameters")
    kind, factor = scaling.get("rope_type", scaling.get("type")), scaling.get("factor")
    original = scaling.get("original_max_position_embeddings", plain)
    if kind not in _STRETCHED or not isinstance(factor, int | float) or type(original) is not int:
        return plain
    return max(plain, int(original * factor)) if 1 <= factor <= 4096 and 0 < original < 2**40 else plain


def length_findings(request: PreflightRequest, target: Fields, draft: Fields) -> Iterator[PreflightFinding]:
    """A draft that ends before the target does."""
    served = request.served_tokens or positions(target)
    own = positions(draft)
    if served is None or own is None or own >= served:
        return
    source = "by max-model-len" if request.served_tokens else "by its own config.json"
    message = (
        f"the {draft.model} has {own} positions, and the {target.model} is served at {served} {source}: serve at most "
        f"{own} tokens, or take a draft that follows further"
    )
    level = _level(request)
    if level is not None:
        yield PreflightFinding(Check.CONTEXT, level, message)


def _level(request: PreflightRequest) -> Level | None:
    if request.mode is DraftMode.DRAFT_MODEL:
        return Level.ERROR
    if request.mode not in _HEADS:
        return None
    if request.engine is EngineType.VLLM and request.minor >= RAISES_POSITIONS and request.mode != DraftMode.DFLASH:
        return None
    return Level.WARNING if request.mode is DraftMode.DFLASH else Level.ERROR

"""A plan as a document for programs and as text for people. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from specfleet.sizing.drafts import DraftCost
from specfleet.sizing.live import Comparison
from specfleet.sizing.plan import FleetPlan, PoolRoom, Serving, gib, kv_bytes_per_token
from specfleet.sizing.shape import ModelShape

KIB = 1024


@dataclass(frozen=True)
class Planned:
    """A plan with what it was made of.

    Args:
        where: the accelerator's name, or what its memory was given as.
        live: the running pod's own report beside the plan; None where there is none.
    """

    name: str
    engine: str
    target_name: str
    target: ModelShape
    draft_name: str
    mode: str
    draft: DraftCost
    where: str
    serving: Serving
    plan: FleetPlan
    live: Comparison | None = None
    notes: tuple[str, ...] = ()


def notes_of(target: ModelShape, draft: DraftCost, serving: Serving) -> tuple[str, ...]:
    """What the plan leaves out or takes for granted."""
    notes = []
    if target.parts_uncounted and target.parameter_bytes is None:
        notes.append(
            "the target has parts for images or sound, which are not counted: put model.safetensors.index.json "
            "beside its config.json"
        )
    if target.hybrid:
        notes.append(
            "the target's layers keep different things (windows, states): KV tokens hold for sequences of the planned "
            "length, and the engine's own report counts otherwise; check vllm:cache_config_info of a running pod"
        )
    if target.hybrid and draft.layers:
        notes.append("the draft's layers can regroup those of such a target: trust the running pod over this plan")
    if serving.pipeline > 1:
        notes.append("pipeline stages are taken to be as equal as they can be")
    return tuple(notes)


def document(planned: Planned) -> dict[str, Any]:
    """The plan as JSON: bytes and whole numbers."""
    plan, serving = planned.plan, planned.serving
    return {
        "name": planned.name,
        "engine": planned.engine,
        "target": planned.target_name,
        "draft": {"name": planned.draft_name, "mode": planned.mode, "tokens": planned.draft.tokens},
        "accelerator": {
            "name": planned.where,
            "memoryBytes": serving.memory_bytes,
            "perPod": plan.accelerators_per_pod,
        },
        "contextTokens": serving.context,
        "kvBytesPerToken": {
            "target": kv_bytes_per_token(planned.target, _nothing(planned.draft), serving.kv_bytes),
            "withDraft": plan.speculative.kv_bytes_per_token,
        },
        "slotsPerSequence": planned.draft.slots,
        "pools": [
            _pool("baseline", plan.baseline, plan.baseline_replicas),
            _pool(planned.draft_name, plan.speculative, plan.speculative_replicas),
        ],
        "secondPoolAccelerators": plan.second_pool_accelerators,
        "sequencesLostPercent": round(100 * plan.lost),
        "breakEvenTokensPerStep": round(plan.break_even, 2),
        "live": None if planned.live is None else _live(planned.live),
        "findings": [
            {
                "severity": str(one.severity),
                "reason": str(one.reason),
                "path": one.path,
                "message": one.message,
            }
            for one in plan.findings
        ],
        "notes": list(planned.notes),
    }


def _nothing(draft: DraftCost) -> DraftCost:
    return DraftCost((), draft.weights, 1, 0, 0, draft.dtype_bytes)


def _pool(name: str, room: PoolRoom, replicas: int) -> dict[str, Any]:
    return {
        "name": name,
        "replicas": replicas,
        "weightBytes": room.weight_bytes,
        "kvBytes": max(room.kv_bytes, 0),
        "kvBytesPerToken": room.kv_bytes_per_token,
        "kvBytesPerTokenHeld": room.kv_bytes_per_token_held,
        "kvTokens": room.kv_tokens,
        "sequences": room.sequences,
        "running": room.running,
        "fleetRunning": room.running * replicas,
    }


def _live(live: Comparison) -> dict[str, Any]:
    return {
        "plannedTokens": live.planned,
        "reportedTokens": live.reported,
        "differencePercent": round(100 * live.difference, 1),
        "agrees": live.agrees,
    }


_HEADS = ("POOL", "PODS", "WEIGHTS", "KV CACHE", "KIB/TOKEN", "KV TOKENS", "SEQUENCES", "RUNNING", "FLEET")


def text(planned: Planned) -> Iterator[str]:
    """The plan in lines."""
    plan, serving = planned.plan, planned.serving
    memory = "" if not serving.memory_bytes else f" of {gib(serving.memory_bytes)}"
    yield f"{planned.name}: {planned.target_name} on {planned.engine}"
    yield f"{plan.accelerators_per_pod} x {planned.where}{memory} a pod, sequences of {serving.context} tokens"
    yield (
        f"draft {planned.draft_name}: {planned.mode}, {planned.draft.tokens} tokens a round, "
        f"{planned.draft.slots} KV slots more a running sequence"
    )
    yield ""
    rows = [
        _row("baseline", plan.baseline, plan.baseline_replicas),
        _row(planned.draft_name, plan.speculative, plan.speculative_replicas),
    ]
    widths = [max(len(row[at]) for row in (_HEADS, *rows)) for at in range(len(_HEADS))]
    for row in (_HEADS, *rows):
        cells = [cell.rjust(width) for cell, width in zip(row, widths, strict=True)]
        yield "  ".join([row[0].ljust(widths[0]), *cells[1:]])
    yield ""
    yield "Weights and KV cache are those of one accelerator, FLEET is the whole pool, the other figures are of a pod."
    pods = "pod" if plan.baseline_replicas == 1 else "pods"
    yield (
        f"The pool without speculation takes {plan.second_pool_accelerators} of "
        f"{(plan.baseline_replicas + plan.speculative_replicas) * plan.accelerators_per_pod} accelerators "
        f"({plan.baseline_replicas} {pods})."
    )
    yield (
        f"By the weights that a step reads, speculation pays from {plan.break_even:.2f} tokens per decode step on "
        "while batches are small."
    )
    if planned.live is not None:
        yield f"Running pod: {planned.live}{'' if planned.live.agrees else ': trust the engine'}."
    yield from (f"Note: {note}." for note in planned.notes)
    yield from (finding.line() for finding in plan.findings)


def _row(name: str, room: PoolRoom, replicas: int) -> tuple[str, ...]:
    return (
        name,
        str(replicas),
        gib(room.weight_bytes),
        gib(max(room.kv_bytes, 0)),
        f"{room.kv_bytes_per_token / KIB:.1f}",
        str(room.kv_tokens),
        str(room.sequences),
        str(room.running),
        str(room.running * replicas),
    )

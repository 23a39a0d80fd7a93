"""What of a plan travels from where models are read to where it is told. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specfleet.sizing.plan import FleetPlan, PoolRoom

_MOST = 1 << 62


@dataclass(frozen=True)
class RoomFigures:
    """Of one pod of a pool.

    Args:
        sequences: of the planned length that fit.
        kv_tokens: as the engine counts them; None where it has blocks of several sizes.
    """

    sequences: int
    kv_tokens: int | None


@dataclass(frozen=True)
class PlanFigures:
    """The plan in a few numbers.

    Args:
        kv_bytes_per_token: of target and draft together.
        context: tokens of the sequences that are counted.
        cost_percent: of the sequences that the draft takes.
    """

    kv_bytes_per_token: int
    context: int
    baseline: RoomFigures
    speculative: RoomFigures
    cost_percent: int

    @classmethod
    def of(cls, plan: FleetPlan, context: int) -> PlanFigures:
        """Of a whole plan for sequences of `context` tokens."""
        return cls(
            plan.speculative.kv_bytes_per_token,
            context,
            _room(plan.baseline),
            _room(plan.speculative),
            round(100 * plan.lost),
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON, short."""
        pools = (self.baseline, self.speculative)
        return {
            "kv": self.kv_bytes_per_token,
            "context": self.context,
            "sequences": [one.sequences for one in pools],
            "tokens": [one.kv_tokens for one in pools],
            "cost": self.cost_percent,
        }


def read_figures(document: object) -> PlanFigures | None:
    """From what `as_dict` makes; None for anything else. Never raises."""
    if not isinstance(document, Mapping):
        return None
    sequences, tokens = document.get("sequences"), document.get("tokens")
    if not (isinstance(sequences, list) and isinstance(tokens, list) and len(sequences) == len(tokens) == 2):
        return None
    plain = [document.get("kv"), document.get("context"), *sequences]
    if not all(_is_count(one) for one in plain) or not all(one is None or _is_count(one) for one in tokens):
        return None
    cost = document.get("cost")
    if not _is_count(document.get("cost")) or not isinstance(cost, int) or cost > 100 or not document["context"]:
        return None
    rooms = [RoomFigures(*pair) for pair in zip(sequences, tokens, strict=True)]
    return PlanFigures(document["kv"], document["context"], rooms[0], rooms[1], cost)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST


def _room(room: PoolRoom) -> RoomFigures:
    return RoomFigures(room.sequences, room.counted_tokens)

"""What of a plan travels from where models are read to where it is told. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specfleet.sizing.plan import FleetPlan, PoolRoom

_MOST = 1 << 62
_MOST_BREAK_EVEN = 99_999


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
        break_even_percent: of one token per decode step, that speculation needs while batches are small, 100 or more;
            None where the plan was made by a release that did not tell.
    """

    kv_bytes_per_token: int
    context: int
    baseline: RoomFigures
    speculative: RoomFigures
    cost_percent: int
    break_even_percent: int | None = None

    @classmethod
    def of(cls, plan: FleetPlan, context: int) -> PlanFigures:
        """Of a whole plan for sequences of `context` tokens."""
        return cls(
            plan.speculative.kv_bytes_per_token,
            context,
            _room(plan.baseline),
            _room(plan.speculative),
            round(100 * plan.lost),
            min(round(100 * plan.break_even), _MOST_BREAK_EVEN),
        )

    def as_dict(self) -> dict[str, Any]:
        """For JSON, short."""
        pools = (self.baseline, self.speculative)
        line = {} if self.break_even_percent is None else {"line": self.break_even_percent}
        return {
            **line,
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
    line = document.get("line")
    if line is not None and not (_is_count(line) and 100 <= line <= _MOST_BREAK_EVEN):
        return None
    rooms = [RoomFigures(*pair) for pair in zip(sequences, tokens, strict=True)]
    return PlanFigures(document["kv"], document["context"], rooms[0], rooms[1], cost, line)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MOST


def _room(room: PoolRoom) -> RoomFigures:
    return RoomFigures(room.sequences, room.counted_tokens)

"""When engine processes began, also those that do not tell."""

from __future__ import annotations

from dataclasses import dataclass, field

from specfleet.metrics.engine import EngineReading


@dataclass
class Starts:
    """Of the pods of one pool: tokens that each had generated last, and since when it counts, by uid."""

    known: dict[str, tuple[int, float]] = field(default_factory=dict)

    def of(self, uid: str, reading: EngineReading) -> float:
        """When the process began: what it says, else the reading at which its counters were seen to have fallen."""
        tokens, since = self.known.get(uid, (0, 0.0))
        if reading.decode_tokens < tokens:
            since = reading.at
        self.known[uid] = (reading.decode_tokens, since)
        return since if reading.started_at is None else reading.started_at

    def forget(self, uid: str) -> None:
        """The pod is gone."""
        self.known.pop(uid, None)

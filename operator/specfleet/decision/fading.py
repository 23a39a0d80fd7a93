"""A mean in which the past counts less and less: how much runs, smoothed over hours."""

from __future__ import annotations

import math
from dataclasses import dataclass

from specfleet.decision.curves import LOAD_SECONDS


@dataclass(slots=True)
class FadingMean:
    """Of a value over time; what was `LOAD_SECONDS` ago weighs 1/e."""

    total: float = 0.0
    seconds: float = 0.0

    def add(self, value: float, seconds: float) -> None:
        """`value` has been so for the last `seconds`."""
        fade = math.exp(-seconds / LOAD_SECONDS)
        self.total, self.seconds = self.total * fade + value * seconds, self.seconds * fade + seconds

    @property
    def mean(self) -> float:
        """0 before anything was added."""
        return self.total / self.seconds if self.seconds else 0.0

"""What is true of a simulated route, minute by minute, and what follows from it: loss, and which switch is false."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from statistics import median

import numpy as np

K = 3
BREAK_EVEN = 1.60
MINUTES = 24 * 60
RATES = {"low": 0.02, "mid": 0.5, "high": 5.0}  # requests a second
TOPIC, TOPIC_MINUTES = 0.03, 20.0  # standard deviation of the slow wobble, of L; its time constant
FALSE_MARGIN, FALSE_MINUTES = 0.03, 15


def tokens_per_step(alpha: float) -> float:
    """Tokens per step of k i.i.d. drafts that are accepted with probability alpha each."""
    return sum(alpha**j for j in range(K + 1))


def _between(a: float, b: float, at: float) -> Callable[[float], float]:
    return lambda hour: tokens_per_step(a if hour < at else b)


TRUTH: dict[str, Callable[[float], float]] = {
    "good": lambda _: tokens_per_step(0.62),
    "bad": lambda _: tokens_per_step(0.20),
    "near+5%": lambda _: 1.05 * BREAK_EVEN,
    "near-5%": lambda _: 0.95 * BREAK_EVEN,
    "step": _between(0.62, 0.20, 8),
    "step-small": _between(0.50, 0.33, 8),
    "drift": lambda hour: tokens_per_step(0.62 - 0.42 * hour / 24),
    "diurnal": lambda hour: tokens_per_step(0.41 + 0.19 * math.cos(2 * math.pi * hour / 24)),
    "recover": _between(0.20, 0.62, 12),
}
CHANGES = {"step": 8 * 60, "step-small": 8 * 60, "recover": 12 * 60}  # minute from which another pool is right


def truths(rng: np.random.Generator, trajectory: str) -> list[float]:
    """Tokens per step of each minute: the trajectory with a slow wobble of topics (AR(1)) on it."""
    keep = math.exp(-1.0 / TOPIC_MINUTES)
    topic = float(rng.normal(0.0, TOPIC))
    found = []
    for minute in range(MINUTES):
        topic = keep * topic + math.sqrt(1.0 - keep**2) * float(rng.normal(0.0, TOPIC))
        found.append(min(max(TRUTH[trajectory](minute / 60.0) * (1.0 + topic), 1.02), K + 0.9))
    return found


def load(trajectory: str, minute: int) -> float:
    """The rate of traffic as a multiple of its mean."""
    return 1.0 + 0.5 * math.cos(2 * math.pi * minute / MINUTES) if trajectory == "diurnal" else 1.0


def loss(truth: float) -> float:
    """Time of speculation over that of baseline, less one: what a token in the wrong pool costs is its size."""
    return BREAK_EVEN / truth - 1.0


def is_false(of_minutes: Sequence[float], minute: int, *, to_on: bool) -> bool:
    """Whether the truth was more than 3 % on the other side, at the median of the half hour around the move."""
    around = median(of_minutes[max(0, minute - FALSE_MINUTES) : minute + FALSE_MINUTES])
    if to_on:
        return around < (1.0 - FALSE_MARGIN) * BREAK_EVEN
    return around > (1.0 + FALSE_MARGIN) * BREAK_EVEN

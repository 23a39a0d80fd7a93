"""A block's counts of one route and pool, drawn as of requests by the distributions of `tests.bench.decision.traffic`.

Few requests are drawn one by one. Of many, the sums of ordinary ones are normal with the same means, variances and
covariance, and those that run away are drawn one by one, since they are what is not normal.
"""

from __future__ import annotations

import math
from functools import cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from tests.bench.decision.traffic import (
    LENGTH_CV2,
    MEAN_TOKENS,
    RUNAWAY_TOKENS,
    RUNAWAYS,
    SPREAD,
    cut,
    lengths,
    request_centre,
)
from tests.bench.decision.truth import K

FEW = 40
TOKENS = MEAN_TOKENS * (1.0 - RUNAWAYS) + RUNAWAY_TOKENS * RUNAWAYS
"""Decode tokens of a request, in the mean."""


class Counts(NamedTuple):
    """Finished requests, their decode tokens, and the steps that these took under speculation."""

    requests: int
    tokens: int
    steps: int


def drawn(rng: np.random.Generator, mean_requests: float, truth: float) -> Counts:
    """The counts of a block in which `mean_requests` are expected, with `truth` tokens per step in the mean."""
    requests = int(rng.poisson(mean_requests))
    if requests == 0:
        return Counts(0, 0, 0)
    if requests <= FEW:
        tokens = lengths(rng, requests)
        return _whole(requests, float(tokens.sum()), float((tokens / _rates(rng, truth, requests)).sum()))
    away = int(rng.binomial(requests, RUNAWAYS))
    ordinary = requests - away
    inverse, inverse_square = _moments(round(request_centre(truth), 2))
    square = MEAN_TOKENS**2 * (1.0 + LENGTH_CV2)
    deviation = math.sqrt(square - MEAN_TOKENS**2)
    mean_steps = MEAN_TOKENS * inverse
    covariance = (square - MEAN_TOKENS**2) * inverse
    left = square * inverse_square - mean_steps**2 - covariance**2 / deviation**2
    first, second = rng.normal(size=2)
    root = math.sqrt(ordinary)
    tokens_sum = ordinary * MEAN_TOKENS + root * deviation * first
    steps_sum = ordinary * mean_steps + root * (covariance / deviation * first + math.sqrt(max(left, 0.0)) * second)
    if away:
        tokens_sum += RUNAWAY_TOKENS * away
        steps_sum += float((RUNAWAY_TOKENS / _rates(rng, truth, away)).sum())
    return _whole(requests, tokens_sum, steps_sum)


def _rates(rng: np.random.Generator, truth: float, count: int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return cut(rng.normal(request_centre(truth), SPREAD, count))


def _whole(requests: int, tokens: float, steps: float) -> Counts:
    whole = max(requests, round(tokens))
    return Counts(requests, whole, min(max(round(steps), -(-whole // (K + 1))), whole))


@cache
def _moments(centre: float) -> tuple[float, float]:
    """E[1/L] and E[1/L^2] of one request."""
    normal = NormalDist(centre, SPREAD)
    rates = cut(np.array([normal.inv_cdf((i + 0.5) / 400.0) for i in range(400)]))
    return float(np.mean(1.0 / rates)), float(np.mean(1.0 / rates**2))

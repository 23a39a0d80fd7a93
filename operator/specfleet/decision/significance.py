"""Whether one of two shares is larger than chance would have it: the exact test of Fisher, on one side."""

from __future__ import annotations

import math

EXACT = 1_000_000  # requests of both sides, up to which terms are added up


def excess(hits: int, of: int, other_hits: int, other_of: int) -> float:
    """The probability of `hits` or more out of `of`, were both shares the same; 1 where the share is not the larger.

    The hypergeometric tail (R. A. Fisher, The Logic of Inductive Inference, 1935), given all hits of both sides; of
    more than a million requests its normal approximation, the pooled z test of two shares.
    """
    if not (0 <= hits <= of and 0 <= other_hits <= other_of) or hits * other_of <= other_hits * of:
        return 1.0
    total, all_hits = of + other_of, hits + other_hits
    if total > EXACT:
        variance = (all_hits / total) * ((total - all_hits) / total) * (1.0 / of + 1.0 / other_of)
        return 0.5 * math.erfc((hits / of - other_hits / other_of) / math.sqrt(2.0 * variance))
    most = min(of, all_hits)
    # Of exactly `hits`.
    term = math.exp(_log_choose(of, hits) + _log_choose(other_of, other_hits) - _log_choose(total, all_hits))
    tail = 0.0
    for count in range(hits, most + 1):
        tail += term
        if term < 1e-18 * tail:
            break
        term *= (of - count) * (all_hits - count) / ((count + 1) * (other_of - all_hits + count + 1))
    return min(1.0, tail)


def _log_choose(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)

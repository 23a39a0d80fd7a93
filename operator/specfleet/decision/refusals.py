"""Whether engines refuse requests with speculation that baseline takes. Counts of one window, and an exact test."""

from __future__ import annotations

from specfleet.decision.measures import Answers
from specfleet.decision.significance import excess

CHANCE = 1e-4
LEAST_REFUSED = 5
TIMES = 2.0
LEAST_COMPARED = 20
LEAST_ALONE = 10
SHARE_ALONE = 0.5
ALIKE_CHANCE = 0.01


def refused_more(speculative: Answers, baseline: Answers, *, alone: bool = True) -> str | None:
    """The sentence that says so, with figures; None where it is not shown.

    `alone`: whether requests that half of the time are refused prove it where baseline has none to compare with.
    """
    of, other_of = _asked(speculative), _asked(baseline)
    if other_of >= LEAST_COMPARED:
        enough = speculative.refused >= LEAST_REFUSED
        enough = enough and speculative.refused * other_of >= TIMES * baseline.refused * of
        shown = enough and excess(speculative.refused, of, baseline.refused, other_of) <= CHANCE
    else:
        shown = alone and speculative.refused >= LEAST_ALONE and speculative.refused >= SHARE_ALONE * of
    if not shown:
        return None
    return (
        f"Engines answered {speculative.refused} of {of} requests with 4xx under speculation, and "
        f"{baseline.refused} of {other_of} in baseline."
    )


def refused_alike(speculative: Answers, baseline: Answers) -> bool:
    """Whether baseline is seen to refuse as many: then it is not speculation."""
    of, other_of = _asked(speculative), _asked(baseline)
    if not speculative.refused or other_of < LEAST_COMPARED:
        return False
    return excess(speculative.refused, of, baseline.refused, other_of) > ALIKE_CHANCE and (
        speculative.refused * other_of < TIMES * baseline.refused * of
    )


def _asked(answers: Answers) -> int:
    return answers.finished + answers.refused

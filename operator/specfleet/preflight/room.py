"""Whether target and draft leave room for KV cache on the accelerator that the pods get. Pure."""

from __future__ import annotations

from specfleet.api.findings import Severity
from specfleet.preflight.model import Model
from specfleet.preflight.verdict import Check, Level, PreflightFinding
from specfleet.sizing.answer import Question, answer_from_files
from specfleet.sizing.figures import PlanFigures
from specfleet.sizing.reading import SizingProblem

_LEVELS = {Severity.ERROR: Level.ERROR, Severity.WARNING: Level.WARNING}


def room_findings(
    asked: Question, target: Model, draft: Model | None
) -> tuple[list[PreflightFinding], PlanFigures | None]:
    """One sequence of the served length has to fit, and the draft should not take more than a fifth of them.

    What the plan cannot tell is a warning: it refuses nothing, and asking again would not help. The figures are None
    where there is no plan, or something does not fit.
    """
    if target.config is None or (draft is not None and draft.config is None):
        return [], None
    own = (target.config, target.tensors.total_bytes if target.tensors is not None else None)
    theirs = None
    if draft is not None and draft.config is not None:
        theirs = (draft.config, draft.tensors.total_bytes if draft.tensors is not None else None)
    try:
        found = answer_from_files(asked, own, theirs)
    except SizingProblem as problem:
        return [PreflightFinding(Check.MEMORY, Level.WARNING, f"the KV cache is not planned: {problem}")], None
    said = [PreflightFinding(Check.MEMORY, _LEVELS[one.severity], one.message) for one in found.plan.findings]
    return said, found.figures

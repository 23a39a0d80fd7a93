"""What a person says of routes by annotation, taken into a pass: into the spec, and into the sentences. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from specfleet.api.by_hand import ANNOTATION_BY_HAND, ByHand, applied, obeyed, words_of
from specfleet.api.findings import FindingReason, warning
from specfleet.api.v1alpha1 import SpecDeploymentSpec
from specfleet.decision.message import clock
from specfleet.decision.reasons import SENTENCES, Reason
from specfleet.handlers.decide import RouteDecision
from specfleet.handlers.rendering import Checked

_OVERRIDES = (Reason.OVERRIDE_ALWAYS, Reason.OVERRIDE_NEVER)


def taken_in(
    body: Mapping[str, Any], checked: Checked, spec: SpecDeploymentSpec, now: float
) -> tuple[Checked, SpecDeploymentSpec, Mapping[str, ByHand]]:
    """The spec as it holds now, what of it was said by hand, and a warning for what cannot be read of that."""
    routes = [route.name for route in spec.routing.routes]
    words = words_of(body["metadata"].get("annotations"), routes)
    held = obeyed(spec.routing, words.in_force(routes, now))
    if words.problems:
        path = f"metadata.annotations[{ANNOTATION_BY_HAND}]"
        found = (warning(FindingReason.BY_HAND_UNREADABLE, path, problem) for problem in words.problems)
        checked = replace(checked, warnings=(*checked.warnings, *found))
    return checked, applied(spec, held), held


def told(decisions: Mapping[str, RouteDecision], by_hand: Mapping[str, ByHand], now: float) -> dict[str, RouteDecision]:
    """The decisions with sentences that say who has the route where it is."""
    return {
        name: replace(one, verdict=replace(one.verdict, message=_message(one, by_hand[name], now)))
        if name in by_hand
        else one
        for name, one in decisions.items()
    }


def _message(decision: RouteDecision, word: ByHand, now: float) -> str:
    verdict = decision.verdict
    said = f"Set {word.word} by hand until {clock(word.until, now)}: {word.reason.rstrip('.')}."
    if verdict.reason in _OVERRIDES:
        return verdict.message.replace(SENTENCES[verdict.reason], said, 1)
    return f"{said} {verdict.message}"

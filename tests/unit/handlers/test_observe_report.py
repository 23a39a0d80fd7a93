"""The Observe report in status: survives a restart, and changes only when there is something to tell."""

from __future__ import annotations

from specfleet.api.status import RouteStatus
from specfleet.decision.reasons import Hold
from specfleet.decision.rule import Block
from specfleet.handlers.decide import decide, states_of
from specfleet.handlers.status import Serving, noticeable, route_status
from tests.unit.handlers.samples import owner, spec_of

BEGIN = 1_800_000_000.0
SPEC = spec_of(owner(policy={"minAcceptancePercent": 30, "initial": "Speculative", "enforcement": "Observe"}))


def block(at: float, percent: int) -> Block:
    drafted = 12_000
    accepted = drafted * percent // 100
    return Block(at=at, tokens=3000 + accepted, accepted=accepted, drafted=drafted, requests=30, share=1.0)


def passed(before: RouteStatus | None, now: float, percent: int, hold: Hold | None = None) -> RouteStatus:
    """Route chat after a pass of an operator that has just started: it knows nothing but status."""
    known = {} if before is None else {"chat": before}
    decision = decide(SPEC, states_of(SPEC, {}, known, now), {"chat": block(now, percent)}, now, hold, {})["chat"]
    return route_status(
        decision, before, "ngram", Serving(), 100, applied_percent=100, has_routers=True, slow=False, now=now
    )


def test_every_pass_may_be_another_operators_and_only_switches_are_news() -> None:
    route, news = passed(None, BEGIN, 60), []
    for minute in range(1, 121):
        old = route
        route = passed(old, BEGIN + 60.0 * minute, 60 if minute <= 60 else 10)
        views = [noticeable({"routes": [one.model_dump(by_alias=True, exclude_none=True)]}) for one in (old, route)]
        if views[0]["routes"][0]["report"] != views[1]["routes"][0]["report"]:
            news.append(minute)
    assert len(news) == 1
    assert 61 < news[0] < 70
    assert route.pool == "ngram"
    assert route.report is not None
    assert (route.report.would_be, route.report.switches) == ("baseline", 1)
    assert route.report.off_percent == round(100 * (120 - news[0]) / 120)
    assert route.report.message.startswith("Would have gone off at ")


def test_a_report_that_somebody_spoilt_begins_anew() -> None:
    route = passed(None, BEGIN, 60)
    assert route.report is not None
    spoilt = route.model_copy(update={"report": route.report.model_copy(update={"since": "yesterday"})})
    again = passed(spoilt, BEGIN + 60.0, 60)
    assert again.report is not None
    assert again.report.since != "yesterday"

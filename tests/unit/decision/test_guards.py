"""The table of guards: its order is what happens, and what the manual says."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

from specfleet.decision.guards import BY_NAME, GUARDS, Kind, resolved, table, told_only
from specfleet.decision.reasons import SENTENCES, Hold, Reason
from specfleet.decision.rule import Room, RouteConfig, start, step
from specfleet.decision.types import Guard

ACTING = [row for row in GUARDS if row.kind is not Kind.NOTE]


def test_of_two_guards_the_earlier_of_the_table_decides() -> None:
    for earlier, later in combinations(ACTING, 2):
        hold, guard = resolved({later.name: "later", earlier.name: "earlier"})
        if earlier.kind is Kind.HOLD:
            assert (hold, guard.off) == (Hold(earlier.name), None)
            assert guard.notes == ("earlier",)
        else:
            assert (hold, guard.off, guard.why) == (None, Reason(earlier.name), "earlier")


def test_notes_are_told_beside_whatever_decides() -> None:
    notes = {row.name: row.name for row in GUARDS if row.kind is Kind.NOTE}
    assert resolved(notes) == (None, Guard(notes=tuple(notes)))
    for row in ACTING:
        _, guard = resolved({row.name: "first", **notes})
        assert guard.notes[-len(notes) :] == tuple(notes)
    assert resolved({}) == (None, Guard())


def test_every_hold_is_in_the_table_and_every_guard_has_its_reason() -> None:
    assert {row.name for row in GUARDS if row.kind is Kind.HOLD} == {hold.value for hold in Hold}
    assert all(Reason(row.name) in SENTENCES for row in ACTING)
    assert len(BY_NAME) == len(GUARDS)


def test_a_guard_that_may_not_act_is_told() -> None:
    acting = Guard(off=Reason.SLO_BREACHED, stay_off=Reason.SLO_BREACHED, explore=False, why="Slow.", notes=("b",))
    assert told_only(acting) == Guard(notes=("Guard SloBreached would switch it off: Slow.", "b"))
    assert told_only(Guard(notes=("b",))) == Guard(notes=("b",))


def test_the_manual_has_the_table() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "guards.md").read_text()
    assert table() in page


def test_a_guard_whose_switch_waits_for_room_says_what_it_has_seen() -> None:
    config = RouteConfig(initial="speculative", min_acceptance_percent=30)
    guard = Guard(off=Reason.REQUESTS_REFUSED, stay_off=Reason.REQUESTS_REFUSED, why="4xx.", explore=False)
    _, verdict = step(start(config, 0.0), config, None, 60.0, guard=guard, room=Room(to_baseline=False))
    assert (verdict.pool, verdict.reason) == ("speculative", Reason.NO_ROOM_TO_MOVE)
    assert verdict.message.endswith(" 4xx.")
    state, verdict = step(start(config, 0.0), config, None, 60.0, guard=guard)
    assert verdict.message.startswith(f"{SENTENCES[Reason.REQUESTS_REFUSED]} 4xx. ")
    _, later = step(state, config, None, 120.0, guard=guard)
    assert later.message.count("4xx.") == 1
    assert later.speculative_percent == 0

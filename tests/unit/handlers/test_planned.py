"""The plan in status, what pods report beside it, and the routers' limits that follow."""

from __future__ import annotations

from typing import Any

from specfleet.api.status import PlanStatus
from specfleet.api.v1alpha1 import SpecDeploymentSpec
from specfleet.handlers.observed import Observed
from specfleet.handlers.planned import Reports, plan_of, planned_limits, sequences_of, told_plan
from specfleet.handlers.pods import PodRecord
from specfleet.sizing.figures import PlanFigures, RoomFigures
from tests.unit.handlers.samples import owner, pod, spec_of

FIGURES = PlanFigures(163_840, 2000, RoomFigures(220, 440_000), RoomFigures(167, 336_000), 24, 182)
KEY = ("serving", "assistant")


def spec(**pools: Any) -> SpecDeploymentSpec:
    found: SpecDeploymentSpec = spec_of(owner(pools={"replicas": 4, **pools}))
    return found


def planned() -> PlanStatus:
    return plan_of(FIGURES, spec())


def told(**reported: int) -> PlanStatus:
    found = told_plan(planned(), None, reported, 2)
    assert found is not None
    return found


def test_without_a_verdict_only_the_second_pool_is_known() -> None:
    found = told_plan(None, None, {}, 2)
    assert found is not None
    assert found.model_dump(exclude_none=True) == {"second_pool_accelerators": 2}
    assert told_plan(None, None, {}, None) is None


def test_the_line_that_weights_let_expect_is_told_where_the_plan_has_it() -> None:
    assert planned().break_even_tokens_per_step == "1.82"
    old = PlanFigures(163_840, 2000, RoomFigures(220, 440_000), RoomFigures(167, 336_000), 24)
    assert plan_of(old, spec()).break_even_tokens_per_step is None


def test_a_report_that_agrees_is_shown_and_one_that_does_not_is_said() -> None:
    agrees = told(baseline=441_000)
    assert agrees.reported_kv_tokens == {"baseline": 441_000}
    assert agrees.message is None
    differs = told(baseline=441_000, ngram=280_000)
    assert differs.message is not None
    assert differs.message.startswith("Pods of ngram report 280000 tokens of KV cache, and 336000 were planned (+20 %)")


def test_a_report_stands_until_there_is_another_or_another_plan() -> None:
    before = told(baseline=441_000)
    kept = told_plan(planned(), before, {}, 2)
    assert kept is not None
    assert kept.reported_kv_tokens == {"baseline": 441_000}
    other = plan_of(PlanFigures(163_840, 2000, RoomFigures(9, 18_000), RoomFigures(8, 16_000), 11), spec())
    anew = told_plan(other, before, {}, 2)
    assert anew is not None
    assert anew.reported_kv_tokens is None


def test_limits_follow_a_length_that_was_stated_and_no_other() -> None:
    assert sequences_of(told(), spec()) == {}, "by the longest, most of what has room would be turned away"
    assert sequences_of(told(), spec(sequenceTokens=1000)) == {}, "the plan is of another length"
    stated = spec(sequenceTokens=2000)
    assert sequences_of(told(), stated) == {"baseline": 220, "ngram": 167}
    assert sequences_of(None, stated) == {}


def test_a_pods_own_report_wins_but_not_for_a_percent() -> None:
    stated = spec(sequenceTokens=2000)
    assert sequences_of(told(baseline=444_000, ngram=252_000), stated) == {"baseline": 220, "ngram": 167 * 3 // 4}


def test_limits_are_never_above_what_engines_run() -> None:
    found = planned_limits({"baseline": 512, "ngram": 512}, {"baseline": 220}, spec(), 2)
    assert found == {"baseline": 440, "ngram": 512}
    assert planned_limits({"baseline": 96}, {"baseline": 220}, spec(), 2) == {"baseline": 96}


def engines(*names: str) -> list[PodRecord]:
    store = Observed()
    for name in names:
        store.put_pod(pod(name, "engine", "baseline"))
    return store.pods(KEY)


def test_the_least_of_a_pool_counts_once_every_pod_was_asked() -> None:
    both = engines("a", "b")
    reports = Reports()
    assert {one.name for one in reports.unasked(both, 0.0)} == {"a", "b"}
    reports.tokens[both[0].uid] = 441_000
    assert reports.by_pool(both) == {}, "one more is to come, and the limits would move twice"
    reports.later[both[1].uid] = 60.0
    assert reports.unasked(both, 59.0) == []
    reports.tokens[both[1].uid] = 440_000
    assert reports.by_pool(both) == {"baseline": 440_000}
    assert reports.by_pool(both[:1]) == {"baseline": 441_000}
    assert reports.by_pool([]) == {}
    assert reports.tokens == {}

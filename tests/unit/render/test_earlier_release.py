"""What routers do while pods of two releases run."""

from __future__ import annotations

from typing import Any

from specfleet.api.v1alpha1 import SpecDeployment
from specfleet.render.plan import router_plan
from specfleet.routing.plan import RouterPlan
from tests.unit.handlers.samples import owner


def planned(engine: str, version: str, earlier: str | None, **args: str) -> RouterPlan:
    given: dict[str, Any] = {"type": engine, "version": version, "args": args}
    return router_plan(SpecDeployment.parse(owner(engine=given)), {}, earlier=earlier)


def paths(plan: RouterPlan) -> set[str]:
    return {plan.baseline.health_path, plan.speculative.health_path}


def test_the_health_check_is_one_that_the_older_release_answers_whichever_way_it_goes() -> None:
    assert paths(planned("SGLang", "0.5.23", None)) == {"/ready"}
    assert paths(planned("SGLang", "0.5.23", "0.5.19")) == {"/v1/models"}
    assert paths(planned("SGLang", "0.5.19", "0.5.23")) == {"/v1/models"}


def test_fields_that_either_release_refuses_go_to_baseline() -> None:
    assert "min_tokens" not in planned("vLLM", "0.33.0", None).refused_fields
    assert "min_tokens" in planned("vLLM", "0.33.0", "0.16.0").refused_fields
    assert "min_p" in planned("vLLM", "0.33.0", "0.16.0").refused_fields


def test_flags_that_the_release_before_did_not_know_are_no_matter() -> None:
    found = planned("vLLM", "0.33.0", "0.11.0", **{"max-num-seqs": "64"})
    assert paths(found) == {"/health"}
    assert found.version != ""

"""From `spec.policy` to the values that the rule takes."""

from __future__ import annotations

import json
from decimal import Decimal

from specfleet.api.v1alpha1 import Policy, RoutePolicy, Speculation
from specfleet.decision.policy import route_config
from specfleet.decision.types import RouteConfig


def policy(**fields: object) -> Policy:
    return Policy.model_validate_json(json.dumps(fields))


def test_the_defaults_of_the_api_are_the_rules_defaults() -> None:
    assert route_config(policy(), draft_tokens=4) == RouteConfig()


def test_every_field_arrives() -> None:
    config = route_config(
        policy(
            enforcement="Observe",
            initial="Speculative",
            minAcceptancePercent=40,
            breakEven={"source": "Fixed", "tokensPerStep": "1.60"},
            exploration={"maxPercent": 5},
            block="10s",
            dwell="1m30s",
        ),
        draft_tokens=8,
        speculation=Speculation.NEVER,
    )
    assert config == RouteConfig(
        initial="speculative",
        enforce=False,
        override="Never",
        draft_tokens=8,
        min_acceptance_percent=40,
        break_even=Decimal("1.60"),
        block_seconds=10.0,
        dwell_seconds=90.0,
        exploration_max_percent=5,
    )


def test_a_routes_own_lines_go_before_the_general_ones() -> None:
    route = RoutePolicy.model_validate_json('{"minAcceptancePercent": 70, "breakEven": {"source": "None"}}')
    general = policy(minAcceptancePercent=40, breakEven={"source": "Fixed", "tokensPerStep": "1.60"})
    config = route_config(general, draft_tokens=4, route=route)
    assert (config.min_acceptance_percent, config.break_even) == (70, None)


def test_a_line_that_the_route_leaves_out_stays_the_general_one() -> None:
    route = RoutePolicy.model_validate_json('{"minAcceptancePercent": 70}')
    general = policy(breakEven={"source": "Fixed", "tokensPerStep": "1.60"})
    config = route_config(general, draft_tokens=4, route=route)
    assert (config.min_acceptance_percent, config.break_even) == (70, Decimal("1.60"))

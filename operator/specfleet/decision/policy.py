"""A route's `RouteConfig` from `spec.policy` and from what the route has otherwise."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from specfleet.api.base import duration
from specfleet.api.v1alpha1 import BreakEven, Enforcement, Initial, Policy, RoutePolicy, Speculation
from specfleet.decision.break_even import Estimate
from specfleet.decision.types import Calibration, Override, RouteConfig

_OVERRIDES: dict[Speculation, Override] = {
    Speculation.AUTO: "Auto",
    Speculation.ALWAYS: "Always",
    Speculation.NEVER: "Never",
}


def route_config(
    policy: Policy,
    *,
    draft_tokens: int,
    speculation: Speculation = Speculation.AUTO,
    route: RoutePolicy | None = None,
) -> RouteConfig:
    """The configuration that `step` takes. A field that the route's own policy sets goes before the general one.

    A measured break-even line is what it is at the start, unknown; `with_line` puts in what was measured.
    """
    percent, break_even = policy.min_acceptance_percent, policy.break_even
    if route is not None and route.min_acceptance_percent is not None:
        percent = route.min_acceptance_percent
    if route is not None and route.break_even is not None:
        break_even = route.break_even
    return RouteConfig(
        initial="speculative" if policy.initial is Initial.SPECULATIVE else "baseline",
        enforce=policy.enforcement is Enforcement.ENFORCE,
        override=_OVERRIDES[speculation],
        draft_tokens=draft_tokens,
        min_acceptance_percent=percent,
        break_even=_fixed(break_even),
        certainty="Prior" if break_even is not None and break_even.source == "Measured" else None,
        block_seconds=duration(policy.block).total_seconds(),
        dwell_seconds=duration(policy.dwell).total_seconds(),
        exploration_max_percent=policy.exploration.max_percent,
        calibration=_calibration(break_even),
    )


def with_line(config: RouteConfig, estimate: Estimate, now: float) -> RouteConfig:
    """`config` with its break-even line as it is now, where that is measured, and what goes to measure it."""
    if config.certainty is None:
        return config
    until = None
    if config.calibration is not None and estimate.certainty != "Known":
        until = config.calibration.end(now)
    return replace(config, break_even=estimate.tokens_per_step, certainty=estimate.certainty, calibrating_until=until)


def _calibration(break_even: BreakEven | None) -> Calibration | None:
    if break_even is None or break_even.source != "Measured" or break_even.calibration is None:
        return None
    asked = break_even.calibration
    hour, minute = asked.window.start.split(":")
    return Calibration(
        asked.percent, 3600.0 * int(hour) + 60.0 * int(minute), duration(asked.window.duration).total_seconds()
    )


def _fixed(break_even: BreakEven | None) -> Decimal | None:
    if break_even is None or break_even.source != "Fixed" or break_even.tokens_per_step is None:
        return None
    return Decimal(break_even.tokens_per_step)

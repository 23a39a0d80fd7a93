"""What a rule that only watches would have done: the report of a route under `enforcement: Observe`.

It is kept so that it changes only when the rule changes its mind: the share of time follows from it and from the clock.
Times are seconds since the epoch; a report that was written to status and read back goes on as if nothing had happened.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from specfleet.decision.message import clock
from specfleet.decision.state import RouteState
from specfleet.decision.types import Pool, RouteConfig


@dataclass(frozen=True, slots=True)
class Report:
    """What the rule would have done with a route since `since`.

    Attributes:
        since: from when on it is told; a change of the policy's lines begins a new report.
        policy: the lines that it was judged by, as text.
        would_be: where the rule would have the route now.
        switched_at: when it would have gone there; None where it has been there since `since`.
        off_seconds: time in baseline that it would have had before `switched_at`.
        switches: how often it would have switched.
    """

    since: float
    policy: str
    would_be: Pool
    switched_at: float | None = None
    off_seconds: float = 0.0
    switches: int = 0

    def off_share(self, now: float) -> float:
        """The share of the time since `since`, 0 to 1, that the route would have been in baseline."""
        whole = now - self.since
        if whole <= 0.0:
            return 0.0
        lasting = max(0.0, now - self._there_since) if self.would_be == "baseline" else 0.0
        return min(1.0, (self.off_seconds + lasting) / whole)

    def off_percent(self, now: float) -> int:
        """`off_share` in percent; 1 to 99 wherever it is neither never nor always."""
        share = self.off_share(now)
        percent = round(100.0 * share)
        return min(max(percent, 1), 99) if 0.0 < share < 1.0 else percent

    @property
    def _there_since(self) -> float:
        return self.since if self.switched_at is None else self.switched_at


def policy_text(config: RouteConfig) -> str:
    """The lines of a policy in its own words; empty where none is set."""
    lines = []
    if config.min_acceptance_percent is not None:
        lines.append(f"minAcceptancePercent {config.min_acceptance_percent}")
    if config.certainty is not None:
        lines.append("breakEven Measured")
    elif config.break_even is not None:
        lines.append(f"breakEven {float(config.break_even):.4g}")
    return ", ".join(lines)


def observed(before: Report | None, state: RouteState, config: RouteConfig, now: float) -> Report | None:
    """The report after a step that led to `state`; None where there is nothing to report.

    That is under Enforce, while a person's override says where the route is, and without a line to decide by.
    """
    policy = policy_text(config)
    if config.enforce or config.override != "Auto" or not policy:
        return None
    if before is None or before.policy != policy or before.since > now:
        return Report(since=now, policy=policy, would_be=state.mode)
    if before.would_be == state.mode:
        return before
    left_at = before.since if before.switched_at is None else before.switched_at
    at = min(max(state.since, left_at), now)
    gone = at - left_at if before.would_be == "baseline" else 0.0
    return replace(
        before,
        would_be=state.mode,
        switched_at=at,
        off_seconds=before.off_seconds + gone,
        switches=before.switches + 1,
    )


def sentence(report: Report, served: Pool, now: float) -> str:
    """What to tell a person: when it would have switched and how much of the time it would have been off."""
    begun = clock(report.since, now)
    if report.switched_at is None:
        where = "on" if report.would_be == "speculative" else "off"
        text = f"Would have switched nothing since {begun}: {where} all the time."
        if served == "baseline" and report.would_be == "baseline":
            text += " Observe sends nothing to speculation: let some go there (initial: Speculative) to see figures."
        return text
    direction = "gone off" if report.would_be == "baseline" else "come back on"
    times = "" if report.switches == 1 else f", {report.switches} switches"
    return (
        f"Would have {direction} at {clock(report.switched_at, now)}; "
        f"{report.off_percent(now)} % of this route's time since {begun} off{times}."
    )

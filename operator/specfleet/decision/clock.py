"""What becomes of a route's state when the wall clock that its times were read from is set."""

from __future__ import annotations

from dataclasses import replace

from specfleet.decision.state import RouteState, milliseconds


def shifted(state: RouteState, seconds: float) -> RouteState:
    """`state` with every time moved by `seconds`, as the clock was: ages stay, so that no dwell ends early or late.

    A time that is not set (0) stays so, and none comes before the epoch.
    """

    def moved(time: float) -> float:
        return max(0.0, milliseconds(time + seconds)) if time > 0.0 else time

    return replace(
        state,
        since=moved(state.since),
        served_since=moved(state.served_since),
        block_at=moved(state.block_at),
        ramp_since=None if state.ramp_since is None else moved(state.ramp_since),
        lines=tuple(
            replace(line, gathered=replace(line.gathered, since=moved(line.gathered.since))) for line in state.lines
        ),
    )

"""When a route's speculation is switched off and on: `start` once, then `step` with every block and every tick.

Pure: values and a clock in, values out. docs/reference/decision.md explains the rule with a worked example.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from specfleet.decision import evidence
from specfleet.decision.message import message
from specfleet.decision.reasons import Hold, Phase, Reason
from specfleet.decision.state import MAX_BACKOFF, RouteState, decode, milliseconds, not_after, start
from specfleet.decision.types import LINES, Block, Evidence, Guard, Line, Override, Pool, Room, RouteConfig, Verdict

__all__ = [
    "Block",
    "Evidence",
    "Guard",
    "Hold",
    "Line",
    "Override",
    "Phase",
    "Pool",
    "Reason",
    "Room",
    "RouteConfig",
    "RouteState",
    "Verdict",
    "decode",
    "start",
    "step",
    "usable",
]

RESET_SECONDS = 6 * 3600.0  # in speculation, after which a switch-off starts the back-off again
RAMP = ((1 / 3, 10), (2 / 3, 50))  # until this fraction of the dwell in speculation, at most this percent
EXPLORATION_AGE_SECONDS = 2 * 3600.0
EXPLORATION_REQUESTS = 60.0
RATE_SECONDS = 3600.0


def step(
    state: RouteState,
    config: RouteConfig,
    block: Block | None,
    now: float,
    *,
    hold: Hold | None = None,
    room: Room | None = None,
    guard: Guard | None = None,
) -> tuple[RouteState, Verdict]:
    """Take in a block, or None on a tick without news, and say where the route belongs at `now` (epoch seconds).

    A block that is not newer than the last one, or whose counts cannot be (negative, more accepted than drafted or than
    decoded), is left out. `hold` freezes the evidence and the share of traffic; a person's override still acts.
    `room` None means that either pool could take the route, `guard` None that no guard says anything.
    """
    room, guard = room or Room(), guard or Guard()
    now = milliseconds(now)
    state = _configured(not_after(state, now), config)
    if hold is None:
        if block is not None and usable(block) and block.at > state.block_at:
            state = _counted(state, config, block)
        state, blocked = _decided(state, config, now, room, guard)
    else:
        blocked = False
    state, switched, unplaced = _placed(state, config, now, hold, room)
    # A move that waits for room leaves the traffic as it is.
    calibrating = 0 if unplaced else _calibrating(state, config, now, hold, guard)
    if not unplaced:
        state = replace(state, percent=_percent(state, config, now, hold, guard, calibrating))
    wanted = _other(state.mode) if blocked else state.mode
    return state, _verdict(
        state, config, now, hold, wanted, guard, calibrating, switched=switched, no_room=blocked or unplaced
    )


def usable(block: Block) -> bool:
    """Whether a block's counts can be: whole, not negative, accepted at most drafted and at most decoded."""
    counts = (block.tokens, block.accepted, block.drafted, block.requests)
    numbers = (block.at, block.share, 1.0 if block.seconds is None else block.seconds)
    return (
        all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in counts)
        and all(math.isfinite(x) and x >= 0.0 for x in numbers)
        and block.share <= 1.0
        and block.seconds != 0.0
        and block.accepted <= min(block.drafted, block.tokens)
    )


def dwell_end(state: RouteState, config: RouteConfig) -> float:
    """The time before which the rule does not switch again: half a dwell after on; a dwell x 2^n after off."""
    if state.mode == "speculative":
        return state.since + config.dwell_seconds / 2.0
    return state.since + config.dwell_seconds * 2.0 ** (state.backoff or 0)


def _configured(state: RouteState, config: RouteConfig) -> RouteState:
    lines = tuple(
        evidence.configured(old, line, config, state.mode) for line, old in zip(LINES, state.lines, strict=True)
    )
    return replace(state, lines=lines)


def _counted(state: RouteState, config: RouteConfig, block: Block) -> RouteState:
    at = milliseconds(block.at)
    seconds = config.block_seconds if block.seconds is None else block.seconds
    passed = at - state.block_at if state.block_at else seconds
    fade = math.exp(-passed / RATE_SECONDS) if state.block_at else 0.0
    return replace(
        state,
        block_at=at,
        rate_requests=evidence.rounded(state.rate_requests * fade + block.requests),
        rate_hours=evidence.rounded(state.rate_hours * fade + block.share * seconds / 3600.0),
        lines=tuple(
            evidence.gathered(
                evidence.moved(old, line, config, passed), line, replace(block, at=at), config, state.mode
            )
            for line, old in zip(LINES, state.lines, strict=True)
        ),
    )


CAUSES: dict[Line, Reason] = {"Acceptance": Reason.BELOW_ACCEPTANCE, "BreakEven": Reason.BELOW_BREAK_EVEN}


def _due_off(state: RouteState, config: RouteConfig) -> Reason | None:
    """Why the route is to leave speculation by what was counted: the line with the most evidence."""
    saying = [line for line in LINES if state.line(line).says_switch("speculative") and config.may_switch_off(line)]
    return CAUSES[max(saying, key=lambda line: state.line(line).score)] if saying else None


def _due_on(state: RouteState) -> bool:
    """Whether the route is to come back: all lines that are set say so.

    Without any line only a guard can have it off, and nothing but trying again shows whether that is over.
    """
    lines = [known for known in state.lines if known.value is not None]
    if not lines:
        return state.cause is not None and state.cause not in CAUSES.values()
    return all(known.says_switch("baseline") for known in lines)


def _decided(state: RouteState, config: RouteConfig, now: float, room: Room, guard: Guard) -> tuple[RouteState, bool]:
    """The rule itself. The flag is set where a switch is due and the other pool has no room."""
    off = state.mode == "speculative"
    cause = _due_off(state, config) if off and now >= dwell_end(state, config) else None
    if off and guard.off is not None:
        cause = guard.off
    comes_back = not off and guard.stay_off is None and now >= dwell_end(state, config) and _due_on(state)
    if cause is None and not comes_back:
        return state, False
    moves = config.enforce and config.override == "Auto" and state.served == state.mode
    if moves and not (room.to_baseline if off else room.to_speculation):
        return state, True
    changes = replace(
        state,
        mode=_other(state.mode),
        since=now,
        lines=tuple(known.restarted() for known in state.lines),
    )
    if not off:
        return changes, False
    told = guard.why if cause is guard.off else ""
    return replace(changes, cause=cause, told=told, backoff=_backoff(state, now)), False


def _other(pool: Pool) -> Pool:
    return "baseline" if pool == "speculative" else "speculative"


def _backoff(state: RouteState, now: float) -> int:
    if state.backoff is None or now - state.since >= RESET_SECONDS:
        return 0
    return min(state.backoff + 1, MAX_BACKOFF)


def _placed(
    state: RouteState, config: RouteConfig, now: float, hold: Hold | None, room: Room
) -> tuple[RouteState, bool, bool]:
    """Where the route is served: an override first, else the rule; Observe leaves it. Flags: switched, no room."""
    by_rule = config.override == "Auto"
    if config.override == "Always":
        target: Pool = "speculative"
    elif config.override == "Never":
        target = "baseline"
    elif hold is not None:
        target = state.served
    else:
        target = state.mode if config.enforce else state.placed
    if target == state.served:
        if by_rule and config.enforce and state.served == state.mode:
            state = replace(state, placed=state.served)
        return state, False, False
    if not (room.to_baseline if target == "baseline" else room.to_speculation):
        return state, False, True
    moved = replace(
        state,
        served=target,
        served_since=now,
        placed=target if by_rule else state.placed,
        ramp_since=now if by_rule and target == "speculative" else None,
    )
    return moved, True, False


def _percent(
    state: RouteState, config: RouteConfig, now: float, hold: Hold | None, guard: Guard, calibrating: int
) -> int:
    """The share of the route's traffic for speculation: whole, ramped after a switch on, explored while off."""
    on = state.served == "speculative"
    if config.override != "Auto" or not config.enforce:
        return 100 if on else 0
    if hold is not None:
        return state.percent
    if not on:
        return (calibrating or exploration_percent(state, config, now)) if guard.explore else 0
    ramp = _ramp_percent(state, config, now)
    return 100 - calibrating if ramp is None else ramp


def _ramp_percent(state: RouteState, config: RouteConfig, now: float) -> int | None:
    """The share of a route that has just come on; None where no ramp goes on."""
    if state.ramp_since is not None:
        for fraction, percent in RAMP:
            if now < state.ramp_since + fraction * config.dwell_seconds / 2.0:
                return percent
    return None


def _calibrating(state: RouteState, config: RouteConfig, now: float, hold: Hold | None, guard: Guard) -> int:
    """The percentage that goes to the pool that does not serve the route, to measure it; what else moves goes first."""
    asked, free = config.calibration, config.override == "Auto" and config.enforce and hold is None
    if asked is None or config.calibrating_until is None or not free:
        return 0
    if not guard.calibrate or guard.off is not None or guard.stay_off is not None:
        return 0
    if state.served == "speculative":
        return asked.percent if _ramp_percent(state, config, now) is None else 0
    return asked.percent if guard.explore and asked.percent > exploration_percent(state, config, now) else 0


def exploration_percent(state: RouteState, config: RouteConfig, now: float) -> int:
    """The exploring share, in whole percent: sqrt(60 / (requests an hour x age)), the age 2 h at least.

    Delay costs n/(share x rate), looking costs share x age; their sum is least at the square root. 1 % at least, the
    policy's most while the rate is unknown, 0 where the policy says so or no line is set.
    """
    most = config.exploration_max_percent
    if most <= 0 or not config.has_line:
        return 0
    per_hour = state.requests_per_hour
    if per_hour is None:
        return most
    hours = max(EXPLORATION_AGE_SECONDS, now - state.served_since) / 3600.0
    return max(1, min(most, round(100.0 * math.sqrt(EXPLORATION_REQUESTS / (per_hour * hours)))))


@dataclass(frozen=True, slots=True)
class _Figures:
    steps: float | None
    interval: tuple[float, float] | None
    acceptance: int | None


def _figures(state: RouteState) -> _Figures:
    steps = evidence.estimate(state.line("BreakEven").window)
    drafts = evidence.estimate(state.line("Acceptance").window)
    interval = None
    if steps is not None and steps[1] is not None:
        interval = (max(1.0, 1.0 + steps[0] - steps[1]), 1.0 + steps[0] + steps[1])
    return _Figures(
        steps=None if steps is None else 1.0 + steps[0],
        interval=interval,
        acceptance=None if drafts is None else round(100.0 * drafts[0]),
    )


def _shown_line(state: RouteState) -> Evidence | None:
    """The line that decides next: the nearest to going off, or, while off, the furthest from coming back."""
    threshold = evidence.THRESHOLD[state.mode]
    lines = [(line, known) for line, known in zip(LINES, state.lines, strict=True) if known.value is not None]
    if not lines:
        return None
    pick = max if state.mode == "speculative" else min
    line, known = pick(lines, key=lambda item: item[1].score)
    return Evidence(line=line, score=known.score, threshold=threshold, requests=int(known.requests))


def _verdict(
    state: RouteState,
    config: RouteConfig,
    now: float,
    hold: Hold | None,
    wanted: Pool,
    guard: Guard,
    calibrating: int,
    *,
    switched: bool,
    no_room: bool,
) -> Verdict:
    reason = _reason(state, config, hold, no_room=no_room)
    figures = _figures(state)
    end = dwell_end(state, config)
    verdict = Verdict(
        pool=state.served,
        wanted_pool=wanted,
        phase=_phase(state, config, hold, calibrating, no_room=no_room),
        reason=reason,
        message="",
        speculative_percent=state.percent,
        tokens_per_step=figures.steps,
        tokens_per_step_interval=figures.interval,
        acceptance_percent=figures.acceptance,
        evidence=_shown_line(state),
        switched=switched,
        next_look_at=end if end > now else None,
        no_room=no_room,
        calibrating=calibrating,
    )
    return replace(verdict, message=message(verdict, state, config, now, guard))


def _phase(state: RouteState, config: RouteConfig, hold: Hold | None, calibrating: int, *, no_room: bool) -> Phase:
    if no_room or (hold is not None and config.override == "Auto"):
        return Phase.HELD
    if state.served == "speculative":
        return Phase.SETTLED if state.percent == 100 - calibrating else Phase.MOVING
    return Phase.EXPLORING if state.percent > 0 else Phase.SETTLED


def _doubted(state: RouteState, line: Line) -> bool:
    """Whether the evidence leans against speculation, and the figures that are shown do too."""
    known = state.line(line)
    pooled = evidence.estimate(known.window)
    if known.value is None or pooled is None or known.score == 0.0:
        return False
    x = 1.0 + evidence.scale(line, known.draft_tokens) * pooled[0]
    return x < evidence.MID["speculative"] * known.value


def _reason(state: RouteState, config: RouteConfig, hold: Hold | None, *, no_room: bool) -> Reason:
    if no_room:
        return Reason.NO_ROOM_TO_MOVE
    if config.override != "Auto":
        return Reason.OVERRIDE_ALWAYS if config.override == "Always" else Reason.OVERRIDE_NEVER
    if hold is not None:
        return Reason(hold.value)
    set_lines = [line for line in state.lines if line.value is not None]
    if not set_lines and config.has_line:
        return Reason.BREAK_EVEN_UNKNOWN if state.mode == "speculative" or state.cause is None else state.cause
    if not set_lines:
        return Reason.NO_LINE
    counted = min(line.counted_requests for line in set_lines)
    if state.mode == "speculative":
        if counted == 0:
            return Reason.NO_EVIDENCE
        enough = counted >= evidence.MIN_REQUESTS and not any(_doubted(state, line) for line in LINES)
        return Reason.PAYS if enough else Reason.GATHERING
    if state.cause is not None:
        return state.cause
    if state.percent == 0 and state.served == "baseline":
        return Reason.NO_EXPLORATION
    return Reason.EXPLORING

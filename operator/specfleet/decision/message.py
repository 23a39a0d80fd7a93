"""The sentence that status, events and `specfleet explain` show for a verdict."""

from __future__ import annotations

from datetime import UTC, datetime

from specfleet.decision import evidence
from specfleet.decision.reasons import SENTENCES, Reason
from specfleet.decision.state import MAX_TIME, RouteState
from specfleet.decision.types import LINES, Guard, Line, RouteConfig, Verdict

FEW_PER_HOUR = 100.0
RATE_KNOWN_SECONDS = 3600.0


def message(verdict: Verdict, state: RouteState, config: RouteConfig, now: float, guard: Guard) -> str:
    """Why the route is where it is, with the figures, since when, and when it is looked at again. Times are UTC."""
    parts = []
    if verdict.reason not in _TOLD_BY_FIGURES:
        parts.append(SENTENCES[verdict.reason])
        if verdict.reason is state.cause and state.told:
            parts.append(state.told)
    figures = _figures(verdict, state, config)
    if figures:
        parts.append(figures)
    elif verdict.reason in _TOLD_BY_FIGURES:
        parts.append(SENTENCES[verdict.reason])
    shown = verdict.evidence
    if config.certainty == "Prior" and verdict.reason is not Reason.BREAK_EVEN_UNKNOWN and verdict.evidence is not None:
        parts.append("The break-even line is not measured yet and says nothing.")
    if state.mode == "speculative" and state.line("BreakEven").says_switch("speculative"):
        parts.extend(["Only a line that is known switches off."] if not config.may_switch_off("BreakEven") else [])
    if verdict.calibrating and config.calibrating_until is not None:
        other = "baseline" if verdict.pool == "speculative" else "speculation"
        until = clock(config.calibrating_until, now)
        parts.append(f"Calibrating: {verdict.calibrating} % go to {other} until {until}, to measure the line.")
    if shown is not None and shown.score > 0.0:
        direction = "off" if state.mode == "speculative" else "on"
        parts.append(f"Score {shown.score:.1f} of {shown.threshold:.1f} towards {direction}.")
    if verdict.wanted_pool != verdict.pool and verdict.reason is not Reason.NO_ROOM_TO_MOVE:
        owner = "Observe" if config.override == "Auto" and not config.enforce else "the rule alone"
        parts.append(f"Served by {verdict.pool}; {owner} would choose {verdict.wanted_pool}.")
    parts.append(_since(verdict, state, now))
    if verdict.evidence is not None and config.override == "Auto" and now - state.served_since >= RATE_KNOWN_SECONDS:
        rate = state.requests_per_hour
        if rate is not None and rate < FEW_PER_HOUR:
            parts.append(f"About {rate:.0f} requests an hour are few: a decision can take hours.")
    if verdict.no_room and guard.off is not None:
        parts.append(guard.why)
    said = verdict.reason is state.cause is guard.stay_off and state.told != ""
    if guard.stay_off is not None and state.mode == "baseline" and not said:
        parts.append(f"Kept off: {guard.why}")
    parts.extend(guard.notes)
    return " ".join(parts)


_TOLD_BY_FIGURES = frozenset({Reason.PAYS, Reason.BELOW_ACCEPTANCE, Reason.BELOW_BREAK_EVEN})


def _figures(verdict: Verdict, state: RouteState, config: RouteConfig) -> str:
    line = _told_line(verdict, state)
    known = state.line(line)
    window = known.window
    estimate = evidence.estimate(window)
    if estimate is None:
        return ""
    ratio, half = estimate
    requests = sum(block.requests for block in window)
    if line == "BreakEven":
        interval = "" if half is None else f" [{max(1.0, 1.0 + ratio - half):.2f}, {1.0 + ratio + half:.2f}]"
        needed = "" if known.value is None else f"; {known.value:.2f} needed to pay"
        return f"{1.0 + ratio:.2f} tokens a step{interval} over {requests} requests{needed}."
    interval = ""
    if half is not None:
        interval = f" [{100.0 * max(0.0, ratio - half):.0f}, {100.0 * min(1.0, ratio + half):.0f}]"
    needed = "" if config.min_acceptance_percent is None else f"; {config.min_acceptance_percent} % needed"
    return f"{100.0 * ratio:.0f} % of drafted tokens accepted{interval} over {requests} requests{needed}."


def _told_line(verdict: Verdict, state: RouteState) -> Line:
    if verdict.reason is Reason.BELOW_ACCEPTANCE:
        return "Acceptance"
    if verdict.reason is Reason.BELOW_BREAK_EVEN:
        return "BreakEven"
    if verdict.evidence is not None:
        return verdict.evidence.line
    return LINES[1]


def _since(verdict: Verdict, state: RouteState, now: float) -> str:
    word = "On" if verdict.pool == "speculative" else "Off"
    text = f"{word} since {clock(state.served_since, now)}"
    looks = verdict.speculative_percent > 0 and verdict.reason not in (Reason.OVERRIDE_ALWAYS, Reason.NO_LINE)
    if verdict.next_look_at is not None and looks:
        text += f", next look {clock(verdict.next_look_at, now)}"
    return text + "."


def clock(time: float, now: float) -> str:
    """A time for people, in UTC: of today the hour and minute alone."""
    moment = datetime.fromtimestamp(min(max(time, 0.0), MAX_TIME), UTC)
    today = datetime.fromtimestamp(min(max(now, 0.0), MAX_TIME), UTC)
    if moment.date() == today.date():
        return moment.strftime("%H:%M")
    return moment.strftime("%Y-%m-%d %H:%M")

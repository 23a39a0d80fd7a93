"""What one route's decision saw, what it concluded, and what it will do next and when: from its status alone.

The decision's own state is in status; it is read with the rule's own functions, so nothing here decides anew.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from specfleet.api.status import RouteStatus
from specfleet.api.times import timestamp
from specfleet.decision import evidence
from specfleet.decision.evidence import LineState
from specfleet.decision.message import clock
from specfleet.decision.reasons import Hold
from specfleet.decision.rule import CAUSES, RAMP, RESET_SECONDS, dwell_end
from specfleet.decision.state import MAX_BACKOFF, RouteState, decode
from specfleet.decision.trend import points
from specfleet.decision.types import LINES, Line, RouteConfig

_HOLDS = frozenset(hold.value for hold in Hold)
_NAMES: dict[Line, str] = {"Acceptance": "acceptance", "BreakEven": "break-even"}


@dataclass(frozen=True, slots=True)
class Decision:
    """A route's decision as its status keeps it."""

    one: RouteStatus
    config: RouteConfig
    state: RouteState
    now: float

    @classmethod
    def read(cls, one: RouteStatus, config: RouteConfig | None, now: float) -> Decision | None:
        """None where the route is not in the spec, or its state is missing or of another version."""
        if config is None:
            return None
        state = decode(one.state, config, now)
        return cls(one, config, state, now) if one.state and state.encode() == one.state else None

    @property
    def off(self) -> bool:
        """Whether the rule has speculation off."""
        return self.state.mode == "baseline"

    @property
    def by_rule(self) -> bool:
        """Whether the rule, and no person, says where the route is."""
        return self.config.override == "Auto" and self.one.by_hand is None

    @property
    def held(self) -> bool:
        """Whether nothing is decided now."""
        return self.one.reason in _HOLDS

    def sentences(self) -> Iterator[str]:
        """Saw, concluded, next; one line each."""
        yield f"Saw: {self._saw()}"
        yield f"Concluded: {self._concluded()}"
        yield f"Next: {self._next()}"

    def document(self) -> dict[str, Any]:
        """The same for programs: what was counted, by line and block, to the weights that are served."""
        return {
            "saw": {
                "requestsPerHour": _rounded(self.state.requests_per_hour),
                "lastBlockAt": timestamp(self.state.block_at) if self.state.block_at else None,
                "lines": {line: _counts(self.state.line(line)) for line in LINES},
            },
            "concluded": {
                "pool": self.state.mode,
                "since": timestamp(self.state.since),
                "lines": {line: self._score(line) for line in LINES if self.state.line(line).value is not None},
                "lastSwitchOff": None if self.state.cause is None else self._cause(),
            },
            "next": {
                "heldBy": self.one.reason if self.held and self.by_rule else None,
                "notBefore": timestamp(dwell_end(self.state, self.config)),
                "backoff": self.state.backoff,
                "exploringPercent": self.state.percent if self.state.served == "baseline" else None,
                "ramp": [{"at": timestamp(at), "percent": percent} for at, percent in self._ramp()],
            },
            "trend": [
                {"at": timestamp(p.at), "tokensPerStep": p.tokens_per_step, "line": p.line, "pool": p.pool}
                for p in points(self.one.trend)
            ],
        }

    def _saw(self) -> str:
        steps, drafts = self.state.line("BreakEven").window, self.state.line("Acceptance").window
        parts = []
        estimate = evidence.estimate(steps)
        if estimate is not None:
            ratio, half = estimate
            between = "" if half is None else f" [{max(1.0, 1.0 + ratio - half):.2f}, {1.0 + ratio + half:.2f}]"
            requests = sum(block.requests for block in steps)
            parts.append(
                f"L = {1.0 + ratio:.2f} tokens a step{between} over {len(steps)} block(s), {requests} request(s)"
            )
        estimate = evidence.estimate(drafts)
        if estimate is not None:
            ratio, half = estimate
            between = (
                "" if half is None else f" [{100 * max(0.0, ratio - half):.0f}, {100 * min(1.0, ratio + half):.0f}]"
            )
            parts.append(f"{100 * ratio:.0f} %{between} of drafted tokens accepted")
        if not parts:
            return "no finished request of the speculative pool that carried figures."
        waiting = max((self.state.line(line).gathered.requests for line in LINES), default=0)
        if waiting:
            parts.append(f"{waiting} request(s) in a block that is not full yet")
        if self.state.requests_per_hour is not None:
            parts.append(f"about {self.state.requests_per_hour:.0f} requests an hour in both pools")
        if self.one.evidence is not None and self.one.evidence.coverage_percent is not None:
            parts.append(f"{self.one.evidence.coverage_percent} % of answers carried figures")
        last = f", last block {clock(self.state.block_at, self.now)}" if self.state.block_at else ""
        return "; ".join(parts) + last + "."

    def _concluded(self) -> str:
        known = [(line, self.state.line(line)) for line in LINES if self.state.line(line).value is not None]
        if not known:
            return (
                "nothing yet, since the line is not measured." if self.config.has_line else "nothing: no line is set."
            )
        parts = []
        way = "back on" if self.off else "off"
        for line, one in known:
            threshold = evidence.THRESHOLD[self.state.mode]
            says = ", which is enough" if one.says_switch(self.state.mode) else ""
            few = "" if one.requests >= evidence.MIN_REQUESTS else f" with {one.requests:.0f} request(s)"
            score = f"score {one.score:.1f} of {threshold:.1f} towards {way}{few}{says}"
            parts.append(f"{self._named(line)}: {score}")
        text = "; ".join(parts) + "."
        if self.off and self.state.cause is not None:
            text += f" {self._cut()}"
        return text

    def _named(self, line: Line) -> str:
        if line == "Acceptance":
            return f"line {_NAMES[line]} {self.config.min_acceptance_percent} %"
        told = f"line {_NAMES[line]} {self.state.line(line).value:.2f}"
        state = None if self.one.break_even is None else str(self.one.break_even.state)
        if state in (None, "Fixed"):
            return told
        return f"{told} ({state}{'' if state == 'Known' or self.off else ', which switches nothing off by itself'})"

    def _cut(self) -> str:
        line = next((line for line, cause in CAUSES.items() if cause is self.state.cause), None)
        when = clock(self.state.since, self.now)
        if line is not None:
            return f"The {_NAMES[line]} line took speculation off at {when}."
        told = f": {self.state.told}" if self.state.told else "."
        return f"A guard ({self._cause()}) took speculation off at {when}{told}"

    def _next(self) -> str:
        if self.one.by_hand is not None:
            return f"as said by hand until {self.one.by_hand.until}; then the rule again."
        if self.config.override != "Auto":
            return f"nothing, while speculation: {self.config.override} stands in the spec; the rule goes on judging."
        if self.held:
            return f"nothing is decided while {self.one.reason} holds; score and share of traffic stay as they are."
        moves = "" if self.config.enforce else " Observe reports that and moves nothing."
        return (self._next_on() if self.off else self._next_off()) + moves

    def _next_on(self) -> str:
        end = dwell_end(self.state, self.config)
        texts = []
        if self.state.percent:
            texts.append(f"{self.state.percent} % of the traffic goes on looking, less with time")
        elif self.config.enforce:
            return "nothing of the route goes to speculation, so nothing can bring it back but a person."
        wait = f", not before {clock(end, self.now)} (dwell{self._nth()})" if end > self.now else ""
        threshold = evidence.THRESHOLD["baseline"]
        half = self.config.dwell_seconds / 120.0
        texts.append(
            f"back on when every line that is set is at {threshold:.1f} with {evidence.MIN_REQUESTS} requests "
            f"and no guard keeps it off{wait}; "
            f"then {RAMP[0][1]} %, {RAMP[1][1]} % and all of the traffic over {half:.3g} min"
        )
        return "; ".join(texts) + "."

    def _next_off(self) -> str:
        ramp = ", ".join(f"{percent} % from {clock(at, self.now)}" for at, percent in self._ramp())
        end = dwell_end(self.state, self.config)
        wait = f", not before {clock(end, self.now)}" if end > self.now else ""
        threshold = evidence.THRESHOLD["speculative"]
        after = self.config.dwell_seconds * 2.0 ** self._coming_backoff() / 60.0
        text = (
            f"off when a line is at {threshold:.1f} with {evidence.MIN_REQUESTS} requests{wait}, "
            f"or a guard says so, and then for {after:.3g} min at least."
        )
        return f"{ramp}; {text}" if ramp else text

    def _coming_backoff(self) -> int:
        if self.state.backoff is None or self.now - self.state.since >= RESET_SECONDS:
            return 0
        return min(self.state.backoff + 1, MAX_BACKOFF)

    def _nth(self) -> str:
        return "" if not self.state.backoff else f", doubled {self.state.backoff} time(s)"

    def _ramp(self) -> list[tuple[float, int]]:
        """Steps of the ramp that are still to come: when, and to which percent."""
        begun, half = self.state.ramp_since, self.config.dwell_seconds / 2.0
        if begun is None or self.state.served != "speculative" or not self.config.enforce:
            return []
        ends = [begun + fraction * half for fraction, _ in RAMP]
        steps = zip(ends, [*(percent for _, percent in RAMP[1:]), 100], strict=True)
        return [(at, percent) for at, percent in steps if at > self.now]

    def _cause(self) -> str:
        return "" if self.state.cause is None else self.state.cause.value

    def _score(self, line: Line) -> dict[str, Any]:
        known = self.state.line(line)
        return {
            "value": known.value,
            "score": known.score,
            "threshold": evidence.THRESHOLD[self.state.mode],
            "requests": known.requests,
            "requestsNeeded": evidence.MIN_REQUESTS,
            "saysSwitch": known.says_switch(self.state.mode),
        }


def _counts(known: LineState) -> dict[str, Any]:
    gathering = known.gathered
    return {
        "variance": known.variance,
        "blocks": [
            {"accepted": b.accepted, "per": b.weight, "requests": b.requests, "evidenceRequests": b.evidence}
            for b in known.recent
        ],
        "gathering": None
        if gathering.empty
        else {
            "since": timestamp(gathering.since),
            "tokens": gathering.tokens,
            "accepted": gathering.accepted,
            "drafted": gathering.drafted,
            "requests": gathering.requests,
        },
    }


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
